//! A set that its follower acts on, and keeps over a restart of the writer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use messages::facts::{SeenPod, WorkerReport, WorkerState};
use messages::pod_set::PodSetUpdate;
use messages::runtime::RuntimePod;
use messages::{PodRef, PodUid};

use crate::set::{PodSet, Taken};

/// A set as its follower knows it. What an earlier writer told of a pod holds until the present one has told of the pod, or
/// that its set is complete: the snapshot of a writer that has just begun makes its follower forget nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Followed<V> {
    set: PodSet<V>,
    /// The pods that are in no set of the present writer's, and of which it has not said that they are gone.
    earlier: BTreeMap<PodUid, V>,
}

impl<V> Default for Followed<V> {
    fn default() -> Self {
        Self { set: PodSet::default(), earlier: BTreeMap::new() }
    }
}

/// A pod that has changed, and what it was before, if that was known.
pub type Changed<V> = (PodUid, Option<V>);

impl<V: Clone + PartialEq> Followed<V> {
    /// Takes an update in. Returns the pods that have changed; `None` if an update was lost, and the writer has to be asked
    /// for everything.
    pub fn take(&mut self, update: PodSetUpdate<V>) -> Option<Vec<Changed<V>>> {
        match self.set.take(update) {
            Taken::Nothing => Some(Vec::new()),
            Taken::Missed => None,
            Taken::Pod(uid, before) => {
                let before = before.or_else(|| self.earlier.remove(&uid));
                self.keep(&uid, before.clone());
                let has_changed = self.get(&uid) != before.as_ref();
                Some(has_changed.then_some((uid, before)).into_iter().collect())
            }
            Taken::All(before) => {
                let mut known: BTreeMap<PodUid, V> = std::mem::take(&mut self.earlier);
                known.extend(before.iter().map(|(uid, value)| (uid.clone(), value.clone())));
                for (uid, value) in &known {
                    self.keep(uid, Some(value.clone()));
                }
                let uids: BTreeSet<PodUid> = self.set.uids().chain(known.keys()).cloned().collect();
                let changed = uids.into_iter().filter(|uid| self.get(uid) != known.get(uid));
                Some(changed.map(|uid| (uid.clone(), known.get(&uid).cloned())).collect())
            }
        }
    }

    /// Keeps what was known of a pod that the writer does not show and has not called gone.
    fn keep(&mut self, uid: &PodUid, before: Option<V>) {
        if let Some(before) = before.filter(|_| !self.set.contains(uid) && !self.is_removed(uid)) {
            self.earlier.insert(uid.clone(), before);
        }
    }

    /// What is known of the pod.
    pub fn get(&self, uid: &PodUid) -> Option<&V> {
        self.set.get(uid).or_else(|| self.earlier.get(uid))
    }

    /// Whether the writer has said that the pod is not there, or has said all and has not named it.
    pub fn is_removed(&self, uid: &PodUid) -> bool {
        self.set.is_removed(uid) || self.set.gone(uid).is_some()
    }

    /// Whether the present writer has said all: absence means that a pod is not there, if the pod can be read
    /// ([`Followed::is_removed`]).
    pub fn is_complete(&self) -> bool {
        self.set.is_complete()
    }

    /// Every pod of which something is known, by UID.
    pub fn iter(&self) -> impl Iterator<Item = (&PodUid, &V)> {
        self.set.iter().chain(&self.earlier)
    }
}

/// What is said of a pod of which a new writer has not heard, since it was over before that began.
pub trait Ends {
    /// The pod when it is over.
    fn over(&self) -> Self;
}

impl Ends for SeenPod {
    fn over(&self) -> Self {
        Self { state: Arc::new(RuntimePod::absent(self.state.pod.clone())), touch: self.touch }
    }
}

impl Ends for Arc<WorkerReport> {
    fn over(&self) -> Self {
        let state = WorkerState::Terminated;
        Self::new(WorkerReport { state, released: true, deleted: true, ..WorkerReport::clone(self) })
    }
}

impl<V: Clone + PartialEq + Ends> Followed<V> {
    /// Takes an update in. Returns how the pods are now that have changed, also those that are over; `None` if the writer has
    /// to be asked for everything.
    pub fn hear(&mut self, update: PodSetUpdate<V>) -> Option<Vec<(PodUid, V)>> {
        let changed = self.take(update)?;
        let now = changed.into_iter().filter_map(|(uid, before)| {
            let now = self.get(&uid).cloned().or_else(|| before.map(|before| before.over()));
            now.map(|now| (uid, now))
        });
        Some(now.collect())
    }
}

