//! A bounded map of answers that are remembered for a limited time.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Remembered<K, V> {
    entries: BTreeMap<K, (Instant, V)>,
    max: usize,
}

impl<K: Ord + Clone, V: Clone> Remembered<K, V> {
    pub(super) fn new(max: usize) -> Self {
        Self { entries: BTreeMap::new(), max }
    }

    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        self.entries.get(key).filter(|(end, _)| *end > now).map(|(_, value)| value.clone())
    }

    /// Adds an entry. A full map first drops expired entries, or else the one that expires first.
    pub(super) fn put(&mut self, key: K, value: V, now: Instant, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        if self.entries.len() >= self.max && !self.entries.contains_key(&key) {
            self.entries.retain(|_, (end, _)| *end > now);
            if self.entries.len() >= self.max {
                let first = self.entries.iter().min_by_key(|(_, (end, _))| *end).map(|(key, _)| key.clone());
                if let Some(first) = first {
                    self.entries.remove(&first);
                }
            }
        }
        self.entries.insert(key, (now + ttl, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_end_and_the_map_is_bounded() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut map = Remembered::new(2);
        map.put(1, "a", now, second);
        map.put(2, "b", now, 3 * second);
        assert_eq!(map.get(&1, now), Some("a"));
        assert_eq!(map.get(&1, now + second), None, "it has ended");
        map.put(3, "c", now, 2 * second);
        assert_eq!((map.get(&1, now), map.get(&2, now), map.get(&3, now)), (None, Some("b"), Some("c")));
        map.put(4, "d", now, Duration::ZERO);
        assert_eq!(map.get(&4, now), None, "zero remembers nothing");
    }
}
