//! A map that forgets the entry that was used least recently.

use std::collections::BTreeMap;

/// A map with at most `capacity` entries.
#[derive(Clone, Debug)]
pub(crate) struct Lru<K, V> {
    capacity: usize,
    uses: u64,
    entries: BTreeMap<K, (V, u64)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Ord + Clone, V> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, uses: 0, entries: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    /// The entry, made if it is missing; it counts as used.
    pub(crate) fn entry(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        match self.entries.get(key) {
            Some((_, used)) => {
                self.by_use.remove(used);
            }
            None => {
                if self.entries.len() == self.capacity
                    && let Some((_, oldest)) = self.by_use.pop_first()
                {
                    self.entries.remove(&oldest);
                }
            }
        }
        self.by_use.insert(self.uses, key.clone());
        let (value, used) = self.entries.entry(key.clone()).or_insert_with(|| (make(), 0));
        *used = self.uses;
        value
    }

    /// The entry, if it exists; it does not count as used.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_least_recently_used_goes() {
        let mut lru = Lru::new(2);
        *lru.entry(&"a", || 1) += 10;
        lru.entry(&"b", || 2);
        assert_eq!(*lru.entry(&"a", || 1), 11);
        lru.entry(&"c", || 3);
        assert_eq!(*lru.entry(&"a", || 1), 11);
        assert_eq!(*lru.entry(&"b", || 20), 20, "it was forgotten");
    }

    proptest! {
        #[test]
        fn it_never_grows_beyond_its_capacity(keys in prop::collection::vec(0_u8..20, 0..200)) {
            let mut lru = Lru::new(5);
            for key in keys {
                lru.entry(&key, || ());
                prop_assert!(lru.entries.len() <= 5);
                prop_assert_eq!(lru.entries.len(), lru.by_use.len());
                prop_assert_eq!(lru.by_use.values().last(), Some(&key));
            }
        }
    }
}
