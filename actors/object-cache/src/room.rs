//! PURE: how many bytes of objects are kept, and which go when they are too many: what pods refer to is their authors' choice.
//! Upstream keeps all.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Namespace, empty for a kind without namespaces, and name.
pub type Name = (Arc<str>, Arc<str>);

/// At most so many bytes of objects of one kind are kept that are watched, and as many that are not. What goes is read again when an
/// actor asks for it.
pub const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a namespace has kept, by age.
#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    by_age: BTreeMap<u64, (Arc<str>, usize)>,
    ages: BTreeMap<Arc<str>, u64>,
}

/// The objects that are kept, and their sizes.
#[derive(Debug, Default)]
pub struct Room {
    shares: BTreeMap<Arc<str>, Share>,
    bytes: usize,
    next_age: u64,
}

impl Room {
    /// Keeps an object of this size in place of what was kept under its name. Returns the objects that go for it: the oldest of the
    /// namespace that keeps most.
    pub fn put(&mut self, name: &Name, bytes: usize) -> Vec<Name> {
        self.remove(name);
        let age = self.next_age;
        self.next_age += 1;
        let share = self.shares.entry(name.0.clone()).or_default();
        share.by_age.insert(age, (name.1.clone(), bytes));
        share.ages.insert(name.1.clone(), age);
        share.bytes += bytes;
        self.bytes += bytes;
        let mut gone = Vec::new();
        while self.bytes > BYTES_MAX {
            gone.extend(self.oldest_of_most());
        }
        gone
    }

    fn oldest_of_most(&mut self) -> Option<Name> {
        let namespace = self.shares.iter().max_by_key(|(_, share)| share.bytes)?.0.clone();
        let oldest = self.shares.get(&namespace)?.by_age.values().next()?.0.clone();
        let name = (namespace, oldest);
        self.remove(&name);
        Some(name)
    }

    /// The object is not kept here any longer.
    pub fn remove(&mut self, name: &Name) {
        let Some(share) = self.shares.get_mut(&name.0) else { return };
        let kept = share.ages.remove(&name.1).and_then(|age| share.by_age.remove(&age));
        let bytes = kept.map_or(0, |(_, bytes)| bytes);
        share.bytes -= bytes;
        self.bytes -= bytes;
        if share.by_age.is_empty() {
            self.shares.remove(&name.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(namespace: &str, number: usize) -> Name {
        (Arc::from(namespace), Arc::from(format!("{number:03}")))
    }

    const MIB: usize = 1024 * 1024;

    #[test]
    fn the_oldest_of_the_namespace_that_keeps_most_goes() {
        let mut room = Room::default();
        assert_eq!(room.put(&name("quiet", 0), MIB), []);
        for number in 0..63 {
            assert_eq!(room.put(&name("crowd", number), MIB), []);
        }
        assert_eq!(room.put(&name("crowd", 0), MIB), [], "it takes its own place");
        assert_eq!(room.put(&name("crowd", 63), MIB), [name("crowd", 1)]);
        assert_eq!(room.put(&name("quiet", 1), 2 * MIB), [name("crowd", 2), name("crowd", 3)]);
        room.remove(&name("crowd", 4));
        assert_eq!(room.put(&name("other", 0), MIB), []);
    }

    proptest! {
        #[test]
        fn what_is_kept_is_bounded_and_counted(
            steps in prop::collection::vec((0_usize..3, 0_usize..50, 0_usize..8, prop::bool::weighted(0.8)), 0..300),
        ) {
            let mut room = Room::default();
            let mut kept = BTreeMap::new();
            for (namespace, number, mib, puts) in steps {
                let name = name(&format!("{namespace}"), number);
                if puts {
                    kept.insert(name.clone(), mib * MIB);
                    for gone in room.put(&name, mib * MIB) {
                        prop_assert!(kept.remove(&gone).is_some());
                    }
                } else {
                    kept.remove(&name);
                    room.remove(&name);
                }
                prop_assert!(room.bytes <= BYTES_MAX);
                prop_assert_eq!(room.bytes, kept.values().sum::<usize>());
                prop_assert_eq!(room.bytes, room.shares.values().map(|share| share.bytes).sum::<usize>());
                let names = room.shares.values().map(|share| share.by_age.len().max(share.ages.len())).sum::<usize>();
                prop_assert_eq!(names, kept.len());
            }
        }
    }
}
