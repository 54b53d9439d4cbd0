//! PURE: which pods have cgroups, which of them count for the classes' shares, and which cgroups are no longer needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::values::burstable_cpu_millis;
use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::facts::DesiredPod;
use messages::pod_set::PodSetUpdate;
use pod_set::{PodSet, Taken};
use supervision::blame;

/// The pods and their cgroups.
#[derive(Debug, Default)]
pub(crate) struct PodCgroups {
    /// The specs of all pods that are desired or have a cgroup, as far as their specs have been seen.
    specs: BTreeMap<PodUid, Arc<Pod>>,
    desired: PodSet<Arc<DesiredPod>>,
    /// Whose cgroup is there.
    present: BTreeSet<PodUid>,
    /// What those add to the cgroup of burstable pods whose cgroup is there and whose spec is known, in thousandths of a
    /// CPU; and the sum of it.
    counted: BTreeMap<PodUid, i128>,
    burstable_millis: i128,
    /// Cgroups made (true) and removed since the listing that is under way began: it may not have seen it.
    changes: BTreeMap<PodUid, bool>,
    /// The pods that had a cgroup at the last listing without being desired. If that is so again at the next listing,
    /// their cgroups are removed: until then, their workers may remove them.
    suspects: BTreeSet<PodUid>,
    /// Quarantined pods: what is news of them is taken in when they are let in.
    left_alone: BTreeSet<PodUid>,
}

impl PodCgroups {
    /// These pods, and no others, are left alone from now on. When one of them is let in, [`PodCgroups::settle`] takes in what
    /// is known of it by then.
    pub(crate) fn leave_alone(&mut self, pods: BTreeSet<PodUid>) {
        self.left_alone = pods;
    }

    /// What shall run. Whether something was missed and has to be asked for.
    pub(crate) fn desired(&mut self, update: PodSetUpdate<Arc<DesiredPod>>) -> bool {
        match self.desired.take(update) {
            Taken::Nothing => {}
            Taken::Pod(uid, _) => self.settle(&uid),
            Taken::All(_) => self.settle_all(self.desired.uids().chain(self.specs.keys()).cloned().collect()),
            Taken::Missed => return true,
        }
        false
    }

    /// Notes that a pod's cgroup is being made.
    pub(crate) fn made(&mut self, pod: &DesiredPod) {
        let uid = &pod.pod_ref.uid;
        self.specs.insert(uid.clone(), pod.pod.clone());
        self.present.insert(uid.clone());
        self.changes.insert(uid.clone(), true);
        self.suspects.remove(uid);
        self.count(uid);
    }

    /// Notes that a pod's cgroup is gone.
    pub(crate) fn removed(&mut self, uid: &PodUid) {
        self.present.remove(uid);
        self.changes.insert(uid.clone(), false);
        self.settle(uid);
    }

    /// Notes that an orphan's cgroup is gone, unless it has been made anew for a pod that came back meanwhile.
    pub(crate) fn orphan_removed(&mut self, uid: &PodUid) {
        if self.suspects.contains(uid) {
            self.removed(uid);
        }
    }

    /// Notes that the machine's cgroups are about to be listed.
    pub(crate) fn listing_begins(&mut self) {
        self.changes.clear();
    }

    /// Takes the pods that have cgroups. Returns those that have not been desired for a whole period.
    pub(crate) fn listed(&mut self, found: BTreeSet<PodUid>) -> Vec<PodUid> {
        let before = std::mem::replace(&mut self.present, found);
        for (uid, made) in std::mem::take(&mut self.changes) {
            if made {
                self.present.insert(uid);
            } else {
                self.present.remove(&uid);
            }
        }
        let uids: BTreeSet<PodUid> =
            before.iter().chain(&self.present).chain(self.specs.keys()).cloned().collect();
        self.settle_all(uids);
        if !self.desired.is_complete() {
            return Vec::new();
        }
        let is_unwanted = |uid: &&PodUid| self.desired.is_removed(uid);
        let unwanted: BTreeSet<PodUid> = self.present.iter().filter(is_unwanted).cloned().collect();
        let orphans = unwanted.intersection(&self.suspects).cloned().collect();
        self.suspects = unwanted;
        orphans
    }

    /// Whether no pod needs this cgroup as of now: the pod of an orphan of the last listing may have come back since.
    pub(crate) fn is_orphan(&self, uid: &PodUid) -> bool {
        self.suspects.contains(uid) && self.desired.is_complete() && self.desired.is_removed(uid)
    }

    /// What burstable pods that have a cgroup request together, as far as they are known, in thousandths of a CPU.
    pub(crate) fn burstable_millis(&self) -> i128 {
        self.burstable_millis
    }

    /// The number of pods that have a cgroup.
    pub(crate) fn present(&self) -> usize {
        self.present.len()
    }

