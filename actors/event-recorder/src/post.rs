//! PURE: events on their way to the API server: one at a time, namespaces in turn, those of one in order, equal events
//! once with the newest count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::FairQueue;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use messages::PodUid;
use messages::event_recorder::{EventObject, EventType, RecordedEvent};
use serde_json::{Value, json};

use crate::correlate::{EventKey, namespace};
use crate::lru::Lru;

/// At most so many events wait; beyond that the oldest of the namespace that has most is dropped.
const WAITING_MAX: usize = 1000;
/// The names of so many events are remembered, to update their counts.
const NAMES_MAX: usize = 4096;
/// How many times one event is tried while the server does not answer, and the pause between two tries.
const TRIES_MAX: u32 = 12;
const PAUSE: Duration = Duration::from_secs(10);
/// The longest name of an object.
const NAME_BYTES_MAX: usize = 253;
const COMPONENT: &str = "kubelet";

/// An event to post.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventWrite {
    /// The event with its present count.
    pub(crate) event: Box<Event>,
    /// The patch for an event that the server has already; `None` to create it.
    pub(crate) change: Option<Value>,
    /// The pod that it is about.
    pub(crate) pod: Option<PodUid>,
}

/// The result of posting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The server has it.
    Taken,
    /// The server refuses the event.
    Refused,
    /// The server has not answered, or may take the event later.
    Unanswered,
}

#[derive(Clone, Debug, PartialEq)]
struct Name {
    namespace: String,
    name: String,
    exists: bool,
}

/// An event that waits or is under way.
struct Waiting {
    event: RecordedEvent,
    /// The line that it waits in, and its ticket.
    line: Option<Arc<str>>,
    ticket: u64,
    /// How many times the server has not answered.
    tries: u32,
}

/// The events on their way. Bounded.
pub(crate) struct Outbox {
    node: String,
    /// In lines by namespace; the node's own events are in the line `None`.
    order: FairQueue<Option<Arc<str>>, EventKey>,
    waiting: BTreeMap<EventKey, Waiting>,
    names: Lru<EventKey, Name>,
    last_nanos: i128,
    sending: Option<(EventKey, Waiting)>,
    is_pausing: bool,
    dropped: u64,
}

impl Outbox {
    /// An empty outbox for the events of the node of this name.
    pub(crate) fn new(node: String) -> Self {
        Self {
            node,
            order: FairQueue::default(),
            waiting: BTreeMap::new(),
            names: Lru::new(NAMES_MAX),
            last_nanos: 0,
            sending: None,
            is_pausing: false,
            dropped: 0,
        }
    }

    /// Takes an event in, unless it is about no object of the API server.
    pub(crate) fn put(&mut self, key: EventKey, event: RecordedEvent) {
        if reference(&event.object, &self.node).is_none() {
            return;
        }
        if let Some(known) = self.waiting.get_mut(&key) {
            known.event = event;
        } else {
            let line = namespace(&event.object);
            let ticket = self.order.push(&line, key.clone());
            self.waiting.insert(key, Waiting { event, line, ticket, tries: 0 });
        }
        if self.waiting.len() > WAITING_MAX
            && let Some((_, oldest)) = self.order.pop_longest()
        {
            self.waiting.remove(&oldest);
            self.dropped += 1;
        }
    }

    /// The next event to post; `None` if none waits, one is under way or a pause is.
    pub(crate) fn next(&mut self) -> Option<EventWrite> {
        if self.is_pausing || self.sending.is_some() {
            return None;
        }
        let (_, key) = self.order.pop(|_| true)?;
        let next = self.waiting.remove(&key)?;
        let post = self.post(&key, &next.event)?;
        self.sending = Some((key, next));
        Some(post)
    }

    /// Takes the result of posting. Returns the pause after which to call [`Outbox::due`].
    pub(crate) fn done(&mut self, sent: Sent) -> Option<Duration> {
        let (key, mut tried) = self.sending.take()?;
        tried.tries += 1;
        match sent {
            Sent::Taken => {
                if let Some(name) = self.names.get_mut(&key) {
                    name.exists = true;
                }
                return None;
            }
            Sent::Refused => {
                self.dropped += 1;
                return None;
            }
            Sent::Unanswered if tried.tries < TRIES_MAX => self.put_back(key, tried),
            Sent::Unanswered => self.dropped += 1,
        }
        self.is_pausing = true;
        Some(PAUSE)
    }

