//! Which events are kept, and under which key (row 23.11).
//!
//! Similar events (equal in all but the message) are combined once there are ten within ten minutes of each other;
//! equal events are counted; an object with a flood of events is cut off, but for a trickle.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::TokenBucket;
use jiff::Timestamp;
use messages::PodRef;
use messages::event_recorder::{EventObject, EventType, RecordEvent, RecordedEvent};

use crate::lru::Lru;

/// At most so many keys are remembered, for each of the three purposes.
const KEYS_MAX: usize = 4096;
/// From so many different messages on, similar events are combined.
const SIMILAR_MAX: usize = 10;
/// Similar events are counted anew if one comes later than this after the one before.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// So many events may be about one object at once.
const BURST: u32 = 25;
/// After a burst, one more event may be about an object each time this long has passed.
const REFILL: Duration = Duration::from_secs(300);
/// The beginning of combined events' messages.
const COMBINED: &str = "(combined from similar events): ";
/// The longest message in bytes, and the end of one that was cut: Kubernetes' own limit for an event's note. Texts of
/// pods and other programs, such as a probe's answer, may be longer.
const MESSAGE_BYTES_MAX: usize = 1024;
const CUT: &str = " ...";

/// The message, cut if it is too long.
fn bounded(message: &Arc<str>) -> Arc<str> {
    if message.len() <= MESSAGE_BYTES_MAX {
        return message.clone();
    }
    let end = message.floor_char_boundary(MESSAGE_BYTES_MAX - CUT.len());
    Arc::from(format!("{}{CUT}", &message[..end]))
}

/// The namespace of the object of an event; `None` if the object is the node's own.
pub(crate) fn namespace(object: &EventObject) -> Option<Arc<str>> {
    match object {
        EventObject::Pod { pod, .. } => Some(pod.namespace.clone()),
        EventObject::Claim { namespace, .. } => Some(namespace.clone()),
        EventObject::Node | EventObject::Manifest { .. } => None,
    }
}

/// The object of an event, without its field path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Pod(PodRef),
    Node,
    /// By its UID.
    Claim(Arc<str>),
    Manifest(Arc<str>),
}

impl Subject {
    fn of(object: &EventObject) -> Self {
        match object {
            EventObject::Pod { pod, .. } => Self::Pod(pod.clone()),
            EventObject::Node => Self::Node,
            EventObject::Claim { uid, .. } => Self::Claim(uid.clone()),
            EventObject::Manifest { path } => Self::Manifest(path.clone()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SimilarKey {
    subject: Subject,
    is_warning: bool,
    reason: Arc<str>,
}

/// Events with equal keys are the same event. Combined events have neither field path nor message in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventKey {
    similar: SimilarKey,
    /// Field path and message.
    exact: Option<(Arc<str>, Arc<str>)>,
}

/// The fate of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Correlation {
    /// The event is kept, and replaces the one with this key if there is one.
    Keep {
        /// Its key.
        key: EventKey,
        /// The event with its count.
        event: Box<RecordedEvent>,
    },
    /// There are too many events about its object.
    Drop,
}

struct Similar {
    messages: BTreeSet<Arc<str>>,
    last: Duration,
}

struct Seen {
    count: u32,
    first: Timestamp,
}

/// Remembers as much of the events so far as it needs to judge the next one. Bounded.
pub struct Correlator {
    similar: Lru<SimilarKey, Similar>,
    seen: Lru<EventKey, Seen>,
    buckets: Lru<Subject, TokenBucket>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self { similar: Lru::new(KEYS_MAX), seen: Lru::new(KEYS_MAX), buckets: Lru::new(KEYS_MAX) }
    }
}

impl Correlator {
    /// Judges an event at wall time `now`; `uptime` is the time of any monotonic clock, for the rates.
    pub fn judge(&mut self, event: &RecordEvent, now: Timestamp, uptime: Duration) -> Correlation {
        // Cut before anything of it is remembered.
        let event = &RecordEvent { message: bounded(&event.message), ..event.clone() };
        let subject = Subject::of(&event.object);
        let similar = SimilarKey {
            subject: subject.clone(),
            is_warning: event.event_type == EventType::Warning,
            reason: event.reason.clone(),
        };
        let combined = self.is_combined(&similar, &event.message, uptime);
        let key = EventKey { similar, exact: (!combined).then(|| exact(event)) };

        // It counts even if it is dropped: the next equal event that is kept shows the count.
        let seen = self.seen.entry(&key, || Seen { count: 0, first: now });
        seen.count = seen.count.saturating_add(1);
        let (count, first_seen) = (seen.count, seen.first);
        if !self.is_within_rate(&subject, uptime) {
            return Correlation::Drop;
        }
        let message = match combined {
            true => bounded(&Arc::from(format!("{COMBINED}{}", event.message))),
            false => event.message.clone(),
        };
        let event = Box::new(RecordedEvent {
            object: event.object.clone(),
            event_type: event.event_type,
            reason: event.reason.clone(),
            message,
            count,
            first_seen,
            last_seen: now,
            annotations: Arc::default(),
        });
        Correlation::Keep { key, event }
    }

