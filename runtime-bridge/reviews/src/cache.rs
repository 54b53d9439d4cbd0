//! A bounded map of answers that are remembered for a limited time, with shares for their owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
struct Entry<V> {
    end: Instant,
    value: V,
    owner: Arc<str>,
}

/// Answers, each of an owner. When the map is full, the owner with most of it loses an answer, so that the answers of
/// one push out no others than its own.
#[derive(Debug)]
pub(super) struct Remembered<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    max: usize,
}

impl<K: Ord + Clone, V: Clone> Remembered<K, V> {
    pub(super) fn new(max: usize) -> Self {
        Self { entries: BTreeMap::new(), max }
    }

    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        self.entries.get(key).filter(|entry| entry.end > now).map(|entry| entry.value.clone())
    }

    /// Adds an entry. A full map first drops expired entries, or else, of the owner with most of them, the one that
    /// expires first.
    pub(super) fn put(&mut self, key: K, value: V, owner: &Arc<str>, now: Instant, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        if self.entries.len() >= self.max && !self.entries.contains_key(&key) {
            self.entries.retain(|_, entry| entry.end > now);
            if self.entries.len() >= self.max {
                self.make_room(owner);
            }
        }
        self.entries.insert(key, Entry { end: now + ttl, value, owner: owner.clone() });
    }

    fn make_room(&mut self, newcomer: &Arc<str>) {
        let mut counts = BTreeMap::from([(newcomer.clone(), 1_usize)]);
        for entry in self.entries.values() {
            *counts.entry(entry.owner.clone()).or_insert(0) += 1;
        }
        // Of equals the newcomer, so that it gains nothing by coming last.
        let most = counts.iter().max_by_key(|(owner, count)| (**count, *owner == newcomer));
        let Some((most, _)) = most else { return };
        let theirs = self.entries.iter().filter(|(_, entry)| entry.owner == *most);
        if let Some(first) = theirs.min_by_key(|(_, entry)| entry.end).map(|(key, _)| key.clone()) {
            self.entries.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_end_and_the_map_is_bounded() {
        let now = Instant::now();
        let (second, owner) = (Duration::from_secs(1), Arc::from("jane"));
        let mut map = Remembered::new(2);
        map.put(1, "a", &owner, now, second);
        map.put(2, "b", &owner, now, 3 * second);
        assert_eq!(map.get(&1, now), Some("a"));
        assert_eq!(map.get(&1, now + second), None, "it has ended");
        map.put(3, "c", &owner, now, 2 * second);
        assert_eq!((map.get(&1, now), map.get(&2, now), map.get(&3, now)), (None, Some("b"), Some("c")));
        map.put(4, "d", &owner, now, Duration::ZERO);
        assert_eq!(map.get(&4, now), None, "zero remembers nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_pushes_out_its_own_answers_alone() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let (crowd, jane): (Arc<str>, Arc<str>) = (Arc::from("crowd"), Arc::from("jane"));
        let mut map = Remembered::new(8);
        for key in 0..8 {
            map.put(key, "c", &crowd, now, 9 * second);
        }
        for key in 100..104 {
            map.put(key, "j", &jane, now, second);
        }
        for key in 8..100 {
            map.put(key, "c", &crowd, now, 9 * second);
        }
        let there = |keys: std::ops::Range<u32>| keys.filter(|key| map.get(key, now).is_some()).count();
        assert_eq!((there(100..104), there(0..100)), (4, 4), "each has half");
    }
}
