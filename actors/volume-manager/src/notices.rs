//! What a pod is told of while one of its volumes is being set up: a change of ownership that takes long (row 10.23).

use std::path::Path;
use std::time::Duration;

use bridge_node::mounts::GroupProgress;
use k8s_openapi::api::core::v1::Pod;
use messages::PodRef;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use supervision::Address;
use tokio::time::sleep;

use crate::backends::Backends;

/// How often a set-up that takes long is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// The first event comes after this time, and the next ones this far apart; as upstream has it.
const FIRST: Duration = Duration::from_secs(30);
const NEXT: Duration = Duration::from_secs(60);

const IN_PROGRESS: &str = "VolumePermissionChangeInProgress";

/// PURE: the text of the event that is due, if one is. `told` is how far the change was when the last event was recorded.
fn due(dir: &str, told: Option<Duration>, progress: GroupProgress) -> Option<String> {
    match told {
        None if progress.since >= FIRST => Some(format!(
            "Setting volume ownership for {dir} is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
        )),
        Some(told) if progress.since >= told + NEXT => {
            Some(format!("Setting volume ownership for {dir}, processed {} files.", progress.files))
        }
        _ => None,
    }
}

/// The part of the path that begins with the pod's UID: people know where the kubelet's directory is.
fn shown(path: &Path, uid: &str) -> String {
    let path = path.to_string_lossy();
    let from = path.find(uid).unwrap_or(0);
    path[from..].to_owned()
}

/// Records a warning about the pod.
pub(crate) fn warn(events: &Address<RecordEvent>, pod: &Pod, reason: &'static str, message: String) {
    record(events, pod, EventType::Warning, reason, message);
}

/// Records an event about the pod.
pub(crate) fn record(
    events: &Address<RecordEvent>,
    pod: &Pod,
    event_type: EventType,
    reason: &'static str,
    message: String,
) {
    // A full recorder counts what it drops; no volume waits for an event.
    events.tell_or_count(RecordEvent {
        object: EventObject::Pod { pod: PodRef::of(pod), field_path: "".into() },
        event_type,
        reason: reason.into(),
        message: message.into(),
    });
}

/// Does `work` on the volume at `path`, and tells meanwhile of a change of its ownership that takes long.
pub(crate) async fn watched<T>(
    backends: &Backends,
    pod: &Pod,
    path: &Path,
    work: impl Future<Output = T>,
) -> T {
    let dir = shown(path, pod.metadata.uid.as_deref().unwrap_or_default());
    let looks = async {
        let mut told = None;
        loop {
            sleep(LOOK).await;
            // Without a change under way nothing is said, and the next one is told anew.
            let Ok(Some(progress)) = backends.mounts.group_progress(path).await else {
                told = None;
                continue;
            };
            if let Some(message) = due(&dir, told, progress) {
                warn(&backends.events, pod, IN_PROGRESS, message);
                told = Some(progress.since);
            }
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = looks => unreachable!("the looks go on until the work is done"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_of_after_half_a_minute_and_then_each_minute() {
        let at = |seconds| GroupProgress { files: 7, since: Duration::from_secs(seconds) };
        let told = |told: Option<u64>, seconds| due("u/v", told.map(Duration::from_secs), at(seconds));
        assert_eq!(told(None, 29), None);
        let first = told(None, 30).expect("it takes long");
        assert!(
            first.starts_with("Setting volume ownership for u/v is taking longer than expected"),
            "{first}"
        );
        assert_eq!(told(Some(30), 89), None);
        assert_eq!(
            told(Some(30), 90).as_deref(),
            Some("Setting volume ownership for u/v, processed 7 files.")
        );
        assert_eq!(shown(Path::new("/var/lib/kubelet/pods/u-1/volumes/x"), "u-1"), "u-1/volumes/x");
    }
}
