//! The texts of events (row 7.7), word for word those of the Go kubelet.

use std::time::Duration;

use messages::event_recorder::EventType;
use messages::facts::ProbeKind;
use pod_rules::durations::GoDuration;

use crate::verdict::{NoAnswer, ProbeAnswer};

/// An event about a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Severity; always a warning here.
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// The probe's kind as events and metrics write it.
pub fn kind_name(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Startup => "Startup",
        ProbeKind::Liveness => "Liveness",
        ProbeKind::Readiness => "Readiness",
    }
}

/// The event for an answer; `None` for success.
pub fn event(kind: ProbeKind, answer: &ProbeAnswer) -> Option<Event> {
    let kind = kind_name(kind);
    let (reason, message) = match answer {
        ProbeAnswer::Success => return None,
        ProbeAnswer::Warning { output } => ("ProbeWarning", format!("{kind} probe warning: {output}")),
        ProbeAnswer::Failure { output } => ("Unhealthy", format!("{kind} probe failed: {output}")),
        ProbeAnswer::Errored { why, message } => {
            let state = match why {
                NoAnswer::Unknown | NoAnswer::NoRuntime => "unknown",
                NoAnswer::BrokenOff => "failure",
            };
            ("Unhealthy", format!("{kind} probe errored and resulted in {state} state: {message}"))
        }
    };
    Some(Event { event_type: EventType::Warning, reason, message })
}

/// The failure text of a command that ran into its timeout.
pub fn command_timed_out(command: &[String], timeout_s: u64) -> String {
    let timeout = GoDuration::whole_millis(Duration::from_secs(timeout_s));
    format!("command timed out: {:?} timed out after {timeout}", command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_upstreams() {
        let text =
            |kind, answer: ProbeAnswer| event(kind, &answer).map(|event| (event.reason, event.message));
        assert_eq!(text(ProbeKind::Liveness, ProbeAnswer::Success), None);
        assert_eq!(
            text(
                ProbeKind::Liveness,
                ProbeAnswer::Failure { output: "HTTP probe failed with statuscode: 500".to_owned() }
            ),
            Some(("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500".to_owned()))
        );
        assert_eq!(
            text(
                ProbeKind::Readiness,
                ProbeAnswer::Errored { why: NoAnswer::Unknown, message: "no such port".to_owned() }
            ),
            Some((
                "Unhealthy",
                "Readiness probe errored and resulted in unknown state: no such port".to_owned()
            ))
        );
        assert_eq!(
            text(
                ProbeKind::Startup,
                ProbeAnswer::Warning { output: "Probe terminated redirects".to_owned() }
            ),
            Some(("ProbeWarning", "Startup probe warning: Probe terminated redirects".to_owned()))
        );
        let command: Vec<String> = ["sh", "-c", "sleep 9"].map(str::to_owned).to_vec();
        assert_eq!(
            command_timed_out(&command, 61),
            "command timed out: \"sh -c sleep 9\" timed out after 1m1s"
        );
    }
}
