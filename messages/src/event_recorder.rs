//! What EventRecorder receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::{PodRef, delivery, receives};

/// Severity of an event, as Kubernetes has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// Informational.
    Normal,
    /// Something may need attention.
    Warning,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EventObject {
    /// A pod, with a field path such as `spec.containers{web}` or empty.
    Pod {
        /// Identity.
        pod: PodRef,
        /// `involvedObject.fieldPath`.
        field_path: Arc<str>,
    },
    /// The node.
    Node,
    /// A manifest file (or URL) that gave no pod.
    Manifest {
        /// Its path.
        path: Arc<str>,
    },
}

/// Something happened that people want to know of (FEATURES 29).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordEvent {
    /// About what.
    pub object: EventObject,
    /// Severity.
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: Arc<str>,
    /// For people.
    pub message: Arc<str>,
}
delivery!(RecordEvent => (): Command, DropOldest);

/// An event with annotations, which machines read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordAnnotatedEvent {
    /// The event.
    pub event: RecordEvent,
    /// Its `metadata.annotations`.
    pub annotations: Arc<BTreeMap<String, String>>,
}
delivery!(RecordAnnotatedEvent => (): Command, DropOldest);

/// An event as kept and shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedEvent {
    /// About what.
    pub object: EventObject,
    /// Severity.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: Arc<str>,
    /// For people.
    pub message: Arc<str>,
    /// How often the same was recorded.
    pub count: u32,
    /// First time.
    pub first_seen: Timestamp,
    /// Last time.
    pub last_seen: Timestamp,
    /// What machines read of it.
    #[serde(skip_serializing_if = "map_is_empty")]
    pub annotations: Arc<BTreeMap<String, String>>,
}

/// The last events, oldest first, at most 1000.
#[derive(Clone, Debug)]
pub struct GetEvents;
delivery!(GetEvents => Vec<RecordedEvent>: Query, Reject);

fn map_is_empty(map: &BTreeMap<String, String>) -> bool {
    map.is_empty()
}

receives!("EventRecorder": RecordEvent, RecordAnnotatedEvent, GetEvents);
