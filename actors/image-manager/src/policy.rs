//! When an image is pulled (row 6.1), and what the pod is told when it cannot be had (row 6.2): reasons, messages and
//! events word for word as the Go kubelet has them, since people and tools match on them.

use std::time::Duration;

use bridge_text::image::NameError;
use messages::event_recorder::EventType;
use messages::image_manager::{ImageError, PullPolicy};

use crate::backoff::Waiting;

/// What an ask comes to, once it is known whether the image is on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is there and may be used.
    Use,
    /// Ask the registry.
    Pull,
    /// It is not there and must not be pulled.
    Refuse,
}

/// Whether the runtime has to be asked for the image before anything is decided.
pub fn must_look(policy: PullPolicy) -> bool {
    policy != PullPolicy::Always
}

/// What to do; `present` is what the look has shown (not looked at for `Always`).
pub fn decide(policy: PullPolicy, present: bool) -> Action {
    match (policy, present) {
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, false) => Action::Pull,
        (PullPolicy::Never, false) => Action::Refuse,
        (PullPolicy::IfNotPresent | PullPolicy::Never, true) => Action::Use,
    }
}

/// An event to record about the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Severity.
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

fn event(event_type: EventType, reason: &'static str, message: String) -> Event {
    Event { event_type, reason, message }
}

/// How an ask ends: the events to record and, unless the image is there, the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// In order.
    pub event: Event,
    /// For the asker.
    pub error: ImageError,
}

/// How soon an asker should look again after a failure that only somebody outside can end.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

