//! The pass over this machine.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::super::files;
use super::super::system::Places;
use super::disks::Disks;
use super::processes::{FileBudget, interfaces};
use super::{GroupUse, PodReading, Reading, UsageReads, WantedPod, Wish, parse};
use crate::cgroups::{CgroupVersion, QosClass};
use crate::tenant_files;
use bridge_io::clock::Clock;
use bridge_io::{Lane, NotRun};

/// What the names of cgroups of containers' watchers begin with.
const WATCHERS: &str = "crio-conmon-";
/// The most open files that one pass counts.
const OPEN_FILES_MAX: usize = 200_000;
/// The most interfaces of the node, and of a pod, whose containers may make and name as many as they like.
const NODE_INTERFACES_MAX: usize = 4096;
const POD_INTERFACES_MAX: usize = 32;

/// This machine. The kernel's files are read on one thread that may block, file systems beside that, since they may hang.
#[derive(Debug)]
pub struct SystemUsage {
    places: Arc<Places>,
    clock: Arc<dyn Clock>,
    lane: Lane,
    disks: Disks,
}

impl SystemUsage {
    /// The machine of `places`, with lanes beside `lane`.
    pub(in crate::stats) fn new(places: Arc<Places>, clock: Arc<dyn Clock>, lane: &Lane) -> Self {
        let disks = lane.beside("StatsProvider, disks");
        let disks = Disks::new(places.root.clone(), places.proc.clone(), disks);
        Self { places, clock, lane: lane.beside("StatsProvider"), disks }
    }
}

impl UsageReads for SystemUsage {
    fn read(&self, wish: Wish) -> BoxFuture<'static, Result<Reading, NotRun>> {
        let (places, clock, disks) = (self.places.clone(), self.clock.clone(), self.disks.clone());
        let wish = Arc::new(wish);
        let (of, root) = (wish.clone(), self.places.root.clone());
        let reading = self.lane.run(move || Ok(Pass::new(&places, &*clock, &of).read()));
        async move {
            let (reading, disks) = tokio::join!(reading, disks.read(&wish));
            let mut reading = reading?;
            disks.add_to(&mut reading, &root);
            Ok(reading)
        }
        .boxed()
    }
}

/// One pass over the kernel's files.
pub(super) struct Pass<'a> {
    places: &'a Places,
    clock: &'a dyn Clock,
    wish: &'a Wish,
    open_files: FileBudget,
}

impl<'a> Pass<'a> {
    pub(super) fn new(places: &'a Places, clock: &'a dyn Clock, wish: &'a Wish) -> Self {
        Self { places, clock, wish, open_files: FileBudget::of(OPEN_FILES_MAX) }
    }

    pub(super) fn read(mut self) -> Reading {
        let at = self.clock.now();
        let root =
            self.group("/").unwrap_or_else(|| GroupUse { name: "/".to_owned(), at, ..GroupUse::default() });
        let mut found = Reading { at, root, ..Reading::default() };
        self.machine(&mut found);
        let kubepods = self.places.names.kubepods();
        found.pod_groups.extend(self.group(&kubepods));
        if self.wish.parts.details {
            for qos in QosClass::ALL {
                let name = self.places.names.qos(qos);
                found.pod_groups.extend((name != kubepods).then(|| self.group(&name)).flatten());
            }
        }
        let wish = self.wish;
        for (system, cgroup) in &wish.systems {
            let name = cgroup.clone().or_else(|| self.own_cgroup());
            let group = name.and_then(|name| self.group(&name));
            found.systems.extend(group.map(|group| (system.clone(), group)));
        }
        for (uid, pod) in &wish.pods {
            found.pods.insert(uid.clone(), self.pod(uid, pod));
        }
        found
    }

    fn proc(&self, file: &str) -> Option<String> {
        tenant_files::kernel_text(&self.places.proc.join(file)).ok()
    }

    /// The machine itself.
    fn machine(&self, found: &mut Reading) {
        let parts = self.wish.parts;
        let meminfo = self.proc("meminfo").unwrap_or_default();
        let bytes = |key| files::keyed(&meminfo, key).map(|kib: u64| kib.saturating_mul(1024));
        (found.memory_bytes, found.swap_bytes) = (bytes("MemTotal:"), bytes("SwapTotal:"));
        found.booted = self
            .proc("stat")
            .and_then(|text| parse::boot_second(&text))
            .and_then(|second| Timestamp::from_second(second).ok());
        // With version 2 the root cgroup has no swap.
        if let Some(memory) = found.root.memory.as_mut().filter(|_| self.places.version == CgroupVersion::V2)
        {
            memory.swap =
                found.swap_bytes.zip(bytes("SwapFree:")).map(|(all, free)| all.saturating_sub(free));
        }
        self.pressure(&mut found.root);
        if parts.processes {
            found.network = interfaces(&self.places.proc, 1, NODE_INTERFACES_MAX);
            found.tasks = files::pids(&self.places.proc).ok();
        }
        if parts.details {
            found.devices = parse::partitions(&self.proc("partitions").unwrap_or_default());
            found.processors = parse::processors(&self.proc("cpuinfo").unwrap_or_default());
        }
    }

