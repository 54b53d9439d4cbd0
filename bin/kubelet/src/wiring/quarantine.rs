//! Shows quarantined pods in their status and by events.

use std::sync::Arc;

use bridge_io::Io;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::supervision::PodsQuarantined;
use messages::{PodRef, PodUid};
use pod_worker::PodWorker;
use status_manager::StatusManager;
use supervision::{Address, EventKind, Subsystem, SupervisionEvent, Tree};

use super::levels::Levels;

/// Reports a quarantined pod in its status and by an event. A worker that is dormant after too many crashes counts as
/// its pod's quarantine.
pub(super) fn tell_of_quarantine(
    tree: &Tree,
    io: &Io,
    status: Address<PodsQuarantined>,
    events: Address<RecordEvent>,
) {
    let levels = Arc::new(Levels::new(move |held| {
        if status.tell(PodsQuarantined(held)).is_err() {
            tracing::debug!("StatusManager has ended and hears of no more quarantines");
        }
    }));
    levels.tell_each_minute(io);
    tree.observe(move |event: &SupervisionEvent| {
        if event.actor == StatusManager::NAME && matches!(event.what, EventKind::Started { .. }) {
            levels.tell_again();
        }
        let (subsystem, worker_of) = match event.actor.split_once('/') {
            Some((kind, uid)) if kind == PodWorker::NAME => (kind, Some(PodUid::new(uid))),
            _ => (event.actor.as_str(), None),
        };
        let (pod, panic) = match (&event.what, worker_of) {
            (EventKind::Quarantined { pod, panic, seconds }, _) => {
                let text =
                    format!("{subsystem} leaves this pod alone for {seconds} s after a panic: {panic}");
                events.tell_or_count(quarantined(pod, text));
                (pod.clone(), Some(Arc::from(panic.to_string())))
            }
            (EventKind::Dormant { retry_seconds }, Some(pod)) => {
                let why = "more crashes than its limit";
                let text = format!("{subsystem} leaves this pod alone for {retry_seconds} s after {why}");
                events.tell_or_count(quarantined(&pod, text));
                (pod, Some(Arc::from(why)))
            }
            (EventKind::Released { pod }, _) => (pod.clone(), None),
            (EventKind::Started { .. } | EventKind::Stopped, Some(pod)) => (pod, None),
            _ => return,
        };
        levels.state((Arc::from(subsystem), pod), panic);
    });
}

fn quarantined(pod: &PodUid, text: String) -> RecordEvent {
    let nameless = PodRef { uid: pod.clone(), namespace: Arc::from(""), name: Arc::from("") };
    RecordEvent {
        object: EventObject::Pod { pod: nameless, field_path: Arc::from("") },
        event_type: EventType::Warning,
        reason: Arc::from("PodQuarantined"),
        message: Arc::from(text),
    }
}
