//! The settings of the benchmark, from the environment.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// The cluster that a kubelet joins.
#[derive(Clone, Debug, Serialize)]
pub struct Cluster {
    /// The directory of the control plane.
    pub dir: PathBuf,
    /// The script that starts and stops the control plane.
    pub script: PathBuf,
    /// How long the API server is away.
    pub outage: Duration,
}

/// Where and how much is measured.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// The runtime's socket.
    pub socket: PathBuf,
    /// Its process.
    pub containerd_pid: u32,
    /// Its version, for the report.
    pub containerd_version: String,
    /// The cgroup below which pods go, from the root of each hierarchy.
    pub cgroup_parent: String,
    /// A directory of this run, which the calling script removes.
    pub work: PathBuf,
    /// The kubelet to measure.
    pub kubelet: Option<PathBuf>,
    /// The Go kubelet to compare it with.
    pub go_kubelet: Option<PathBuf>,
    /// The cluster to measure members of; else kubelets with static pods are measured.
    pub cluster: Option<Cluster>,
    /// More flags for the kubelet, such as `-v=4`.
    pub kubelet_flags: Vec<String>,
    /// Pods of a burst.
    pub pods: usize,
    /// Single pods.
    pub rounds: usize,
    /// How long the idle node is watched.
    pub idle: Duration,
    /// The file for the figures.
    pub json: PathBuf,
}

impl Settings {
    /// From the environment that `tests/env/run-bench` makes; an error says what is missing.
    pub fn from_env() -> Result<Self, String> {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let needed = |name: &str| text(name).ok_or_else(|| format!("{name} is not set"));
        let number = |name: &str, default: usize| match text(name) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| format!("{name}: not a number: {value:?}")),
        };
        let dir = PathBuf::from(needed("UNDERSTUDY_CONTAINERD_DIR")?);
        let pid = dir.join("containerd.pid");
        let pid =
            std::fs::read_to_string(&pid).map_err(|error| format!("read {}: {error}", pid.display()))?;
        Ok(Self {
            socket: needed("UNDERSTUDY_CRI_SOCKET")?.into(),
            containerd_pid: pid.trim().parse().map_err(|_| format!("not a pid: {pid:?}"))?,
            containerd_version: needed("UNDERSTUDY_CONTAINERD_VERSION")?,
            cgroup_parent: needed("UNDERSTUDY_CGROUP_PARENT")?,
            work: needed("BENCH_WORK")?.into(),
            kubelet: text("BENCH_KUBELET").map(Into::into),
            go_kubelet: text("GO_KUBELET").map(Into::into),
            cluster: match text("BENCH_CONTROL_PLANE") {
                None => None,
                Some(dir) => Some(Cluster {
                    dir: dir.into(),
                    script: needed("BENCH_CONTROL_PLANE_SCRIPT")?.into(),
                    outage: Duration::from_secs(number("BENCH_OUTAGE_S", 45)? as u64),
                }),
            },
            kubelet_flags: text("BENCH_KUBELET_FLAGS")
                .map(|flags| flags.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
            pods: number("BENCH_PODS", 100)?,
            rounds: number("BENCH_ROUNDS", 20)?,
            idle: Duration::from_secs(number("BENCH_IDLE_S", 30)? as u64),
            json: needed("BENCH_JSON")?.into(),
        })
    }

    /// The longest time for the start or the end of a burst: three minutes for each hundred pods.
    pub fn burst_within(&self) -> Duration {
        Duration::from_secs(180 * u64::try_from(self.pods.div_ceil(100)).unwrap_or(1).max(1))
    }
}
