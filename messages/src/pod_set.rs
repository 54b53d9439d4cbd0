//! Sets of pods that travel pod by pod, from the one actor that writes a set to those that follow it. The crate
//! `pod-set` has both ends: what makes these values, and what takes them in.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Key, PodUid};

/// One change of a set. Generations of one writer grow with every change, those of a restarted writer are above all
/// earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation {
    /// The incarnation of the writer, from 1.
    pub incarnation: u64,
    /// The change, from 1 in each incarnation; 0 is the empty set.
    pub number: u64,
}

/// What a follower compares itself with to find out whether it has missed a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodSetDigest {
    /// The newest change that the digest covers.
    pub generation: Generation,
    /// How many pods are in the set.
    pub pods: usize,
    /// A hash of the numbers under which these pods were changed last, and those that are superseded.
    pub hash: u64,
    /// Every source of the set has been heard: only then does absence mean removal (row 1.7).
    pub complete: bool,
}

/// What is known of a pod that is not in the set any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GonePod {
    /// The seconds that its deletion granted it, if that is known: 0 for a deletion by force.
    pub granted_seconds: Option<i64>,
    /// The source of this static pod has another pod of its full name instead: its absence means removal whatever other
    /// sources have not been heard.
    pub superseded: bool,
}

/// How one pod stands.
#[derive(Clone, Debug, PartialEq)]
pub enum PodLevel<V> {
    /// It is in the set.
    Is(V),
    /// It has not gone, but its writer cannot read it and knows nothing of it: that it is not shown means nothing.
    Unread,
    /// It is not.
    Gone(GonePod),
}

/// A whole set, with the number of the change that brought each pod to where it is.
#[derive(Clone, Debug)]
pub struct PodSetSnapshot<V> {
    /// Every pod of the set, and the newest of those that have left it.
    pub pods: BTreeMap<PodUid, (u64, PodLevel<V>)>,
    /// Of the same moment.
    pub digest: PodSetDigest,
}

/// What a writer tells its followers.
#[derive(Clone, Debug)]
pub enum PodSetUpdate<V> {
    /// One pod has changed.
    Pod {
        /// Which one.
        uid: PodUid,
        /// How it stands now.
        level: PodLevel<V>,
        /// After this change: its generation is that of the change.
        digest: PodSetDigest,
    },
    /// Everything: a follower has asked for it, or the set is complete from now on.
    All(Arc<PodSetSnapshot<V>>),
    /// Nothing new. Sent a moment after a change and every minute, so that a follower that has missed an update finds out.
    Digest(PodSetDigest),
}

impl<V> PodSetUpdate<V> {
    /// The pod that it is about, if it is about one.
    pub fn pod(&self) -> Option<&PodUid> {
        match self {
            Self::Pod { uid, .. } => Some(uid),
            Self::All(_) | Self::Digest(_) => None,
        }
    }

    /// The latest of each pod counts, the latest snapshot and the latest digest.
    pub fn key(&self) -> Key {
        match self {
            Self::Pod { uid, .. } => Key::Pod(uid.clone()),
            Self::All(_) => Key::Only,
            Self::Digest(_) => Key::Name(Arc::from("digest")),
        }
    }
}