impl Followed<SeenPod> {
    /// How the pod is now, as far as Pleg has told: for a pod that was left alone when that changed.
    pub fn now(&self, uid: &PodUid) -> Option<SeenPod> {
        let nameless = || PodRef { uid: uid.clone(), namespace: Arc::from(""), name: Arc::from("") };
        let absent = || SeenPod { state: Arc::new(RuntimePod::absent(nameless())), touch: 0 };
        self.get(uid).cloned().or_else(|| self.is_removed(uid).then(absent))
    }

    /// The pods of which the runtime holds something.
    pub fn present(&self) -> impl Iterator<Item = (&PodUid, &SeenPod)> {
        self.iter().filter(|(_, seen)| !seen.state.is_absent())
    }
}

#[cfg(test)]
mod tests {
    use messages::pod_set::GonePod;

    use super::*;
    use crate::{Journal, snapshot};

    fn uid(number: u64) -> PodUid {
        PodUid::new(&number.to_string())
    }

    #[test]
    fn what_an_earlier_writer_told_holds_until_the_next_one_knows_better() {
        let mut followed = Followed::default();
        let first = snapshot(1, [(uid(1), 1), (uid(2), 2), (uid(3), 3)], true);
        assert_eq!(followed.take(first).map(|all| all.len()), Some(3));
        let mut journal = Journal::new(2);
        assert_eq!(followed.take(journal.put(&uid(1), 1)), None, "another writer: it has to tell everything");
        assert_eq!(
            followed.take(journal.snapshot()),
            Some(vec![]),
            "nothing is forgotten, nothing has changed"
        );
        assert_eq!(followed.take(journal.put(&uid(2), 20)), Some(vec![(uid(2), Some(2))]));
        assert_eq!((followed.get(&uid(2)), followed.get(&uid(3))), (Some(&20), Some(&3)));
        let unread = journal.unread(&uid(3)).expect("it is news");
        assert_eq!(followed.take(unread), Some(vec![]));
        assert!(journal.completed());
        assert_eq!(followed.take(journal.snapshot()), Some(vec![]), "it is there, though it cannot be read");
        assert_eq!(followed.get(&uid(3)), Some(&3));
        let gone = journal.remove(&uid(3), GonePod::default()).expect("it is news");
        assert_eq!(followed.take(gone), Some(vec![(uid(3), Some(3))]));
        assert_eq!((followed.get(&uid(3)), followed.is_removed(&uid(3))), (None, true));
        assert!(followed.is_complete() && followed.is_removed(&uid(9)));
        followed.take(Journal::new(3).snapshot());
        assert!(!followed.is_complete() && !followed.is_removed(&uid(9)), "the next one has yet to say all");
        let other = snapshot(4, [(uid(2), 20)], true);
        assert_eq!(followed.take(other), Some(vec![(uid(1), Some(1))]), "absence is told like presence");
        assert_eq!(followed.iter().collect::<Vec<_>>(), [(&uid(2), &20)]);
    }

    #[test]
    fn what_was_heard_before_an_incomplete_snapshot_goes_with_a_complete_one() {
        let mut followed = Followed::default();
        followed.take(snapshot(1, [(uid(1), 1), (uid(2), 2)], false));
        followed.take(snapshot(2, [(uid(3), 3)], false));
        assert_eq!(followed.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [3, 1, 2]);
        let all = followed.take(snapshot(2, [(uid(3), 3), (uid(4), 4)], true));
        assert_eq!(all, Some(vec![(uid(1), Some(1)), (uid(2), Some(2)), (uid(4), None)]));
    }

    #[test]
    fn a_look_that_is_older_than_what_is_known_is_ignored() {
        let mut followed = Followed::default();
        let (mut old, mut new) = (Journal::new(1), Journal::new(2));
        followed.take(old.snapshot());
        followed.take(new.snapshot());
        let first = new.put(&uid(1), 1);
        followed.take(new.put(&uid(1), 2));
        for late in [first, old.put(&uid(1), 3), old.snapshot()] {
            assert_eq!(followed.take(late), Some(vec![]));
        }
        assert_eq!(followed.get(&uid(1)), Some(&2));
    }
}
