//! One operation per pod at a time: asks for the kind that is last in the queue join it, asks for another
//! kind queue up.

use std::collections::VecDeque;

/// A kind of operation on a pod's volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Mount all volumes.
    Mount,
    /// Unmount all volumes.
    Unmount,
    /// Refresh the mounted volumes of objects.
    Refresh,
}

/// The most operations of one pod that queue up; more would mean a worker that changes its mind without
/// waiting.
const QUEUED_MAX: usize = 4;
/// The most askers that wait for one operation.
const ASKERS_MAX: usize = 64;

/// The operations of one pod, the one under way first. `A` is an asker.
#[derive(Debug)]
pub struct Operations<A> {
    queue: VecDeque<(Kind, Vec<A>)>,
}

/// What became of an ask.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked<A> {
    /// The caller begins the operation now.
    Begin,
    /// The ask waits for an operation that is under way or queued.
    Waits,
    /// The queue is full; the asker is returned.
    Full(A),
}

impl<A> Operations<A> {
    /// No operations.
    pub fn new() -> Self {
        Self { queue: VecDeque::new() }
    }

    /// Adds an asker to the last operation of the queue if that is of this kind, else queues a new operation.
    pub fn ask(&mut self, kind: Kind, asker: A) -> Asked<A> {
        let queued = self.queue.len();
        match self.queue.back_mut() {
            Some((last, askers)) if *last == kind => {
                if askers.len() >= ASKERS_MAX {
                    return Asked::Full(asker);
                }
                askers.push(asker);
                Asked::Waits
            }
            Some(_) if queued >= QUEUED_MAX => Asked::Full(asker),
            Some(_) => {
                self.queue.push_back((kind, vec![asker]));
                Asked::Waits
            }
            None => {
                self.queue.push_back((kind, vec![asker]));
                Asked::Begin
            }
        }
    }

    /// The operation under way, if there is one.
    pub fn under_way(&self) -> Option<Kind> {
        self.queue.front().map(|(kind, _)| *kind)
    }

    /// How many operations there are, with the one under way.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Takes out the askers of the operation under way, to be answered before it ends.
    pub fn take_askers(&mut self) -> Vec<A> {
        self.queue.front_mut().map(|(_, askers)| std::mem::take(askers)).unwrap_or_default()
    }

    /// Removes the operation under way, which has ended. Returns its askers, and the operation that begins
    /// now.
    pub fn ended(&mut self) -> (Vec<A>, Option<Kind>) {
        let askers = self.queue.pop_front().map(|(_, askers)| askers).unwrap_or_default();
        (askers, self.under_way())
    }
}

impl<A> Default for Operations<A> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_same_joins_and_the_other_waits_behind() {
        let mut operations = Operations::new();
        assert_eq!(operations.ask(Kind::Mount, 1), Asked::Begin);
        assert_eq!(operations.ask(Kind::Mount, 2), Asked::Waits);
        assert_eq!(operations.ask(Kind::Unmount, 3), Asked::Waits);
        assert_eq!(operations.ask(Kind::Mount, 4), Asked::Waits);
        assert_eq!(operations.ended(), (vec![1, 2], Some(Kind::Unmount)));
        assert_eq!(operations.take_askers(), [3]);
        assert_eq!(operations.ended(), (vec![], Some(Kind::Mount)));
        assert_eq!(operations.ended(), (vec![4], None));
        assert_eq!(operations.ended(), (vec![], None));
    }

    proptest! {
        #[test]
        fn everybody_is_answered_once_by_what_they_asked_for(steps in proptest::collection::vec(0u8..3, 1..200)) {
            let mut operations = Operations::new();
            let mut open: BTreeSet<(usize, bool)> = BTreeSet::new();
            for (at, step) in steps.into_iter().enumerate() {
                if step < 2 {
                    let kind = if step == 0 { Kind::Mount } else { Kind::Unmount };
                    let idle = operations.under_way().is_none();
                    let asker = (at, kind == Kind::Mount);
                    match operations.ask(kind, asker) {
                        Asked::Begin => { prop_assert!(idle); open.insert(asker); }
                        Asked::Waits => { prop_assert!(!idle); open.insert(asker); }
                        Asked::Full(back) => prop_assert_eq!(back, asker),
                    }
                } else if let Some(kind) = operations.under_way() {
                    for asker in operations.ended().0 {
                        prop_assert_eq!(asker.1, kind == Kind::Mount);
                        prop_assert!(open.remove(&asker));
                    }
                }
            }
            while operations.under_way().is_some() {
                for asker in operations.ended().0 { prop_assert!(open.remove(&asker)); }
            }
            prop_assert!(open.is_empty());
        }
    }
}
