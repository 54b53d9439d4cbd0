//! PURE: which objects are watched, since watches are few, and which of the others are read next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::object_store::Kind;
use crate::room::Name;

/// At most so many objects are watched at once: a few for each of the pods that a node usually has. Each is a stream and a task here,
/// and at the API server, which all nodes share, a watch with its buffer.
pub const WATCHES_MAX: usize = 256;
/// At most so many objects of one namespace are read at once.
const READS_MAX: usize = 8;

/// An object of the API server.
pub type ObjectKey = (Kind, Name);

/// The objects that are watched, by namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Watches(BTreeMap<Arc<str>, BTreeSet<ObjectKey>>);

/// The answer to an object that wants to be watched.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// There is room for it.
    Free,
    /// There is room for it when this one is not watched any longer.
    InsteadOf(ObjectKey),
    /// There is none: its namespace has its share.
    None,
}

impl Watches {
    /// Takes a place for an object. When all places are taken, a namespace with fewer gets one of the namespace that has most.
    pub fn take(&mut self, object: &ObjectKey) -> Place {
        let of = |of: &BTreeSet<ObjectKey>| of.len();
        let own = self.0.get(&object.1.0).map_or(0, of);
        let mut place = Place::Free;
        if self.0.values().map(of).sum::<usize>() >= WATCHES_MAX {
            let most = self.0.values().max_by_key(|watched| watched.len());
            let Some(last) = most.filter(|most| most.len() > own + 1).and_then(BTreeSet::last).cloned()
            else {
                return Place::None;
            };
            self.give_back(&last);
            place = Place::InsteadOf(last);
        }
        self.0.entry(object.1.0.clone()).or_default().insert(object.clone());
        place
    }

    /// The object is not watched any longer.
    pub fn give_back(&mut self, object: &ObjectKey) {
        if let Some(watched) = self.0.get_mut(&object.1.0) {
            watched.remove(object);
            if watched.is_empty() {
                self.0.remove(&object.1.0);
            }
        }
    }
}

/// The objects of one namespace that are to be read.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<ObjectKey>,
    under_way: usize,
}

/// The objects that are to be read, by namespace. Between namespaces the calls' own queue is fair.
#[derive(Debug, Default)]
pub struct ReadLines(BTreeMap<Arc<str>, Line>);

impl ReadLines {
    /// Puts an object at the end of its namespace's line.
    pub fn push(&mut self, object: ObjectKey) {
        self.0.entry(object.1.0.clone()).or_default().waiting.push_back(object);
    }

    /// Takes the object of this namespace that is to be read now; [`Self::ended`] says that it has been.
    pub fn next(&mut self, namespace: &Arc<str>) -> Option<ObjectKey> {
        let line = self.0.get_mut(namespace).filter(|line| line.under_way < READS_MAX)?;
        let object = line.waiting.pop_front()?;
        line.under_way += 1;
        Some(object)
    }

    /// A read of this namespace has ended.
    pub fn ended(&mut self, namespace: &Arc<str>) {
        let Some(line) = self.0.get_mut(namespace) else { return };
        line.under_way = line.under_way.saturating_sub(1);
        if line.under_way == 0 && line.waiting.is_empty() {
            self.0.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(namespace: &str, number: usize) -> ObjectKey {
        (Kind::Secret, (Arc::from(namespace), Arc::from(format!("{number:03}"))))
    }

    #[test]
    fn one_namespace_may_have_all_places_until_another_wants_some() {
        let mut watches = Watches::default();
        for number in 0..WATCHES_MAX {
            assert_eq!(watches.take(&object("crowd", number)), Place::Free);
        }
        assert_eq!(watches.take(&object("crowd", 900)), Place::None);
        let last = object("crowd", WATCHES_MAX - 1);
        assert_eq!(watches.take(&object("quiet", 0)), Place::InsteadOf(last));
        assert_eq!(watches.take(&object("crowd", 900)), Place::None);
        watches.give_back(&object("crowd", 3));
        assert_eq!(watches.take(&object("crowd", 900)), Place::Free);
        for number in 1..WATCHES_MAX {
            watches.take(&object("quiet", number));
        }
        let counts: Vec<usize> = watches.0.values().map(BTreeSet::len).collect();
        assert_eq!(counts, [WATCHES_MAX / 2, WATCHES_MAX / 2]);
    }

    #[test]
    fn a_few_objects_of_each_namespace_are_read_at_once() {
        let (mut reads, crowd, quiet) = (ReadLines::default(), Arc::from("crowd"), Arc::from("quiet"));
        (0..100).for_each(|number| reads.push(object("crowd", number)));
        reads.push(object("quiet", 0));
        let begun: Vec<_> = std::iter::from_fn(|| reads.next(&crowd)).collect();
        assert_eq!(begun, (0..READS_MAX).map(|number| object("crowd", number)).collect::<Vec<_>>());
        assert_eq!(reads.next(&quiet), Some(object("quiet", 0)));
        reads.ended(&crowd);
        assert_eq!(reads.next(&crowd), Some(object("crowd", READS_MAX)));
        reads.ended(&quiet);
        while reads.0.contains_key(&crowd) {
            reads.ended(&crowd);
            reads.next(&crowd);
        }
    }

    proptest! {
        #[test]
        fn there_are_never_more_than_the_places_and_a_small_share_is_never_taken(
            steps in prop::collection::vec((0_usize..5, 0_usize..200, prop::bool::weighted(0.8)), 0..1000),
        ) {
            let mut watches = Watches::default();
            for (namespace, number, takes) in steps {
                let object = object(&format!("{namespace}"), number);
                let watched = watches.0.get(&object.1.0).is_some_and(|watched| watched.contains(&object));
                if !takes {
                    watches.give_back(&object);
                } else if !watched && let Place::InsteadOf(other) = watches.take(&object) {
                    prop_assert!(watches.0.get(&other.1.0).map_or(0, BTreeSet::len) >= WATCHES_MAX / 5);
                }
                prop_assert!(watches.0.values().map(BTreeSet::len).sum::<usize>() <= WATCHES_MAX);
            }
        }
    }
}
