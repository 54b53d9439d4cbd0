//! What the kubelet tells about usage: the summary, in upstream's API `stats/v1alpha1`, and metric families. A figure that is
//! unknown is absent; times are those of the reading.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// A time as Kubernetes writes it: RFC 3339, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

fn or_nameless<S: Serializer>(interface: &Option<InterfaceStats>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Nameless {
        name: &'static str,
    }
    match interface {
        Some(interface) => interface.serialize(serializer),
        None => Nameless { name: "" }.serialize(serializer),
    }
}

/// Makes structs of the API: all optional figures are left out when absent.
macro_rules! api {
    ($($(#[$about:meta])* $name:ident { $($(#[$says:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($(#[$says])* pub $field: $type,)*
        }
    )*};
}

api! {
    /// The answer of `/stats/summary`.
    Summary {
        /// The node.
        node: NodeStats,
        /// The pods of which a container runs.
        pods: Vec<PodStats>,
    }

    /// The node's figures.
    NodeStats {
        /// The node's name.
        node_name: String,
        /// The cgroups of the kubelet, the runtime, other system processes, and all pods.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        system_containers: Vec<ContainerStats>,
        /// When the machine was started.
        start_time: Option<Time>,
        /// CPU of all processes.
        #[serde(skip_serializing_if = "Option::is_none")]
        cpu: Option<CpuStats>,
        /// Memory of all processes.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<MemoryStats>,
        /// Pressure of input and output.
        #[serde(skip_serializing_if = "Option::is_none")]
        io: Option<IoStats>,
        /// The node's interfaces.
        #[serde(skip_serializing_if = "Option::is_none")]
        network: Option<NetworkStats>,
        /// The file system of the kubelet's directory.
        #[serde(skip_serializing_if = "Option::is_none")]
        fs: Option<FsStats>,
        /// The runtime's file systems.
        #[serde(skip_serializing_if = "Option::is_none")]
        runtime: Option<RuntimeStats>,
        /// Processes.
        #[serde(skip_serializing_if = "Option::is_none")]
        rlimit: Option<RlimitStats>,
        /// Swap.
        #[serde(skip_serializing_if = "Option::is_none")]
        swap: Option<SwapStats>,
    }

    /// The number of processes and threads, and its limit.
    RlimitStats {
        /// When they were counted.
        time: Time,
        /// The most that the kernel allows.
        #[serde(skip_serializing_if = "Option::is_none")]
        maxpid: Option<i64>,
        /// How many there are.
        #[serde(skip_serializing_if = "Option::is_none")]
        curproc: Option<i64>,
    }

    /// The runtime's file systems.
    RuntimeStats {
        /// The file system of images.
        #[serde(skip_serializing_if = "Option::is_none")]
        image_fs: Option<FsStats>,
        /// The file system of containers' writable layers.
        #[serde(skip_serializing_if = "Option::is_none")]
        container_fs: Option<FsStats>,
    }

    /// The number of a pod's processes.
    ProcessStats {
        /// Processes of the pod's containers.
        #[serde(rename = "process_count")]
        process_count: u64,
    }

    /// A pod's figures.
    PodStats {
        /// The pod.
        pod_ref: PodReference,
        /// When its sandbox was made.
        start_time: Option<Time>,
        /// Its running containers.
        containers: Vec<ContainerStats>,
        /// CPU of the whole pod.
        #[serde(skip_serializing_if = "Option::is_none")]
        cpu: Option<CpuStats>,
        /// Memory of the whole pod.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<MemoryStats>,
        /// Pressure of input and output.
        #[serde(skip_serializing_if = "Option::is_none")]
        io: Option<IoStats>,
        /// The interfaces of its network namespace.
        #[serde(skip_serializing_if = "Option::is_none")]
        network: Option<NetworkStats>,
        /// Its volumes.
        #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
        volumes: Vec<VolumeStats>,
        /// What it uses of the node's own disk.
        #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
        ephemeral_storage: Option<FsStats>,
        /// Its processes.
        #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
        process_stats: Option<ProcessStats>,
        /// Swap of the whole pod.
        #[serde(skip_serializing_if = "Option::is_none")]
        swap: Option<SwapStats>,
    }

    /// The figures of a container, or of a cgroup of the system.
    ContainerStats {
        /// Its name.
        name: String,
        /// When it was made.
        start_time: Option<Time>,
        /// CPU.
        #[serde(skip_serializing_if = "Option::is_none")]
        cpu: Option<CpuStats>,
        /// Memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<MemoryStats>,
        /// Pressure of input and output.
        #[serde(skip_serializing_if = "Option::is_none")]
        io: Option<IoStats>,
        /// Its writable layer.
        #[serde(skip_serializing_if = "Option::is_none")]
        rootfs: Option<FsStats>,
        /// Its logs.
        #[serde(skip_serializing_if = "Option::is_none")]
        logs: Option<FsStats>,
        /// Swap.
        #[serde(skip_serializing_if = "Option::is_none")]
        swap: Option<SwapStats>,
    }

    /// A pod's identity.
    PodReference {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Its UID.
        uid: String,
    }

    /// An interface's counters.
    InterfaceStats {
        /// Its name.
        name: String,
        /// Bytes received.
        rx_bytes: u64,
        /// Errors in receiving.
        rx_errors: u64,
        /// Bytes sent.
        tx_bytes: u64,
        /// Errors in sending.
        tx_errors: u64,
    }

    /// The counters of a network namespace.
    NetworkStats {
        /// When they were read.
        time: Time,
        /// The interface `eth0`. Without one there is an empty name and no counter, as upstream has it.
        #[serde(flatten, serialize_with = "or_nameless")]
        default: Option<InterfaceStats>,
        /// All interfaces.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        interfaces: Vec<InterfaceStats>,
    }

    /// CPU time.
    CpuStats {
        /// When it was read.
        time: Time,
        /// Cores in use, in billionths, since the reading before.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage_nano_cores: Option<u64>,
        /// Nanoseconds of CPU time so far.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage_core_nano_seconds: Option<u64>,
        /// Waiting for CPU.
        #[serde(skip_serializing_if = "Option::is_none")]
        psi: Option<PsiStats>,
    }

    /// Memory, in bytes.
    MemoryStats {
        /// When it was read.
        time: Time,
        /// The limit less the working set.
        #[serde(skip_serializing_if = "Option::is_none")]
        available_bytes: Option<u64>,
        /// All memory in use.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage_bytes: Option<u64>,
        /// Memory that cannot simply be dropped.
        #[serde(skip_serializing_if = "Option::is_none")]
        working_set_bytes: Option<u64>,
        /// Anonymous memory.
        #[serde(rename = "rssBytes", skip_serializing_if = "Option::is_none")]
        rss_bytes: Option<u64>,
        /// Minor page faults so far.
        #[serde(skip_serializing_if = "Option::is_none")]
        page_faults: Option<u64>,
        /// Major page faults so far.
        #[serde(skip_serializing_if = "Option::is_none")]
        major_page_faults: Option<u64>,
        /// Waiting for memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        psi: Option<PsiStats>,
    }

    /// Input and output.
    IoStats {
        /// When they were read.
        time: Time,
        /// Waiting for input and output.
        #[serde(skip_serializing_if = "Option::is_none")]
        psi: Option<PsiStats>,
    }

    /// Pressure stall information of one resource.
    PsiStats {
        /// All tasks waited.
        full: PsiData,
        /// At least one task waited.
        some: PsiData,
    }

    /// How long tasks have waited.
    PsiData {
        /// The kernel's total, which upstream passes on as it is: microseconds.
        total: u64,
        /// Percent of the last 10 seconds.
        avg10: f64,
        /// Percent of the last 60 seconds.
        avg60: f64,
        /// Percent of the last 300 seconds.
        avg300: f64,
    }

    /// Swap, in bytes.
    SwapStats {
        /// When it was read.
        time: Time,
        /// The limit less the use.
        #[serde(skip_serializing_if = "Option::is_none")]
        swap_available_bytes: Option<u64>,
        /// Swap in use.
        #[serde(skip_serializing_if = "Option::is_none")]
        swap_usage_bytes: Option<u64>,
    }

    /// A volume's figures.
    VolumeStats {
        /// Its file system and its use.
        #[serde(flatten)]
        fs: FsStats,
        /// Its name in the pod's spec.
        name: String,
        /// The claim through which the pod has it.
        #[serde(rename = "pvcRef", skip_serializing_if = "Option::is_none")]
        pvc_ref: Option<PvcReference>,
        /// Its health.
        #[serde(skip_serializing_if = "Option::is_none")]
        volume_health_stats: Option<VolumeHealthStats>,
    }

    /// A volume's health.
    VolumeHealthStats {
        /// Whether something is wrong with it.
        abnormal: bool,
    }

    /// A claim's identity.
    PvcReference {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    }

    /// A file system, and the use of a part of it.
    FsStats {
        /// When they were read.
        time: Time,
        /// Bytes left to users without privileges.
        #[serde(skip_serializing_if = "Option::is_none")]
        available_bytes: Option<u64>,
        /// Bytes of the whole file system.
        #[serde(skip_serializing_if = "Option::is_none")]
        capacity_bytes: Option<u64>,
        /// Bytes in use by what the figures are about.
        #[serde(skip_serializing_if = "Option::is_none")]
        used_bytes: Option<u64>,
        /// Inodes left.
        #[serde(skip_serializing_if = "Option::is_none")]
        inodes_free: Option<u64>,
        /// Inodes of the whole file system.
        #[serde(skip_serializing_if = "Option::is_none")]
        inodes: Option<u64>,
        /// Inodes in use by what the figures are about.
        #[serde(skip_serializing_if = "Option::is_none")]
        inodes_used: Option<u64>,
    }
}

/// How the values of a family go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// Only upwards.
    Counter,
    /// Up and down.
    Gauge,
}

/// A value of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Labels in the order in which they are shown.
    pub labels: Vec<(&'static str, Arc<str>)>,
    /// The value.
    pub value: f64,
    /// When the value was read; `None` for one that is shown without a time.
    pub at: Option<Timestamp>,
}

/// A metric family in which each value is known at once, unlike a registry's.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The name.
    pub name: &'static str,
    /// The help text.
    pub help: Cow<'static, str>,
    /// How the values go.
    pub kind: FamilyKind,
    /// The values; a family without any is not shown.
    pub samples: Vec<Sample>,
}

/// The families of one page, by name.
pub type Families = Arc<Vec<Family>>;