    /// The event goes before the others of its line when the line has its turn again. If a newer count of it waits
    /// already, that one is posted.
    fn put_back(&mut self, key: EventKey, mut tried: Waiting) {
        if let Some(newer) = self.waiting.remove(&key) {
            self.order.remove(&newer.line, newer.ticket);
            tried.event = newer.event;
        }
        self.order.put_back(&tried.line, tried.ticket, key.clone());
        self.waiting.insert(key, tried);
    }

    /// The pause is over.
    pub(crate) fn due(&mut self) {
        self.is_pausing = false;
    }

    /// The number of events that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len() + usize::from(self.sending.is_some())
    }

    /// The number of events that were dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn post(&mut self, key: &EventKey, event: &RecordedEvent) -> Option<EventWrite> {
        let about = reference(&event.object, &self.node)?;
        let nanos = event.first_seen.as_nanosecond().max(self.last_nanos + 1);
        let name = self.names.entry(key, || Name {
            namespace: about.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            name: name_of(about.name.as_deref().unwrap_or_default(), nanos),
            exists: false,
        });
        if !name.exists {
            self.last_nanos = self.last_nanos.max(nanos);
        }
        let (first, last) = (seconds(event.first_seen), seconds(event.last_seen));
        let count = i32::try_from(event.count).unwrap_or(i32::MAX);
        let change =
            name.exists.then(|| json!({ "count": count, "lastTimestamp": last, "message": &*event.message }));
        let pod = event.object.pod_uid().cloned();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.name.clone()),
                namespace: Some(name.namespace.clone()),
                annotations: Some((*event.annotations).clone()).filter(|annotations| !annotations.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(event.reason.to_string()),
            message: Some(event.message.to_string()),
            first_timestamp: Some(first),
            last_timestamp: Some(last),
            count: Some(count),
            type_: Some(match event.event_type {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.node.clone()),
            ..Event::default()
        };
        Some(EventWrite { event: Box::new(event), change, pod })
    }
}

/// The event's name: unique unless two events of one object begin in the same nanosecond. A long name of a pod is cut.
fn name_of(object: &str, nanos: i128) -> String {
    let stamp = format!(".{nanos:x}");
    let end = object.floor_char_boundary(NAME_BYTES_MAX.saturating_sub(stamp.len()));
    format!("{}{stamp}", object[..end].trim_end_matches(['.', '-']))
}

