//! PURE: the conditions under which the kubelet refuses to start, beyond the rules of the configuration alone: those
//! that upstream checks on the way to a running node, and those that are plainly unsafe.

mod resources;
mod server;
#[cfg(test)]
mod tests;

use bridge_node::host::StartFacts;

use crate::config::SettingError;
use crate::load::Loaded;

/// The machine on which the kubelet is to start.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// The machine's swap and CPUs.
    pub facts: StartFacts,
    /// Whether the machine has only the unified cgroup hierarchy.
    pub cgroup_v2: bool,
}

/// The reasons not to start, and the warnings about a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartupFindings {
    /// The reasons not to start, each naming its field; empty if the kubelet may start.
    pub refusals: Vec<SettingError>,
    /// Warnings for the log.
    pub warnings: Vec<String>,
}

impl StartupFindings {
    fn refuse(
        &mut self,
        broken: bool,
        field: &'static str,
        value: impl ToString,
        reason: impl FnOnce() -> String,
    ) {
        if broken {
            self.refusals.push(SettingError { field, value: value.to_string(), reason: reason() });
        }
    }
}

/// Whether the kubelet may start on this machine.
pub fn check(loaded: &Loaded, machine: &HostFacts) -> StartupFindings {
    let mut verdict = StartupFindings::default();
    server::check(loaded, &mut verdict);
    resources::check(loaded, machine, &mut verdict);
    process(loaded, &mut verdict);
    pods(loaded, &mut verdict);
    swap(loaded, machine, &mut verdict);
    verdict
}

/// Whether the kubelet has an API server.
fn has_api(loaded: &Loaded) -> bool {
    !loaded.flags.kubeconfig.is_empty()
}

/// Checks flags that need each other, or accept one value only.
fn process(loaded: &Loaded, verdict: &mut StartupFindings) {
    let flags = &loaded.flags;
    verdict.refuse(flags.root_dir.is_empty(), "--root-dir", "", || "invalid root directory \"\"".to_owned());
    verdict.refuse(
        flags.exit_on_lock_contention && flags.lock_file.is_empty(),
        "--exit-on-lock-contention",
        true,
        || "cannot exit on lock file contention: no lock file specified".to_owned(),
    );
    let cloud = flags.cloud_provider.as_str();
    verdict.refuse(!["", "external"].contains(&cloud), "--cloud-provider", cloud, || {
        format!(
            "cloud provider {cloud:?} was specified, but built-in cloud providers are disabled. Please set \
             --cloud-provider=external and migrate to an external cloud provider"
        )
    });
}

fn pods(loaded: &Loaded, verdict: &mut StartupFindings) {
    let config = &loaded.config;
    let sync = config.sources.sync_frequency;
    verdict.refuse(sync.as_nanos() <= 0, "syncFrequency", sync, || "invalid sync frequency".to_owned());
    let strategy = config.sources.config_map_and_secret_change_detection_strategy.as_str();
    verdict.refuse(
        has_api(loaded) && !["Get", "Cache", "Watch"].contains(&strategy),
        "configMapAndSecretChangeDetectionStrategy",
        strategy,
        || format!("unknown configmap and secret manager mode: {strategy}"),
    );
    let size = config.pods.container_log_max_size.as_str();
    let bytes = pod_spec::quantity::Quantity::parse(size);
    verdict.refuse(!bytes.is_ok_and(|bytes| bytes.is_whole()), "containerLogMaxSize", size, || {
        format!("failed to parse container log max size {size:?}: not a quantity of whole bytes")
    });
    let cidr = config.pods.pod_cidr.as_str();
    verdict.refuse(!is_pod_cidr(cidr), "podCIDR", cidr, || {
        "must be an address and the length of its prefix, or one of each family, comma-separated".to_owned()
    });
    if !cidr.is_empty() && has_api(loaded) {
        verdict
            .warnings
            .push("podCIDR has no effect with --kubeconfig: the Node's own one is used".to_owned());
    }
    for server in config.pods.cluster_dns.iter().filter(|server| !is_address(server)) {
        verdict.warnings.push(format!("clusterDNS: Invalid clusterDNS IP {server:?} is left out"));
    }
}

/// Whether a text of `clusterDNS` is an IP address; other texts are ignored.
pub fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

fn is_pod_cidr(text: &str) -> bool {
    let is_one = |one: &str| {
        one.split_once('/').is_some_and(|(address, length)| {
            let longest = match address.parse() {
                Ok(std::net::IpAddr::V4(_)) => 32,
                Ok(std::net::IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            length.bytes().all(|byte| byte.is_ascii_digit())
                && length.parse::<u8>().is_ok_and(|length| length <= longest)
        })
    };
    text.is_empty() || text.split(',').all(is_one)
}

/// Refuses pods' memory on a disk: with swap their limits would not hold, and their secrets would stay on the disk.
fn swap(loaded: &Loaded, machine: &HostFacts, verdict: &mut StartupFindings) {
    let pods = &loaded.config.pods;
    verdict.refuse(pods.fail_swap_on && machine.facts.is_swap_on(), "failSwapOn", true, || {
        format!(
            "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false; \
             /proc/swaps contents: {}",
            machine.facts.swaps.trim()
        )
    });
    if !loaded.gates.enabled("NodeSwap") {
        return;
    }
    let behavior = pods.memory_swap.swap_behavior.as_str();
    let limited = behavior == "LimitedSwap";
    verdict.refuse(limited && !machine.cgroup_v2, "memorySwap.swapBehavior", behavior, || {
        "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2".to_owned()
    });
    if limited {
        verdict.warnings.push(
            "memorySwap.swapBehavior: LimitedSwap has no effect yet: containers get no swap, as with NoSwap"
                .to_owned(),
        );
    }
    if !pods.fail_swap_on && behavior.is_empty() {
        verdict.warnings.push("NoSwap is set due to memorySwapBehavior not specified".to_owned());
    }
}