    fn is_combined(&mut self, key: &SimilarKey, message: &Arc<str>, uptime: Duration) -> bool {
        let similar = self.similar.entry(key, || Similar { messages: BTreeSet::new(), last: uptime });
        if uptime.saturating_sub(similar.last) > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = uptime;
        similar.messages.insert(message.clone());
        if similar.messages.len() < SIMILAR_MAX {
            return false;
        }
        // With one message less, the next new message is the tenth again.
        similar.messages.pop_first();
        true
    }

    fn is_within_rate(&mut self, subject: &Subject, uptime: Duration) -> bool {
        let new = || TokenBucket::new(1.0 / REFILL.as_secs_f64(), BURST, uptime);
        self.buckets.entry(subject, new).take(uptime)
    }
}

fn exact(event: &RecordEvent) -> (Arc<str>, Arc<str>) {
    let path = match &event.object {
        EventObject::Pod { field_path, .. } => field_path.clone(),
        EventObject::Node | EventObject::Claim { .. } | EventObject::Manifest { .. } => Arc::from(""),
    };
    (path, event.message.clone())
}

#[cfg(test)]
mod tests {
    use messages::PodUid;
    use proptest::prelude::*;

    use super::*;

    fn start() -> Timestamp {
        "2026-05-01T12:00:00Z".parse().unwrap()
    }

    fn event(pod: &str, path: &str, reason: &str, message: &str) -> RecordEvent {
        let pod = PodRef { uid: PodUid::new(pod), namespace: Arc::from("default"), name: Arc::from(pod) };
        RecordEvent {
            object: EventObject::Pod { pod, field_path: Arc::from(path) },
            event_type: EventType::Warning,
            reason: Arc::from(reason),
            message: Arc::from(message),
        }
    }

    struct Clocked {
        correlator: Correlator,
        second: u64,
    }

    impl Clocked {
        fn new() -> Self {
            Self { correlator: Correlator::default(), second: 0 }
        }

        fn judge(&mut self, event: &RecordEvent) -> Correlation {
            let uptime = Duration::from_secs(self.second);
            self.correlator.judge(event, start() + uptime, uptime)
        }

        /// Count and message of an event, if it is kept.
        fn kept(&mut self, event: &RecordEvent) -> Option<(u32, String)> {
            match self.judge(event) {
                Correlation::Keep { event, .. } => Some((event.count, event.message.to_string())),
                Correlation::Drop => None,
            }
        }
    }

    #[test]
    fn the_same_event_is_counted() {
        let mut clocked = Clocked::new();
        let backoff = event("web", "spec.containers{web}", "BackOff", "Back-off");
        let Correlation::Keep { key, .. } = clocked.judge(&backoff) else { panic!("dropped") };
        clocked.second = 20;
        let Correlation::Keep { key: again, event: kept } = clocked.judge(&backoff) else {
            panic!("dropped")
        };
        assert_eq!((again, kept.count), (key, 2));
        assert_eq!((kept.first_seen, kept.last_seen), (start(), start() + Duration::from_secs(20)));
        let other = event("web", "spec.containers{sidecar}", "BackOff", "Back-off");
        assert_eq!(clocked.kept(&other).unwrap().0, 1, "another container is another event");
    }

