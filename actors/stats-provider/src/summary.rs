//! PURE: the summary, from one pass (row 22.6).

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_node::stats::usage::{GroupUse, Interface, MemoryUse, PodReading, Pressure, Reading, Stalled};
use jiff::Timestamp;
use messages::PodUid;
use messages::runtime::RuntimeContainer;
use messages::stats::{
    ContainerStats, CpuStats, InterfaceStats, IoStats, MemoryStats, NetworkStats, NodeStats, PodReference,
    PodStats, ProcessStats, PsiData, PsiStats, RlimitStats, RuntimeStats, SwapStats, Time,
};
use messages::volume_manager::PodVolumeStats;

use crate::rate::Rates;
use crate::select::RunningPod;
use crate::storage;
use crate::told::{ContainerTold, RuntimeTold};

/// The interface whose figures stand for a namespace.
const DEFAULT_INTERFACE: &str = "eth0";

/// One pass, as the summary is made from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) reading: &'a Reading,
    pub(crate) told: Option<&'a RuntimeTold>,
    /// `None` if nothing is known of any volume.
    pub(crate) volumes: Option<&'a BTreeMap<PodUid, Arc<PodVolumeStats>>>,
    pub(crate) rates: &'a Rates,
    /// CPU, memory and swap are enough.
    pub(crate) only_cpu_and_memory: bool,
}

/// The node's own figures.
pub(crate) fn node(source: Source<'_>, name: &str, began: Timestamp) -> NodeStats {
    let reading = source.reading;
    let whole = !source.only_cpu_and_memory;
    let group = &reading.root;
    let limits = Limits { memory: reading.memory_bytes, swap: reading.swap_bytes };
    let systems = reading.systems.iter().map(|(of, group)| {
        let made = if of == "kubelet" { Some(began) } else { group.created };
        system(source, of, group, made)
    });
    let pods = reading.pod_groups.first().map(|group| system(source, "pods", group, group.created));
    let told = source.told.filter(|_| whole);
    let layer = |layer: Option<&_>| layer.map(|layer| storage::layer_fs(layer, reading));
    let images = told.and_then(|told| layer(told.images.as_ref()));
    NodeStats {
        node_name: name.to_owned(),
        system_containers: systems.chain(pods).collect(),
        start_time: reading.booted.map(Time),
        cpu: cpu(source, group),
        memory: memory(group, limits),
        io: io(group).filter(|_| whole),
        network: reading.network.as_deref().filter(|_| whole).map(|all| network(reading.at, all)),
        fs: storage::node_fs(reading).filter(|_| whole),
        runtime: told.map(|told| RuntimeStats {
            // A runtime that tells of no other one has its layers where its images are.
            container_fs: layer(told.layers.as_ref()).or_else(|| images.clone()),
            image_fs: images,
        }),
        rlimit: reading.tasks.filter(|_| whole).map(|tasks| {
            let all = i64::try_from(tasks.capacity).unwrap_or(i64::MAX);
            let running = all.saturating_sub(tasks.available);
            RlimitStats { time: Time(reading.at), maxpid: Some(all), curproc: Some(running) }
        }),
        swap: swap(group, limits),
    }
}

fn system(source: Source<'_>, name: &str, group: &GroupUse, made: Option<Timestamp>) -> ContainerStats {
    let limits = Limits::of(group);
    ContainerStats {
        name: name.to_owned(),
        start_time: made.map(Time),
        cpu: cpu(source, group),
        memory: memory(group, limits),
        io: io(group).filter(|_| !source.only_cpu_and_memory),
        rootfs: None,
        logs: None,
        swap: swap(group, limits),
    }
}

