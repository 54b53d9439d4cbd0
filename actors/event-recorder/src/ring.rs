//! The last events, each once.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_pace::FairQueue;
use messages::event_recorder::RecordedEvent;

use crate::correlate::{EventKey, namespace};

/// How many events are kept.
pub(crate) const EVENTS_MAX: usize = 1000;

/// Where an event is kept: its namespace and its ticket.
type Place = (Option<Arc<str>>, u64);

/// Events by the time at which they last happened; the oldest of the namespace that has most goes first.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// By tickets, of which a later one is larger.
    events: BTreeMap<u64, RecordedEvent>,
    lines: FairQueue<Option<Arc<str>>, EventKey>,
    places: BTreeMap<EventKey, Place>,
}

impl Ring {
    /// Keeps an event, and removes the one with the same key.
    pub(crate) fn keep(&mut self, key: EventKey, event: RecordedEvent) {
        if let Some((line, ticket)) = self.places.remove(&key) {
            self.lines.remove(&line, ticket);
            self.events.remove(&ticket);
        }
        let line = namespace(&event.object);
        let ticket = self.lines.push(&line, key.clone());
        self.events.insert(ticket, event);
        self.places.insert(key, (line, ticket));
        if self.events.len() > EVENTS_MAX
            && let Some((_, oldest)) = self.lines.pop_longest()
            && let Some((_, ticket)) = self.places.remove(&oldest)
        {
            self.events.remove(&ticket);
        }
    }

    /// All events, the one that happened last at the end.
    pub(crate) fn all(&self) -> Vec<RecordedEvent> {
        self.events.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use messages::event_recorder::{EventObject, EventType, RecordEvent};
    use messages::{PodRef, PodUid};

    use super::*;
    use crate::correlate::{Correlation, Correlator};

    fn manifest(path: usize) -> EventObject {
        EventObject::Manifest { path: Arc::from(path.to_string()) }
    }

    fn pod(namespace: &str, number: usize) -> EventObject {
        let name = format!("{namespace}-{number}");
        let pod = PodRef {
            uid: PodUid::new(&name),
            namespace: Arc::from(namespace),
            name: Arc::from(name.as_str()),
        };
        EventObject::Pod { pod, field_path: Arc::from("") }
    }

    fn keep(ring: &mut Ring, correlator: &mut Correlator, object: EventObject) {
        let event = RecordEvent {
            object,
            event_type: EventType::Normal,
            reason: Arc::from("Reason"),
            message: Arc::from("message"),
        };
        match correlator.judge(&event, Timestamp::UNIX_EPOCH, Duration::ZERO) {
            Correlation::Keep { key, event } => ring.keep(key, *event),
            Correlation::Drop => panic!("no flood"),
        }
    }

    #[test]
    fn the_last_thousand_are_kept_and_a_repeated_one_is_the_newest() {
        let (mut ring, mut correlator) = (Ring::default(), Correlator::default());
        for path in 0..EVENTS_MAX {
            keep(&mut ring, &mut correlator, manifest(path));
        }
        keep(&mut ring, &mut correlator, manifest(0));
        assert_eq!(ring.len(), EVENTS_MAX);
        assert_eq!(ring.all().last().unwrap().count, 2);

        keep(&mut ring, &mut correlator, manifest(EVENTS_MAX));
        let paths: Vec<_> = ring.all().into_iter().map(|e| e.object).collect();
        assert_eq!((paths.len(), ring.places.len(), ring.lines.len()), (EVENTS_MAX, EVENTS_MAX, EVENTS_MAX));
        assert_eq!(paths.first(), Some(&manifest(2)), "the oldest has gone");
        assert_eq!(paths.last(), Some(&manifest(EVENTS_MAX)));
    }

    #[test]
    fn a_namespace_of_many_events_displaces_its_own() {
        let (mut ring, mut correlator) = (Ring::default(), Correlator::default());
        keep(&mut ring, &mut correlator, pod("quiet", 0));
        keep(&mut ring, &mut correlator, EventObject::Node);
        for number in 0..2 * EVENTS_MAX {
            keep(&mut ring, &mut correlator, pod("crowd", number));
        }
        let objects: Vec<_> = ring.all().into_iter().map(|event| event.object).collect();
        assert_eq!(objects.len(), EVENTS_MAX);
        assert_eq!(objects[..3], [pod("quiet", 0), EventObject::Node, pod("crowd", EVENTS_MAX + 2)]);
        assert_eq!(objects.last(), Some(&pod("crowd", 2 * EVENTS_MAX - 1)));
    }
}
