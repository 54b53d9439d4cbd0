//! PURE: containers whose process has ended while the runtime goes on calling them running, and when their pods are looked at
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::Backoff;
use messages::PodUid;

/// Waits between looks at a pod with such a container.
const AGAIN: Backoff = Backoff::doubling(Duration::from_secs(2), Duration::from_secs(60));

/// The pods that have such containers.
#[derive(Debug, Default)]
pub struct Undead(BTreeMap<PodUid, OfPod>);

/// Those of one pod.
#[derive(Debug)]
struct OfPod {
    containers: BTreeSet<Arc<str>>,
    pause: Duration,
}

impl Undead {
    /// Takes those that a look has found: each look asks for all of the pod's. Returns how long the next look waits, if there
    /// are any.
    pub fn found(&mut self, uid: &PodUid, found: &[Arc<str>]) -> Option<Duration> {
        if found.is_empty() {
            self.0.remove(uid);
            return None;
        }
        let new = || OfPod { containers: BTreeSet::new(), pause: AGAIN.first() };
        let pod = self.0.entry(uid.clone()).or_insert_with(new);
        pod.containers = found.iter().cloned().collect();
        Some(pod.pause)
    }

    /// The wait for a look is over: returns the one for the look after it, if the pod still has such containers.
    pub fn again(&mut self, uid: &PodUid) -> Option<Duration> {
        let pod = self.0.get_mut(uid)?;
        pod.pause = AGAIN.following(pod.pause);
        Some(pod.pause)
    }

    /// Those of the pod.
    pub fn of(&self, uid: &PodUid) -> BTreeSet<Arc<str>> {
        self.0.get(uid).map_or_else(BTreeSet::new, |pod| pod.containers.clone())
    }

    /// Whether the container is one of them.
    pub fn has(&self, uid: &PodUid, container: &str) -> bool {
        self.0.get(uid).is_some_and(|pod| pod.containers.contains(container))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn the_pause_doubles_to_a_minute_until_no_such_container_is_found() {
        let (mut undead, uid) = (Undead::default(), PodUid::new("u"));
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        assert_eq!((undead.found(&uid, &[]), undead.again(&uid)), (None, None));
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pauses.extend(undead.found(&uid, &[a.clone(), b.clone()]));
            assert_eq!(
                undead.found(&uid, std::slice::from_ref(&a)),
                pauses.last().copied(),
                "another look, before its time"
            );
            assert!(undead.has(&uid, "a") && !undead.has(&uid, "b"));
            assert!(undead.again(&uid).is_some());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60].map(secs));
        assert_eq!(undead.of(&uid), [a.clone()].into());
        assert_eq!(undead.found(&uid, &[]), None);
        assert!(undead.0.is_empty() && undead.of(&uid).is_empty(), "nothing is kept");
        assert_eq!(undead.found(&uid, &[a]), Some(secs(2)), "the pause begins anew");
    }
}
