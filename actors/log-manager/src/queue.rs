//! PURE: a queue in which each key waits once, with a bounded number under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Things that wait, by their keys.
#[derive(Debug)]
pub struct Queue<K, T> {
    workers: usize,
    order: VecDeque<K>,
    waiting: BTreeMap<K, T>,
    under_way: BTreeSet<K>,
}

impl<K: Ord + Clone, T> Queue<K, T> {
    /// An empty queue of which at most `workers` things are under way at the same time.
    pub fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(1),
            order: VecDeque::new(),
            waiting: BTreeMap::new(),
            under_way: BTreeSet::new(),
        }
    }

    /// Puts a thing at the end, unless its key is under way. A key that waits already keeps its place.
    pub fn put(&mut self, key: K, thing: T) {
        if self.under_way.contains(&key) {
            return;
        }
        if self.waiting.insert(key.clone(), thing).is_none() {
            self.order.push_back(key);
        }
    }

    /// Takes the next thing to begin, unless too many are under way.
    pub fn next(&mut self) -> Option<(K, T)> {
        if self.under_way.len() >= self.workers {
            return None;
        }
        let key = self.order.pop_front()?;
        let thing = self.waiting.remove(&key)?;
        self.under_way.insert(key.clone());
        Some((key, thing))
    }

    /// Notes that the thing of this key has ended.
    pub fn ended(&mut self, key: &K) {
        self.under_way.remove(key);
    }

    /// Removes the waiting things that are no longer wanted.
    pub fn retain(&mut self, wanted: impl Fn(&K) -> bool) {
        self.order.retain(|key| wanted(key));
        self.waiting.retain(|key, _| wanted(key));
    }

    /// The number of things that wait or are under way.
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
