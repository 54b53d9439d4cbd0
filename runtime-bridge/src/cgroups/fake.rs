use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::FutureExt;

use super::{CgroupError, CgroupNames, CgroupVersion, Cgroups, Done, PodCgroup, QosClass};

/// Cgroups of pods in memory. Clones share them.
#[derive(Debug, Clone)]
pub struct FakeCgroups {
    version: CgroupVersion,
    names: CgroupNames,
    pods: Arc<Mutex<BTreeMap<PodCgroup, BTreeSet<u32>>>>,
}

impl FakeCgroups {
    /// A machine without cgroups of pods.
    pub fn new(version: CgroupVersion, names: CgroupNames) -> Self {
        Self { version, names, pods: Arc::default() }
    }

    /// Makes a pod's cgroup, as the runtime does.
    ///
    /// # Errors
    /// [`CgroupError::InvalidName`] as the real thing.
    pub fn add_pod(&self, qos: QosClass, uid: &str) -> Result<(), CgroupError> {
        let pod = PodCgroup { uid: uid.to_owned(), qos, name: self.names.pod(qos, uid)? };
        self.locked().entry(pod).or_default();
        Ok(())
    }

    /// Puts a process into the pod's cgroups.
    pub fn add_pid(&self, uid: &str, pid: u32) {
        self.locked().iter_mut().filter(|(pod, _)| pod.uid == uid).for_each(|(_, pids)| {
            pids.insert(pid);
        });
    }

    /// Ends a process.
    pub fn remove_pid(&self, pid: u32) {
        self.locked().values_mut().for_each(|pids| {
            pids.remove(&pid);
        });
    }

    fn pids_now(&self, uid: &str) -> Result<Vec<u32>, CgroupError> {
        self.names.pod(QosClass::Guaranteed, uid)?;
        let pods = self.locked();
        let pids: BTreeSet<u32> =
            pods.iter().filter(|(pod, _)| pod.uid == uid).flat_map(|(_, pids)| pids).copied().collect();
        Ok(pids.into_iter().collect())
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<PodCgroup, BTreeSet<u32>>> {
        self.pods.lock().expect("no code panics while it holds this lock")
    }
}

impl Cgroups for FakeCgroups {
    fn version(&self) -> CgroupVersion {
        self.version
    }

    fn names(&self) -> &CgroupNames {
        &self.names
    }

    fn list_pod_cgroups(&self) -> Done<Vec<PodCgroup>> {
        std::future::ready(Ok(self.locked().keys().cloned().collect())).boxed()
    }

    fn pids(&self, uid: &str) -> Done<Vec<u32>> {
        std::future::ready(self.pids_now(uid)).boxed()
    }

    fn remove_pod_cgroup(&self, uid: &str) -> Done<()> {
        let removed = self.pids_now(uid).and_then(|pids| {
            if !pids.is_empty() {
                return Err(CgroupError::ProcessesLeft { uid: uid.to_owned(), pids });
            }
            self.locked().retain(|pod, _| pod.uid != uid);
            Ok(())
        });
        std::future::ready(removed).boxed()
    }
}
