//! Turns: those that share something go one after another, however much one of them wants.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Whose turn it is among those that wait. Each has one turn in a round, and a new one joins the round under way, so that
/// it waits for at most one turn of each other, and gains nothing by coming and going.
#[derive(Clone, Debug)]
pub struct Turns<K> {
    /// The round in which each that has had its turn is next; it is kept for the round under way.
    next: BTreeMap<K, u64>,
    round: u64,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self { next: BTreeMap::new(), round: 0 }
    }
}

impl<K: Ord + Clone> Turns<K> {
    /// The round in which `tenant` has its next turn: the smallest of those that wait goes first.
    pub fn round(&self, tenant: &K) -> u64 {
        self.next.get(tenant).copied().unwrap_or(0).max(self.round)
    }

    /// `tenant` has its turn.
    pub fn take(&mut self, tenant: &K) {
        self.round = self.round(tenant);
        let round = self.round;
        self.next.retain(|_, next| *next > round);
        self.next.insert(tenant.clone(), round + 1);
    }

    /// None waits: a round begins in which all are equal.
    pub fn rest(&mut self) {
        self.next.clear();
    }
}

type Line<W> = VecDeque<(u64, W)>;

/// The ticket of what is first in the line.
fn first<W>(line: &Line<W>) -> u64 {
    line.front().map_or(0, |(ticket, _)| *ticket)
}

/// A queue with a line for each `K`; the lines take turns, in the order in which their first ones came. A line is there
/// only while something waits in it.
#[derive(Debug)]
pub struct FairQueue<K, W> {
    lines: BTreeMap<K, Line<W>>,
    turns: Turns<K>,
    tickets: u64,
}

impl<K, W> Default for FairQueue<K, W> {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), turns: Turns::default(), tickets: 0 }
    }
}

impl<K: Ord + Clone, W> FairQueue<K, W> {
    /// Puts `what` at the end of the line of `tenant`; returns its ticket.
    pub fn push(&mut self, tenant: &K, what: W) -> u64 {
        self.tickets += 1;
        self.lines.entry(tenant.clone()).or_default().push_back((self.tickets, what));
        self.tickets
    }

    /// Takes out what waits in the line of `tenant` with this ticket.
    pub fn remove(&mut self, tenant: &K, ticket: u64) -> Option<W> {
        let line = self.lines.get_mut(tenant)?;
        let place = line.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        let removed = line.remove(place).map(|(_, what)| what);
        self.forget_empty(tenant);
        removed
    }

    /// Puts what was taken out of the line of `tenant` back, to the place of its ticket.
    pub fn put_back(&mut self, tenant: &K, ticket: u64, what: W) {
        let line = self.lines.entry(tenant.clone()).or_default();
        let place = line.partition_point(|(other, _)| *other < ticket);
        line.insert(place, (ticket, what));
    }

    fn forget_empty(&mut self, tenant: &K) {
        if self.lines.get(tenant).is_some_and(VecDeque::is_empty) {
            self.lines.remove(tenant);
        }
        if self.lines.is_empty() {
            self.turns.rest();
        }
    }

    /// Whose turn it is among those that `may` go.
    pub fn next(&self, may: impl Fn(&K) -> bool) -> Option<&K> {
        let waiting = self.lines.iter().filter(|(tenant, _)| may(tenant));
        waiting.min_by_key(|(tenant, line)| (self.turns.round(tenant), first(line))).map(|(tenant, _)| tenant)
    }

    /// Takes what is first in the line whose turn it is.
    pub fn pop(&mut self, may: impl Fn(&K) -> bool) -> Option<(K, W)> {
        let tenant = self.next(may)?.clone();
        let (_, what) = self.lines.get_mut(&tenant)?.pop_front()?;
        self.turns.take(&tenant);
        self.forget_empty(&tenant);
        Some((tenant, what))
    }

    /// Takes what is first in the line of the tenant that has the fewest places, as `held` says, and fewer than its share;
    /// equals take turns.
    pub fn pop_fewest(&mut self, share: usize, held: impl Fn(&K) -> usize) -> Option<(K, W)> {
        let fewest = self.lines.keys().map(&held).min().filter(|fewest| *fewest < share)?;
        self.pop(|tenant| held(tenant) == fewest)
    }

    /// Takes what is first in the longest line, for which that is no turn; of equals, in the one whose first came first.
    pub fn pop_longest(&mut self) -> Option<(K, W)> {
        let longest = self.lines.iter().max_by_key(|(_, line)| (line.len(), Reverse(first(line))));
        let tenant = longest.map(|(tenant, _)| tenant.clone())?;
        let (_, what) = self.lines.get_mut(&tenant)?.pop_front()?;
        self.forget_empty(&tenant);
        Some((tenant, what))
    }