fn seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// The object of the API server that an event is about; `None` if it is about another one.
fn reference(object: &EventObject, node: &str) -> Option<ObjectReference> {
    match object {
        EventObject::Pod { pod, .. } if pod.name.is_empty() => None,
        EventObject::Pod { pod, field_path } => Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.to_string()),
            name: Some(pod.name.to_string()),
            uid: Some(pod.uid.to_string()),
            field_path: Some(field_path.to_string()).filter(|path| !path.is_empty()),
            resource_version: None,
        }),
        EventObject::Claim { namespace, name, uid } => Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            namespace: Some(namespace.to_string()),
            name: Some(name.to_string()),
            uid: Some(uid.to_string()),
            ..ObjectReference::default()
        }),
        // The Node's name stands in place of its UID, as upstream: `kubectl describe node` looks for both.
        EventObject::Node => Some(ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: Some(node.to_owned()),
            ..ObjectReference::default()
        }),
        EventObject::Manifest { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use messages::event_recorder::RecordEvent;
    use messages::{PodRef, PodUid};

    use super::*;
    use crate::correlate::{Correlation, Correlator};

    fn pod(name: &str) -> EventObject {
        pod_in("ns", name)
    }

    fn pod_in(namespace: &str, name: &str) -> EventObject {
        let pod = PodRef { uid: PodUid::new("u"), namespace: Arc::from(namespace), name: Arc::from(name) };
        EventObject::Pod { pod, field_path: Arc::from("spec.containers{c}") }
    }

    fn put(outbox: &mut Outbox, correlator: &mut Correlator, object: EventObject, message: &str) {
        let event = RecordEvent {
            object,
            event_type: EventType::Warning,
            reason: Arc::from("BackOff"),
            message: Arc::from(message),
        };
        match correlator.judge(&event, Timestamp::UNIX_EPOCH, Duration::ZERO) {
            Correlation::Keep { key, event } => outbox.put(key, *event),
            Correlation::Drop => panic!("no flood"),
        }
    }

    fn outbox() -> (Outbox, Correlator) {
        (Outbox::new("n".to_owned()), Correlator::default())
    }

    #[test]
    fn an_events_name_is_a_name_however_long_its_pods_is() {
        assert_eq!(name_of("web-1", 0x18), "web-1.18");
        let long = name_of(&"p".repeat(253), 0x18);
        assert_eq!((long.len(), long.ends_with("p.18")), (253, true));
        let dashed = name_of(&format!("{}-.{}", "p".repeat(248), "q".repeat(3)), 0x18);
        assert_eq!(dashed, format!("{}.18", "p".repeat(248)));
    }

    #[test]
    fn an_event_is_created_and_then_counted_up() {
        let (mut outbox, mut correlator) = outbox();
        put(&mut outbox, &mut correlator, pod("p"), "m");
        let EventWrite { event, change, .. } = outbox.next().unwrap();
        assert_eq!(change, None);
        assert_eq!(
            (event.metadata.name.as_deref(), event.metadata.namespace.as_deref()),
            (Some("p.1"), Some("ns"))
        );
        assert_eq!((event.count, event.type_.as_deref()), (Some(1), Some("Warning")));
        assert_eq!(event.involved_object.field_path.as_deref(), Some("spec.containers{c}"));
        put(&mut outbox, &mut correlator, pod("p"), "m");
        put(&mut outbox, &mut correlator, pod("p"), "m");
        assert_eq!(outbox.next(), None, "one is under way");
        assert_eq!(outbox.done(Sent::Taken), None);
        let EventWrite { event, change, .. } = outbox.next().unwrap();
        assert_eq!(event.metadata.name.as_deref(), Some("p.1"));
        let at = "1970-01-01T00:00:00Z";
        assert_eq!(change, Some(json!({ "count": 3, "lastTimestamp": at, "message": "m" })));
        outbox.done(Sent::Taken);
        assert_eq!(outbox.next(), None);
    }

    #[test]
    fn two_events_have_two_names_even_at_one_time() {
        let (mut outbox, mut correlator) = outbox();
        put(&mut outbox, &mut correlator, pod("p"), "a");
        put(&mut outbox, &mut correlator, pod("p"), "b");
        put(&mut outbox, &mut correlator, EventObject::Node, "c");
        let mut names = Vec::new();
        while let Some(post) = outbox.next() {
            names.push(format!(
                "{}/{}",
                post.event.metadata.namespace.unwrap(),
                post.event.metadata.name.unwrap()
            ));
            outbox.done(Sent::Taken);
        }
        assert_eq!(names, ["ns/p.1", "default/n.2", "ns/p.3"], "the node has its turn");
    }

    /// Posts the next event with this result; its pod or node, and its count.
    fn send(outbox: &mut Outbox, sent: Sent) -> Option<(String, i32)> {
        let event = outbox.next()?.event;
        outbox.done(sent);
        outbox.due();
        Some((event.involved_object.name?, event.count?))
    }

    fn sent(outbox: &mut Outbox) -> Vec<String> {
        std::iter::from_fn(|| send(outbox, Sent::Taken)).map(|(name, _)| name).collect()
    }

    #[test]
    fn a_namespace_of_many_events_neither_delays_nor_displaces_those_of_others() {
        let (mut outbox, mut correlator) = outbox();
        put(&mut outbox, &mut correlator, pod_in("quiet", "q0"), "a");
        for index in 0..2 * WAITING_MAX {
            put(&mut outbox, &mut correlator, pod_in("crowd", &format!("c{index}")), "a");
        }
        put(&mut outbox, &mut correlator, pod_in("quiet", "q1"), "a");
        put(&mut outbox, &mut correlator, EventObject::Node, "a");
        assert_eq!((outbox.waiting(), outbox.take_dropped()), (WAITING_MAX, 1003));
        let order = sent(&mut outbox);
        assert_eq!(
            order[..6],
            ["q0", "c1003", "n", "c1004", "q1", "c1005"],
            "the oldest of the crowd are gone"
        );
        assert_eq!((order.len(), order.last().map(String::as_str)), (WAITING_MAX, Some("c1999")));
    }

    #[test]
    fn an_event_that_the_server_does_not_answer_is_tried_again_at_its_namespaces_next_turn() {
        let (mut outbox, mut correlator) = outbox();
        put(&mut outbox, &mut correlator, pod_in("bad", "b0"), "a");
        put(&mut outbox, &mut correlator, pod_in("bad", "b1"), "a");
        for index in 0..TRIES_MAX {
            put(&mut outbox, &mut correlator, pod_in("good", &format!("g{index}")), "a");
        }
        for index in 0..TRIES_MAX {
            assert_eq!(send(&mut outbox, Sent::Unanswered), Some(("b0".to_owned(), 1)));
            assert_eq!(send(&mut outbox, Sent::Taken), Some((format!("g{index}"), 1)));
        }
        assert_eq!(outbox.take_dropped(), 1, "after as many tries as without the others");
        assert_eq!(sent(&mut outbox), ["b1"]);
    }

    #[test]
    fn the_newest_count_is_tried_again_and_once() {
        let (mut outbox, mut correlator) = outbox();
        put(&mut outbox, &mut correlator, pod("p"), "a");
        put(&mut outbox, &mut correlator, pod("q"), "a");
        assert!(outbox.next().is_some());
        put(&mut outbox, &mut correlator, pod("p"), "a");
        assert_eq!((outbox.done(Sent::Unanswered), outbox.waiting()), (Some(PAUSE), 2));
        outbox.due();
        assert_eq!(send(&mut outbox, Sent::Taken), Some(("p".to_owned(), 2)));
        assert_eq!(sent(&mut outbox), ["q"]);
    }

    #[test]
    fn a_server_that_is_away_is_tried_for_long_and_holds_nobody_up() {
        let (mut outbox, mut correlator) = outbox();
        put(&mut outbox, &mut correlator, pod("p"), "a");
        for _ in 0..TRIES_MAX {
            assert!(outbox.next().is_some());
            assert_eq!(outbox.done(Sent::Unanswered), Some(PAUSE));
            assert_eq!(outbox.next(), None);
            outbox.due();
        }
        assert_eq!((outbox.next(), outbox.waiting(), outbox.take_dropped()), (None, 0, 1));
        for index in 0..=WAITING_MAX {
            put(&mut outbox, &mut correlator, pod(&format!("p{index}")), "a");
        }
        assert_eq!(
            (outbox.waiting(), outbox.take_dropped()),
            (WAITING_MAX, 1),
            "the oldest has been dropped"
        );
    }

    #[test]
    fn what_is_refused_is_dropped() {
        let (mut outbox, mut correlator) = outbox();
        put(&mut outbox, &mut correlator, pod("p"), "a");
        assert!(outbox.next().is_some());
        assert_eq!(outbox.done(Sent::Refused), None);
        assert_eq!((outbox.waiting(), outbox.take_dropped()), (0, 1));
    }

    #[test]
    fn an_event_of_a_claim_is_in_its_namespace() {
        let (mut outbox, mut correlator) = outbox();
        let [namespace, name, uid] = ["ns", "data", "u-1"].map(Arc::from);
        put(&mut outbox, &mut correlator, EventObject::Claim { namespace, name, uid }, "a");
        let EventWrite { event, .. } = outbox.next().unwrap();
        assert_eq!(event.metadata.namespace.as_deref(), Some("ns"));
        let of = event.involved_object;
        assert_eq!(
            (of.api_version.as_deref(), of.kind.as_deref()),
            (Some("v1"), Some("PersistentVolumeClaim"))
        );
        assert_eq!((of.name.as_deref(), of.uid.as_deref()), (Some("data"), Some("u-1")));
    }

    #[test]
    fn a_manifest_is_no_object_of_the_server() {
        let (mut outbox, mut correlator) = outbox();
        put(&mut outbox, &mut correlator, EventObject::Manifest { path: Arc::from("/m") }, "a");
        assert_eq!((outbox.waiting(), outbox.take_dropped()), (0, 0));
    }
}
