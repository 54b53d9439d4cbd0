//! The cluster that the node is a member of: the clients of its API server, and the certificates that it signs.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bridge_io::Io;
use bridge_kube::{ApiClient, RateLimit, RestMetrics};
use bridge_node::host::MachineFacts;
use bridge_tls::certificates::{CertificateStore, CurrentPair, Purpose};
use node_status::{LeaseConfig, NodeStatusConfig};

use crate::KUBERNETES_VERSION;
use crate::api_client::connect_settings;
use crate::config::{FeatureGates, SettingError};
use crate::identity::Identified;
use crate::load::Loaded;
use crate::wiring::{Cluster, ManagedCertificate, Membership, Settings};

/// The longest time of a call; watches have their own.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// The rate that client libraries use when none is configured.
const DEFAULT_LIMIT: RateLimit = RateLimit { per_second: 5.0, burst: 10 };

/// The clients of the API server, with the kubelet's identity. Nothing is connected yet.
///
/// # Errors
/// The kubeconfig cannot be used.
pub fn cluster(
    loaded: &Loaded,
    node_name: &str,
    io: &Io,
    identified: &Identified,
    metrics: &RestMetrics,
) -> anyhow::Result<Cluster> {
    let named = || format!("--kubeconfig {}", loaded.flags.kubeconfig);
    let settings = connect_settings(identified.source.clone(), identified.kubeconfig.clone());
    if settings.http1_only {
        tracing::info!(
            "HTTP2 has been explicitly disabled, Kubelet will forcefully close active connections on heartbeat failures"
        );
    }
    let server = settings.kubeconfig.server.authority();
    let counts = metrics.of_host(server.map_or("", |server| server.as_str()));
    let client = |limit, deadline| -> anyhow::Result<ApiClient> {
        let client = ApiClient::connected(&settings, io, limit, deadline).with_context(named)?;
        Ok(client.counted(counts.clone()))
    };
    let node = &loaded.config.node;
    let api = client(limit(node.kube_api_qps, node.kube_api_burst), CALL_DEADLINE)?;
    let events = client(event_limit(node.event_record_qps, node.event_burst), CALL_DEADLINE)?;
    // Callers without credentials make the kubelet ask for reviews, so reviews share no connection or rate with its own
    // calls.
    let reviews = client(limit(node.kube_api_qps, node.kube_api_burst), CALL_DEADLINE)?;
    let heartbeat = client(RateLimit { per_second: 0.0, burst: 1 }, CALL_DEADLINE)?;
    Ok(Cluster {
        // When heartbeats fail, the connections of all clients may be dead.
        heartbeat: heartbeat.redialing_with(&[&api, &events, &reviews]).beside(&api),
        events: events.beside(&api),
        api,
        reviews,
        node_name: node_name.to_owned(),
    })
}

/// The certificates that the cluster signs for the node.
pub fn certificates(
    cluster: &Cluster,
    identified: Identified,
    serving: Option<(Arc<dyn CertificateStore>, CurrentPair)>,
) -> Vec<ManagedCertificate> {
    let client = identified.renewed.map(|renewed| ManagedCertificate {
        purpose: Purpose::Client,
        store: renewed.store,
        current: renewed.current,
        api: Arc::new(cluster.api.clone()),
        bootstrap: renewed.bootstrap.map(|api| Arc::new(api) as _),
    });
    let serving = serving.map(|(store, current)| ManagedCertificate {
        purpose: Purpose::Serving,
        store,
        current,
        api: Arc::new(cluster.api.clone()),
        bootstrap: None,
    });
    client.into_iter().chain(serving).collect()
}

/// A rate limit: 0 means the libraries' default rate, a negative number no limit.
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

