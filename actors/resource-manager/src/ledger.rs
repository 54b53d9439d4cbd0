//! PURE: whose cgroups are there, who counts for the classes' shares, and whose cgroups nobody needs any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::facts::{DesiredPod, DesiredPods};
use supervision::blame;

/// What is known of pods and their cgroups.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Everybody whose spec was seen and who is desired or has a cgroup.
    specs: BTreeMap<PodUid, Arc<Pod>>,
    desired: Option<BTreeSet<PodUid>>,
    /// Every source has been heard: only then is somebody who is not desired not wanted.
    sources_ready: bool,
    /// Whose cgroup is there.
    present: BTreeSet<PodUid>,
    /// Cgroups made (true) and removed since the listing that is under way began: it may not have seen it.
    changes: BTreeMap<PodUid, bool>,
    /// Nobody's cgroups at the last listing. Whoever still is at the next one is removed: a pod may come to its end by
    /// itself meanwhile.
    suspects: BTreeSet<PodUid>,
}

impl Ledger {
    /// What shall run.
    pub(crate) fn desired(&mut self, desired: &DesiredPods) {
        let wanted = |pod: &&Arc<DesiredPod>| pod.rejected.is_none();
        for pod in desired.pods.values().filter(wanted) {
            let _named = blame::name(&pod.pod_ref.uid);
            self.specs.insert(pod.pod_ref.uid.clone(), pod.pod.clone());
        }
        self.desired = Some(desired.pods.keys().cloned().collect());
        self.sources_ready = desired.sources_ready;
        self.forget();
    }

    /// A pod's cgroup is being made.
    pub(crate) fn made(&mut self, pod: &DesiredPod) {
        let uid = &pod.pod_ref.uid;
        self.specs.insert(uid.clone(), pod.pod.clone());
        self.present.insert(uid.clone());
        self.changes.insert(uid.clone(), true);
        self.suspects.remove(uid);
    }

    /// A pod's cgroup is gone.
    pub(crate) fn removed(&mut self, uid: &PodUid) {
        self.present.remove(uid);
        self.changes.insert(uid.clone(), false);
        self.forget();
    }

    /// The machine's cgroups are about to be listed.
    pub(crate) fn listing_begins(&mut self) {
        self.changes.clear();
    }

    /// These are there. Gives those that nobody needs, and has not for a whole period.
    pub(crate) fn listed(&mut self, found: BTreeSet<PodUid>) -> Vec<PodUid> {
        self.present = found;
        for (uid, made) in std::mem::take(&mut self.changes) {
            if made {
                self.present.insert(uid);
            } else {
                self.present.remove(&uid);
            }
        }
        self.forget();
        let Some(desired) = self.desired.as_ref().filter(|_| self.sources_ready) else {
            return Vec::new();
        };
        let unwanted: BTreeSet<PodUid> =
            self.present.iter().filter(|uid| !desired.contains(*uid)).cloned().collect();
        let orphans = unwanted.intersection(&self.suspects).cloned().collect();
        self.suspects = unwanted;
        orphans
    }

    /// Nobody needs its cgroup, as of now: an orphan of the last listing may have come back since.
    pub(crate) fn is_orphan(&self, uid: &PodUid) -> bool {
        let desired = self.desired.as_ref().filter(|_| self.sources_ready);
        self.suspects.contains(uid) && desired.is_some_and(|desired| !desired.contains(uid))
    }

    /// Those who have a cgroup, as far as they are known, but for those that are `left_alone`.
    pub(crate) fn counted(&self, left_alone: &BTreeSet<PodUid>) -> impl Iterator<Item = &Pod> {
        let counted = self.present.iter().filter(|uid| !left_alone.contains(*uid));
        counted.filter_map(|uid| self.specs.get(uid)).map(AsRef::as_ref)
    }

    /// How many cgroups of pods are there.
    pub(crate) fn present(&self) -> usize {
        self.present.len()
    }

    fn forget(&mut self) {
        let Self { specs, desired, present, changes, .. } = self;
        // Before the first list nobody is known to be gone.
        let Some(desired) = desired else { return };
        specs.retain(|uid, _| {
            desired.contains(uid) || present.contains(uid) || changes.get(uid) == Some(&true)
        });
    }
}

#[cfg(test)]
mod tests {
    use messages::PodRef;
    use messages::facts::Source;

