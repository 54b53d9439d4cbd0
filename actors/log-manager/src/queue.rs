//! PURE: what waits for its turn. Each thing waits once, and only so many are under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Things that wait, by what they are about.
#[derive(Debug)]
pub struct Queue<K, T> {
    workers: usize,
    order: VecDeque<K>,
    waiting: BTreeMap<K, T>,
    under_way: BTreeSet<K>,
}

impl<K: Ord + Clone, T> Queue<K, T> {
    /// An empty one of which so many are under way at the same time.
    pub fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(1),
            order: VecDeque::new(),
            waiting: BTreeMap::new(),
            under_way: BTreeSet::new(),
        }
    }

    /// Puts something at the end, unless it is under way. What waits already keeps its place.
    pub fn put(&mut self, key: K, thing: T) {
        if self.under_way.contains(&key) {
            return;
        }
        if self.waiting.insert(key.clone(), thing).is_none() {
            self.order.push_back(key);
        }
    }

    /// The next one to begin with, if one may.
    pub fn next(&mut self) -> Option<(K, T)> {
        if self.under_way.len() >= self.workers {
            return None;
        }
        let key = self.order.pop_front()?;
        let thing = self.waiting.remove(&key)?;
        self.under_way.insert(key.clone());
        Some((key, thing))
    }

    /// One has ended.
    pub fn ended(&mut self, key: &K) {
        self.under_way.remove(key);
    }

    /// Takes back what waits and is not wanted any more.
    pub fn retain(&mut self, wanted: impl Fn(&K) -> bool) {
        self.order.retain(|key| wanted(key));
        self.waiting.retain(|key, _| wanted(key));
    }

    /// How many wait or are under way.
    pub fn len(&self) -> usize {
        self.order.len() + self.under_way.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_once_and_only_some_are_under_way() {
        let mut queue = Queue::new(2);
        for (key, thing) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            queue.put(key, thing);
        }
        assert_eq!((queue.next(), queue.next(), queue.next()), (Some(("a", 3)), Some(("b", 2)), None));
        queue.put("a", 5);
        assert_eq!(queue.len(), 3, "what is under way does not wait again");
        queue.ended(&"a");
        assert_eq!((queue.next(), queue.next()), (Some(("c", 4)), None));
        queue.put("d", 6);
        queue.retain(|key| *key != "d");
        queue.ended(&"b");
        assert_eq!(queue.next(), None);
        queue.ended(&"c");
        assert_eq!(queue.len(), 0);
    }
}
