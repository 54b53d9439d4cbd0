//! PURE: derives the subsystems' settings from the configuration.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_http::manifest_url::ManifestAddress;
use bridge_node::cgroups::{CgroupNames, CgroupVersion};
use bridge_node::host::ContainerFacts;
use bridge_node::host::MachineFacts;
use eviction_manager::EvictionConfig;
use garbage_collector::GcPolicy;
use image_manager::{
    CollectionPolicy, CredentialProviders, ImageSettings, PullLimits, ThrottlePolicy, Verification,
};
use k8s_openapi::api::core::v1::Taint;
use log_manager::LogRotation;
use messages::eviction_manager::EvictionSettings;
use node_api::NodeApiConfig;
use object_cache::Strategy;
use pleg::PlegConfig;
use pod_manager::admission::{NodeView, SysctlAllowlist, node_labels};
use pod_sources::{PodSecurity, RestartRules, SecurityLevel, StandardVersion};
use pod_spec::quantity::Quantity;
use pod_spec::resources::NodeResources;
use pod_worker::dns::ClusterDns;
use pod_worker::node_rules::sandbox_text_max;
use pod_worker::{BackoffBounds, NodeRules, PodWorkerConfig};
use resource_manager::capacity::{self, MachineCapacity, Reservations};
use resource_manager::{PodRules, ProcessCgroups, ReservedCgroup, ReservedFor, ResourceManagerConfig};
use stats_provider::{Machine, StatsConfig};
use supervision::{Policy, QuarantinePolicy, RestartPolicy, WatchdogPolicy};
use volume_manager::{Selinux, VolumeSettings};

use crate::config::gates::FeatureGates;
use crate::config::understudy::UnderstudyConfiguration;
use crate::config::{GoDuration, KubeletConfiguration, SettingError};
use crate::flags::KubeletFlags;
use crate::load::Loaded;
use crate::serving;
use crate::start;
use crate::traces;
use crate::wiring::Settings;

/// The flags on dead containers. A negative number is no limit; a container younger than `min_age` stays.
pub fn garbage(flags: &KubeletFlags) -> GcPolicy {
    GcPolicy {
        min_age: flags.minimum_container_ttl_duration.as_std(),
        per_container_max: usize::try_from(flags.maximum_dead_containers_per_container).ok(),
        containers_max: usize::try_from(flags.maximum_dead_containers).ok(),
    }
}

