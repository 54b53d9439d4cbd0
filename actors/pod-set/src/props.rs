use std::collections::{BTreeMap, VecDeque};

use messages::PodUid;
use messages::pod_set::{GonePod, PodLevel, PodSetUpdate};
use proptest::prelude::*;

use crate::{Journal, PodSet, Taken, snapshot};

fn uid(number: u8) -> PodUid {
    PodUid::new(&number.to_string())
}

/// A mailbox with the rules of delivery: the latest of each key, in the place of the one that it replaces.
#[derive(Default)]
struct Line(VecDeque<PodSetUpdate<u32>>);

impl Line {
    fn post(&mut self, update: PodSetUpdate<u32>) {
        match self.0.iter_mut().find(|waiting| waiting.key() == update.key()) {
            Some(waiting) => *waiting = update,
            None => self.0.push_back(update),
        }
    }
}

fn pods(set: &PodSet<u32>) -> Vec<(PodUid, u32)> {
    set.iter().map(|(uid, value)| (uid.clone(), *value)).collect()
}

#[test]
fn a_change_is_one_pods_message() {
    let (mut journal, mut set) = (Journal::new(1), PodSet::default());
    assert_eq!(set.take(journal.put(&uid(1), 10)), Taken::Missed, "nothing was heard before");
    assert!(matches!(set.take(journal.snapshot()), Taken::All(before) if !before.is_known()));
    assert_eq!(set.take(journal.put(&uid(1), 11)), Taken::Pod(uid(1), Some(10)));
    assert_eq!(set.take(journal.put(&uid(2), 20)), Taken::Pod(uid(2), None));
    assert_eq!(set.take(PodSetUpdate::Digest(journal.digest())), Taken::Nothing);
    let granted = GonePod { granted_seconds: Some(0), superseded: false };
    let gone = journal.remove(&uid(1), granted).expect("it is news");
    assert!(journal.remove(&uid(1), granted).is_none());
    assert_eq!(set.take(gone), Taken::Pod(uid(1), Some(11)));
    assert_eq!((set.len(), set.gone(&uid(1))), (1, Some(granted)));
    assert!(!set.is_removed(&uid(1)), "no source has been heard");
    assert!(journal.completed() && !journal.completed());
    assert_eq!(set.take(PodSetUpdate::Digest(journal.digest())), Taken::Missed, "it was not told of that");
    set.take(journal.snapshot());
    assert!(set.is_removed(&uid(1)) && set.is_removed(&uid(9)) && !set.is_removed(&uid(2)));
}

#[test]
fn a_pod_that_cannot_be_read_is_neither_in_the_set_nor_removed() {
    let (mut journal, mut set) = (Journal::new(1), PodSet::default());
    journal.put(&uid(1), 10);
    journal.completed();
    set.take(journal.snapshot());
    let unread = journal.unread(&uid(2)).expect("it is news");
    assert!(journal.unread(&uid(2)).is_none());
    let digest = PodSetUpdate::Digest(journal.digest());
    assert_eq!(set.take(digest.clone()), Taken::Missed, "a digest tells of it");
    assert_eq!(set.take(unread), Taken::Pod(uid(2), None));
    assert_eq!(set.take(digest), Taken::Nothing);
    assert!(set.is_unread(&uid(2)) && !set.contains(&uid(2)) && !set.is_removed(&uid(2)));
    assert_eq!((set.len(), set.uids().collect::<Vec<_>>()), (1, vec![&uid(1)]));
    let mut late = PodSet::default();
    late.take(journal.snapshot());
    assert_eq!(late.unread_uids().collect::<Vec<_>>(), [&uid(2)]);
    set.take(journal.put(&uid(2), 20));
    assert_eq!((set.get(&uid(2)), set.unread_uids().count()), (Some(&20), 0));
    set.take(journal.unread(&uid(2)).expect("it is news"));
    set.take(journal.remove(&uid(2), GonePod::default()).expect("it is news"));
    assert!(set.is_removed(&uid(2)));
}

#[test]
fn a_lost_change_is_found_by_the_digest() {
    let (mut journal, mut set) = (Journal::new(1), PodSet::default());
    set.take(journal.snapshot());
    let _lost = journal.put(&uid(1), 1);
    let late = PodSetUpdate::Digest(journal.digest());
    assert_eq!(set.take(journal.put(&uid(2), 2)), Taken::Pod(uid(2), None));
    assert_eq!(set.take(late), Taken::Nothing, "it has been overtaken");
    assert_eq!(set.take(PodSetUpdate::Digest(journal.digest())), Taken::Missed);
    assert!(matches!(set.take(journal.snapshot()), Taken::All(_)));
    assert_eq!(set.take(PodSetUpdate::Digest(journal.digest())), Taken::Nothing);
    assert_eq!(pods(&set), [(uid(1), 1), (uid(2), 2)]);
}