    #[test]
    fn a_message_is_cut_to_what_an_event_may_say() {
        let mut clocked = Clocked::new();
        let long = |text: &str, bytes: usize| text.repeat(bytes / text.len());
        for (message, bytes) in [
            (long("x", 1024), 1024),
            (long("x", 1025), 1024),
            (long("x", 10 << 20), 1024),
            ("é".repeat(1000), 1024),
            (format!("x{}", "é".repeat(1000)), 1023),
        ] {
            let (_, kept) = clocked.kept(&event("web", "", "Unhealthy", &message)).unwrap();
            assert_eq!(kept.len(), bytes);
            assert_eq!(kept.ends_with(" ..."), message.len() > 1024);
        }
        for n in 0..9 {
            clocked.kept(&event("db", "", "Unhealthy", &format!("{n}{}", long("x", 2000)))).unwrap();
        }
        let (_, combined) = clocked.kept(&event("db", "", "Unhealthy", &long("x", 2000))).unwrap();
        assert!(combined.starts_with(COMBINED) && combined.len() == 1024, "{combined}");
    }

    #[test]
    fn the_tenth_similar_event_is_combined() {
        let mut clocked = Clocked::new();
        for n in 0..9 {
            let unhealthy = event("web", "", "Unhealthy", &format!("probe {n}"));
            assert_eq!(clocked.kept(&unhealthy), Some((1, format!("probe {n}"))));
        }
        for (n, count) in [(9, 1), (10, 2), (11, 3)] {
            let unhealthy = event("web", "", "Unhealthy", &format!("probe {n}"));
            let combined = format!("(combined from similar events): probe {n}");
            assert_eq!(clocked.kept(&unhealthy), Some((count, combined)));
        }
        assert_eq!(clocked.kept(&event("web", "", "Killing", "stop")), Some((1, "stop".into())));
        clocked.second = 601;
        let fresh = event("web", "", "Unhealthy", "probe 99");
        assert_eq!(clocked.kept(&fresh), Some((1, "probe 99".into())), "ten minutes of quiet end it");
    }

    #[test]
    fn a_flood_is_cut_off_per_object_and_trickles_on() {
        let mut clocked = Clocked::new();
        let flood = event("web", "", "Unhealthy", "same");
        for n in 1..=25 {
            assert_eq!(clocked.kept(&flood).unwrap().0, n);
        }
        assert_eq!(clocked.kept(&flood), None);
        assert!(clocked.kept(&event("db", "", "Unhealthy", "same")).is_some(), "another object has its own");
        clocked.second = 299;
        assert_eq!(clocked.kept(&flood), None);
        clocked.second = 300;
        assert_eq!(clocked.kept(&flood).unwrap().0, 28, "what was dropped is counted");
        assert_eq!(clocked.kept(&flood), None);
    }

    proptest! {
        #[test]
        fn no_object_exceeds_its_rate(steps in prop::collection::vec((0_u64..200, 0_u8..30), 1..300)) {
            let mut clocked = Clocked::new();
            let mut kept = 0_u64;
            for (pause, message) in steps {
                clocked.second += pause;
                kept += u64::from(clocked.kept(&event("web", "", "R", &message.to_string())).is_some());
                prop_assert!(kept <= 25 + clocked.second / 300);
            }
        }

        #[test]
        fn counts_of_a_key_grow_by_one(messages in prop::collection::vec(0_u8..3, 1..25)) {
            let mut clocked = Clocked::new();
            let mut counts = [0_u32; 3];
            for message in messages {
                counts[usize::from(message)] += 1;
                let (count, _) = clocked.kept(&event("web", "", "R", &message.to_string())).unwrap();
                prop_assert_eq!(count, counts[usize::from(message)]);
            }
        }
    }
}
