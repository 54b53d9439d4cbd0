use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::runtime::Handle;

use super::files::{self, Problem};
use super::usage::SystemUsage;
use super::usage::group::Groups;
use super::{NodeStats, NodeUsage, PodDisk, PodPlaces, PodUsage, Room, RuntimePlaces, Wanted};
use crate::cgroups::{CgroupError, CgroupNames, CgroupVersion, Hierarchy, SystemCgroups};
use crate::du::{self, Budget};
use bridge_io::clock::Clock;
use bridge_io::{Lane, NotRun};

/// The most names per pod, and the longest time for all pods, in one measurement of all.
const NAMES_MAX: usize = 2_000_000;
const WALK_MAX: Duration = Duration::from_secs(10);

/// Where the machine's figures are read from.
#[derive(Clone, Debug)]
pub struct Places {
    /// The machine's cgroup version.
    pub version: CgroupVersion,
    /// The mounted hierarchies.
    pub hierarchies: Vec<Hierarchy>,
    /// The names of cgroups.
    pub names: CgroupNames,
    /// The kubelet's root directory.
    pub root: PathBuf,
    /// `/proc`
    pub proc: PathBuf,
}

/// The real machine. Files are read on the blocking threads of the I/O runtime.
#[derive(Clone, Debug)]
pub struct SystemStats {
    places: Arc<Places>,
    lane: Lane,
}

impl SystemStats {
    /// The machine with the cgroups that are mounted now; `root` is the kubelet's root directory.
    ///
    /// # Errors
    /// The same as [`SystemCgroups::detect`].
    pub fn detect(names: CgroupNames, root: &Path, io: Handle) -> Result<Self, CgroupError> {
        let (version, hierarchies) = SystemCgroups::mounted()?;
        let places =
            Places { version, hierarchies, names, root: root.to_owned(), proc: PathBuf::from("/proc") };
        Ok(Self::at(places, io))
    }

    /// A machine with its files at these places.
    pub fn at(places: Places, io: Handle) -> Self {
        Self { places: Arc::new(places), lane: Lane::new("EvictionManager", io) }
    }

    /// Reads of the same machine for StatsProvider, which neither wait for those of EvictionManager nor hold them up.
    #[must_use]
    pub fn usage(&self, clock: Arc<dyn Clock>) -> SystemUsage {
        SystemUsage::new(self.places.clone(), clock, &self.lane)
    }
}

impl NodeStats for SystemStats {
    fn node(&self, runtime: RuntimePlaces) -> BoxFuture<'static, Result<NodeUsage, NotRun>> {
        let places = self.places.clone();
        self.lane.run(move || Ok(places.node(&runtime)))
    }

    fn pods(
        &self,
        pods: Vec<PodPlaces>,
        wanted: Wanted,
    ) -> BoxFuture<'static, Result<BTreeMap<String, PodUsage>, NotRun>> {
        let places = self.places.clone();
        self.lane.run(move || Ok(places.pods(&pods, wanted, NAMES_MAX, WALK_MAX)))
    }

    fn disk(&self, pod: PodPlaces, time_max: Duration) -> BoxFuture<'static, Result<PodDisk, NotRun>> {
        let places = self.places.clone();
        self.lane.of_tenant(&pod.namespace).run_long("count-disk", move || {
            let mut budget = Budget::of_time(time_max);
            Ok(places.on_disk(&pod, &mut budget))
        })
    }
}

