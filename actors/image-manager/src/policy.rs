//! When an image is pulled (row 6.1), and reasons, messages and events when it cannot be had (row 6.2): word
//! for word those of the Go kubelet, since people and tools match on them.

use std::time::Duration;

use bridge_text::image::NameError;
use messages::event_recorder::EventType;
use messages::image_manager::{ImageError, PullPolicy};
use pod_rules::durations::GoDuration;
use pod_rules::reasons::{BACK_OFF, ERR_IMAGE_PULL, FAILED, IMAGE_PULL_BACK_OFF};

use crate::backoff::Waiting;

/// How an ask goes on, once it is known whether the image is on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The image is there and may be used.
    Use,
    /// Pull the image.
    Pull,
    /// The image is not there and must not be pulled.
    Refuse,
}

/// Whether ImageManager looks for the image before it decides.
pub fn must_look(policy: PullPolicy) -> bool {
    policy != PullPolicy::Always
}

/// How the ask goes on; `present` is the result of the look (false for `Always`, which does not look).
pub fn decide(policy: PullPolicy, present: bool) -> Action {
    match (policy, present) {
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, false) => Action::Pull,
        (PullPolicy::Never, false) => Action::Refuse,
        (PullPolicy::IfNotPresent | PullPolicy::Never, true) => Action::Use,
    }
}

/// An event about the pod, or about its container.
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

/// The failure of an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAsk {
    /// The event to record.
    pub event: Event,
    /// The answer to the asker.
    pub error: ImageError,
}

/// How soon an asker should ask again after a failure that only a user or an administrator can end.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

fn millis(wait: Duration) -> Option<u64> {
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// The image's name is invalid. Only a change of the pod helps.
pub fn invalid_name(image: &str, cause: &NameError) -> FailedAsk {
    let message = format!("Failed to apply default image tag {image:?}: {cause}");
    FailedAsk {
        event: event(EventType::Warning, "InspectFailed", message.clone()),
        error: ImageError { reason: "InvalidImageName".to_owned(), message, retry_after_ms: None },
    }
}

/// The runtime could not say whether the image is there.
pub fn inspect_failed(image: &str, cause: &str) -> FailedAsk {
    let message = format!("Failed to inspect image {image:?}: {cause}");
    FailedAsk {
        event: event(EventType::Warning, "InspectFailed", message.clone()),
        error: ImageError {
            reason: "ImageInspectError".to_owned(),
            message,
            retry_after_ms: millis(LOOK_AGAIN),
        },
    }
}

/// The policy is `Never` and the image is not there. An administrator may yet load it.
pub fn never_pull(image: &str) -> FailedAsk {
    let message = format!("Container image {image:?} is not present with pull policy of Never");
    FailedAsk {
        event: event(EventType::Warning, "ErrImageNeverPull", message.clone()),
        error: ImageError {
            reason: "ErrImageNeverPull".to_owned(),
            message,
            retry_after_ms: millis(LOOK_AGAIN),
        },
    }
}

/// A pull failed a short while ago, and the back-off is in force.
pub fn backing_off(image: &str, waiting: &Waiting) -> FailedAsk {
    let message = format!("Back-off pulling image {image:?}");
    FailedAsk {
        event: event(EventType::Normal, BACK_OFF, message.clone()),
        error: ImageError {
            reason: IMAGE_PULL_BACK_OFF.to_owned(),
            message: format!("{message}: {}", waiting.error),
            retry_after_ms: millis(waiting.left),
        },
    }
}

/// A secret that the pod names for its pulls cannot be understood, so no pull is tried, as upstream has it; or a credential
/// provider could not be asked. Upstream makes the whole error the reason; here the reason is one of the fixed ones.
pub fn secret_broken(image: &str, error: &str) -> FailedAsk {
    FailedAsk {
        event: event(EventType::Warning, FAILED, format!("Failed to pull image {image:?}: {error}")),
        error: ImageError {
            reason: ERR_IMAGE_PULL.to_owned(),
            message: error.to_owned(),
            retry_after_ms: millis(LOOK_AGAIN),
        },
    }
}

/// The intent of a pull cannot be recorded, so no pull begins: without it any pod could use the image
/// afterwards.
pub fn not_intended(image: &str, error: &str) -> FailedAsk {
    let message = format!("Failed to record image pull intent for container image {image:?}: {error}");
    FailedAsk {
        event: event(EventType::Warning, FAILED, message.clone()),
        error: ImageError { reason: ERR_IMAGE_PULL.to_owned(), message, retry_after_ms: millis(LOOK_AGAIN) },
    }
}

/// Too many pulls wait. No pull was tried, so no back-off begins.
pub fn queue_full(image: &str) -> FailedAsk {
    let message = format!("Failed to pull image {image:?}: too many image pulls are waiting");
    FailedAsk {
        event: event(EventType::Warning, FAILED, message.clone()),
        error: ImageError { reason: ERR_IMAGE_PULL.to_owned(), message, retry_after_ms: millis(LOOK_AGAIN) },
    }
}

/// The reason and message of a pull that failed with the runtime's `error` text.
pub fn classify(image: &str, error: &str) -> (&'static str, String) {
    for (reason, words) in [
        ("RegistryUnavailable", "the registry is unavailable"),
        ("SignatureValidationFailed", "the signature validation failed"),
    ] {
        if let Some(detail) = error.strip_prefix(reason) {
            return (reason, format!("image pull failed for {image} because {words}{detail}"));
        }
    }
    (ERR_IMAGE_PULL, error.to_owned())
}

/// The text of a failure that later back-offs repeat.
pub fn remembered(reason: &str, message: &str) -> String {
    format!("{reason}: {message}")
}

/// A pull failed with the runtime's `error` text; `wait` is the back-off that begins.
///
/// The asker is told to ask again after half of the wait, at most after 10 s: it then gets `ImagePullBackOff`
/// once, with the rest of the wait.
pub fn pull_failed(image: &str, error: &str, wait: Duration) -> FailedAsk {
    let (reason, message) = classify(image, error);
    FailedAsk {
        event: event(EventType::Warning, FAILED, format!("Failed to pull image {image:?}: {error}")),
        error: ImageError {
            reason: reason.to_owned(),
            message,
            retry_after_ms: millis((wait / 2).min(LOOK_AGAIN)),
        },
    }
}

/// The image is there already; `verified` unless the verification of access is off.
pub fn present(image: &str, verified: bool) -> Event {
    let access = if verified { " and can be accessed by the pod" } else { "" };
    let message = format!("Container image {image:?} already present on machine{access}");
    event(EventType::Normal, "Pulled", message)
}

/// A pull begins, or the asker joins one.
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

/// A pull has ended well; `pull` is how long the pull itself took, `waited` how long this asker waited,
/// `bytes` the image's size.
pub fn pulled(image: &str, pull: Duration, waited: Duration, bytes: u64) -> Event {
    let (pull, waited) = (GoDuration::whole_millis(pull), GoDuration::whole_millis(waited));
    let message = format!(
        "Successfully pulled image {image:?} in {pull} ({waited} including waiting). Image size: {bytes} bytes."
    );
    event(EventType::Normal, "Pulled", message)
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