    /// With version 1 the kernel tells only of the pressure on the whole machine.
    fn pressure(&self, root: &mut GroupUse) {
        let of = |what: &str| parse::pressure(&self.proc(&format!("pressure/{what}"))?);
        if let Some(cpu) = root.cpu.as_mut().filter(|cpu| cpu.pressure.is_none()) {
            cpu.pressure = of("cpu");
        }
        if let Some(memory) = root.memory.as_mut().filter(|memory| memory.pressure.is_none()) {
            memory.pressure = of("memory");
        }
        if root.io_pressure.is_none() {
            root.io_pressure = of("io");
        }
    }

    /// The cgroup of this process, unless that is the root, whose figures are those of the whole machine.
    fn own_cgroup(&self) -> Option<String> {
        let found = parse::cgroup_of(&self.proc("self/cgroup")?, self.places.version == CgroupVersion::V2);
        found.filter(|cgroup| cgroup != "/")
    }

    fn group(&mut self, cgroup: &str) -> Option<GroupUse> {
        self.read_group(cgroup, false)
    }

    /// A cgroup; `of_container` says that all processes below it are those of one container.
    fn read_group(&mut self, cgroup: &str, of_container: bool) -> Option<GroupUse> {
        let groups = self.places.groups();
        let parts = self.wish.parts;
        let mut found = groups.read(cgroup, self.clock.now(), parts.details)?;
        if parts.processes || parts.details {
            let pids = if of_container { groups.pids_of_container(cgroup) } else { groups.pids(cgroup) };
            found.processes = pids.map(|pids| {
                let mut processes = groups.processes(cgroup, &pids, parts.details);
                if parts.details {
                    self.open_files.add(&self.places.proc, &pids, &mut processes);
                }
                processes
            });
        }
        Some(found)
    }

    fn pod(&mut self, uid: &str, pod: &WantedPod) -> PodReading {
        let mut found = PodReading::default();
        if let Some(cgroup) = self.cgroup_of_pod(uid) {
            let below = self.below(&cgroup);
            let of = |id: &str| below.get(id).map(|name| format!("{cgroup}/{name}"));
            found.group = self.group(&cgroup);
            let sandbox = pod.sandbox.as_deref().and_then(of);
            for id in &pod.containers {
                let group = of(id).and_then(|name| self.read_group(&name, true));
                found.containers.extend(group.map(|group| (id.clone(), group)));
            }
            let parts = self.wish.parts;
            if parts.processes {
                let all = sandbox.iter().cloned().chain(pod.containers.iter().filter_map(|id| of(id)));
                found.network = self.network(all);
            }
            if parts.details {
                found.sandbox = sandbox.and_then(|name| self.read_group(&name, true));
            }
        }
        found
    }

    /// The interfaces that the first process sees which one of these cgroups has.
    fn network(&self, cgroups: impl Iterator<Item = String>) -> Option<(Timestamp, Vec<super::Interface>)> {
        let groups = self.places.groups();
        let mut pids = cgroups.filter_map(|cgroup| groups.pids_of_container(&cgroup)?.first().copied());
        pids.find_map(|pid| interfaces(&self.places.proc, pid, POD_INTERFACES_MAX))
            .map(|found| (self.clock.now(), found))
    }

    /// A pod's cgroup, in whichever class it is.
    fn cgroup_of_pod(&self, uid: &str) -> Option<String> {
        let groups = self.places.groups();
        let names = QosClass::ALL.into_iter().filter_map(|qos| self.places.names.pod(qos, uid).ok());
        let exists = |name: &String| groups.base(name).is_some_and(|dir| dir.is_dir());
        names.into_iter().find(exists)
    }

    /// The cgroups directly below one, by the runtime's IDs: `<id>`, or with systemd `<prefix>-<id>.scope`. CRI-O may have a
    /// cgroup of the same ID for the process that watches a container.
    fn below(&self, cgroup: &str) -> BTreeMap<String, String> {
        let entries = self.places.groups().base(cgroup).and_then(|dir| fs::read_dir(dir).ok());
        let names =
            entries.into_iter().flatten().flatten().filter(|one| one.file_type().is_ok_and(|it| it.is_dir()));
        let names = names.filter_map(|one| one.file_name().into_string().ok());
        let names = names.filter(|name| !name.starts_with(WATCHERS));
        names.map(|name| (id(&name).to_owned(), name)).collect()
    }
}

fn id(name: &str) -> &str {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    name.rsplit_once('-').map_or(name, |(_, id)| id)
}
