//! The cluster that the node is a member of: its API server, by a kubeconfig.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use runtime_bridge::Io;
use runtime_bridge::kube::{ApiClient, ConnectSettings, FileIdentity, Kubeconfig, RateLimit, connect};

use crate::KUBERNETES_VERSION;
use crate::config::{KubeletConfiguration, Loaded};
use crate::wiring::Cluster;

/// Longest time that a call may take; watches have their own.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// Bytes of a kubeconfig.
const KUBECONFIG_BYTES_MAX: u64 = 1024 * 1024;
/// What client libraries take when they are told no rate.
const DEFAULT_LIMIT: RateLimit = RateLimit { per_second: 5.0, burst: 10 };

/// The way to the API server that `--kubeconfig` names; none without the flag. Nothing is connected yet.
///
/// # Errors
/// A kubeconfig that cannot be used.
pub fn cluster(loaded: &Loaded, node_name: &str, io: &Io) -> anyhow::Result<Option<Cluster>> {
    if loaded.flags.kubeconfig.is_empty() {
        return Ok(None);
    }
    let path = Path::new(&loaded.flags.kubeconfig);
    let kubeconfig = Kubeconfig::read(path, &text(path)?).context("--kubeconfig")?;
    let settings = ConnectSettings {
        identity: Arc::new(FileIdentity::new(kubeconfig.user.clone())),
        kubeconfig,
        user_agent: user_agent(),
    };
    let client = |limit, deadline| -> anyhow::Result<ApiClient> {
        let client = io.enter(|| connect(&settings, io)).context("--kubeconfig")?;
        Ok(ApiClient::new(client, io.clone(), limit, deadline))
    };
    let node = &loaded.config.node;
    Ok(Some(Cluster {
        api: client(limit(node.kube_api_qps, node.kube_api_burst), CALL_DEADLINE)?,
        heartbeat: client(RateLimit { per_second: 0.0, burst: 1 }, heartbeat_deadline(&loaded.config))?,
        events: client(event_limit(node.event_record_qps, node.event_burst), CALL_DEADLINE)?,
        node_name: node_name.to_owned(),
    }))
}

fn text(path: &Path) -> anyhow::Result<String> {
    let named = || format!("--kubeconfig {}", path.display());
    let file = std::fs::File::open(path).with_context(named)?;
    let mut text = String::new();
    file.take(KUBECONFIG_BYTES_MAX).read_to_string(&mut text).with_context(named)?;
    Ok(text)
}

fn user_agent() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("kubelet/{KUBERNETES_VERSION} ({}/{architecture})", std::env::consts::OS)
}

/// No rate means the libraries' own, a negative one no limit.
fn limit(per_second: i32, burst: i32) -> RateLimit {
    RateLimit {
        per_second: if per_second == 0 { DEFAULT_LIMIT.per_second } else { f64::from(per_second) },
        burst: u32::try_from(burst).ok().filter(|burst| *burst > 0).unwrap_or(DEFAULT_LIMIT.burst),
    }
}

fn event_limit(per_second: i32, burst: i32) -> RateLimit {
    RateLimit {
        per_second: f64::from(per_second),
        burst: u32::try_from(burst).ok().filter(|burst| *burst > 0).unwrap_or(DEFAULT_LIMIT.burst),
    }
}

/// A heartbeat that takes longer than the time to the next one, or than the lease lives, is no use.
fn heartbeat_deadline(config: &KubeletConfiguration) -> Duration {
    let lease = u64::try_from(config.node.node_lease_duration_seconds).unwrap_or(0);
    let update = config.node.node_status_update_frequency.as_std();
    update.min(Duration::from_secs(lease)).max(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_client_library() {
        assert_eq!(limit(50, 100), RateLimit { per_second: 50.0, burst: 100 });
        assert_eq!(limit(0, 0), DEFAULT_LIMIT);
        assert_eq!(event_limit(0, 7), RateLimit { per_second: 0.0, burst: 7 });
    }

    #[test]
    fn a_heartbeat_ends_before_the_next_and_within_the_lease() {
        let mut config = KubeletConfiguration::default();
        assert_eq!(heartbeat_deadline(&config), Duration::from_secs(10));
        config.node.node_lease_duration_seconds = 4;
        assert_eq!(heartbeat_deadline(&config), Duration::from_secs(4));
    }
}
