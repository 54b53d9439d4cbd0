//! PURE: host ports of pods (row 16.2).

use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use pod_spec::resources::is_sidecar;

const ANY: &str = "0.0.0.0";

/// Whether the pod wants a host port that another pod has.
pub(super) fn conflict(pod: &Pod, others: &[&Pod]) -> bool {
    let taken = || others.iter().flat_map(|other| host_ports(other));
    host_ports(pod).any(|wanted| taken().any(|other| same(wanted, other)))
}

/// The host ports of the containers that run for as long as the pod does.
fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| {
        spec.init_containers
            .iter()
            .flatten()
            .filter(|container| is_sidecar(container))
            .chain(&spec.containers)
    });
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.filter(|port| port.host_port.unwrap_or(0) > 0)
}

fn same(one: &ContainerPort, other: &ContainerPort) -> bool {
    let ip =
        |port: &ContainerPort| port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or(ANY.to_owned());
    let protocol =
        |port: &ContainerPort| port.protocol.clone().filter(|p| !p.is_empty()).unwrap_or("TCP".to_owned());
    one.host_port == other.host_port
        && protocol(one) == protocol(other)
        && (ip(one) == ip(other) || ip(one) == ANY || ip(other) == ANY)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, PodSpec};

    use super::*;

    fn container(port: i32, ip: &str, protocol: &str) -> Container {
        let port = ContainerPort {
            container_port: 80,
            host_port: Some(port).filter(|port| *port != 0),
            host_ip: Some(ip.to_owned()),
            protocol: Some(protocol.to_owned()),
            ..ContainerPort::default()
        };
        Container { ports: Some(vec![port]), ..Container::default() }
    }

    fn pod(port: i32, ip: &str, protocol: &str) -> Pod {
        let spec = PodSpec { containers: vec![container(port, ip, protocol)], ..PodSpec::default() };
        Pod { spec: Some(spec), ..Pod::default() }
    }

    #[test]
    fn one_port_one_owner() {
        let taken = pod(8080, "", "TCP");
        for (wanted, expected) in [
            (pod(8080, "", "TCP"), true),
            (pod(8080, "0.0.0.0", ""), true),
            (pod(8080, "192.0.2.1", "TCP"), true),
            (pod(8080, "", "UDP"), false),
            (pod(8081, "", "TCP"), false),
            (pod(0, "", "TCP"), false),
        ] {
            assert_eq!(conflict(&wanted, &[&taken]), expected, "{wanted:?}");
        }
        let one = pod(53, "192.0.2.1", "UDP");
        assert!(!conflict(&pod(53, "192.0.2.2", "UDP"), &[&one]));
        assert!(conflict(&pod(53, "192.0.2.1", "UDP"), &[&one]));
        assert!(!conflict(&one, &[]));
    }

    #[test]
    fn sidecars_have_ports_and_init_containers_give_theirs_back() {
        let init = |policy: Option<&str>| {
            let init = Container { restart_policy: policy.map(str::to_owned), ..container(8080, "", "TCP") };
            let spec = PodSpec { init_containers: Some(vec![init]), ..PodSpec::default() };
            Pod { spec: Some(spec), ..Pod::default() }
        };
        let wanted = pod(8080, "", "TCP");
        assert!(conflict(&wanted, &[&init(Some("Always"))]));
        assert!(!conflict(&wanted, &[&init(None)]));
    }
}
