//! One operation per pod at a time: asks for the same join it, asks for the other wait behind it.

use std::collections::VecDeque;

/// What is done to a pod's volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Have all ready.
    Mount,
    /// Have all gone.
    Unmount,
    /// Have those that are there show what is true now.
    Refresh,
}

/// Operations of one pod that may queue up; more would mean a worker that changes its mind without waiting.
const QUEUED_MAX: usize = 4;
/// Askers that may wait for one operation.
const ASKERS_MAX: usize = 64;

/// The operations of one pod, the one under way first. `A` is what has to be answered.
#[derive(Debug)]
pub struct Operations<A> {
    queue: VecDeque<(Kind, Vec<A>)>,
}

/// What became of an ask.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked<A> {
    /// The caller begins the operation now.
    Begin,
    /// It will be answered by one that is under way or queued.
    Waits,
    /// Too much waits already; the asker is handed back.
    Full(A),
}

impl<A> Operations<A> {
    /// Nothing is under way.
    pub fn new() -> Self {
        Self { queue: VecDeque::new() }
    }

    /// Somebody asks for an operation.
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

    /// The operation under way.
    pub fn under_way(&self) -> Option<Kind> {
        self.queue.front().map(|(kind, _)| *kind)
    }

    /// Operations, the one under way included.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Who waits for the operation under way, taken away to be answered before it ends.
    pub fn take_askers(&mut self) -> Vec<A> {
        self.queue.front_mut().map(|(_, askers)| std::mem::take(askers)).unwrap_or_default()
    }

    /// The operation under way has ended: who is to be answered, and which one begins now.
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