/// The subsystems' settings for a node of this name and address, on a machine with these resources.
///
/// # Errors
/// The first field with an unusable value.
pub fn settings(
    config: &KubeletConfiguration,
    understudy: &UnderstudyConfiguration,
    garbage: GcPolicy,
    node: &str,
    host_ip: Option<IpAddr>,
    machine: &MachineCapacity,
) -> Result<Settings, SettingError> {
    let eviction = eviction(config)?;
    let reservations = reservations(config)?;
    capacity::validate(machine, &reservations)
        .map_err(|error| error_of("kubeReserved, systemReserved, evictionHard", String::new(), &error))?;
    let node_resources = Arc::new(capacity::node_resources(machine, &reservations));
    // The gates were checked when the configuration was read.
    let gates = FeatureGates::from_settings(&config.process.feature_gates).unwrap_or_default();
    let worker = PodWorkerConfig {
        sync_frequency: config.sources.sync_frequency.as_std(),
        crash_backoff: crash_backoff(config, &gates),
        cluster_dns: ClusterDns {
            domain: config.pods.cluster_domain.clone(),
            servers: config.pods.cluster_dns.iter().filter(|text| start::is_address(text)).cloned().collect(),
        },
        resolv_conf: config.pods.resolv_conf.clone(),
        hostname_override: gates.enabled("HostnameOverride"),
        env_files: gates.enabled("EnvFiles"),
        node_name: Arc::from(node),
        host_ips: host_ip.iter().map(ToString::to_string).collect(),
        node: node_resources.clone(),
        dead_kept: garbage.per_container_max.unwrap_or(1),
        rules: Arc::default(),
    };
    Ok(Settings {
        node: node.to_owned(),
        host_ips: host_ip.iter().map(ToString::to_string).collect(),
        static_pod_path: Some(&config.sources.static_pod_path).filter(|p| !p.is_empty()).map(PathBuf::from),
        pod_submission: understudy.pod_submission.enabled,
        pod_security: pod_security(understudy),
        file_check: config.sources.file_check_frequency.as_std(),
        url_check: config.sources.http_check_frequency.as_std(),
        node_resources,
        worker,
        images: image_settings(config),
        resources: ResourceManagerConfig {
            processes: process_cgroups(config)?,
            ..resource_settings(config, machine, &reservations)
        },
        garbage,
        logs: log_rotation(config)?,
        eviction,
        stats: StatsConfig::default(),
        volumes: volume_settings(config, &gates),
        objects: object_strategy(config),
        pleg: PlegConfig {
            relist: understudy.relist.notified.as_std(),
            unnotified: understudy.relist.unnotified.as_std(),
            ..PlegConfig::default()
        },
        api: NodeApiConfig {
            health: listener(
                "healthzBindAddress",
                &config.server.healthz_bind_address,
                config.server.healthz_port,
            )?,
            read_only: listener("address", &config.server.address, config.server.read_only_port)?,
            secured: match config.server.enable_server {
                true => listener("address", &config.server.address, config.server.port)?,
                false => None,
            },
        },
        server: serving::server(config, understudy, &gates, node),
        admission: NodeView::default(),
        sweep: volume_manager::SweepPolicy::default(),
        restart_rules: RestartRules {
            container: gates.enabled("ContainerRestartRules"),
            all_containers: gates.enabled("RestartAllContainersOnContainerExits"),
        },
        ready_to_start_condition: gates.enabled("PodReadyToStartContainersCondition"),
        image_volume_digests: gates.enabled("ImageVolumeWithDigest"),
        trace_sampling: traces::sampling(config),
        membership: None,
        fault_point: None,
    })
}

/// The standard of pods that do not come from the API server. Other words stop the start, and would stand for the strictest
/// one.
fn pod_security(understudy: &UnderstudyConfiguration) -> PodSecurity {
    let policy = &understudy.pod_security;
    PodSecurity {
        level: SecurityLevel::named(&policy.enforce).unwrap_or(SecurityLevel::Restricted),
        version: StandardVersion::parse(&policy.version).unwrap_or_default(),
    }
}

/// How secrets and config maps are kept current; another word stops the start of a member of a cluster, and a kubelet alone reads none.
fn object_strategy(config: &KubeletConfiguration) -> Strategy {
    match config.sources.config_map_and_secret_change_detection_strategy.as_str() {
        "Cache" => Strategy::Cache,
        "Get" => Strategy::Get,
        _ => Strategy::Watch,
    }
}

/// The settings of volumes; a period of their figures that is not positive turns these off, as upstream.
fn volume_settings(config: &KubeletConfiguration, gates: &FeatureGates) -> VolumeSettings {
    let period = config.node.volume_stats_agg_period;
    VolumeSettings {
        stats_period: (period.as_nanos() > 0).then(|| period.as_std()),
        selinux: None,
        tells_health: gates.enabled("CSIVolumeHealth"),
    }
}

/// What is told about usage: of the kubelet's own cgroup, of the runtime's and that of other system processes where they are
/// named, and of the machine.
pub fn stats(loaded: &Loaded, machine: &MachineFacts) -> StatsConfig {
    let named = [("runtime", &loaded.flags.runtime_cgroups), ("misc", &loaded.config.cgroups.system_cgroups)];
    let named = named.into_iter().filter(|(_, cgroup)| !cgroup.is_empty());
    let named = named.map(|(of, cgroup)| (of.to_owned(), Some(cgroup.clone())));
    let text = |text: &String| Arc::from(text.as_str());
    let kubelet = Some(&loaded.config.cgroups.kubelet_cgroups).filter(|cgroup| !cgroup.is_empty());
    StatsConfig {
        systems: named.chain([("kubelet".to_owned(), kubelet.cloned())]).collect(),
        machine: Machine {
            boot_id: text(&machine.boot_id),
            machine_id: text(&machine.machine_id),
            system_uuid: text(&machine.system_uuid),
            kernel_version: text(&machine.kernel_version),
            os_image: text(&machine.os_image),
        },
    }
}

