use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::FutureExt;

use super::{
    CgroupError, CgroupNames, CgroupReads, CgroupValues, CgroupVersion, Cgroups, Done, Ensured, PodCgroup,
    QosClass,
};

/// Cgroups in memory. Clones share them.
#[derive(Debug, Clone)]
pub struct FakeCgroups {
    version: CgroupVersion,
    names: CgroupNames,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<PodCgroup, BTreeSet<u32>>,
    /// The values by cgroup, of pods and others alike.
    values: BTreeMap<String, CgroupValues>,
    /// The error with which every change is refused.
    broken: Option<CgroupError>,
    writes: u64,
    /// The kubelet's own cgroup and OOM score adjustment, as last held.
    own: Option<(Option<String>, i32)>,
    /// The processes of the root cgroup.
    root: BTreeSet<u32>,
    /// The processes that have left it, by cgroup.
    gathered: BTreeMap<String, BTreeSet<u32>>,
}

impl FakeCgroups {
    /// A machine without cgroups of pods.
    pub fn new(version: CgroupVersion, names: CgroupNames) -> Self {
        Self { version, names, state: Arc::default() }
    }

    /// Makes a pod's cgroup, as the runtime does.
    ///
    /// # Errors
    /// [`CgroupError::InvalidName`], as in the real implementation.
    pub fn add_pod(&self, qos: QosClass, uid: &str) -> Result<(), CgroupError> {
        let pod = PodCgroup { uid: uid.to_owned(), qos, name: self.names.pod(qos, uid)? };
        let mut state = self.locked();
        state.values.entry(pod.name.clone()).or_default();
        state.pods.entry(pod).or_default();
        Ok(())
    }

    /// Makes a cgroup outside the pods' ones, as an administrator does.
    pub fn add(&self, cgroup: &str) {
        self.locked().values.entry(cgroup.to_owned()).or_default();
    }

    /// Puts a process into the pod's cgroups.
    pub fn add_pid(&self, uid: &str, pid: u32) {
        self.locked().pods.iter_mut().filter(|(pod, _)| pod.uid == uid).for_each(|(_, pids)| {
            pids.insert(pid);
        });
    }

    /// Ends a process.
    pub fn remove_pid(&self, pid: u32) {
        self.locked().pods.values_mut().for_each(|pids| {
            pids.remove(&pid);
        });
    }

    /// All values ever written to a cgroup; `None` if it does not exist.
    pub fn values(&self, cgroup: &str) -> Option<CgroupValues> {
        self.locked().values.get(cgroup).cloned()
    }

    /// Begins a process in the root cgroup.
    pub fn add_root_pid(&self, pid: u32) {
        self.locked().root.insert(pid);
    }

    /// The processes that were moved from the root cgroup to this one.
    pub fn gathered(&self, cgroup: &str) -> BTreeSet<u32> {
        self.locked().gathered.get(cgroup).cloned().unwrap_or_default()
    }

    /// The kubelet's own cgroup and OOM score adjustment, as they were last asked for.
    pub fn own(&self) -> Option<(Option<String>, i32)> {
        self.locked().own.clone()
    }

    /// The number of changes: cgroups made, and values that differed.
    pub fn writes(&self) -> u64 {
        self.locked().writes
    }

    /// Refuses every change with this error until it is called with `None`.
    pub fn set_broken(&self, error: Option<CgroupError>) {
        self.locked().broken = error;
    }

    fn ensure_now(&self, cgroup: &str, values: CgroupValues) -> Result<Ensured, CgroupError> {
        let mut state = self.locked();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let made = !state.values.contains_key(cgroup);
        // The cgroups above are made as well.
        for (end, _) in cgroup.match_indices('/').filter(|(end, _)| *end > 0) {
            state.values.entry(cgroup[..end].to_owned()).or_default();
        }
        let held = state.values.entry(cgroup.to_owned()).or_default();
        let before = held.clone();
        let CgroupValues { cpu_shares, cpu, memory, pids, huge_pages } = values;
        held.cpu_shares = cpu_shares.or(held.cpu_shares);
        held.cpu = cpu.or(held.cpu);
        held.memory = memory.or(held.memory);
        held.pids = pids.or(held.pids);
        held.huge_pages = huge_pages.or(held.huge_pages.take());
        let differs = *held != before;
        state.writes += u64::from(made || differs);
        if let Some(pod) = self.pod_of(cgroup) {
            state.pods.entry(pod).or_default();
        }
        let written = if differs { vec![cgroup.to_owned()] } else { Vec::new() };
        Ok(Ensured { made, written, not_held: Vec::new() })
    }

