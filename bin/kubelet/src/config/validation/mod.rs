//! `ValidateKubeletConfiguration`: all rules, with every broken one reported in upstream's words.

mod files;
mod labels;
mod limits;
mod log_and_trace;
mod policies;
mod reservations;
mod words;

pub use self::files::clean_path;
pub use self::reservations::parse_cpu_set;
pub use self::words::quoted;

use super::{FeatureGates, KubeletConfiguration};

/// The facts about the machine that validation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Whether only the unified cgroup hierarchy (v2) is mounted at /sys/fs/cgroup.
    pub cgroup_v2: bool,
}

impl Host {
    /// Reads the facts from this machine.
    pub fn probe() -> Self {
        Self { cgroup_v2: std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() }
    }
}

/// Checks `config` as it will run, with `gates` in force on `host`. An empty list means that it is valid; otherwise
/// each entry is one broken rule, naming field, flag and value.
pub fn validate(config: &KubeletConfiguration, gates: &FeatureGates, host: &Host) -> Vec<String> {
    let mut problems = Problems::default();
    limits::check(config, gates, &mut problems);
    policies::check(config, gates, &mut problems);
    reservations::check(config, &mut problems);
    files::check(config, &mut problems);
    log_and_trace::check(config, gates, &mut problems);
    host_rules(config, host, &mut problems);
    problems.found
}

/// The broken rules found so far.
#[derive(Debug, Default)]
struct Problems {
    found: Vec<String>,
}

impl Problems {
    /// Adds a broken rule about the configuration as a whole.
    fn config(&mut self, broken: bool, text: impl FnOnce() -> String) {
        if broken {
            self.found.push(format!("invalid configuration: {}", text()));
        }
    }

    /// Adds a broken rule with a text that upstream does not prefix.
    fn plain(&mut self, text: String) {
        self.found.push(text);
    }
}

/// Rules that depend on the machine. Upstream stops at the first broken one.
fn host_rules(config: &KubeletConfiguration, host: &Host, problems: &mut Problems) {
    const IDS_PER_POD_UNIT: i64 = 65_536;
    if config.cgroups.fail_cgroup_v1 && !host.cgroup_v2 {
        problems.plain(
            "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will \
             be removed in a future release"
                .to_owned(),
        );
        return;
    }
    if !host.cgroup_v2 && config.pods.single_process_oom_kill == Some(false) {
        problems.config(true, || {
            "singleProcessOOMKill must not be explicitly set to false when using cgroup v1".to_owned()
        });
        return;
    }
    let ids = config.pods.user_namespaces.as_ref().and_then(|namespaces| namespaces.ids_per_pod);
    let Some(ids) = ids else { return };
    if ids < IDS_PER_POD_UNIT {
        problems
            .config(true, || format!("userNamespaces.idsPerPod must not be less than {IDS_PER_POD_UNIT}"));
    } else if ids % IDS_PER_POD_UNIT != 0 {
        problems
            .config(true, || format!("userNamespaces.idsPerPod must be a multiple of {IDS_PER_POD_UNIT}"));
    } else if ids > i64::from(u32::MAX) {
        problems.config(true, || format!("userNamespaces.idsPerPod must not be more than {}", u32::MAX));
    }
}
