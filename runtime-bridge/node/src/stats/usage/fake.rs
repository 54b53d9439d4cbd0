use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::super::{DiskUsage, Room};
use super::{
    CpuUse, DeviceIo, DiskCounts, GroupUse, Interface, MemoryUse, Parts, PodReading, ProcessUse, Processors,
    Reading, Space, Traffic, UsageReads, WantedPod, Wish,
};
use bridge_io::NotRun;
use bridge_io::clock::Clock;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The second since which every cgroup of the fake uses CPU.
const BEGAN: i64 = 1_700_000_000;

/// What a cgroup uses.
#[derive(Clone, Copy, Debug)]
struct Use {
    cpu_millis: u64,
    memory_bytes: u64,
}

/// A machine of 4 CPUs, 8 GiB and 100 GiB of disk, on which all that is asked for exists and uses what a test sets. Clones
/// share the figures.
#[derive(Clone, Debug)]
pub struct FakeUsage {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Use by the runtime's ID of the container.
    set: BTreeMap<String, Use>,
    /// UIDs of pods without cgroups.
    hidden: BTreeSet<String>,
    /// UIDs of pods with too many logs to count.
    cut: BTreeSet<String>,
    passes: Vec<Parts>,
    takes: Duration,
}

impl FakeUsage {
    /// A machine with this clock, on which each container uses 10 thousandths of a CPU and a MiB.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Arc::default() }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets what a container uses, by the runtime's ID.
    pub fn set(&self, container: &str, cpu_millis: u64, memory_bytes: u64) {
        let set = Use { cpu_millis, memory_bytes };
        self.change(|state| state.set.insert(container.to_owned(), set));
    }

    /// Takes a pod's cgroups away, as on a node that does not use them.
    pub fn hide(&self, uid: &str) {
        self.change(|state| state.hidden.insert(uid.to_owned()));
    }

    /// Gives a pod more logs than can be counted.
    pub fn cut_logs(&self, uid: &str) {
        self.change(|state| state.cut.insert(uid.to_owned()));
    }

    /// Sets how long each pass takes; by default no time.
    pub fn set_slow(&self, takes: Duration) {
        self.change(|state| state.takes = takes);
    }

    /// The passes that were made, by their parts.
    pub fn passes(&self) -> Vec<Parts> {
        self.change(|state| state.passes.clone())
    }
}

struct Pass {
    at: Timestamp,
    parts: Parts,
}

impl Pass {
    fn group(&self, name: &str, used: Use) -> GroupUse {
        let seconds = u64::try_from(self.at.as_second() - BEGAN).unwrap_or(0);
        let parts = self.parts;
        GroupUse {
            name: name.to_owned(),
            at: self.at,
            created: Timestamp::from_second(BEGAN).ok(),
            cpu: Some(CpuUse {
                total_ns: used.cpu_millis * 1_000_000 * seconds,
                shares: parts.details.then_some(2),
                ..CpuUse::default()
            }),
            memory: Some(MemoryUse {
                usage: used.memory_bytes,
                working_set: used.memory_bytes,
                rss: used.memory_bytes,
                swap: Some(0),
                ..MemoryUse::default()
            }),
            io: if parts.details { vec![io()] } else { Vec::new() },
            io_pressure: None,
            processes: (parts.processes || parts.details)
                .then(|| ProcessUse { count: 1, ..ProcessUse::default() }),
        }
    }

