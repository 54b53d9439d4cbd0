//! PURE: host ports of pods (row 16.2).

use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use pod_spec::resources::is_sidecar;

use super::room::Room;

/// The address that stands for all of the node's.
pub(super) const ANY: &str = "0.0.0.0";

/// A port of the node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    number: i32,
    protocol: String,
    /// One of the node's addresses, or all of them.
    pub(super) ip: String,
}

impl HostPort {
    fn of(port: &ContainerPort) -> Option<Self> {
        let given = |text: &Option<String>, otherwise: &str| {
            text.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| otherwise.to_owned())
        };
        let number = port.host_port.filter(|number| *number > 0)?;
        Some(Self { number, protocol: given(&port.protocol, "TCP"), ip: given(&port.host_ip, ANY) })
    }

    /// Number and protocol: ports of which these differ never meet.
    pub(super) fn key(&self) -> (i32, String) {
        (self.number, self.protocol.clone())
    }
}

/// The pod wants a port of the node that another one has.
pub(super) fn conflict(pod: &Pod, room: &Room) -> bool {
    host_ports(pod).any(|wanted| room.has(&wanted))
}

/// Of the containers that run for as long as the pod does.
pub(super) fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| {
        spec.init_containers
            .iter()
            .flatten()
            .filter(|container| is_sidecar(container))
            .chain(&spec.containers)
    });
    containers.flat_map(|container| container.ports.iter().flatten()).filter_map(HostPort::of)
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
            assert_eq!(conflict(&wanted, &Room::of(&[&taken])), expected, "{wanted:?}");
        }
        let one = pod(53, "192.0.2.1", "UDP");
        assert!(!conflict(&pod(53, "192.0.2.2", "UDP"), &Room::of(&[&one])));
        assert!(conflict(&pod(53, "192.0.2.1", "UDP"), &Room::of(&[&one])));
        assert!(!conflict(&one, &Room::default()));
    }

    #[test]
    fn sidecars_have_ports_and_init_containers_give_theirs_back() {
        let init = |policy: Option<&str>| {
            let init = Container { restart_policy: policy.map(str::to_owned), ..container(8080, "", "TCP") };
            let spec = PodSpec { init_containers: Some(vec![init]), ..PodSpec::default() };
            Pod { spec: Some(spec), ..Pod::default() }
        };
        let wanted = pod(8080, "", "TCP");
        assert!(conflict(&wanted, &Room::of(&[&init(Some("Always"))])));
        assert!(!conflict(&wanted, &Room::of(&[&init(None)])));
    }
}