fn millis(wait: Duration) -> Option<u64> {
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// The name is none. Only a change of the pod helps.
pub fn invalid_name(image: &str, cause: &NameError) -> Failed {
    let message = format!("Failed to apply default image tag {image:?}: {cause}");
    Failed {
        event: event(EventType::Warning, "InspectFailed", message.clone()),
        error: ImageError { reason: "InvalidImageName".to_owned(), message, retry_after_ms: None },
    }
}

/// The runtime could not say whether the image is there.
pub fn inspect_failed(image: &str, cause: &str) -> Failed {
    let message = format!("Failed to inspect image {image:?}: {cause}");
    Failed {
        event: event(EventType::Warning, "InspectFailed", message.clone()),
        error: ImageError {
            reason: "ImageInspectError".to_owned(),
            message,
            retry_after_ms: millis(LOOK_AGAIN),
        },
    }
}

/// Policy `Never`, and it is not there. Somebody may yet load it.
pub fn never_pull(image: &str) -> Failed {
    let message = format!("Container image {image:?} is not present with pull policy of Never");
    Failed {
        event: event(EventType::Warning, "ErrImageNeverPull", message.clone()),
        error: ImageError {
            reason: "ErrImageNeverPull".to_owned(),
            message,
            retry_after_ms: millis(LOOK_AGAIN),
        },
    }
}

/// A pull failed a short while ago.
pub fn backing_off(image: &str, waiting: &Waiting) -> Failed {
    let message = format!("Back-off pulling image {image:?}");
    Failed {
        event: event(EventType::Normal, "BackOff", message.clone()),
        error: ImageError {
            reason: "ImagePullBackOff".to_owned(),
            message: format!("{message}: {}", waiting.error),
            retry_after_ms: millis(waiting.left),
        },
    }
}

/// A secret that the pod names for its pulls cannot be understood, so nothing is tried, as upstream has it. Upstream
/// makes the whole text the reason; here the reason is one of the few that there are.
pub fn secret_broken(image: &str, error: &str) -> Failed {
    Failed {
        event: event(EventType::Warning, "Failed", format!("Failed to pull image {image:?}: {error}")),
        error: ImageError {
            reason: "ErrImagePull".to_owned(),
            message: error.to_owned(),
            retry_after_ms: millis(LOOK_AGAIN),
        },
    }
}

/// It cannot be recorded that a pull begins, so none does: its image could be anybody's.
pub fn not_intended(image: &str, error: &str) -> Failed {
    let message = format!("Failed to record image pull intent for container image {image:?}: {error}");
    Failed {
        event: event(EventType::Warning, "Failed", message.clone()),
        error: ImageError { reason: "ErrImagePull".to_owned(), message, retry_after_ms: millis(LOOK_AGAIN) },
    }
}

/// Too many pulls wait; nothing was tried, so nothing is held against the image.
pub fn queue_full(image: &str) -> Failed {
    let message = format!("Failed to pull image {image:?}: too many image pulls are waiting");
    Failed {
        event: event(EventType::Warning, "Failed", message.clone()),
        error: ImageError { reason: "ErrImagePull".to_owned(), message, retry_after_ms: millis(LOOK_AGAIN) },
    }
}

/// Reason and message of a pull that failed with the runtime's `error` text.
pub fn classify(image: &str, error: &str) -> (&'static str, String) {
    for (reason, words) in [
        ("RegistryUnavailable", "the registry is unavailable"),
        ("SignatureValidationFailed", "the signature validation failed"),
    ] {
        if let Some(detail) = error.strip_prefix(reason) {
            return (reason, format!("image pull failed for {image} because {words}{detail}"));
        }
    }
    ("ErrImagePull", error.to_owned())
}

/// What a later back-off repeats of a failure.
pub fn remembered(reason: &str, message: &str) -> String {
    format!("{reason}: {message}")
}

/// A pull failed with the runtime's `error` text; `wait` is the back-off that begins.
///
/// The asker is told to come again at half of the wait (and within 10 s): it then hears `ImagePullBackOff` once, and
/// the wait's remainder.
pub fn pull_failed(image: &str, error: &str, wait: Duration) -> Failed {
    let (reason, message) = classify(image, error);
    Failed {
        event: event(EventType::Warning, "Failed", format!("Failed to pull image {image:?}: {error}")),
        error: ImageError {
            reason: reason.to_owned(),
            message,
            retry_after_ms: millis((wait / 2).min(LOOK_AGAIN)),
        },
    }
}

/// It is there already; `verified` unless the gate for that is off.
pub fn present(image: &str, verified: bool) -> Event {
    let access = if verified { " and can be accessed by the pod" } else { "" };
    let message = format!("Container image {image:?} already present on machine{access}");
    event(EventType::Normal, "Pulled", message)
}

/// A pull begins, or the pod joins one.
pub fn pulling(image: &str) -> Event {
    event(EventType::Normal, "Pulling", format!("Pulling image {image:?}"))
}

/// Some of the secrets that a pod names for its pulls cannot be had.
pub fn secrets_missing(names: &[String]) -> Event {
    let names = names.join(", ");
    let message = format!(
        "Unable to retrieve some image pull secrets ({names}); attempting to pull the image may not succeed."
    );
    event(EventType::Warning, "FailedToRetrieveImagePullSecret", message)
}

/// A pull has ended well; `pull` is the pull alone, `waited` all that this asker waited, `bytes` the image's size.
pub fn pulled(image: &str, pull: Duration, waited: Duration, bytes: u64) -> Event {
    let (pull, waited) = (go_duration(pull), go_duration(waited));
    let message = format!(
        "Successfully pulled image {image:?} in {pull} ({waited} including waiting). Image size: {bytes} bytes."
    );
    event(EventType::Normal, "Pulled", message)
}

/// A duration in whole milliseconds the way Go writes it: `350ms`, `1.2s`, `1m2.5s`, `1h0m3s`, `0s`.
fn go_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let fraction = format!("{:03}", rest % 1000);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    let seconds = format!("{}{dot}{fraction}s", rest / 1000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn policy_and_presence_decide() {
        use PullPolicy::{Always, IfNotPresent, Never};
        for (policy, present, action) in [
            (Always, false, Action::Pull),
            (Always, true, Action::Pull),
            (IfNotPresent, false, Action::Pull),
            (IfNotPresent, true, Action::Use),
            (Never, false, Action::Refuse),
            (Never, true, Action::Use),
        ] {
            assert_eq!(decide(policy, present), action, "{policy:?} {present}");
        }
        assert!(!must_look(Always) && must_look(IfNotPresent) && must_look(Never));
    }

    #[test]
    fn durations_read_as_in_go() {
        for (millis, text) in [
            (0, "0s"),
            (7, "7ms"),
            (1000, "1s"),
            (1234, "1.234s"),
            (2500, "2.5s"),
            (60_000, "1m0s"),
            (62_050, "1m2.05s"),
            (3_600_000, "1h0m0s"),
            (3_723_004, "1h2m3.004s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn events_and_messages_are_upstreams() {
        assert_eq!(
            pulled("busybox", Duration::from_micros(1_234_999), Duration::from_millis(2000), 42).message,
            "Successfully pulled image \"busybox\" in 1.234s (2s including waiting). Image size: 42 bytes."
        );
        assert_eq!(
            present("busybox", true).message,
            "Container image \"busybox\" already present on machine and can be accessed by the pod"
        );
        assert_eq!(
            present("busybox", false).message,
            "Container image \"busybox\" already present on machine"
        );
        let failed = pull_failed("busybox", "rpc error: no such host", Duration::from_secs(10));
        assert_eq!(failed.event.message, "Failed to pull image \"busybox\": rpc error: no such host");
        assert_eq!(failed.event.reason, "Failed");
        assert_eq!(
            failed.error,
            ImageError {
                reason: "ErrImagePull".to_owned(),
                message: "rpc error: no such host".to_owned(),
                retry_after_ms: Some(5000)
            }
        );
        let waiting = Waiting {
            left: Duration::from_millis(700),
            error: remembered(&failed.error.reason, &failed.error.message),
        };
        let back = backing_off("busybox", &waiting);
        assert_eq!(back.event.event_type, EventType::Normal);
        assert_eq!(back.event.message, "Back-off pulling image \"busybox\"");
        assert_eq!(
            back.error,
            ImageError {
                reason: "ImagePullBackOff".to_owned(),
                message: "Back-off pulling image \"busybox\": ErrImagePull: rpc error: no such host"
                    .to_owned(),
                retry_after_ms: Some(700)
            }
        );
    }

    #[test]
    fn the_runtimes_own_reasons_pass_through() {
        assert_eq!(
            classify("x", "RegistryUnavailable: down"),
            (
                "RegistryUnavailable",
                "image pull failed for x because the registry is unavailable: down".to_owned()
            )
        );
        assert_eq!(
            classify("x", "SignatureValidationFailed"),
            (
                "SignatureValidationFailed",
                "image pull failed for x because the signature validation failed".to_owned()
            )
        );
        assert_eq!(classify("x", "other"), ("ErrImagePull", "other".to_owned()));
    }

    proptest! {
        #[test]
        fn a_retry_is_never_at_once_and_never_after_the_wait(wait_ms in 1u64..400_000) {
            let wait = Duration::from_millis(wait_ms);
            let retry = pull_failed("x", "e", wait).error.retry_after_ms.expect("a failed pull is worth another try");
            prop_assert!(retry >= 1 && retry <= wait_ms.max(1) && retry <= 10_000);
        }
    }
}
