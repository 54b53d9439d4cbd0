//! Pods whose status the runtime does not tell.

use std::sync::Arc;
use std::time::Duration;

use bridge_cri::CriError;
use messages::PodRef;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use tokio::time::Instant;

use super::Pleg;

/// A pod says so this often, as upstream tries such a pod again.
const AGAIN: Duration = Duration::from_secs(10);

impl Pleg {
    /// Event FailedSync: the runtime lists the pod's objects and fails to tell of one of them.
    pub(super) fn complain(&mut self, pod: Option<PodRef>, error: &CriError) {
        let Some(pod) = pod.filter(|pod| !pod.name.is_empty()) else { return };
        if self.complained.get(&pod.uid).is_some_and(|at| at.elapsed() < AGAIN) {
            return;
        }
        self.complained.insert(pod.uid.clone(), Instant::now());
        // A full recorder counts what it drops.
        self.deps.events.tell_or_count(RecordEvent {
            object: EventObject::Pod { pod, field_path: Arc::from("") },
            event_type: EventType::Warning,
            reason: Arc::from("FailedSync"),
            message: Arc::from(format!("error determining status: {}", error.status_text())),
        });
    }
}