    fn pod_of(&self, cgroup: &str) -> Option<PodCgroup> {
        let (parent, file) = cgroup.rsplit_once('/')?;
        let qos = QosClass::ALL.into_iter().find(|qos| self.names.qos(*qos) == parent)?;
        let uid = self.names.uid_of(qos, file)?;
        Some(PodCgroup { uid, qos, name: cgroup.to_owned() })
    }

    fn check_now(&self, cgroup: &str) -> Result<(), CgroupError> {
        let there = cgroup.is_empty() || self.locked().values.contains_key(cgroup);
        let missing = || CgroupError::Missing { cgroup: cgroup.to_owned(), paths: vec![cgroup.into()] };
        if there { Ok(()) } else { Err(missing()) }
    }

    fn hold_own_now(&self, cgroup: Option<&str>, oom_score_adj: i32) -> Result<bool, CgroupError> {
        let mut state = self.locked();
        if let (Some(error), Some(_)) = (&state.broken, cgroup) {
            return Err(error.clone());
        }
        let cgroup = cgroup.map(str::to_owned);
        let was = state.own.replace((cgroup.clone(), oom_score_adj)).and_then(|(cgroup, _)| cgroup);
        Ok(cgroup.is_some() && was != cgroup)
    }

    fn gather_now(&self, cgroup: &str) -> Result<usize, CgroupError> {
        let mut state = self.locked();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let mut moved = std::mem::take(&mut state.root);
        let processes = moved.len();
        state.gathered.entry(cgroup.to_owned()).or_default().append(&mut moved);
        Ok(processes)
    }

    fn pids_now(&self, uid: &str) -> Result<Vec<u32>, CgroupError> {
        self.names.pod(QosClass::Guaranteed, uid)?;
        let state = self.locked();
        let pids: BTreeSet<u32> =
            state.pods.iter().filter(|(pod, _)| pod.uid == uid).flat_map(|(_, pids)| pids).copied().collect();
        Ok(pids.into_iter().collect())
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

impl CgroupReads for FakeCgroups {
    fn pids(&self, uid: &str) -> Done<Vec<u32>> {
        std::future::ready(self.pids_now(uid)).boxed()
    }
}

impl Cgroups for FakeCgroups {
    fn version(&self) -> CgroupVersion {
        self.version
    }

    fn names(&self) -> &CgroupNames {
        &self.names
    }

    fn for_owner(&self, _: &'static str) -> Arc<dyn Cgroups> {
        Arc::new(self.clone())
    }

    fn ensure(&self, cgroup: &str, values: CgroupValues) -> Done<Ensured> {
        std::future::ready(self.ensure_now(cgroup, values)).boxed()
    }

    fn update(&self, cgroup: &str, values: CgroupValues) -> Done<Ensured> {
        let updated = self.check_now(cgroup).and_then(|()| self.ensure_now(cgroup, values));
        std::future::ready(updated).boxed()
    }

    fn check(&self, cgroup: &str) -> Done<()> {
        std::future::ready(self.check_now(cgroup)).boxed()
    }

    fn hold_own(&self, cgroup: Option<&str>, oom_score_adj: i32) -> Done<bool> {
        std::future::ready(self.hold_own_now(cgroup, oom_score_adj)).boxed()
    }

    fn gather_system(&self, cgroup: &str) -> Done<usize> {
        std::future::ready(self.gather_now(cgroup)).boxed()
    }

    fn list_pod_cgroups(&self) -> Done<Vec<PodCgroup>> {
        std::future::ready(Ok(self.locked().pods.keys().cloned().collect())).boxed()
    }

    fn kill(&self, uid: &str) -> Done<usize> {
        let killed = self.pids_now(uid).inspect(|pids| pids.iter().for_each(|pid| self.remove_pid(*pid)));
        std::future::ready(killed.map(|pids| pids.len())).boxed()
    }

    fn remove_pod_cgroup(&self, uid: &str) -> Done<()> {
        let removed = self.pids_now(uid).and_then(|pids| {
            if !pids.is_empty() {
                return Err(CgroupError::ProcessesLeft { uid: uid.to_owned(), pids });
            }
            let mut state = self.locked();
            if let Some(error) = &state.broken {
                return Err(error.clone());
            }
            let State { pods, values, .. } = &mut *state;
            pods.retain(|pod, _| {
                let stays = pod.uid != uid;
                if !stays {
                    values.remove(&pod.name);
                }
                stays
            });
            Ok(())
        });
        std::future::ready(removed).boxed()
    }
}