impl Places {
    /// The machine's cgroups.
    pub(super) fn groups(&self) -> Groups<'_> {
        Groups { version: self.version, hierarchies: &self.hierarchies }
    }

    /// The directory of a cgroup in the hierarchy with the memory controller.
    fn memory_dir(&self, cgroup: &str) -> Option<PathBuf> {
        self.groups().dir("memory", cgroup)
    }

    fn working_set(&self, cgroup: &str) -> Result<u64, Problem> {
        Ok(self.groups().memory(cgroup, false)?.working_set)
    }

    fn memory(&self) -> Result<Room, Problem> {
        let meminfo = files::text(&self.proc.join("meminfo"))?;
        let total = files::keyed(&meminfo, "MemTotal:").ok_or("meminfo has no MemTotal")?;
        Ok(Room::used(total.saturating_mul(1024), self.working_set("/")?))
    }

    fn pods_memory(&self) -> Result<Option<Room>, Problem> {
        let cgroup = self.names.kubepods();
        let dir = self.memory_dir(&cgroup).ok_or("no hierarchy of cgroups has memory")?;
        let file = if self.version == CgroupVersion::V2 { "memory.max" } else { "memory.limit_in_bytes" };
        match files::limit(&dir.join(file))? {
            None => Ok(None),
            Some(limit) => Ok(Some(Room::used(limit, self.working_set(&cgroup)?))),
        }
    }

    fn node(&self, runtime: &RuntimePlaces) -> NodeUsage {
        let mut problems = Vec::new();
        let mut told = |what: &str, problem: Problem| problems.push(format!("{what}: {problem}"));
        let file_system = |path: &Option<PathBuf>| match path {
            Some(path) => files::file_system(path).map(Some),
            None => Ok(None),
        };
        let usage = NodeUsage {
            memory: self.memory().map_err(|problem| told("memory", problem)).ok(),
            pods_memory: self.pods_memory().map_err(|problem| told("memory of pods", problem)).ok().flatten(),
            node_fs: files::file_system(&self.root).map_err(|problem| told("nodefs", problem)).ok(),
            image_fs: file_system(&runtime.images).map_err(|problem| told("imagefs", problem)).ok().flatten(),
            container_fs: file_system(&runtime.containers)
                .map_err(|problem| told("containerfs", problem))
                .ok()
                .flatten(),
            pids: files::pids(&self.proc).map_err(|problem| told("processes", problem)).ok(),
            problems: Vec::new(),
        };
        NodeUsage { problems, ..usage }
    }

    /// Measures pods. Each pod's share of time is taken from what the earlier ones have left. Pods that were cut off
    /// get the time that is left at the end, so that a large pod is measured while small ones do not use their shares.
    pub(super) fn pods(
        &self,
        pods: &[PodPlaces],
        wanted: Wanted,
        names_max: usize,
        time_max: Duration,
    ) -> BTreeMap<String, PodUsage> {
        let until = Instant::now() + time_max;
        let mut found: BTreeMap<String, PodUsage> = BTreeMap::new();
        let mut turn: Vec<&PodPlaces> = pods.iter().collect();
        for _ in 0..2 {
            let mut cut = Vec::new();
            for (before, pod) in turn.iter().enumerate() {
                let waiting = u32::try_from(turn.len() - before).unwrap_or(u32::MAX);
                let time = until.saturating_duration_since(Instant::now()) / waiting;
                let mut budget = Budget::new(names_max, time);
                let Some(mut usage) = self.pod(pod, wanted, &mut budget) else { continue };
                usage.cut = budget.is_exceeded();
                // A pod with too many names does not profit from more time.
                if usage.cut && !budget.is_empty() {
                    cut.push(*pod);
                }
                found.insert(pod.uid.clone(), usage);
            }
            turn = cut;
        }
        found
    }

    fn pod(&self, pod: &PodPlaces, wanted: Wanted, budget: &mut Budget) -> Option<PodUsage> {
        let cgroup = self.names.pod(pod.qos, &pod.uid).ok()?;
        if !self.memory_dir(&cgroup)?.is_dir() {
            return None;
        }
        let mut usage = PodUsage::default();
        if wanted.memory {
            usage.memory_bytes = self.working_set(&cgroup).ok();
        }
        if wanted.disk {
            let disk = self.on_disk(pod, budget);
            (usage.logs, usage.volumes, usage.own) = (disk.logs, disk.volumes, disk.own);
        }
        Some(usage)
    }

    /// The usage of the pod's logs, of its volumes and of what else its containers can fill.
    fn on_disk(&self, pod: &PodPlaces, budget: &mut Budget) -> PodDisk {
        let logs = pod.logs.iter();
        let logs = logs.filter_map(|(name, dir)| Some((name.clone(), du::files(dir, budget)?))).collect();
        let volumes = pod.volumes.iter();
        let volumes =
            volumes.filter_map(|(name, dir)| Some((name.clone(), du::tree(dir, budget)?))).collect();
        let own = files::filled_by_containers(&self.root, &pod.uid, budget);
        PodDisk { logs, volumes, own, cut: budget.is_exceeded() }
    }
}