    fn settle_all(&mut self, uids: BTreeSet<PodUid>) {
        for uid in uids.difference(&self.left_alone.clone()) {
            let _named = blame::name(uid);
            self.settle(uid);
        }
    }

    /// Takes the pod's newest spec, or forgets it if the pod is neither desired nor has a cgroup.
    pub(crate) fn settle(&mut self, uid: &PodUid) {
        let (desired, changes) = (self.desired.get(uid), &self.changes);
        if let Some(pod) = desired.filter(|pod| pod.rejected.is_none()) {
            self.specs.insert(uid.clone(), pod.pod.clone());
        }
        let is_needed = desired.is_some() || self.present.contains(uid) || changes.get(uid) == Some(&true);
        // Before the first list no pod is known to be gone.
        if self.desired.is_known() && !is_needed {
            self.specs.remove(uid);
        }
        self.count(uid);
    }

    fn count(&mut self, uid: &PodUid) {
        let spec = self.specs.get(uid).filter(|_| self.present.contains(uid));
        let counts = spec.map(|pod| burstable_cpu_millis(pod));
        let before = match counts {
            Some(millis) => self.counted.insert(uid.clone(), millis),
            None => self.counted.remove(uid),
        };
        self.burstable_millis += counts.unwrap_or(0) - before.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use messages::PodRef;
    use messages::facts::Source;
    use messages::pod_set::GonePod;
    use pod_set::Journal;

    use super::*;

    fn pod(uid: &str) -> DesiredPod {
        DesiredPod {
            pod_ref: PodRef { uid: PodUid::new(uid), namespace: Arc::from("default"), name: Arc::from(uid) },
            pod: Arc::new(Pod::default()),
            source: Source::File,
            rejected: None,
            made_anew: None,
        }
    }

    fn desire(pod_cgroups: &mut PodCgroups, uids: &[&str], complete: bool) {
        static INCARNATION: AtomicU64 = AtomicU64::new(1);
        let pods = uids.iter().map(|uid| (PodUid::new(uid), Arc::new(pod(uid))));
        let incarnation = INCARNATION.fetch_add(1, Ordering::Relaxed);
        assert!(!pod_cgroups.desired(pod_set::snapshot(incarnation, pods, complete)));
    }

    fn counted(pod_cgroups: &PodCgroups) -> usize {
        assert_eq!(pod_cgroups.burstable_millis(), pod_cgroups.counted.values().sum::<i128>());
        pod_cgroups.counted.len()
    }

    fn uids(uids: &[&str]) -> BTreeSet<PodUid> {
        uids.iter().map(|uid| PodUid::new(uid)).collect()
    }

    #[test]
    fn who_has_a_cgroup_counts() {
        let mut pod_cgroups = PodCgroups::default();
        desire(&mut pod_cgroups, &["a", "b"], true);
        assert_eq!((counted(&pod_cgroups), pod_cgroups.present()), (0, 0));
        pod_cgroups.made(&pod("a"));
        assert_eq!(counted(&pod_cgroups), 1);
        // Its manifest is gone, and it is being stopped.
        desire(&mut pod_cgroups, &["b"], true);
        assert_eq!(counted(&pod_cgroups), 1);
        pod_cgroups.removed(&PodUid::new("a"));
        assert_eq!((counted(&pod_cgroups), pod_cgroups.specs.len()), (0, 1));
    }

    #[test]
    fn a_pod_that_comes_back_while_its_orphan_is_removed_keeps_counting() {
        let mut pod_cgroups = PodCgroups::default();
        desire(&mut pod_cgroups, &[], true);
        for orphans in [vec![], vec![PodUid::new("a")]] {
            pod_cgroups.listing_begins();
            assert_eq!(pod_cgroups.listed(uids(&["a"])), orphans);
        }
        desire(&mut pod_cgroups, &["a"], true);
        pod_cgroups.made(&pod("a"));
        pod_cgroups.orphan_removed(&PodUid::new("a"));
        assert_eq!((counted(&pod_cgroups), pod_cgroups.present()), (1, 1), "it was made anew");
    }

    #[test]
    fn after_a_crash_the_kernel_tells_who_counts() {
        let mut pod_cgroups = PodCgroups::default();
        pod_cgroups.listing_begins();
        assert_eq!(pod_cgroups.listed(uids(&["a", "x"])), []);
        assert_eq!(counted(&pod_cgroups), 0);
        desire(&mut pod_cgroups, &["a", "b"], true);
        assert_eq!((counted(&pod_cgroups), pod_cgroups.present()), (1, 2));
    }

    #[test]
    fn a_listing_does_not_hide_what_happened_meanwhile() {
        let mut pod_cgroups = PodCgroups::default();
        desire(&mut pod_cgroups, &["a", "b"], true);
        pod_cgroups.made(&pod("a"));
        pod_cgroups.listing_begins();
        pod_cgroups.made(&pod("b"));
        pod_cgroups.removed(&PodUid::new("a"));
        pod_cgroups.listed(uids(&["a"]));
        assert_eq!(pod_cgroups.present, uids(&["b"]));
        pod_cgroups.listing_begins();
        pod_cgroups.listed(uids(&[]));
        assert_eq!(pod_cgroups.present, uids(&[]), "somebody removed it behind our back");
    }

    #[test]
    fn an_orphan_is_nobodys_for_a_whole_period() {
        let mut pod_cgroups = PodCgroups::default();
        pod_cgroups.listing_begins();
        assert_eq!(pod_cgroups.listed(uids(&["old"])), []);
        desire(&mut pod_cgroups, &["a"], false);
        assert_eq!(pod_cgroups.listed(uids(&["a", "old"])), [], "a source has not been heard");
        desire(&mut pod_cgroups, &["a"], true);
        assert_eq!(pod_cgroups.listed(uids(&["a", "old"])), []);
        assert_eq!(pod_cgroups.listed(uids(&["a", "old", "new"])), [PodUid::new("old")]);
        assert!(pod_cgroups.is_orphan(&PodUid::new("old")));
        pod_cgroups.made(&pod("new"));
        desire(&mut pod_cgroups, &["a", "new"], true);
        assert_eq!(pod_cgroups.listed(uids(&["a", "new"])), []);
    }

    #[test]
    fn the_cgroup_of_a_pod_that_cannot_be_read_is_no_orphan() {
        let (mut pod_cgroups, mut journal) = (PodCgroups::default(), Journal::new(1));
        journal.unread(&PodUid::new("a"));
        journal.completed();
        pod_cgroups.desired(journal.snapshot());
        let mut orphans = || {
            pod_cgroups.listing_begins();
            pod_cgroups.listed(uids(&["a", "old"]))
        };
        assert_eq!((orphans(), orphans()), (vec![], vec![PodUid::new("old")]));
        assert!(pod_cgroups.is_orphan(&PodUid::new("old")));
        let unread = journal.unread(&PodUid::new("old")).expect("it is news");
        pod_cgroups.desired(unread);
        assert!(!pod_cgroups.is_orphan(&PodUid::new("old")), "it has come, and cannot be read");
    }

    #[test]
    fn shares_follow_each_pod_that_comes_and_goes() {
        let burstable = |uid: &str, cpu: &str| {
            let spec = serde_json::json!({ "containers": [
                { "name": "c", "resources": { "requests": { "cpu": cpu } } }
            ] });
            let spec = serde_json::from_value(spec).unwrap();
            Arc::new(DesiredPod { pod: Arc::new(Pod { spec: Some(spec), ..Pod::default() }), ..pod(uid) })
        };
        let (mut pod_cgroups, mut journal) = (PodCgroups::default(), Journal::new(1));
        pod_cgroups.desired(journal.snapshot());
        for (uid, cpu) in [("a", "100m"), ("b", "200m")] {
            pod_cgroups.desired(journal.put(&PodUid::new(uid), burstable(uid, cpu)));
            pod_cgroups.made(&burstable(uid, cpu));
        }
        assert_eq!((pod_cgroups.burstable_millis(), counted(&pod_cgroups)), (300, 2));
        pod_cgroups.desired(journal.put(&PodUid::new("a"), burstable("a", "1")));
        assert_eq!(pod_cgroups.burstable_millis(), 1200, "resized");
        pod_cgroups.desired(journal.remove(&PodUid::new("a"), GonePod::default()).unwrap());
        assert_eq!(pod_cgroups.burstable_millis(), 1200, "it is being stopped");
        pod_cgroups.removed(&PodUid::new("a"));
        assert_eq!(
            (pod_cgroups.burstable_millis(), counted(&pod_cgroups), pod_cgroups.specs.len()),
            (200, 1, 1)
        );
        let _lost = journal.remove(&PodUid::new("b"), GonePod::default());
        assert!(pod_cgroups.desired(PodSetUpdate::Digest(journal.digest())), "it missed that");
    }

    #[test]
    fn an_orphan_that_comes_back_is_none() {
        let (mut pod_cgroups, uid) = (PodCgroups::default(), PodUid::new("old"));
        let orphan = || {
            let mut pod_cgroups = PodCgroups::default();
            desire(&mut pod_cgroups, &[], true);
            pod_cgroups.listed(uids(&["old"]));
            assert_eq!(pod_cgroups.listed(uids(&["old"])), [PodUid::new("old")]);
            pod_cgroups
        };
        assert!(!pod_cgroups.is_orphan(&uid));
        pod_cgroups = orphan();
        pod_cgroups.made(&pod("old"));
        assert!(!pod_cgroups.is_orphan(&uid), "its cgroup is being made");
        pod_cgroups = orphan();
        desire(&mut pod_cgroups, &["old"], true);
        assert!(!pod_cgroups.is_orphan(&uid));
    }
}
