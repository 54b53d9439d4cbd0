//! PURE: what was done for a pod lately, as a document and as lines of text.

use std::time::Duration;

use bridge_pace::history::{self, StepKind, StepState};
use serde::{Deserialize, Serialize};

use crate::text::{fitted, neutralised, width};
use crate::why::plural;

/// The answer of `/timeline`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeline {
    /// The pod's UID.
    pub uid: String,
    /// Milliseconds since the kubelet's tree was made; the steps' moments are counted from there, too.
    pub uptime_ms: u64,
    /// The steps, by their beginning.
    pub steps: Vec<Step>,
}

/// A step, and those that repeated it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Step {
    /// `message`, `effect` or `call`.
    pub kind: String,
    /// The actor or program that did it.
    pub by: String,
    /// The name of the message, effect or call.
    pub what: String,
    /// `running`, `done`, `failed` or `dropped`.
    pub state: String,
    /// When it was begun first.
    pub began_ms: u64,
    /// When it was begun last.
    pub last_ms: u64,
    /// How long the last one took, microseconds; of one that is under way, so far.
    pub took_us: u64,
    /// How long the longest one took, microseconds.
    pub longest_us: u64,
    /// How often it was done.
    pub times: u32,
}

impl Timeline {
    /// The steps of a pod; `now` is the time since the moment from which theirs are counted.
    pub fn of(uid: &str, steps: &[history::Step], now: Duration) -> Self {
        let mut steps: Vec<Step> = steps.iter().map(Step::of).collect();
        steps.sort_by_key(|step| step.began_ms);
        Self { uid: uid.to_owned(), uptime_ms: ms(now), steps }
    }
}

impl Step {
    fn of(step: &history::Step) -> Self {
        let kind = match step.kind {
            StepKind::Message => "message",
            StepKind::Effect => "effect",
            StepKind::Call => "call",
        };
        let state = match step.state {
            StepState::Running => "running",
            StepState::Done => "done",
            StepState::Failed => "failed",
            StepState::Dropped => "dropped",
        };
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            kind: kind.to_owned(),
            by: step.by.to_owned(),
            what: step.what.to_owned(),
            state: state.to_owned(),
            began_ms: ms(step.began),
            last_ms: ms(step.last),
            took_us: us(step.took),
            longest_us: us(step.longest),
            times: step.times,
        }
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A heading, and a line for each step: when it was begun, after the first one, how long it took, the actor or program, and what
/// was done. Lines are cut to this width.
pub fn lines(name: &str, timeline: &Timeline, columns: Option<usize>) -> Vec<String> {
    let first = timeline.steps.first().map_or(timeline.uptime_ms, |step| step.began_ms);
    let steps = plural(i64::try_from(timeline.steps.len()).unwrap_or(i64::MAX), "step");
    let ago = seconds(timeline.uptime_ms.saturating_sub(first).saturating_mul(1000));
    let heading = format!("{}: {steps}, the first {ago} ago", neutralised(name));
    let by = timeline.steps.iter().map(|step| width(&neutralised(&step.by))).max().unwrap_or_default();
    let told = timeline.steps.iter().map(|step| {
        let at = seconds(step.began_ms.saturating_sub(first).saturating_mul(1000));
        let own = neutralised(&step.by);
        let room = " ".repeat(by.saturating_sub(width(&own)));
        let took = seconds(step.took_us);
        format!(
            "  +{at:<10} {took:>9}  {own}{room}  {}{}",
            neutralised(&step.what),
            ended(step, timeline.uptime_ms)
        )
    });
    let cut = |line: String| match columns {
        Some(columns) => fitted(&line, columns),
        None => line,
    };
    std::iter::once(heading).chain(told).map(cut).collect()
}

/// What is to be said of a step besides.
fn ended(step: &Step, now_ms: u64) -> String {
    let mut said = match step.state.as_str() {
        "done" => String::new(),
        "running" => ", under way".to_owned(),
        "dropped" => ", cut off".to_owned(),
        other => format!(", {}", neutralised(other)),
    };
    if step.times > 1 {
        let last = seconds(now_ms.saturating_sub(step.last_ms).saturating_mul(1000));
        let longest = seconds(step.longest_us);
        said.push_str(&format!(
            "; {}, the last {last} ago, the longest {longest}",
            plural(i64::from(step.times), "time")
        ));
    }
    said
}

/// A time in the unit that suits it.
fn seconds(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        1000..1_000_000 => format!("{} ms", us / 1000),
        1_000_000..100_000_000 => format!("{}.{} s", us / 1_000_000, us / 100_000 % 10),
        _ => crate::why::lasting(i64::try_from(us / 1_000_000).unwrap_or(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(what: &'static str, state: StepState, began: u64, took_us: u64) -> history::Step {
        let (began, took) = (Duration::from_millis(began), Duration::from_micros(took_us));
        let kind = StepKind::Call;
        history::Step { kind, by: "runtime", what, state, began, last: began, took, longest: took, times: 1 }
    }

    #[test]
    fn a_timeline_is_told_by_the_beginning_of_its_steps() {
        let mut sync = step("sync", StepState::Running, 1000, 2_345_678);
        (sync.kind, sync.by) = (StepKind::Effect, "PodWorker");
        let mut start = step("StartContainer", StepState::Failed, 1500, 12_000);
        (start.times, start.last) = (3, Duration::from_millis(60_000));
        let steps = [step("RunPodSandbox", StepState::Done, 1031, 250), sync, start];
        let timeline = Timeline::of("u-1", &steps, Duration::from_secs(200));
        assert_eq!(
            lines("default/web", &timeline, None),
            [
                "default/web: 3 steps, the first 3 min 19 s ago",
                "  +0 µs           2.3 s  PodWorker  sync, under way",
                "  +31 ms         250 µs  runtime    RunPodSandbox",
                "  +500 ms         12 ms  runtime    StartContainer, failed; 3 times, the last 2 min 20 s ago, the longest 12 ms",
            ]
        );
        assert!(lines("default/web", &timeline, Some(20)).iter().all(|line| width(line) <= 20));
        let text = serde_json::to_string(&timeline).unwrap();
        assert!(text.contains("\"tookUs\":2345678"), "{text}");
        assert_eq!(serde_json::from_str::<Timeline>(&text).unwrap(), timeline);
    }

    #[test]
    fn texts_of_others_do_nothing_to_a_terminal() {
        let own = Step {
            by: "a\u{1b}[2J".to_owned(),
            what: "\u{202e}b".to_owned(),
            state: "done".to_owned(),
            ..Step::default()
        };
        let timeline = Timeline { steps: vec![own], ..Timeline::default() };
        let told = lines("x\u{7}", &timeline, None);
        assert_eq!(told[0], "x␇: 1 step, the first 0 µs ago");
        assert!(told[1].ends_with("a␛[2J  b"), "{}", told[1]);
    }
}
