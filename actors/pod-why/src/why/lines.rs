//! PURE: the answer as lines of text: the sentence, then the causes, most direct first.

use super::words::{after_colon, lasting, plural, signed};
use super::{Answer, ConditionNow, ContainerNow, EventNow};
use crate::text::fitted;

/// The sentence, and a line for each cause. Causes are cut to this width; the sentence never is.
pub fn lines(answer: &Answer, width: Option<usize>) -> Vec<String> {
    let mut causes = Vec::new();
    if let Some(step) = &answer.step {
        causes.push(format!("step: {} since {}", step.name, lasting(signed(step.seconds))));
    }
    if !answer.problem.is_empty() {
        causes.push(format!("last problem: {}", answer.problem));
    }
    causes.extend(answer.containers.iter().map(container));
    causes.extend(answer.conditions.iter().map(condition));
    causes.extend(
        answer
            .left_alone_by
            .iter()
            .map(|alone| format!("{} leaves the pod alone{}", alone.subsystem, after_colon(&alone.panic))),
    );
    causes.extend(answer.given_up.iter().map(|given_up| {
        format!("{} has crashed too often{}", given_up.subsystem, after_colon(&given_up.panic))
    }));
    causes.extend(answer.events.iter().map(event));
    causes.extend(answer.unread.iter().map(|why| format!("not known: {why}")));
    let cut = |line: String| match width {
        Some(width) => fitted(&line, width),
        None => line,
    };
    let causes = causes.into_iter().map(|cause| cut(format!("  {cause}")));
    std::iter::once(answer.sentence.clone()).chain(causes).collect()
}

fn container(container: &ContainerNow) -> String {
    let kind = match container.kind {
        "init" => "init container",
        "sidecar" => "sidecar",
        _ => "container",
    };
    let mut said = match (container.state, container.seconds) {
        ("running", Some(seconds)) => format!("runs since {}", lasting(seconds)),
        ("running", None) => "runs".to_owned(),
        ("waiting", _) => "waits".to_owned(),
        ("terminated", _) => "has ended".to_owned(),
        _ => "has no status yet".to_owned(),
    };
    if container.state == "running" && container.kind != "init" && !container.ready {
        said.push_str(", not ready");
    }
    if !container.reason.is_empty() {
        said.push_str(&format!(": {}", container.reason));
    }
    said.push_str(&after_colon(&container.message));
    if let Some(seconds) = container.next_try_seconds {
        said.push_str(&format!("; next try in {}", lasting(seconds)));
    }
    if let Some(last) = &container.last_exit {
        let ago = last.seconds.map(|seconds| format!(" {} ago", lasting(seconds))).unwrap_or_default();
        said.push_str(&format!("; last exit code {} ({}){ago}", last.exit_code, last.reason));
    }
    if container.restarts > 0 {
        said.push_str(&format!("; {}", plural(i64::from(container.restarts), "restart")));
    }
    format!("{kind} {} {said}", container.name)
}

fn condition(condition: &ConditionNow) -> String {
    let since = condition.seconds.map(|seconds| format!(" since {}", lasting(seconds))).unwrap_or_default();
    let (reason, message) = (after_colon(&condition.reason), after_colon(&condition.message));
    format!("condition {} is {}{since}{reason}{message}", condition.type_, condition.status)
}

fn event(event: &EventNow) -> String {
    let times =
        if event.count > 1 { format!(", {}", plural(i64::from(event.count), "time")) } else { String::new() };
    let message = after_colon(&event.message);
    format!("event {} ago{times}: {} {}{message}", lasting(event.seconds), event.event_type, event.reason)
}