/// The bounds of the delay between restarts: the operator's maximum takes precedence over that of a feature gate.
fn crash_backoff(config: &KubeletConfiguration, gates: &FeatureGates) -> BackoffBounds {
    let usual = match gates.enabled("ReduceDefaultCrashLoopBackOffDecay") {
        true => BackoffBounds::REDUCED,
        false => BackoffBounds::default(),
    };
    let max = config.pods.crash_loop_back_off.max_container_restart_period;
    let max = max.filter(|_| gates.enabled("KubeletCrashLoopBackOffMax"));
    let max = max.and_then(|period| jiff::SignedDuration::try_from(period.as_std()).ok());
    usual.up_to(max.unwrap_or(usual.max))
}

/// How logs are rotated; a negative size turns rotation off.
fn log_rotation(config: &KubeletConfiguration) -> Result<LogRotation, SettingError> {
    let pods = &config.pods;
    let text = &pods.container_log_max_size;
    let size = Quantity::parse(text)
        .map_err(|error| error_of("containerLogMaxSize", text.clone(), &error))
        .and_then(|size| match size.is_whole() {
        true => Ok(size.units_rounded_up()),
        false => Err(error_of("containerLogMaxSize", text.clone(), &"invalid max log size")),
    })?;
    Ok(LogRotation {
        bytes_max: u64::try_from(size).ok(),
        files_max: usize::try_from(pods.container_log_max_files).unwrap_or(0),
        workers: usize::try_from(pods.container_log_max_workers).unwrap_or(1),
        interval: pods.container_log_monitor_interval.as_std(),
    })
}

/// When pods are evicted, as EvictionManager is told of it.
///
/// # Errors
/// A grace period that is not valid.
pub fn eviction_settings(config: &KubeletConfiguration) -> Result<EvictionSettings, SettingError> {
    let eviction = &config.eviction;
    let grace = |(signal, text): (&String, &String)| {
        let invalid =
            || Err(format!("invalid eviction grace period specified: {text}, must be a positive value"));
        let period = GoDuration::parse(text)
            .and_then(|period| if period.as_nanos() < 0 { invalid() } else { Ok(period.as_std()) });
        let period = period
            .map_err(|error| error_of("evictionSoftGracePeriod", format!("{signal}={text}"), &error))?;
        Ok((signal.clone(), period))
    };
    let soft_grace: BTreeMap<String, Duration> =
        eviction.eviction_soft_grace_period.iter().map(grace).collect::<Result<_, _>>()?;
    Ok(EvictionSettings {
        hard: eviction.eviction_hard.clone(),
        soft: eviction.eviction_soft.clone(),
        soft_grace,
        min_reclaim: eviction.eviction_minimum_reclaim.clone(),
        pods_enforced: config.cgroups.enforce_node_allocatable.iter().any(|what| what == "pods"),
        transition: eviction.eviction_pressure_transition_period.as_std(),
        soft_grace_seconds_max: i64::from(eviction.eviction_max_pod_grace_period),
    })
}

/// When pods are evicted.
fn eviction(config: &KubeletConfiguration) -> Result<EvictionConfig, SettingError> {
    let (settings, eviction) = (eviction_settings(config)?, &config.eviction);
    let texts = [
        ("evictionHard", &eviction.eviction_hard),
        ("evictionSoft", &eviction.eviction_soft),
        ("evictionMinimumReclaim", &eviction.eviction_minimum_reclaim),
    ];
    let shown = texts.into_iter().filter(|(_, texts)| !texts.is_empty());
    let shown = shown.map(|(field, texts)| format!("{field}: {}", listed(texts)));
    EvictionConfig::of(&settings, eviction.local_storage_capacity_isolation).map_err(|error| {
        error_of(
            "evictionHard, evictionSoft, evictionSoftGracePeriod, evictionMinimumReclaim",
            shown.collect::<Vec<_>>().join("; "),
            &error,
        )
    })
}

