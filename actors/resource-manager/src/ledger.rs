//! PURE: which pods have cgroups, which of them count for the classes' shares, and which cgroups are no longer needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::facts::{DesiredPod, DesiredPods};
use supervision::blame;

/// The pods and their cgroups.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The specs of all pods that are desired or have a cgroup, as far as their specs have been seen.
    specs: BTreeMap<PodUid, Arc<Pod>>,
    desired: Option<BTreeSet<PodUid>>,
    /// Every source has been heard: before that, a pod that is not desired may still be wanted.
    sources_ready: bool,
    /// The pods that have a cgroup.
    present: BTreeSet<PodUid>,
    /// Cgroups made (true) and removed (false) since the listing under way began, which may have missed that.
    changes: BTreeMap<PodUid, bool>,
    /// The pods that had a cgroup at the last listing without being desired. If that is so again at the next listing,
    /// their cgroups are removed: until then, their workers may remove them.
    suspects: BTreeSet<PodUid>,
}

impl Ledger {
    /// Takes the desired pods.
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

    /// Notes that a pod's cgroup is being made.
    pub(crate) fn made(&mut self, pod: &DesiredPod) {
        let uid = &pod.pod_ref.uid;
        self.specs.insert(uid.clone(), pod.pod.clone());
        self.present.insert(uid.clone());
        self.changes.insert(uid.clone(), true);
        self.suspects.remove(uid);
    }

    /// Notes that a pod's cgroup is gone.
    pub(crate) fn removed(&mut self, uid: &PodUid) {
        self.present.remove(uid);
        self.changes.insert(uid.clone(), false);
        self.forget();
    }

    /// Notes that the machine's cgroups are about to be listed.
    pub(crate) fn listing_begins(&mut self) {
        self.changes.clear();
    }

    /// Takes the pods that have cgroups. Returns those that have not been desired for a whole period.
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

    /// The specs of the pods that have a cgroup, without those that are `left_alone`.
    pub(crate) fn counted(&self, left_alone: &BTreeSet<PodUid>) -> impl Iterator<Item = &Pod> {
        let counted = self.present.iter().filter(|uid| !left_alone.contains(*uid));
        counted.filter_map(|uid| self.specs.get(uid)).map(AsRef::as_ref)
    }

    /// The number of pods that have a cgroup.
    pub(crate) fn present(&self) -> usize {
        self.present.len()
    }

    fn forget(&mut self) {
        let Self { specs, desired, present, changes, .. } = self;
        // Before the desired pods have been heard, no pod is known to be gone.
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
        // The pod's manifest is gone, and the pod is being stopped.
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
        ledger.made(&pod("new"));
        ledger.desired(&desired(&["a", "new"], true));
        assert_eq!(ledger.listed(uids(&["a", "new"])), []);
    }
}
