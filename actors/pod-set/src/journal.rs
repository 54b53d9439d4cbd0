//! The writer's end.

use std::sync::Arc;

use messages::PodUid;
use messages::pod_set::{Generation, GonePod, PodLevel, PodSetDigest, PodSetSnapshot, PodSetUpdate};

use crate::entries::Entries;

/// A set and its changes. Every method that changes the set gives the message that tells of it.
#[derive(Clone, Debug)]
pub struct Journal<V> {
    entries: Entries<V>,
    generation: Generation,
    complete: bool,
}

impl<V: Clone> Journal<V> {
    /// The empty set of a writer in this incarnation, which counts from 1.
    pub fn new(incarnation: u64) -> Self {
        let generation = Generation { incarnation, number: 0 };
        Self { entries: Entries::default(), generation, complete: false }
    }

    /// The pod is in the set with this value from now on.
    pub fn put(&mut self, uid: &PodUid, value: V) -> PodSetUpdate<V> {
        self.change(uid, PodLevel::Is(value))
    }

    /// The pod is not in the set any more; no message if its followers know that already.
    pub fn remove(&mut self, uid: &PodUid, gone: GonePod) -> Option<PodSetUpdate<V>> {
        let is_news = match self.entries.gone(uid) {
            Some(known) => known != gone,
            None => {
                self.entries.get(uid).is_some() || self.entries.is_unread(uid) || gone != GonePod::default()
            }
        };
        is_news.then(|| self.change(uid, PodLevel::Gone(gone)))
    }

    /// The pod is there and cannot be read; no message if its followers know that already.
    pub fn unread(&mut self, uid: &PodUid) -> Option<PodSetUpdate<V>> {
        (!self.entries.is_unread(uid)).then(|| self.change(uid, PodLevel::Unread))
    }

    fn change(&mut self, uid: &PodUid, level: PodLevel<V>) -> PodSetUpdate<V> {
        self.generation.number += 1;
        self.entries.set(uid.clone(), self.generation.number, level.clone());
        PodSetUpdate::Pod { uid: uid.clone(), level, digest: self.digest() }
    }

    /// Puts a value that says the same to followers in the place of the one that is there: only a snapshot shows it.
    pub fn refresh(&mut self, uid: &PodUid, value: V) {
        self.entries.refresh(uid, value);
    }

    /// Declares the set complete: from now on absence means removal. Returns whether that is new; then every follower needs a
    /// snapshot.
    pub fn completed(&mut self) -> bool {
        self.generation.number += u64::from(!self.complete);
        !std::mem::replace(&mut self.complete, true)
    }

    /// The whole set, as a message.
    pub fn snapshot(&self) -> PodSetUpdate<V> {
        let pods = self.entries.levels().clone();
        PodSetUpdate::All(Arc::new(PodSetSnapshot { pods, digest: self.digest() }))
    }

    /// The message of how the pod stands; none if nothing is known of it.
    pub fn level(&self, uid: &PodUid) -> Option<PodSetUpdate<V>> {
        let (number, level) = self.entries.levels().get(uid)?;
        let generation = Generation { number: *number, ..self.generation };
        let digest = PodSetDigest { generation, ..self.digest() };
        Some(PodSetUpdate::Pod { uid: uid.clone(), level: level.clone(), digest })
    }

    /// What followers compare themselves with.
    pub fn digest(&self) -> PodSetDigest {
        PodSetDigest {
            generation: self.generation,
            pods: self.entries.len(),
            hash: self.entries.hash(),
            complete: self.complete,
        }
    }

    /// The pod's value, if it is in the set.
    pub fn get(&self, uid: &PodUid) -> Option<&V> {
        self.entries.get(uid)
    }

    /// Every pod of the set, by UID.
    pub fn iter(&self) -> impl Iterator<Item = (&PodUid, &V)> {
        self.entries.iter()
    }

    /// What is known of a pod that has left the set lately.
    pub fn gone(&self, uid: &PodUid) -> Option<GonePod> {
        self.entries.gone(uid)
    }

    /// The pods that are there and cannot be read, by UID.
    pub fn unread_uids(&self) -> impl Iterator<Item = &PodUid> {
        self.entries.unread()
    }

    /// How many pods are in the set.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// There is no pod in the set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The message that exactly these pods are in the set, from a writer of this incarnation. Tests and benchmarks, which tell a
/// set only once, call this.
pub fn snapshot<V: Clone>(
    incarnation: u64,
    pods: impl IntoIterator<Item = (PodUid, V)>,
    complete: bool,
) -> PodSetUpdate<V> {
    let mut journal = Journal::new(incarnation);
    for (uid, value) in pods {
        journal.put(&uid, value);
    }
    journal.complete = complete;
    journal.snapshot()
}