fn listed(texts: &BTreeMap<String, String>) -> String {
    texts.iter().map(|(name, text)| format!("{name}={text}")).collect::<Vec<_>>().join(",")
}

fn error_of(field: &'static str, value: String, error: &dyn std::fmt::Display) -> SettingError {
    SettingError { field, value, reason: error.to_string() }
}

/// The resources that are kept back from pods.
fn reservations(config: &KubeletConfiguration) -> Result<Reservations, SettingError> {
    let reserved = |field, texts: &BTreeMap<String, String>| {
        capacity::reserved(texts).map_err(|error| error_of(field, listed(texts), &error))
    };
    let hard = &config.eviction.eviction_hard;
    Ok(Reservations {
        kube: reserved("kubeReserved", &config.cgroups.kube_reserved)?,
        system: reserved("systemReserved", &config.cgroups.system_reserved)?,
        eviction_hard: capacity::thresholds(hard)
            .map_err(|error| error_of("evictionHard", listed(hard), &error))?,
        pods_max: u64::try_from(config.pods.max_pods).unwrap_or(0),
        pods_per_core: u64::try_from(config.pods.pods_per_core).unwrap_or(0),
    })
}

fn pods_max(node: &NodeResources) -> usize {
    let pods = node.capacity.get("pods").copied().unwrap_or(Quantity::ZERO);
    usize::try_from(pods.units_rounded_up()).unwrap_or(0)
}

/// The cgroups of processes that are no pod's.
fn process_cgroups(config: &KubeletConfiguration) -> Result<ProcessCgroups, SettingError> {
    let cgroups = &config.cgroups;
    let whole = |field, name: &String| match name.as_str() {
        "" => Ok(None),
        name => CgroupNames::whole(field, name)
            .map(Some)
            .map_err(|error| error_of(field, name.to_owned(), &error)),
    };
    Ok(ProcessCgroups {
        kubelet: whole("kubeletCgroups", &cgroups.kubelet_cgroups)?,
        system: whole("systemCgroups", &cgroups.system_cgroups)?,
        oom_score_adj: cgroups.oom_score_adj,
    })
}

/// The cgroups of pods and of the node.
fn resource_settings(
    config: &KubeletConfiguration,
    machine: &MachineCapacity,
    reservations: &Reservations,
) -> ResourceManagerConfig {
    let cgroups = &config.cgroups;
    let enforced = |what: &str| cgroups.enforce_node_allocatable.iter().any(|one| one == what);
    let of = |reserved_for| match reserved_for {
        ReservedFor::System => (&cgroups.system_reserved_cgroup, &reservations.system),
        ReservedFor::Kube => (&cgroups.kube_reserved_cgroup, &reservations.kube),
    };
    let reserved = [
        ("system-reserved", ReservedFor::System, false),
        ("kube-reserved", ReservedFor::Kube, false),
        ("system-reserved-compressible", ReservedFor::System, true),
        ("kube-reserved-compressible", ReservedFor::Kube, true),
    ];
    let reserved = reserved.into_iter().filter(|(what, ..)| enforced(what));
    let period = config.pods.cpu_cfs_quota_period.as_std().as_micros();
    ResourceManagerConfig {
        per_qos: cgroups.cgroups_per_qos,
        pods: PodRules {
            cpu_quota: config.pods.cpu_cfs_quota,
            cpu_period_us: u64::try_from(period).unwrap_or(PodRules::default().cpu_period_us),
            pids_max: u64::try_from(config.pods.pod_pids_limit).ok().filter(|limit| *limit > 0),
        },
        node: capacity::enforced(machine, reservations, enforced("pods")),
        reserved: reserved
            .map(|(_, reserved_for, compressible_only)| {
                let (name, amounts) = of(reserved_for);
                let (name, amounts) = (name.clone(), amounts.clone());
                ReservedCgroup { reserved_for, name, amounts, compressible_only }
            })
            .collect(),
        ..ResourceManagerConfig::default()
    }
}