    fn pod(&self, uid: &str, pod: &WantedPod, state: &State) -> PodReading {
        let storage = self.parts.storage;
        let logs_cut = storage && state.cut.contains(uid);
        let logs = pod.logs.keys().filter(|_| storage && !logs_cut);
        let logs = logs.map(|name| (name.clone(), DiskUsage { bytes: 4096, inodes: 1 })).collect();
        let own = DiskUsage { bytes: 512, inodes: 2 };
        let own = if storage && !logs_cut { own } else { DiskUsage::default() };
        if state.hidden.contains(uid) {
            return PodReading { logs, own, logs_cut, ..PodReading::default() };
        }
        let of = |id: &String| {
            let usual = Use { cpu_millis: 10, memory_bytes: MIB };
            state.set.get(id).copied().unwrap_or(usual)
        };
        let cgroup = format!("/kubepods/besteffort/pod{uid}");
        let all =
            pod.containers.iter().map(of).fold(Use { cpu_millis: 0, memory_bytes: MIB }, |sum, one| Use {
                cpu_millis: sum.cpu_millis + one.cpu_millis,
                memory_bytes: sum.memory_bytes + one.memory_bytes,
            });
        let one = |id: &String| (id.clone(), self.group(&format!("{cgroup}/{id}"), of(id)));
        let sandbox = pod.sandbox.as_ref().filter(|_| self.parts.details);
        PodReading {
            group: Some(self.group(&cgroup, all)),
            sandbox: sandbox
                .map(|id| self.group(&format!("{cgroup}/{id}"), Use { cpu_millis: 0, memory_bytes: MIB })),
            containers: pod.containers.iter().map(one).collect(),
            network: self.parts.processes.then(|| (self.at, vec![interface()])),
            logs,
            own,
            logs_cut,
        }
    }
}

fn io() -> DeviceIo {
    let both = |read, write| [("Read".to_owned(), read), ("Write".to_owned(), write)].into();
    DeviceIo { device: (8, 0), bytes: both(4096, 8192), operations: both(1, 2) }
}

fn interface() -> Interface {
    let traffic = |bytes| Traffic { bytes, packets: bytes / 100, ..Traffic::default() };
    Interface { name: "eth0".to_owned(), received: traffic(1000), sent: traffic(2000) }
}

fn disk() -> Space {
    Space {
        source: "/dev/sda".to_owned(),
        capacity: 100 * GIB,
        free: 65 * GIB,
        available: 60 * GIB,
        inodes: Some(1_000_000),
        inodes_free: Some(999_000),
        disk: Some(DiskCounts { reads: 7, writes: 8, busy_ms: 1500, ..DiskCounts::default() }),
    }
}

impl UsageReads for FakeUsage {
    fn read(&self, wish: Wish) -> BoxFuture<'static, Result<Reading, NotRun>> {
        let pass = Pass { at: self.clock.now(), parts: wish.parts };
        let parts = wish.parts;
        let (reading, takes) = self.change(|state| {
            state.passes.push(parts);
            let pods = wish.pods.iter().map(|(uid, pod)| (uid.clone(), pass.pod(uid, pod, state))).collect();
            let system = Use { cpu_millis: 50, memory_bytes: 64 * MIB };
            let systems = wish.systems.iter().map(|(of, cgroup)| {
                (of.clone(), pass.group(cgroup.as_deref().unwrap_or("/system.slice/kubelet.service"), system))
            });
            let with_disk = parts.storage || parts.details;
            let reading = Reading {
                at: pass.at,
                root: pass.group("/", Use { cpu_millis: 500, memory_bytes: 2 * GIB }),
                pod_groups: vec![pass.group("/kubepods", Use { cpu_millis: 100, memory_bytes: GIB })],
                systems: systems.collect(),
                pods,
                network: parts.processes.then(|| vec![interface()]),
                booted: Timestamp::from_second(BEGAN).ok(),
                memory_bytes: Some(8 * GIB),
                swap_bytes: Some(0),
                processors: parts.details.then_some(Processors { logical: 4, cores: 2, sockets: 1 }),
                tasks: parts.processes.then(|| Room::used(32_768, 300)),
                node_space: with_disk.then(disk),
                spaces: wish.spaces.iter().filter(|_| with_disk).map(|path| (path.clone(), disk())).collect(),
                devices: [("8:0".to_owned(), "/dev/sda".to_owned())].into(),
            };
            (reading, state.takes)
        });
        async move {
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            Ok(reading)
        }
        .boxed()
    }
}
