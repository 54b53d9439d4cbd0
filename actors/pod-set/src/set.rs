//! A follower's end.

use messages::PodUid;
use messages::pod_set::{Generation, GonePod, PodLevel, PodSetDigest, PodSetSnapshot, PodSetUpdate};

use crate::entries::Entries;

/// What an update has changed for a follower.
#[derive(Debug, PartialEq)]
pub enum Taken<V> {
    /// Nothing: it is known already, or something newer is.
    Nothing,
    /// One pod; and what it was, if it was in the set.
    Pod(PodUid, Option<V>),
    /// Perhaps everything; and the set as it was.
    All(PodSet<V>),
    /// An update was lost on the way: the writer has to send everything again.
    Missed,
}

/// A set as far as its follower has heard of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSet<V> {
    entries: Entries<V>,
    /// The newest change that has been taken in; none before the first snapshot.
    generation: Option<Generation>,
    /// The newest change that the last snapshot covers: what comes later and is older has been taken in with it.
    covered: u64,
    complete: bool,
}

impl<V> Default for PodSet<V> {
    fn default() -> Self {
        Self { entries: Entries::default(), generation: None, covered: 0, complete: false }
    }
}

impl<V: Clone> PodSet<V> {
    /// Takes an update in.
    pub fn take(&mut self, update: PodSetUpdate<V>) -> Taken<V> {
        match update {
            PodSetUpdate::Pod { uid, level, digest } => self.take_pod(uid, level, digest),
            PodSetUpdate::All(snapshot) => self.take_all(&snapshot),
            PodSetUpdate::Digest(digest) => self.compare(digest),
        }
    }

    fn take_pod(&mut self, uid: PodUid, level: PodLevel<V>, digest: PodSetDigest) -> Taken<V> {
        let Some(known) = &mut self.generation else { return Taken::Missed };
        let Generation { incarnation, number } = digest.generation;
        if incarnation != known.incarnation {
            return if incarnation > known.incarnation { Taken::Missed } else { Taken::Nothing };
        }
        if number <= self.covered || number <= self.entries.number(&uid) {
            return Taken::Nothing;
        }
        *known = digest.generation.max(*known);
        let before = self.entries.set(uid.clone(), number, level);
        Taken::Pod(uid, before)
    }

    fn take_all(&mut self, snapshot: &PodSetSnapshot<V>) -> Taken<V> {
        let Generation { incarnation, number } = snapshot.digest.generation;
        let known = self.generation.unwrap_or_default();
        let same_writer = incarnation == known.incarnation;
        if incarnation < known.incarnation || (same_writer && self.covered > number) {
            return Taken::Nothing;
        }
        let mut next = Self {
            entries: Entries::default(),
            generation: Some(snapshot.digest.generation.max(known)),
            covered: number,
            complete: snapshot.digest.complete,
        };
        for (uid, (number, level)) in &snapshot.pods {
            next.entries.set(uid.clone(), *number, level.clone());
        }
        if same_writer {
            // Changes that have overtaken the snapshot on their way.
            let newer = self.entries.levels().iter().filter(|(_, (of_pod, _))| *of_pod > number);
            for (uid, (number, level)) in newer {
                next.entries.set(uid.clone(), *number, level.clone());
            }
        }
        Taken::All(std::mem::replace(self, next))
    }

    fn compare(&self, digest: PodSetDigest) -> Taken<V> {
        let Some(known) = self.generation.filter(|known| known.incarnation >= digest.generation.incarnation)
        else {
            return Taken::Missed;
        };
        // A digest of earlier has been overtaken and tells nothing.
        let is_late = known > digest.generation;
        let same = self.entries.len() == digest.pods
            && self.entries.hash() == digest.hash
            && self.complete == digest.complete;
        if is_late || same { Taken::Nothing } else { Taken::Missed }
    }

    /// It has been heard of the set.
    pub fn is_known(&self) -> bool {
        self.generation.is_some()
    }

    /// Every source of the set has been heard: absence means removal, but for pods that cannot be read
    /// ([`PodSet::is_removed`]).
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The pod's value, if it is in the set.
    pub fn get(&self, uid: &PodUid) -> Option<&V> {
        self.entries.get(uid)
    }

    /// Whether the pod is in the set.
    pub fn contains(&self, uid: &PodUid) -> bool {
        self.get(uid).is_some()
    }

    /// Whether the pod is there and its writer cannot read it.
    pub fn is_unread(&self, uid: &PodUid) -> bool {
        self.entries.is_unread(uid)
    }

    /// The pods that are there and that their writer cannot read, by UID.
    pub fn unread_uids(&self) -> impl Iterator<Item = &PodUid> {
        self.entries.unread()
    }

    /// Whether the pod is known not to be in the set: absence means that once the set is complete, or if it was said.
    pub fn is_removed(&self, uid: &PodUid) -> bool {
        !self.contains(uid)
            && !self.is_unread(uid)
            && (self.complete || self.entries.gone(uid).is_some_and(|gone| gone.superseded))
    }

    /// What is known of a pod that has left the set lately.
    pub fn gone(&self, uid: &PodUid) -> Option<GonePod> {
        self.entries.gone(uid)
    }

    /// Every pod of the set, by UID.
    pub fn iter(&self) -> impl Iterator<Item = (&PodUid, &V)> {
        self.entries.iter()
    }

    /// The UIDs of the set, in order.
    pub fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.entries.iter().map(|(uid, _)| uid)
    }

    /// How many pods are in the set.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// There is no pod in the set, as far as it has been heard of.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
