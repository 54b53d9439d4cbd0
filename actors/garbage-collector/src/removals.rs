//! PURE: of which pod garbage is removed next. A few pods have a place at once, one namespace at most half of the places: the
//! namespace with the fewest goes first, equals take turns.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_pace::FairQueue;
use messages::PodUid;

use crate::plan::{Garbage, GarbageOfPods};

/// Of so many pods garbage is removed at once.
pub const PLACES: usize = 8;
/// So many of them may be of one namespace.
const OF_ONE: usize = PLACES / 2;

/// What waits to be removed, and the removals under way.
#[derive(Debug, Default)]
pub struct Removals {
    /// The newest garbage of each pod that is in the line, or whose removal of earlier garbage is under way.
    waiting: GarbageOfPods,
    line: FairQueue<Arc<str>, PodUid>,
    /// The namespaces of the pods that have a place.
    under_way: BTreeMap<PodUid, Arc<str>>,
}

impl Removals {
    /// A collection begins: what was found before and waits is found again, or is no garbage any more.
    pub fn forget_found(&mut self) {
        self.waiting.values_mut().for_each(|(_, garbage)| *garbage = Garbage::default());
    }

    /// Adds what was found of some pods.
    pub fn found(&mut self, pods: GarbageOfPods) {
        for (uid, (namespace, garbage)) in pods {
            if let Some((_, known)) = self.waiting.get_mut(&uid) {
                known.containers.extend(garbage.containers);
                known.sandboxes.extend(garbage.sandboxes);
                known.log_dirs.extend(garbage.log_dirs);
                continue;
            }
            if !self.under_way.contains_key(&uid) {
                self.line.push(&namespace, uid.clone());
            }
            self.waiting.insert(uid, (namespace, garbage));
        }
    }

    /// Gives the pod whose turn it is a place; [`Self::ended`] takes it back.
    pub fn next(&mut self) -> Option<(PodUid, Garbage)> {
        if self.under_way.len() >= PLACES {
            return None;
        }
        let mut held = BTreeMap::<&str, usize>::new();
        self.under_way.values().for_each(|namespace| *held.entry(namespace).or_default() += 1);
        let held = |namespace: &Arc<str>| held.get(&**namespace).copied().unwrap_or(0);
        let (namespace, uid) = self.line.pop_fewest(OF_ONE, held)?;
        let (_, garbage) = self.waiting.remove(&uid)?;
        self.under_way.insert(uid.clone(), namespace);
        Some((uid, garbage))
    }

    /// The removal of the pod's garbage has ended: what was found meanwhile joins the line. Returns whether there is any.
    pub fn ended(&mut self, uid: &PodUid) -> bool {
        self.under_way.remove(uid);
        let Some((namespace, garbage)) = self.waiting.get(uid) else { return false };
        let more = *garbage != Garbage::default();
        if more {
            self.line.push(&namespace.clone(), uid.clone());
        } else {
            self.waiting.remove(uid);
        }
        more
    }

    /// Whether nothing waits and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.line.is_empty()
    }

    /// How many pods wait, and how many have a place.
    pub fn counts(&self) -> (usize, usize) {
        (self.waiting.len(), self.under_way.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::DeadContainer;

    /// One dead container of the pod `<namespace>-<number>`.
    fn garbage(namespace: &str, number: usize, id: &str) -> GarbageOfPods {
        let name = format!("{namespace}-{number}");
        let pod = messages::PodRef {
            uid: PodUid::new(&name),
            namespace: Arc::from(namespace),
            name: Arc::from(name.as_str()),
        };
        let container =
            DeadContainer { pod, id: Arc::from(id), name: Arc::from("c"), attempt: 0, unknown: false };
        Garbage { containers: vec![container], ..Garbage::default() }.of_pods()
    }

    fn begun(removals: &mut Removals) -> Vec<String> {
        std::iter::from_fn(|| removals.next()).map(|(uid, _)| uid.to_string()).collect()
    }

    #[test]
    fn a_namespace_has_half_of_the_places_and_the_next_turn_is_anothers() {
        let mut removals = Removals::default();
        for number in 0..100 {
            removals.found(garbage("crowd", number, "x"));
        }
        assert_eq!(begun(&mut removals), ["crowd-0", "crowd-1", "crowd-2", "crowd-3"]);
        for number in 0..100 {
            removals.found(garbage("more", number, "x"));
        }
        assert_eq!(begun(&mut removals), ["more-0", "more-1", "more-2", "more-3"]);
        removals.found(garbage("quiet", 0, "x"));
        assert_eq!(begun(&mut removals), [""; 0], "all places are taken");
        removals.ended(&PodUid::new("crowd-2"));
        assert_eq!(begun(&mut removals), ["quiet-0"]);
        removals.ended(&PodUid::new("quiet-0"));
        assert_eq!(begun(&mut removals), ["crowd-4"]);
        assert_eq!(removals.counts(), (95 + 96, PLACES));
    }

    #[test]
    fn what_waits_is_what_the_newest_collection_found_and_once_in_the_line() {
        let mut removals = Removals::default();
        for number in 0..=OF_ONE {
            removals.found(garbage("a", number, "old"));
        }
        assert_eq!(begun(&mut removals).len(), OF_ONE);
        for round in ["newer", "newest"] {
            removals.forget_found();
            for number in [0, OF_ONE] {
                removals.found(garbage("a", number, round));
            }
        }
        assert!(removals.ended(&PodUid::new("a-0")), "it joins the line");
        let mut next = || {
            let (uid, found) = removals.next()?;
            let ids: Vec<String> = found.containers.iter().map(|one| one.id.to_string()).collect();
            removals.ended(&PodUid::new("a-1"));
            Some((uid.to_string(), ids))
        };
        assert_eq!(next(), Some(("a-4".to_owned(), vec!["newest".to_owned()])));
        assert_eq!(next(), Some(("a-0".to_owned(), vec!["newest".to_owned()])));
        assert_eq!(next(), None);
        removals.found(garbage("a", 0, "old"));
        removals.forget_found();
        for number in 0..=OF_ONE {
            assert!(!removals.ended(&PodUid::new(&format!("a-{number}"))));
        }
        assert!(removals.is_idle() && removals.waiting.is_empty());
    }
}
