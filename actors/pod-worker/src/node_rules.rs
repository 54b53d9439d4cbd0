//! What a node lays down for all containers: whether CPU limits are enforced and how, which profiles there are, what
//! of the machine stays hidden.

use std::path::PathBuf;

/// The rules of a node for the resources and the security of all pods (rows 14.13, 14.17, 14.18, 17.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRules {
    /// `cpuCFSQuotaPeriod` in microseconds; none if CPU limits are not enforced (`cpuCFSQuota: false`).
    pub cpu_quota_period_us: Option<i64>,
    /// One hierarchy of cgroups for all controllers: version 2.
    pub cgroups_v2: bool,
    /// `singleProcessOOMKill`: the OOM killer takes one process instead of the container. Version 1 knows nothing else.
    pub single_process_oom_kill: bool,
    /// Swap is accounted for, so that it can be denied.
    pub swap_controller: bool,
    /// The sizes in bytes of the huge pages that the machine has, ascending.
    pub huge_page_sizes: Vec<u64>,
    /// `<root-dir>/seccomp`, below which Localhost profiles lie.
    pub seccomp_root: PathBuf,
    /// `seccompDefault`: who names no seccomp profile gets that of the runtime.
    pub seccomp_default: bool,
    /// The CPUs' files that tell of the machine's temperature, hidden as /proc's secrets are.
    pub thermal_paths: Vec<String>,
    /// SELinux is on: the runtime is asked to label what containers share with the kubelet.
    pub selinux: bool,
    /// The gate ContainerStopSignals.
    pub stop_signals: bool,
}

/// Microseconds; the default of `cpuCFSQuotaPeriod`.
pub const CPU_PERIOD_US: i64 = 100_000;

impl Default for NodeRules {
    fn default() -> Self {
        Self {
            cpu_quota_period_us: Some(CPU_PERIOD_US),
            cgroups_v2: false,
            single_process_oom_kill: false,
            swap_controller: false,
            huge_page_sizes: Vec::new(),
            seccomp_root: PathBuf::from("/var/lib/kubelet/seccomp"),
            seccomp_default: false,
            thermal_paths: Vec::new(),
            selinux: false,
            stop_signals: false,
        }
    }
}