/// The node as admission sees it.
///
/// # Errors
/// `allowedUnsafeSysctls` contains a sysctl that no pod can set for itself alone.
pub fn admission(
    loaded: &Loaded,
    settings: &Settings,
    machine: &MachineFacts,
) -> Result<NodeView, SettingError> {
    let allowed = &loaded.config.pods.allowed_unsafe_sysctls;
    let sysctls = SysctlAllowlist::new(&machine.kernel_version, allowed).map_err(|error| SettingError {
        field: "allowedUnsafeSysctls",
        value: allowed.join(","),
        reason: error.to_string(),
    })?;
    let taints = loaded.config.node.register_with_taints.iter().map(|taint| Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: taint.effect.clone(),
        time_added: None,
    });
    Ok(NodeView {
        name: settings.node.clone(),
        labels: node_labels(&settings.node, &machine.architecture, &loaded.flags.node_labels),
        taints: taints.collect(),
        resources: settings.node_resources.clone(),
        pods_max: pods_max(&settings.node_resources),
        sysctls,
        app_armor: machine.app_armor,
    })
}

/// The address of `staticPodURL` and its headers; `None` without a URL.
///
/// # Errors
/// The URL or the headers cannot be used. The error shows neither, since both may hold credentials.
pub fn manifest_url(config: &KubeletConfiguration) -> Result<Option<ManifestAddress>, SettingError> {
    let sources = &config.sources;
    if sources.static_pod_url.is_empty() {
        return Ok(None);
    }
    let address = ManifestAddress::new(&sources.static_pod_url, &sources.static_pod_url_header);
    address.map(Some).map_err(|error| SettingError {
        field: "staticPodURL",
        value: "<masked>".to_owned(),
        reason: error.to_string(),
    })
}

/// How volumes are labelled; `None` where SELinux is not on, or does not tell how containers are labelled.
pub fn selinux(loaded: &Loaded, machine: &ContainerFacts) -> Option<Selinux> {
    let every_mode = loaded.gates.enabled("SELinuxMount");
    machine.selinux_labels.clone().map(|labels| Selinux { labels, every_mode })
}

/// The rules for all containers that follow from the configuration and the machine.
pub fn node_rules(loaded: &Loaded, cgroups: CgroupVersion, machine: ContainerFacts) -> NodeRules {
    let (pods, flags, gates) = (&loaded.config.pods, &loaded.flags, &loaded.gates);
    let period_us = i64::try_from(pods.cpu_cfs_quota_period.as_std().as_micros());
    NodeRules {
        cpu_quota_period_us: pods
            .cpu_cfs_quota
            .then(|| period_us.unwrap_or(pod_worker::node_rules::CPU_PERIOD_US)),
        cgroups_v2: cgroups == CgroupVersion::V2,
        single_process_oom_kill: pods.single_process_oom_kill.unwrap_or(false),
        swap_controller: machine.swap_controller,
        huge_page_sizes: machine.huge_page_sizes,
        seccomp_root: PathBuf::from(&flags.root_dir).join("seccomp"),
        seccomp_default: pods.seccomp_default || flags.seccomp_default,
        thermal_paths: machine.thermal_paths,
        selinux: machine.selinux,
        stop_signals: gates.enabled("ContainerStopSignals"),
        images_by_handler: gates.enabled("RuntimeClassInImageCriApi"),
        sandbox_text_max: sandbox_text_max(usize::try_from(pods.max_pods).unwrap_or_default()),
    }
}

/// A listener's address; `None` for port 0.
fn listener(field: &'static str, address: &str, port: i32) -> Result<Option<SocketAddr>, SettingError> {
    let invalid = |reason: String| SettingError { field, value: address.to_owned(), reason };
    if port == 0 {
        return Ok(None);
    }
    let port = u16::try_from(port).map_err(|_| invalid(format!("port {port} is not between 0 and 65535")))?;
    let ip: IpAddr = address.parse().map_err(|_| invalid("must be a valid IP address".to_owned()))?;
    Ok(Some(SocketAddr::new(ip, port)))
}

/// Messages about one pod that may wait for one actor at the same time: a few types more than any actor receives.
const MESSAGES_PER_POD: usize = 10;

