//! The node's settings for all containers: how CPU limits are enforced, which security profiles apply, and
//! which files of the machine are hidden.

use std::path::PathBuf;

/// The node's settings for the resources and the security of all containers (rows 14.13, 14.17, 14.18, 17.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRules {
    /// From kubelet's configuration `cpuCFSQuotaPeriod`, in microseconds; none if CPU limits are not enforced
    /// (`cpuCFSQuota: false`).
    pub cpu_quota_period_us: Option<i64>,
    /// Whether the machine uses cgroups version 2: one hierarchy for all controllers.
    pub cgroups_v2: bool,
    /// From kubelet's configuration `singleProcessOOMKill`: the OOM killer ends one process instead of the
    /// whole container. With cgroups version 1 it always does.
    pub single_process_oom_kill: bool,
    /// Whether the kernel accounts for swap, so that it can be denied.
    pub swap_controller: bool,
    /// The page sizes of the machine's huge pages, in bytes, ascending.
    pub huge_page_sizes: Vec<u64>,
    /// `<root-dir>/seccomp`, the directory of Localhost profiles.
    pub seccomp_root: PathBuf,
    /// From kubelet's configuration `seccompDefault`: a container without a seccomp profile gets the
    /// runtime's default one.
    pub seccomp_default: bool,
    /// The paths of the CPUs' directories `thermal_throttle`, which are hidden from ordinary containers.
    pub thermal_paths: Vec<String>,
    /// Whether SELinux is on: the runtime is asked to label the files that containers share with the kubelet.
    pub selinux: bool,
    /// From the feature gate ContainerStopSignals.
    pub stop_signals: bool,
    /// From the feature gate RuntimeClassInImageCriApi: images are asked for with the handler of the pod's runtime class.
    pub images_by_handler: bool,
    /// The most bytes of a pod's own labels and annotations that the runtime keeps with its sandbox: the runtime tells them of
    /// all pods in one answer.
    pub sandbox_text_max: usize,
}

/// What an answer of the runtime has room for beside what the kubelet itself writes, in bytes.
const ANSWER_TEXT_BYTES: usize = 12 * 1024 * 1024;
/// The API server's own bound of a pod's annotations, in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// `sandbox_text_max` of a node for so many pods.
#[must_use]
pub fn sandbox_text_max(pods: usize) -> usize {
    (ANSWER_TEXT_BYTES / pods.max(1)).min(ANNOTATIONS_BYTES_MAX)
}

/// The default of `cpuCFSQuotaPeriod`, in microseconds.
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
            images_by_handler: false,
            sandbox_text_max: sandbox_text_max(110),
        }
    }
}