/// A pod's figures.
pub(crate) fn pod(source: Source<'_>, pod: &RunningPod) -> PodStats {
    let empty = PodReading::default();
    let read = source.reading.pods.get(pod.uid().as_str()).unwrap_or(&empty);
    let whole = !source.only_cpu_and_memory;
    let containers: Vec<ContainerStats> = pod.containers().map(|one| container(source, read, one)).collect();
    let id = &pod.held.pod;
    let volumes = source.volumes.and_then(|all| all.get(pod.uid())).map(AsRef::as_ref).filter(|_| whole);
    // Without these, what the pod uses of the node's disk is more than can be told.
    let is_whole = source.volumes.is_some()
        && !read.logs_cut
        && containers.iter().all(|one| {
            let layer = one.rootfs.as_ref().and_then(|layer| layer.used_bytes);
            layer.is_some() && one.logs.is_some()
        });
    let on_node = volumes.into_iter().flat_map(storage::on_node_disk);
    let mut stats = PodStats {
        pod_ref: PodReference {
            name: id.name.to_string(),
            namespace: id.namespace.to_string(),
            uid: id.uid.to_string(),
        },
        start_time: pod.created_at().map(Time),
        cpu: None,
        memory: None,
        io: None,
        network: read.network.as_ref().filter(|_| whole).map(|(at, all)| network(*at, all)),
        volumes: volumes.map(|all| storage::volumes(all, &id.namespace)).unwrap_or_default(),
        ephemeral_storage: storage::ephemeral(&containers, on_node, read.own, is_whole, source.reading)
            .filter(|_| whole),
        process_stats: processes(read).filter(|_| whole),
        swap: None,
        containers,
    };
    match &read.group {
        Some(group) => {
            let limits = Limits::of(group);
            stats.cpu = cpu(source, group);
            stats.memory = memory(group, limits);
            stats.io = io(group).filter(|_| whole);
            stats.swap = swap(group, limits);
        }
        // A pod without a cgroup of its own uses what its containers use.
        None => {
            (stats.cpu, stats.memory) = (sum_cpu(&stats.containers), sum_memory(&stats.containers));
            stats.swap = sum_swap(&stats.containers);
        }
    }
    stats
}

fn container(source: Source<'_>, read: &PodReading, container: &RuntimeContainer) -> ContainerStats {
    let told = source.told.and_then(|told| told.containers.get(&*container.id));
    let group = read.containers.get(&*container.id);
    let whole = !source.only_cpu_and_memory;
    let limits = group.map(Limits::of).unwrap_or_default();
    let layer = told.and_then(|told| told.layer.as_ref()).filter(|_| whole);
    let logs = read.logs.get(&*container.name).filter(|_| whole);
    ContainerStats {
        name: container.name.to_string(),
        start_time: Some(Time(container.created_at)),
        cpu: group.and_then(|group| cpu(source, group)).or_else(|| cpu_told(told?)),
        memory: group.and_then(|group| memory(group, limits)).or_else(|| memory_told(told?)),
        io: group.and_then(io).filter(|_| whole),
        rootfs: layer.map(|layer| storage::layer_fs(layer, source.reading)),
        logs: logs.map(|logs| storage::logs_fs(*logs, source.reading)),
        swap: match group {
            Some(group) => swap(group, limits),
            None => told.and_then(swap_told),
        },
    }
}

/// The bounds of a cgroup, bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    memory: Option<u64>,
    swap: Option<u64>,
}

impl Limits {
    fn of(group: &GroupUse) -> Self {
        let of = |limit: fn(&MemoryUse) -> Option<u64>| group.memory.as_ref().and_then(limit);
        Self { memory: of(|memory| memory.limit), swap: of(|memory| memory.swap_limit) }
    }
}

fn cpu(source: Source<'_>, group: &GroupUse) -> Option<CpuStats> {
    let cpu = group.cpu?;
    Some(CpuStats {
        time: Time(group.at),
        usage_nano_cores: source.rates.nano_cores(&group.name),
        usage_core_nano_seconds: Some(cpu.total_ns),
        psi: cpu.pressure.map(psi),
    })
}

fn memory(group: &GroupUse, limits: Limits) -> Option<MemoryStats> {
    let memory = group.memory?;
    Some(MemoryStats {
        time: Time(group.at),
        available_bytes: limits.memory.map(|limit| limit.saturating_sub(memory.working_set)),
        usage_bytes: Some(memory.usage),
        working_set_bytes: Some(memory.working_set),
        rss_bytes: Some(memory.rss),
        page_faults: Some(memory.page_faults),
        major_page_faults: Some(memory.major_page_faults),
        psi: memory.pressure.map(psi),
    })
}

fn swap(group: &GroupUse, limits: Limits) -> Option<SwapStats> {
    let used = group.memory?.swap?;
    Some(SwapStats {
        time: Time(group.at),
        swap_available_bytes: limits.swap.map(|limit| limit.saturating_sub(used)),
        swap_usage_bytes: Some(used),
    })
}

