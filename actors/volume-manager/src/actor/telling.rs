//! Events about volumes, and pods that cannot run here.

use bridge_node::mounts::{MountError, SwapFacts};
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::Rejection;
use messages::pod_worker::EvictPod;
use messages::{PodRef, PodUid};
use pod_rules::reasons::VOLUME_ATTACHMENT_LIMIT_EXCEEDED;

use super::VolumeManager;

/// The message of the event on a machine that swaps and cannot keep a tmpfs out of the swap; upstream's text.
const SWAPPED_OUT: &str = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure.";

impl VolumeManager {
    pub(super) fn record(&self, pod: &PodRef, (reason, message): (&'static str, String)) {
        let object = EventObject::Pod { pod: pod.clone(), field_path: "".into() };
        self.tell_event(object, reason, message);
    }

    /// The pod cannot run here, since the node attaches no more volumes.
    pub(super) fn reject(&mut self, uid: &PodUid, pod: &PodRef, message: String) {
        let is_new = self.rejected.insert(uid.clone());
        if let Some(counts) = self.deps.rejections.as_ref().filter(|_| is_new) {
            counts.with_label_values(&[VOLUME_ATTACHMENT_LIMIT_EXCEEDED]).inc();
        }
        self.record(pod, (VOLUME_ATTACHMENT_LIMIT_EXCEEDED, message.clone()));
        let why = Rejection::new(VOLUME_ATTACHMENT_LIMIT_EXCEEDED, format!("Pod was rejected: {message}"));
        // Lost: the next try says so again.
        self.deps.evict.tell_level(EvictPod { uid: uid.clone(), grace_seconds: None, why });
    }

    pub(super) fn tell_event(&self, object: EventObject, reason: &'static str, message: String) {
        // A full recorder counts what it drops; no volume waits for an event.
        self.deps.events.tell_or_count(RecordEvent {
            object,
            event_type: EventType::Warning,
            reason: reason.into(),
            message: message.into(),
        });
    }

    /// Records an event if memory-backed volumes may be swapped out. Called in the first incarnation only, as
    /// upstream does.
    pub(super) fn see_swap(&self, swap: Result<SwapFacts, MountError>) {
        match swap {
            Ok(SwapFacts { on: true, noswap: false }) => {
                let message = SWAPPED_OUT.to_owned();
                self.tell_event(EventObject::Node, "PossibleMemoryBackedVolumesOnDisk", message);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "Cannot tell whether volumes in memory are swapped out"),
        }
    }
}
