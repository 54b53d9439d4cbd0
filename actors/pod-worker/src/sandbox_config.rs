//! What the runtime is asked for as a pod's sandbox (rows 5.4 and 5.6).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod};
use messages::PodRef;
use runtime_bridge::cri::wire::{
    DnsConfig, LinuxContainerResources, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode,
    NamespaceOption, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol, SecurityProfile,
    security_profile::ProfileType,
};

use crate::spec::PodView;

/// The label of a pod's name, on sandboxes and containers.
pub const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
/// The label of a pod's namespace.
pub const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
/// The label of a pod's UID.
pub const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";

/// What a container without a CPU request gets.
pub(crate) const CPU_SHARES_MIN: i64 = 2;
/// Microseconds; what quotas refer to.
pub(crate) const CPU_PERIOD_US: i64 = 100_000;

/// What of a sandbox is not in the pod itself.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxSetting {
    /// `metadata.attempt`.
    pub attempt: u32,
    /// The pod's log directory, absolute.
    pub log_directory: String,
    /// The pod's cgroup, as the runtime is told.
    pub cgroup_parent: String,
    /// What the pod is called; not used by a pod on the node's network.
    pub hostname: String,
    /// The pod's resolver configuration.
    pub dns: DnsConfig,
}

/// The configuration of a pod's sandbox.
pub fn sandbox_config(pod: &Pod, pod_ref: &PodRef, setting: SandboxSetting) -> PodSandboxConfig {
    let view = PodView::of(pod);
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(pod_labels(pod_ref));
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: pod_ref.name.to_string(),
            uid: pod_ref.uid.to_string(),
            namespace: pod_ref.namespace.to_string(),
            attempt: setting.attempt,
        }),
        hostname: if view.host_network() { String::new() } else { setting.hostname },
        log_directory: setting.log_directory,
        dns_config: Some(setting.dns),
        port_mappings: view.regular().iter().flat_map(port_mappings).collect(),
        labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: setting.cgroup_parent,
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(pod)),
                // Always: a sandbox needs no more, whatever its containers ask for.
                seccomp: Some(SecurityProfile {
                    profile_type: ProfileType::RuntimeDefault.into(),
                    localhost_ref: String::new(),
                }),
                ..LinuxSandboxSecurityContext::default()
            }),
            sysctls: BTreeMap::new(),
            overhead: Some(LinuxContainerResources::default()),
            resources: Some(LinuxContainerResources {
                cpu_shares: CPU_SHARES_MIN,
                cpu_period: CPU_PERIOD_US,
                ..LinuxContainerResources::default()
            }),
        }),
    }
}

/// The labels by which a sandbox or container is known as a pod's.
pub(crate) fn pod_labels(pod: &PodRef) -> [(String, String); 3] {
    [
        (POD_NAME_LABEL.to_owned(), pod.name.to_string()),
        (POD_NAMESPACE_LABEL.to_owned(), pod.namespace.to_string()),
        (POD_UID_LABEL.to_owned(), pod.uid.to_string()),
    ]
}

/// Which namespaces a pod's containers have: the node's, the pod's, or each their own.
pub(crate) fn namespaces(pod: &Pod) -> NamespaceOption {
    let spec = pod.spec.as_ref();
    let is = |flag: Option<bool>| flag.unwrap_or(false);
    let node_or_pod = |node: bool| if node { NamespaceMode::Node } else { NamespaceMode::Pod };
    let pid = if is(spec.and_then(|spec| spec.host_pid)) {
        NamespaceMode::Node
    } else if is(spec.and_then(|spec| spec.share_process_namespace)) {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    NamespaceOption {
        network: node_or_pod(is(spec.and_then(|spec| spec.host_network))).into(),
        pid: pid.into(),
        ipc: node_or_pod(is(spec.and_then(|spec| spec.host_ipc))).into(),
        target_id: String::new(),
        userns_options: None,
    }
}

fn port_mappings(container: &Container) -> Vec<PortMapping> {
    let mut seen = BTreeSet::new();
    container
        .ports
        .as_deref()
        .unwrap_or_default()
        .iter()
        .filter(|port| seen.insert(port_name(port)))
        .map(|port| PortMapping {
            protocol: protocol(port).into(),
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or(0),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

/// What tells two ports of a container apart; a second one of the same name is left out.
fn port_name(port: &ContainerPort) -> String {
    match port.name.as_deref() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => {
            let ip = port.host_ip.as_deref().unwrap_or_default();
            let host_port = port.host_port.unwrap_or(0);
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            format!("{protocol}-{ip}:{}:{host_port}", port.container_port)
        }
    }
}

fn protocol(port: &ContainerPort) -> Protocol {
    match port.protocol.as_deref() {
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        _ => Protocol::Tcp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{container, pod, pod_ref};

    fn setting() -> SandboxSetting {
        SandboxSetting {
            attempt: 2,
            log_directory: "/var/log/pods/ns_web_uid-1".into(),
            cgroup_parent: "/kubepods/besteffort/poduid-1".into(),
            hostname: "web".into(),
            dns: DnsConfig::default(),
        }
    }

    fn namespace_modes(pod: &Pod) -> (NamespaceMode, NamespaceMode, NamespaceMode) {
        let options = namespaces(pod);
        (options.network(), options.pid(), options.ipc())
    }

    #[test]
    fn a_sandbox_is_known_by_its_pods_labels() {
        let mut pod = pod("Always", vec![], vec![container("c")]);
        pod.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        pod.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        let config = sandbox_config(&pod, &pod_ref(), setting());
        let labels: Vec<_> =
            config.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(
            labels,
            [
                ("app", "web"),
                ("io.kubernetes.pod.name", "web"),
                ("io.kubernetes.pod.namespace", "ns"),
                ("io.kubernetes.pod.uid", "uid-1"),
            ]
        );
        assert_eq!(config.annotations, [("a".to_owned(), "b".to_owned())].into());
        let metadata = config.metadata.expect("set");
        assert_eq!((metadata.uid.as_str(), metadata.attempt), ("uid-1", 2));
        assert_eq!(config.hostname, "web");
    }

    #[test]
    fn namespaces_follow_the_spec() {
        use NamespaceMode::{Container as Own, Node, Pod as Shared};
        let mut pod = pod("Always", vec![], vec![]);
        assert_eq!(namespace_modes(&pod), (Shared, Own, Shared));
        pod.spec.as_mut().expect("spec").share_process_namespace = Some(true);
        assert_eq!(namespace_modes(&pod), (Shared, Shared, Shared));
        let spec = pod.spec.as_mut().expect("spec");
        (spec.host_pid, spec.host_ipc, spec.host_network) = (Some(true), Some(true), Some(true));
        assert_eq!(namespace_modes(&pod), (Node, Node, Node));
        assert_eq!(sandbox_config(&pod, &pod_ref(), setting()).hostname, "");
    }

    #[test]
    fn ports_are_mapped_once() {
        let port = |name: &str, number: i32, host: i32| ContainerPort {
            name: Some(name.into()),
            container_port: number,
            host_port: Some(host),
            protocol: Some("UDP".into()),
            ..ContainerPort::default()
        };
        let mut c = container("c");
        c.ports = Some(vec![port("a", 53, 5353), port("a", 54, 5354), port("", 1, 0), port("", 1, 0)]);
        let mapped = port_mappings(&c);
        let mapped: Vec<_> = mapped.iter().map(|port| (port.container_port, port.host_port)).collect();
        assert_eq!(mapped, [(53, 5353), (1, 0)]);
        assert_eq!(port_mappings(&c)[0].protocol(), Protocol::Udp);
    }
}
