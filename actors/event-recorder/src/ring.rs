//! The last events, each once.

use std::collections::BTreeMap;

use messages::event_recorder::RecordedEvent;

use crate::correlate::EventKey;

/// How many events are kept.
pub(crate) const EVENTS_MAX: usize = 1000;

/// Events by the time at which they last happened; the oldest goes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ring {
    next: u64,
    events: BTreeMap<u64, (EventKey, RecordedEvent)>,
    places: BTreeMap<EventKey, u64>,
}

impl Ring {
    /// Keeps an event, and removes the one with the same key.
    pub(crate) fn keep(&mut self, key: EventKey, event: RecordedEvent) {
        if let Some(place) = self.places.remove(&key) {
            self.events.remove(&place);
        }
        self.places.insert(key.clone(), self.next);
        self.events.insert(self.next, (key, event));
        self.next += 1;
        if self.events.len() > EVENTS_MAX
            && let Some((_, (oldest, _))) = self.events.pop_first()
        {
            self.places.remove(&oldest);
        }
    }

    /// All events, the one that happened last at the end.
    pub(crate) fn all(&self) -> Vec<RecordedEvent> {
        self.events.values().map(|(_, event)| event.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::Timestamp;
    use messages::event_recorder::{EventObject, EventType, RecordEvent};

    use super::*;
    use crate::correlate::{Correlation, Correlator};

    fn keep(ring: &mut Ring, correlator: &mut Correlator, path: usize) {
        let event = RecordEvent {
            object: EventObject::Manifest { path: Arc::from(path.to_string()) },
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
            keep(&mut ring, &mut correlator, path);
        }
        keep(&mut ring, &mut correlator, 0);
        assert_eq!(ring.len(), EVENTS_MAX);
        assert_eq!(ring.all().last().unwrap().count, 2);

        keep(&mut ring, &mut correlator, EVENTS_MAX);
        let paths: Vec<_> = ring.all().into_iter().map(|e| e.object).collect();
        let manifest = |path: usize| EventObject::Manifest { path: Arc::from(path.to_string()) };
        assert_eq!((paths.len(), ring.places.len()), (EVENTS_MAX, EVENTS_MAX));
        assert_eq!(paths.first(), Some(&manifest(2)), "the oldest has gone");
        assert_eq!(paths.last(), Some(&manifest(EVENTS_MAX)));
    }
}