    /// How many go at most before one that comes to the line of `tenant` now, if no other comes after it.
    pub fn ahead(&self, tenant: &K) -> usize {
        let own = self.lines.get(tenant).map_or(0, VecDeque::len);
        let others = self.lines.iter().filter(|(other, _)| *other != tenant);
        own + others.map(|(_, line)| line.len().min(own + 1)).sum::<usize>()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.lines.values().map(VecDeque::len).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(queue: &mut FairQueue<&'static str, u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop(|_| true).map(|(_, what)| what)).collect()
    }

    #[test]
    fn lines_take_turns_and_each_keeps_its_order() {
        let mut queue = FairQueue::default();
        for what in 0..6 {
            queue.push(&"crowd", what);
        }
        queue.push(&"b", 10);
        queue.push(&"b", 11);
        queue.push(&"a", 20);
        assert_eq!((queue.ahead(&"new"), queue.ahead(&"b"), queue.ahead(&"crowd")), (3, 6, 9));
        assert_eq!(queue.next(|tenant| *tenant != "crowd"), Some(&"b"));
        assert_eq!(order(&mut queue), [0, 10, 20, 1, 11, 2, 3, 4, 5]);
        assert!(queue.is_empty() && queue.turns.next.is_empty(), "nothing is kept");
    }

    #[test]
    fn who_comes_and_goes_has_no_more_turns_than_who_waits() {
        let mut queue = FairQueue::default();
        for what in 0..100 {
            queue.push(&"crowd", what);
        }
        let mut visits = 0;
        for _ in 0..50 {
            if !queue.lines.contains_key(&"visitor") {
                queue.push(&"visitor", 1000);
            }
            visits += u32::from(queue.pop(|_| true).is_some_and(|(tenant, _)| tenant == "visitor"));
        }
        assert_eq!(visits, 25);
    }

    #[test]
    fn what_is_taken_out_does_not_come() {
        let mut queue = FairQueue::default();
        let (first, second) = (queue.push(&"a", 1), queue.push(&"a", 2));
        queue.push(&"b", 3);
        assert_eq!((queue.remove(&"a", first), queue.remove(&"a", first)), (Some(1), None));
        assert_eq!((queue.remove(&"b", second), queue.len()), (None, 2));
        assert_eq!(order(&mut queue), [2, 3]);
    }

    #[test]
    fn what_is_put_back_goes_before_the_rest_of_its_line_at_its_lines_next_turn() {
        let mut queue = FairQueue::default();
        let ticket = queue.push(&"a", 1);
        for (tenant, what) in [("a", 2), ("b", 3), ("b", 4)] {
            queue.push(&tenant, what);
        }
        assert_eq!(queue.pop(|_| true), Some(("a", 1)));
        queue.put_back(&"a", ticket, 1);
        assert_eq!(order(&mut queue), [3, 1, 4, 2]);
        queue.put_back(&"a", ticket, 1);
        assert_eq!(queue.remove(&"a", ticket), Some(1), "an empty line is begun anew, and the ticket holds");
        assert!(queue.is_empty());
    }

    #[test]
    fn the_longest_line_loses_its_first_and_no_turn() {
        let mut queue = FairQueue::default();
        for (tenant, what) in [("b", 1), ("crowd", 2), ("crowd", 3), ("crowd", 4), ("a", 5)] {
            queue.push(&tenant, what);
        }
        let mut lost = || queue.pop_longest().map(|(_, what)| what);
        assert_eq!(
            [lost(), lost(), lost()],
            [Some(2), Some(3), Some(1)],
            "of equals the one that came first"
        );
        assert_eq!(order(&mut queue), [4, 5]);
        assert_eq!(queue.pop_longest(), None);
    }

    #[test]
    fn the_tenant_with_the_fewest_places_goes_first_until_it_has_its_share() {
        let (mut queue, mut held) = (FairQueue::default(), BTreeMap::from([("a", 2), ("b", 1)]));
        for tenant in ["a", "b", "b", "b", "c", "c"] {
            queue.push(&tenant, ());
        }
        let mut next = || {
            let (tenant, ()) = queue.pop_fewest(3, |tenant| held.get(tenant).copied().unwrap_or(0))?;
            *held.entry(tenant).or_default() += 1;
            Some(tenant)
        };
        let order: Vec<_> = std::iter::from_fn(&mut next).collect();
        assert_eq!(order, ["c", "b", "c", "a", "b"]);
        assert_eq!((queue.len(), held["b"]), (1, 3));
    }

    proptest! {
        #[test]
        fn one_waits_for_at_most_one_turn_of_each_other(
            lines in prop::collection::vec(1_usize..20, 1..8),
            gone in 0_usize..30,
        ) {
            let mut queue = FairQueue::default();
            for (line, count) in lines.iter().enumerate() {
                for what in 0..*count {
                    queue.push(&line, what);
                }
            }
            for _ in 0..gone {
                queue.pop(|_| true);
            }
            let before = queue.lines.len();
            queue.push(&usize::MAX, 0);
            let turns = std::iter::from_fn(|| queue.pop(|_| true)).position(|(tenant, _)| tenant == usize::MAX);
            prop_assert!(turns.is_some_and(|turns| turns <= before));
        }
    }
}
