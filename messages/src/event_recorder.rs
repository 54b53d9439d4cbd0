//! The messages that EventRecorder receives, and the events that it answers with.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::{PodRef, PodUid, delivery, receives};

/// Severity of an event, as Kubernetes defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// Informational.
    Normal,
    /// Something that may need attention.
    Warning,
}

/// The object that an event is about (`involvedObject`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EventObject {
    /// A pod, with a field path such as `spec.containers{web}` or empty.
    Pod {
        /// The pod's identity.
        pod: PodRef,
        /// `involvedObject.fieldPath`.
        field_path: Arc<str>,
    },
    /// The node.
    Node,
    /// A claim to a PersistentVolume.
    Claim {
        /// The claim's namespace.
        namespace: Arc<str>,
        /// Its name.
        name: Arc<str>,
        /// Its UID.
        uid: Arc<str>,
    },
    /// A manifest file or URL from which no pod could be read.
    Manifest {
        /// The file's path, or the URL.
        path: Arc<str>,
    },
}

impl EventObject {
    /// The pod that the event is about.
    pub fn pod_uid(&self) -> Option<&PodUid> {
        match self {
            Self::Pod { pod, .. } => Some(&pod.uid),
            Self::Node | Self::Claim { .. } | Self::Manifest { .. } => None,
        }
    }
}

/// Records an event for people to read. Sent by many actors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordEvent {
    /// The object that the event is about.
    pub object: EventObject,
    /// Severity.
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: Arc<str>,
    /// The event's message, for people.
    pub message: Arc<str>,
}
delivery!(RecordEvent => (): Command, DropOldest, pod = |m| m.object.pod_uid());

/// Records an event with annotations, which are for machines to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordAnnotatedEvent {
    /// The event.
    pub event: RecordEvent,
    /// Its `metadata.annotations`.
    pub annotations: Arc<BTreeMap<String, String>>,
}
delivery!(RecordAnnotatedEvent => (): Command, DropOldest, pod = |m| m.event.object.pod_uid());

/// An event as EventRecorder keeps it and NodeApi shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedEvent {
    /// The object that the event is about.
    pub object: EventObject,
    /// Severity.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: Arc<str>,
    /// The event's message, for people.
    pub message: Arc<str>,
    /// How often this event was recorded.
    pub count: u32,
    /// When it was recorded first.
    pub first_seen: Timestamp,
    /// When it was recorded last.
    pub last_seen: Timestamp,
    /// Its `metadata.annotations`; empty for most events.
    #[serde(skip_serializing_if = "map_is_empty")]
    pub annotations: Arc<BTreeMap<String, String>>,
}

/// Asks for the last events, oldest first, at most 1000.
#[derive(Clone, Debug)]
pub struct GetEvents;
delivery!(GetEvents => Vec<RecordedEvent>: Query, Reject);

fn map_is_empty(map: &BTreeMap<String, String>) -> bool {
    map.is_empty()
}

receives!("EventRecorder": RecordEvent, RecordAnnotatedEvent, GetEvents);