    use super::*;

    fn pod(uid: &str) -> DesiredPod {
        DesiredPod {
            pod_ref: PodRef { uid: PodUid::new(uid), namespace: Arc::from("default"), name: Arc::from(uid) },
            pod: Arc::new(Pod::default()),
            source: Source::File,
            rejected: None,
        }
    }

    fn desired(uids: &[&str], sources_ready: bool) -> DesiredPods {
        let pods = uids.iter().map(|uid| (PodUid::new(uid), Arc::new(pod(uid)))).collect();
        DesiredPods { pods: Arc::new(pods), sources_ready, gone: Arc::default(), superseded: Arc::default() }
    }

    fn uids(uids: &[&str]) -> BTreeSet<PodUid> {
        uids.iter().map(|uid| PodUid::new(uid)).collect()
    }

    #[test]
    fn who_has_a_cgroup_counts() {
        let mut ledger = Ledger::default();
        ledger.desired(&desired(&["a", "b"], true));
        assert_eq!((ledger.counted(&BTreeSet::new()).count(), ledger.present()), (0, 0));
        ledger.made(&pod("a"));
        assert_eq!(ledger.counted(&BTreeSet::new()).count(), 1);
        // Its manifest is gone, and it is being stopped.
        ledger.desired(&desired(&["b"], true));
        assert_eq!(ledger.counted(&BTreeSet::new()).count(), 1);
        ledger.removed(&PodUid::new("a"));
        assert_eq!((ledger.counted(&BTreeSet::new()).count(), ledger.specs.len()), (0, 1));
    }

    #[test]
    fn after_a_crash_the_kernel_tells_who_counts() {
        let mut ledger = Ledger::default();
        ledger.listing_begins();
        assert_eq!(ledger.listed(uids(&["a", "x"])), []);
        assert_eq!(ledger.counted(&BTreeSet::new()).count(), 0);
        ledger.desired(&desired(&["a", "b"], true));
        assert_eq!((ledger.counted(&BTreeSet::new()).count(), ledger.present()), (1, 2));
    }

    #[test]
    fn a_listing_does_not_hide_what_happened_meanwhile() {
        let mut ledger = Ledger::default();
        ledger.desired(&desired(&["a", "b"], true));
        ledger.made(&pod("a"));
        ledger.listing_begins();
        ledger.made(&pod("b"));
        ledger.removed(&PodUid::new("a"));
        ledger.listed(uids(&["a"]));
        assert_eq!(ledger.present, uids(&["b"]));
        ledger.listing_begins();
        ledger.listed(uids(&[]));
        assert_eq!(ledger.present, uids(&[]), "somebody removed it behind our back");
    }

    #[test]
    fn an_orphan_is_nobodys_for_a_whole_period() {
        let mut ledger = Ledger::default();
        ledger.listing_begins();
        assert_eq!(ledger.listed(uids(&["old"])), []);
        ledger.desired(&desired(&["a"], false));
        assert_eq!(ledger.listed(uids(&["a", "old"])), [], "a source has not been heard");
        ledger.desired(&desired(&["a"], true));
        assert_eq!(ledger.listed(uids(&["a", "old"])), []);
        assert_eq!(ledger.listed(uids(&["a", "old", "new"])), [PodUid::new("old")]);
        assert!(ledger.is_orphan(&PodUid::new("old")));
        ledger.made(&pod("new"));
        ledger.desired(&desired(&["a", "new"], true));
        assert_eq!(ledger.listed(uids(&["a", "new"])), []);
    }

    #[test]
    fn an_orphan_that_comes_back_is_none() {
        let (mut ledger, uid) = (Ledger::default(), PodUid::new("old"));
        let orphan = || {
            let mut ledger = Ledger::default();
            ledger.desired(&desired(&[], true));
            ledger.listed(uids(&["old"]));
            assert_eq!(ledger.listed(uids(&["old"])), [PodUid::new("old")]);
            ledger
        };
        assert!(!ledger.is_orphan(&uid));
        ledger = orphan();
        ledger.made(&pod("old"));
        assert!(!ledger.is_orphan(&uid), "its cgroup is being made");
        ledger = orphan();
        ledger.desired(&desired(&["old"], true));
        assert!(!ledger.is_orphan(&uid));
    }
}
