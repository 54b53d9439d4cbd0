//! PURE: a queue in which each key waits once, with a bounded number under way; of what waits, the namespace with the
//! fewest under way goes first, equals take turns.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_pace::FairQueue;

/// A thing that waits in the line of its namespace, with its ticket.
#[derive(Debug)]
struct Waiting<T> {
    thing: T,
    namespace: Arc<str>,
    ticket: u64,
}

/// Things that wait, by their keys.
#[derive(Debug)]
pub struct Queue<K, T> {
    workers: usize,
    order: FairQueue<Arc<str>, K>,
    waiting: BTreeMap<K, Waiting<T>>,
    /// With their namespaces.
    under_way: BTreeMap<K, Arc<str>>,
}

impl<K: Ord + Clone, T> Queue<K, T> {
    /// An empty queue of which at most `workers` things are under way at the same time.
    pub fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(1),
            order: FairQueue::default(),
            waiting: BTreeMap::new(),
            under_way: BTreeMap::new(),
        }
    }

    /// From now on at most `workers` things are begun beside each other; what is under way goes on.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers.max(1);
    }

    /// Puts a thing at the end of the line of its namespace, unless its key is under way. A key that waits already keeps
    /// its place.
    pub fn put(&mut self, namespace: Arc<str>, key: K, thing: T) {
        if self.under_way.contains_key(&key) {
            return;
        }
        if let Some(known) = self.waiting.get_mut(&key) {
            known.thing = thing;
            return;
        }
        let ticket = self.order.push(&namespace, key.clone());
        self.waiting.insert(key, Waiting { thing, namespace, ticket });
    }

    /// Takes the next thing to begin, unless too many are under way.
    pub fn next(&mut self) -> Option<(K, T)> {
        if self.under_way.len() >= self.workers {
            return None;
        }
        let mut held = BTreeMap::<&str, usize>::new();
        self.under_way.values().for_each(|namespace| *held.entry(namespace).or_default() += 1);
        let held = |namespace: &Arc<str>| held.get(&**namespace).copied().unwrap_or(0);
        let (namespace, key) = self.order.pop_fewest(self.workers, held)?;
        let waiting = self.waiting.remove(&key)?;
        self.under_way.insert(key.clone(), namespace);
        Some((key, waiting.thing))
    }

    /// Notes that the thing of this key has ended.
    pub fn ended(&mut self, key: &K) {
        self.under_way.remove(key);
    }

    /// Removes the waiting things that are no longer wanted.
    pub fn retain(&mut self, wanted: impl Fn(&K) -> bool) {
        let order = &mut self.order;
        self.waiting.retain(|key, waiting| {
            let stays = wanted(key);
            if !stays {
                order.remove(&waiting.namespace, waiting.ticket);
            }
            stays
        });
    }

    /// The number of things that wait or are under way.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.under_way.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(queue: &mut Queue<&'static str, u32>, namespace: &str, key: &'static str, thing: u32) {
        queue.put(Arc::from(namespace), key, thing);
    }

    #[test]
    fn each_waits_once_and_only_some_are_under_way() {
        let mut queue = Queue::new(2);
        for (key, thing) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            put(&mut queue, "ns", key, thing);
        }
        assert_eq!((queue.next(), queue.next(), queue.next()), (Some(("a", 3)), Some(("b", 2)), None));
        put(&mut queue, "ns", "a", 5);
        assert_eq!(queue.len(), 3, "what is under way does not wait again");
        queue.ended(&"a");
        assert_eq!((queue.next(), queue.next()), (Some(("c", 4)), None));
        put(&mut queue, "ns", "d", 6);
        queue.retain(|key| *key != "d");
        queue.ended(&"b");
        assert_eq!(queue.next(), None);
        queue.ended(&"c");
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_namespace_in_which_thousands_wait_holds_up_no_other() {
        let mut queue = Queue::new(1);
        for number in 0..5000 {
            queue.put(Arc::from("crowd"), format!("c{number}"), ());
        }
        for key in ["q0", "q1"] {
            queue.put(Arc::from("quiet"), key.to_owned(), ());
        }
        let mut order = Vec::new();
        while order.len() < 5
            && let Some((key, ())) = queue.next()
        {
            queue.ended(&key);
            order.push(key);
        }
        assert_eq!(order, ["c0", "q0", "c1", "q1", "c2"]);
        queue.retain(|key| key == "c4998");
        assert_eq!((queue.next(), queue.len()), (Some(("c4998".to_owned(), ())), 1));
    }

    #[test]
    fn a_namespace_whose_things_take_long_does_not_take_the_place_of_others() {
        let mut queue = Queue::new(2);
        for (namespace, key) in
            [("slow", "s0"), ("slow", "s1"), ("quick", "q0"), ("quick", "q1"), ("quick", "q2")]
        {
            put(&mut queue, namespace, key, 0);
        }
        assert_eq!((queue.next(), queue.next()), (Some(("s0", 0)), Some(("q0", 0))));
        for (ended, next) in [("q0", "q1"), ("q1", "q2"), ("q2", "s1")] {
            queue.ended(&ended);
            assert_eq!(queue.next(), Some((next, 0)), "one of the slow ones is under way still");
        }
    }
}