/// How supervision goes about it. Every mailbox has room for what may be said of as many pods as the node may run. An
/// effect without a deadline of its own may make two calls to the runtime, one after the other, each of which has
/// `runtimeRequestTimeout`.
pub fn policy(understudy: &UnderstudyConfiguration, config: &KubeletConfiguration, seed: u64) -> Policy {
    let pods_max = usize::try_from(config.pods.max_pods).unwrap_or(0);
    let supervision = &understudy.supervision;
    let restart = RestartPolicy {
        backoff_initial: supervision.backoff_initial.as_std(),
        backoff_max: supervision.backoff_max.as_std(),
        restarts_max: supervision.restarts_max,
        window: supervision.restarts_window.as_std(),
        healthy_after: supervision.healthy_after.as_std(),
    };
    Policy {
        child_restart: RestartPolicy {
            restarts_max: understudy.pod_worker.restarts_max,
            window: understudy.pod_worker.restarts_window.as_std(),
            ..restart.clone()
        },
        restart,
        quarantine: QuarantinePolicy {
            panics_max: understudy.quarantine.panics_max,
            window: understudy.quarantine.window.as_std(),
            ..QuarantinePolicy::default()
        },
        stall_after: supervision.stall_after.as_std(),
        dormant_retry: supervision.dormant_retry.as_std(),
        effect_within: effect_within(config.images.runtime_request_timeout.as_std()),
        mailbox_bound: (understudy.mailbox.default as usize).max(pods_max.saturating_mul(MESSAGES_PER_POD)),
        mailbox_bounds: understudy
            .mailbox
            .per_actor
            .iter()
            .map(|(actor, bound)| (actor.clone(), *bound as usize))
            .collect(),
        dormant_children_max: understudy.pod_worker.crashing_pods_max as usize,
        seed,
    }
}

fn effect_within(runtime_request: Duration) -> Duration {
    runtime_request
        .saturating_mul(2)
        .saturating_add(Duration::from_secs(60))
        .max(Policy::default().effect_within)
}

/// When the watchdog reports a blocked thread, and when it ends the process.
pub fn watchdog(understudy: &UnderstudyConfiguration) -> WatchdogPolicy {
    let report_after = understudy.supervision.thread_report_after.as_std();
    WatchdogPolicy {
        beat: (report_after / 2).clamp(Duration::from_millis(100), Duration::from_secs(5)),
        report_after,
        exit_after: understudy.supervision.thread_exit_after.as_std(),
    }
}

fn image_settings(config: &KubeletConfiguration) -> ImageSettings {
    let images = &config.images;
    // As upstream, parallel pulls with a cap of 0 or without a cap are unlimited; 1000 is as good as no limit.
    let parallel = match (images.serialize_image_pulls, images.max_parallel_image_pulls) {
        (Some(true), _) => 1,
        (_, Some(max)) => usize::try_from(max).unwrap_or(1).max(1),
        _ => 1000,
    };
    ImageSettings {
        throttle: ThrottlePolicy {
            pulls_per_second: f64::from(images.registry_pull_qps),
            burst: u32::try_from(images.registry_burst).unwrap_or(0),
        },
        // Validation has refused every other value, and every value without the gate.
        verification: match images.image_pull_credentials_verification_policy.as_str() {
            "NeverVerify" => Verification::NeverVerify,
            "NeverVerifyPreloadedImages" => Verification::NeverVerifyPreloadedImages,
            "NeverVerifyAllowlistedImages" => Verification::NeverVerifyAllowlistedImages(
                images.preloaded_images_verification_allowlist.clone().into(),
            ),
            "AlwaysVerify" => Verification::AlwaysVerify,
            _ => Verification::Off,
        },
        limits: PullLimits { parallel, ..PullLimits::default() },
        collection: CollectionPolicy {
            high_percent: u64::try_from(images.image_gc_high_threshold_percent).unwrap_or(0),
            low_percent: u64::try_from(images.image_gc_low_threshold_percent).unwrap_or(0),
            min_age: images.image_minimum_gc_age.as_std(),
            max_age: Some(images.image_maximum_gc_age.as_std()).filter(|oldest| !oldest.is_zero()),
        },
        // The daemon reads them from files.
        providers: CredentialProviders::default(),
    }
}

#[cfg(test)]
mod tests;