#[test]
fn a_change_of_earlier_brings_no_pod_back() {
    let (mut journal, mut set) = (Journal::new(1), PodSet::default());
    set.take(journal.snapshot());
    let old = journal.put(&uid(1), 1);
    let gone = journal.remove(&uid(1), GonePod::default()).expect("it is news");
    set.take(gone);
    assert_eq!(set.take(old.clone()), Taken::Nothing);
    set.take(journal.snapshot());
    assert_eq!(set.take(old), Taken::Nothing, "nor after a snapshot");
    assert!(set.is_empty());
}

#[test]
fn a_restarted_writer_is_above_all_earlier_ones() {
    let mut set = PodSet::default();
    set.take(snapshot(1, [(uid(1), 1)], true));
    let mut journal = Journal::new(2);
    assert_eq!(set.take(journal.put(&uid(2), 2)), Taken::Missed);
    assert_eq!(set.take(PodSetUpdate::Digest(journal.digest())), Taken::Missed);
    assert_eq!(pods(&set), [(uid(1), 1)], "what was known holds until everything is told");
    set.take(journal.snapshot());
    assert_eq!((pods(&set), set.is_complete()), (vec![(uid(2), 2)], false));
    assert_eq!(set.take(snapshot(1, [(uid(1), 1)], true)), Taken::Nothing);
}

#[test]
fn what_says_the_same_is_shown_by_a_snapshot_only() {
    let mut journal = Journal::new(1);
    journal.put(&uid(1), 1);
    let before = journal.digest();
    journal.refresh(&uid(1), 7);
    assert_eq!(journal.digest(), before);
    let PodSetUpdate::All(all) = journal.snapshot() else { panic!("it is a snapshot") };
    assert_eq!(all.pods[&uid(1)], (1, PodLevel::Is(7)));
}

proptest! {
    /// Changes, losses, snapshots that were asked for, restarts of both ends, and messages that wait for long: when
    /// nothing more is lost, one digest is enough for the follower to be whole again, and it never has a pod that the
    /// writer has taken away before the follower's newest snapshot.
    #[test]
    fn a_follower_is_whole_after_one_digest(
        steps in proptest::collection::vec((0u8..10, 0u8..6, any::<u32>(), proptest::bool::weighted(0.2)), 1..120),
    ) {
        let (mut incarnation, mut line) = (1, Line::default());
        let mut journal = Journal::new(incarnation);
        let mut truth: BTreeMap<PodUid, u32> = BTreeMap::new();
        let mut set = PodSet::default();
        for (step, pod, value, lost) in steps {
            let uid = uid(pod);
            let told = match step {
                0..=2 => {
                    truth.insert(uid.clone(), value);
                    Some(journal.put(&uid, value))
                }
                3 => {
                    truth.remove(&uid);
                    journal.remove(&uid, GonePod::default())
                }
                4 => Some(PodSetUpdate::Digest(journal.digest())),
                5 => {
                    incarnation += 1;
                    journal = Journal::new(incarnation);
                    truth.iter().for_each(|(uid, value)| drop(journal.put(uid, *value)));
                    Some(journal.snapshot())
                }
                6 => {
                    set = PodSet::default();
                    Some(journal.snapshot())
                }
                7 => {
                    truth.remove(&uid);
                    journal.unread(&uid)
                }
                _ => {
                    if let Some(update) = line.0.pop_front()
                        && set.take(update) == Taken::Missed
                    {
                        line.post(journal.snapshot());
                    }
                    None
                }
            };
            if let Some(told) = told.filter(|_| !lost) {
                line.post(told);
            }
        }
        while let Some(update) = line.0.pop_front() {
            set.take(update);
        }
        if set.take(PodSetUpdate::Digest(journal.digest())) == Taken::Missed {
            set.take(journal.snapshot());
        }
        prop_assert_eq!(set.take(PodSetUpdate::Digest(journal.digest())), Taken::Nothing);
        prop_assert_eq!(pods(&set), truth.into_iter().collect::<Vec<_>>());
    }
}
