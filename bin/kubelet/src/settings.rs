//! PURE: from the configuration to what the subsystems go by.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use image_manager::{BackoffPolicy, ImageSettings, PullLimits, ThrottlePolicy};
use node_api::NodeApiConfig;
use pleg::PlegConfig;
use pod_worker::PodWorkerConfig;
use pod_worker::dns::ClusterDns;
use supervision::{Policy, QuarantinePolicy, RestartPolicy, WatchdogPolicy};

use crate::config::KubeletConfiguration;
use crate::config::understudy::UnderstudyConfiguration;
use crate::wiring::Settings;

/// A configured value that the subsystems cannot take, naming the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: Invalid value: {value:?}: {reason}")]
pub struct SettingError {
    /// The configuration's field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The subsystems' settings for a node of this name and address.
///
/// # Errors
/// The first field whose value cannot be used.
pub fn settings(
    config: &KubeletConfiguration,
    understudy: &UnderstudyConfiguration,
    node: &str,
    host_ip: Option<IpAddr>,
    memory_bytes: u64,
) -> Result<Settings, SettingError> {
    let crash_backoff_max = config.pods.crash_loop_back_off.max_container_restart_period;
    let worker = PodWorkerConfig {
        sync_frequency: config.sources.sync_frequency.as_std(),
        crash_backoff_max: crash_backoff_max
            .and_then(|period| jiff::SignedDuration::try_from(period.as_std()).ok())
            .unwrap_or(PodWorkerConfig::default().crash_backoff_max),
        cluster_dns: ClusterDns {
            domain: config.pods.cluster_domain.clone(),
            servers: config.pods.cluster_dns.clone(),
        },
        node_name: Arc::from(node),
        host_ips: host_ip.iter().map(ToString::to_string).collect(),
        node: Arc::default(),
    };
    Ok(Settings {
        node: node.to_owned(),
        host_ips: host_ip.iter().map(ToString::to_string).collect(),
        static_pod_path: Some(&config.sources.static_pod_path).filter(|p| !p.is_empty()).map(PathBuf::from),
        file_check: config.sources.file_check_frequency.as_std(),
        pods_max: usize::try_from(config.pods.max_pods).unwrap_or(0),
        memory_bytes,
        worker,
        images: image_settings(config),
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
        },
        sweep: volume_manager::SweepPolicy::default(),
        fault_point: None,
    })
}

/// Port 0 is off.
fn listener(field: &'static str, address: &str, port: i32) -> Result<Option<SocketAddr>, SettingError> {
    let invalid = |reason: String| SettingError { field, value: address.to_owned(), reason };
    if port == 0 {
        return Ok(None);
    }
    let port = u16::try_from(port).map_err(|_| invalid(format!("port {port} is not between 0 and 65535")))?;
    let ip: IpAddr = address.parse().map_err(|_| invalid("must be a valid IP address".to_owned()))?;
    Ok(Some(SocketAddr::new(ip, port)))
}

/// How supervision goes about it.
pub fn policy(understudy: &UnderstudyConfiguration, seed: u64) -> Policy {
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
        mailbox_bound: understudy.mailbox.default as usize,
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

/// When the watchdog reports and gives up.
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
    // A cap of zero or none with parallel pulls is no cap, as upstream has it; a thousand is as good as none.
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
        backoff: BackoffPolicy::default(),
        limits: PullLimits { parallel, ..PullLimits::default() },
    }
}