/// How the node presents itself to its cluster; `None` without `--kubeconfig`.
///
/// # Errors
/// `--node-ip` contains a text that is no address.
pub fn membership(
    loaded: &Loaded,
    settings: &Settings,
    machine: MachineFacts,
) -> Result<Option<Membership>, SettingError> {
    let (config, flags) = (&loaded.config, &loaded.flags);
    if flags.kubeconfig.is_empty() {
        return Ok(None);
    }
    let node = &config.node;
    Ok(Some(Membership {
        node: Arc::new(NodeStatusConfig {
            name: Arc::from(settings.node.as_str()),
            register: node.register_node,
            labels: flags.node_labels.clone(),
            taints: settings.admission.taints.clone(),
            provider_id: node.provider_id.clone(),
            controller_attach_detach: node.enable_controller_attach_detach,
            external_cloud: flags.cloud_provider == "external",
            node_ips: node_ips(&flags.node_ip)?,
            machine,
            resources: settings.node_resources.clone(),
            storage_isolation: config.eviction.local_storage_capacity_isolation,
            kubelet_version: KUBERNETES_VERSION,
            port: config.server.port,
            images_max: usize::try_from(node.node_status_max_images).ok(),
            update: node.node_status_update_frequency.as_std(),
            report: node.node_status_report_frequency.as_std(),
            declared_features: declared_features(&loaded.gates),
        }),
        lease: Arc::new(LeaseConfig {
            node: settings.node.clone(),
            duration_seconds: node.node_lease_duration_seconds,
        }),
    }))
}

/// The features that the node declares for pods and the API server, which need to know of them: those of upstream's
/// declarable features that this kubelet has. Both features of resizing are missing.
fn declared_features(gates: &FeatureGates) -> Vec<String> {
    let declared = ["ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits"];
    let declared = declared.into_iter().filter(|name| gates.enabled(name));
    if gates.enabled("NodeDeclaredFeatures") { declared.map(str::to_owned).collect() } else { Vec::new() }
}

/// The addresses in `--node-ip`: one, or one of each family.
fn node_ips(text: &str) -> Result<Vec<IpAddr>, SettingError> {
    let invalid =
        |reason: &str| SettingError { field: "--node-ip", value: text.to_owned(), reason: reason.to_owned() };
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let ips = parts.map(str::parse).collect::<Result<Vec<IpAddr>, _>>();
    let ips = ips.map_err(|_| invalid("must be one IP address, or one of each family, comma-separated"))?;
    match ips[..] {
        [one, two] if one.is_ipv4() == two.is_ipv4() => {
            Err(invalid("two addresses must be of both families"))
        }
        [_, _, _, ..] => Err(invalid("must not be more than two addresses")),
        _ => Ok(ips),
    }
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
    fn addresses_of_the_node_are_one_or_one_of_each_family() {
        let ips = |text| node_ips(text).map(|ips| ips.len()).map_err(|error| error.to_string());
        assert_eq!((ips(""), ips("10.0.0.1"), ips("10.0.0.1, fd00::1")), (Ok(0), Ok(1), Ok(2)));
        let wrong = [
            ("x", "must be one IP address, or one of each family, comma-separated"),
            ("10.0.0.1,10.0.0.2", "two addresses must be of both families"),
            ("10.0.0.1,fd00::1,fd00::2", "must not be more than two addresses"),
        ];
        for (text, reason) in wrong {
            assert_eq!(ips(text), Err(format!("--node-ip: Invalid value: {text:?}: {reason}")));
        }
    }

    #[test]
    fn features_are_declared_while_they_are_on() {
        let declared = |off: &[&str]| {
            let settings = off.iter().map(|name| ((*name).to_owned(), false)).collect();
            declared_features(&FeatureGates::from_settings(&settings).expect("gates"))
        };
        assert_eq!(declared(&[]), ["ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits"]);
        assert_eq!(declared(&["RestartAllContainersOnContainerExits"]), ["ExtendWebSocketsToKubelet"]);
        assert_eq!(declared(&["ExtendWebSocketsToKubelet"]), ["RestartAllContainersOnContainerExits"]);
    }
}
