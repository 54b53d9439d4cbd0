//! The numbered levels that writer and followers both keep.

use std::collections::BTreeMap;

use messages::PodUid;
use messages::pod_set::{GonePod, PodLevel};

/// Pods that are remembered after they have gone, besides superseded ones, of which the node still has something.
const GONE_MAX: usize = 1024;

/// Levels by pod, and what a digest tells of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entries<V> {
    levels: BTreeMap<PodUid, (u64, PodLevel<V>)>,
    /// Pods that have gone and may be forgotten, the oldest first.
    gone: BTreeMap<u64, PodUid>,
    pods: usize,
    hash: u64,
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self { levels: BTreeMap::new(), gone: BTreeMap::new(), pods: 0, hash: 0 }
    }
}

/// Spreads a number over 64 bits (the finaliser of splitmix64): sums of such values collide as sums of random ones.
fn mixed(number: u64) -> u64 {
    let mut value = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Whether a digest counts this entry. Any other pod is in no set, and a follower that has not heard of it holds the same.
fn counts<V>(level: &PodLevel<V>) -> bool {
    matches!(level, PodLevel::Is(_) | PodLevel::Unread | PodLevel::Gone(GonePod { superseded: true, .. }))
}

impl<V> Entries<V> {
    /// The pod's level from now on. Returns what it was, if it was in the set.
    pub(crate) fn set(&mut self, uid: PodUid, number: u64, level: PodLevel<V>) -> Option<V> {
        self.pods += usize::from(matches!(level, PodLevel::Is(_)));
        if counts(&level) {
            self.hash = self.hash.wrapping_add(mixed(number));
        } else {
            self.gone.insert(number, uid.clone());
        }
        let before = self.levels.insert(uid, (number, level));
        let before = before.and_then(|before| self.left(before));
        if self.gone.len() > GONE_MAX
            && let Some((_, uid)) = self.gone.pop_first()
        {
            self.levels.remove(&uid);
        }
        before
    }

    fn left(&mut self, (number, level): (u64, PodLevel<V>)) -> Option<V> {
        if counts(&level) {
            self.hash = self.hash.wrapping_sub(mixed(number));
        } else {
            self.gone.remove(&number);
        }
        let PodLevel::Is(value) = level else { return None };
        self.pods -= 1;
        Some(value)
    }

    /// Puts a value that says the same to followers in the place of the one that is there.
    pub(crate) fn refresh(&mut self, uid: &PodUid, value: V) {
        if let Some((_, PodLevel::Is(known))) = self.levels.get_mut(uid) {
            *known = value;
        }
    }

    pub(crate) fn get(&self, uid: &PodUid) -> Option<&V> {
        match self.levels.get(uid) {
            Some((_, PodLevel::Is(value))) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn gone(&self, uid: &PodUid) -> Option<GonePod> {
        match self.levels.get(uid) {
            Some((_, PodLevel::Gone(gone))) => Some(*gone),
            _ => None,
        }
    }

    /// The number of the change that brought the pod to where it is; 0 if nothing is known of the pod.
    pub(crate) fn number(&self, uid: &PodUid) -> u64 {
        self.levels.get(uid).map_or(0, |(number, _)| *number)
    }

    pub(crate) fn levels(&self) -> &BTreeMap<PodUid, (u64, PodLevel<V>)> {
        &self.levels
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PodUid, &V)> {
        self.levels.iter().filter_map(|(uid, (_, level))| match level {
            PodLevel::Is(value) => Some((uid, value)),
            PodLevel::Unread | PodLevel::Gone(_) => None,
        })
    }

    pub(crate) fn unread(&self) -> impl Iterator<Item = &PodUid> {
        let unread = self.levels.iter().filter(|(_, (_, level))| matches!(level, PodLevel::Unread));
        unread.map(|(uid, _)| uid)
    }

    pub(crate) fn is_unread(&self, uid: &PodUid) -> bool {
        matches!(self.levels.get(uid), Some((_, PodLevel::Unread)))
    }

    pub(crate) fn len(&self) -> usize {
        self.pods
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_is_forgotten_some_time_but_for_what_is_superseded() {
        let mut entries = Entries::default();
        let uid = |number: u64| PodUid::new(&number.to_string());
        let superseded = GonePod { superseded: true, ..GonePod::default() };
        entries.set(uid(0), 1, PodLevel::Gone(superseded));
        for number in 1..=2000 {
            entries.set(uid(number), number + 1, PodLevel::<()>::Gone(GonePod::default()));
        }
        assert_eq!(entries.levels().len(), GONE_MAX + 1);
        assert_eq!((entries.gone(&uid(0)), entries.gone(&uid(1))), (Some(superseded), None));
        entries.set(uid(2000), 5000, PodLevel::Is(()));
        assert_eq!((entries.len(), entries.levels().len()), (1, GONE_MAX + 1));
    }
}