fn io(group: &GroupUse) -> Option<IoStats> {
    group.io_pressure.map(|pressure| IoStats { time: Time(group.at), psi: Some(psi(pressure)) })
}

fn psi(pressure: Pressure) -> PsiStats {
    let data = |line: Stalled| PsiData {
        total: line.total_us,
        avg10: line.avg10,
        avg60: line.avg60,
        avg300: line.avg300,
    };
    PsiStats { full: data(pressure.full), some: data(pressure.some) }
}

fn cpu_told(told: &ContainerTold) -> Option<CpuStats> {
    let (at, cpu) = told.cpu?;
    Some(CpuStats {
        time: Time(at),
        usage_nano_cores: cpu.nano_cores,
        usage_core_nano_seconds: cpu.total_ns,
        psi: None,
    })
}

fn memory_told(told: &ContainerTold) -> Option<MemoryStats> {
    let (at, memory) = told.memory?;
    Some(MemoryStats {
        time: Time(at),
        available_bytes: memory.available,
        usage_bytes: memory.usage,
        working_set_bytes: memory.working_set,
        rss_bytes: memory.rss,
        page_faults: memory.page_faults,
        major_page_faults: memory.major_page_faults,
        psi: None,
    })
}

fn swap_told(told: &ContainerTold) -> Option<SwapStats> {
    let (at, swap) = told.swap?;
    Some(SwapStats { time: Time(at), swap_available_bytes: swap.available, swap_usage_bytes: swap.usage })
}

fn sum_of<'a, T: 'a>(parts: impl Iterator<Item = &'a T>, figure: fn(&T) -> Option<u64>) -> Option<u64> {
    parts.filter_map(figure).reduce(u64::saturating_add)
}

fn sum_cpu(containers: &[ContainerStats]) -> Option<CpuStats> {
    let all = || containers.iter().filter_map(|one| one.cpu.as_ref());
    Some(CpuStats {
        time: all().map(|cpu| cpu.time).max()?,
        usage_nano_cores: sum_of(all(), |cpu| cpu.usage_nano_cores),
        usage_core_nano_seconds: sum_of(all(), |cpu| cpu.usage_core_nano_seconds),
        psi: None,
    })
}

fn sum_memory(containers: &[ContainerStats]) -> Option<MemoryStats> {
    let all = || containers.iter().filter_map(|one| one.memory.as_ref());
    Some(MemoryStats {
        time: all().map(|memory| memory.time).max()?,
        available_bytes: None,
        usage_bytes: sum_of(all(), |memory| memory.usage_bytes),
        working_set_bytes: sum_of(all(), |memory| memory.working_set_bytes),
        rss_bytes: sum_of(all(), |memory| memory.rss_bytes),
        page_faults: sum_of(all(), |memory| memory.page_faults),
        major_page_faults: sum_of(all(), |memory| memory.major_page_faults),
        psi: None,
    })
}

fn sum_swap(containers: &[ContainerStats]) -> Option<SwapStats> {
    let all = || containers.iter().filter_map(|one| one.swap.as_ref());
    Some(SwapStats {
        time: all().map(|swap| swap.time).max()?,
        swap_available_bytes: sum_of(all(), |swap| swap.swap_available_bytes),
        swap_usage_bytes: sum_of(all(), |swap| swap.swap_usage_bytes),
    })
}

fn network(at: Timestamp, interfaces: &[Interface]) -> NetworkStats {
    let one = |interface: &Interface| InterfaceStats {
        name: interface.name.clone(),
        rx_bytes: interface.received.bytes,
        rx_errors: interface.received.errors,
        tx_bytes: interface.sent.bytes,
        tx_errors: interface.sent.errors,
    };
    NetworkStats {
        time: Time(at),
        default: interfaces.iter().find(|interface| interface.name == DEFAULT_INTERFACE).map(one),
        interfaces: interfaces.iter().map(one).collect(),
    }
}

fn processes(read: &PodReading) -> Option<ProcessStats> {
    let counts = read.containers.values().filter_map(|group| Some(group.processes?.count));
    counts.reduce(u64::saturating_add).map(|process_count| ProcessStats { process_count })
}
