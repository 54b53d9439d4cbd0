//! The configuration of a pod's sandbox for the runtime (rows 5.4, 5.6, 5.24, 16.5).

use std::collections::{BTreeMap, BTreeSet};

use bridge_cri::wire::{
    DnsConfig, Int64Value, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode,
    NamespaceOption, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol, SecurityProfile,
    security_profile::ProfileType,
};
use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodSecurityContext, SecurityContext};
use messages::PodRef;
use pod_rules::labels;
use pod_rules::sysctls::with_dots;

use crate::linux_resources::{overhead, sandbox_resources};
use crate::node_rules::NodeRules;
use crate::security_groups::{UnknownGroupsPolicy, groups, groups_policy, selinux};
use crate::spec::PodView;

/// The facts that a sandbox's configuration needs besides the pod.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxSetting {
    /// `metadata.attempt`.
    pub attempt: u32,
    /// The absolute path of the pod's log directory.
    pub log_directory: String,
    /// The name of the pod's cgroup, in the form that the runtime takes.
    pub cgroup_parent: String,
    /// The pod's host name; not used for a pod on the node's network.
    pub hostname: String,
    /// The pod's resolver configuration.
    pub dns: DnsConfig,
}

/// The configuration of a pod's sandbox on a node with these settings.
///
/// # Errors
/// The pod's policy of supplemental groups does not exist.
pub fn sandbox_config(
    pod: &Pod,
    pod_ref: &PodRef,
    setting: SandboxSetting,
    rules: &NodeRules,
) -> Result<PodSandboxConfig, UnknownGroupsPolicy> {
    let view = PodView::of(pod);
    let texts = |of: &Option<BTreeMap<String, String>>| of.clone().unwrap_or_default();
    let mut labels = shortest(texts(&pod.metadata.labels), rules.sandbox_text_max / 4);
    let annotations = shortest(texts(&pod.metadata.annotations), rules.sandbox_text_max - bytes(&labels));
    labels.extend(pod_labels(pod_ref));
    Ok(PodSandboxConfig {
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
        annotations,
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: setting.cgroup_parent,
            security_context: Some(security_context(pod)?),
            sysctls: sysctls(pod),
            overhead: Some(overhead(pod, rules)),
            resources: Some(sandbox_resources(pod, rules)),
        }),
    })
}

fn bytes(texts: &BTreeMap<String, String>) -> usize {
    texts.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// The shortest of these texts, as many as have at most `max` bytes together.
fn shortest(texts: BTreeMap<String, String>, max: usize) -> BTreeMap<String, String> {
    if bytes(&texts) <= max {
        return texts;
    }
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by_key(|(key, value)| key.len() + value.len());
    let mut left = max;
    texts
        .into_iter()
        .map_while(|(key, value)| {
            left = left.checked_sub(key.len() + value.len())?;
            Some((key, value))
        })
        .collect()
}

/// The user, groups and privileges of the sandbox's own process.
fn security_context(pod: &Pod) -> Result<LinuxSandboxSecurityContext, UnknownGroupsPolicy> {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let number = |field: fn(&PodSecurityContext) -> Option<i64>| {
        of_pod.and_then(field).map(|value| Int64Value { value })
    };
    Ok(LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod)),
        selinux_options: of_pod.and_then(|of_pod| of_pod.se_linux_options.as_ref()).map(selinux),
        run_as_user: number(|of_pod| of_pod.run_as_user),
        run_as_group: number(|of_pod| of_pod.run_as_group),
        supplemental_groups: groups(of_pod),
        supplemental_groups_policy: groups_policy(of_pod)?.into(),
        privileged: has_privileged_container(pod),
        // A sandbox's own process needs no more than the default profile allows, whatever its containers
        // need.
        seccomp: Some(SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            localhost_ref: String::new(),
        }),
        ..LinuxSandboxSecurityContext::default()
    })
}

/// Whether a container of the pod is privileged: the runtime allows that only in a privileged sandbox.
fn has_privileged_container(pod: &Pod) -> bool {
    let privileged = |context: &Option<SecurityContext>| {
        context.as_ref().and_then(|context| context.privileged).unwrap_or(false)
    };
    let ephemeral = pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_deref());
    PodView::of(pod).containers().any(|(_, container)| privileged(&container.security_context))
        || ephemeral.unwrap_or_default().iter().any(|container| privileged(&container.security_context))
}

/// The pod's sysctls, with dots in their names. PodManager's admission has checked that the pod may set them.
fn sysctls(pod: &Pod) -> BTreeMap<String, String> {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let listed = of_pod.and_then(|of_pod| of_pod.sysctls.as_deref()).unwrap_or_default();
    listed.iter().map(|sysctl| (with_dots(&sysctl.name), sysctl.value.clone())).collect()
}

/// The labels by which the kubelet finds a pod's sandboxes and containers at the runtime.
pub(crate) fn pod_labels(pod: &PodRef) -> [(String, String); 3] {
    [
        (labels::POD_NAME.to_owned(), pod.name.to_string()),
        (labels::POD_NAMESPACE.to_owned(), pod.namespace.to_string()),
        (labels::POD_UID.to_owned(), pod.uid.to_string()),
    ]
}

/// Whether each namespace of a pod's containers is the node's, the pod's or the container's own.
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

/// The identity of a port within a container: a second port of the same identity is left out.
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
    use bridge_cri::wire::SupplementalGroupsPolicy;
    use k8s_openapi::api::core::v1::EphemeralContainer;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{container, pod, pod_ref, resources};
    use crate::node_rules::sandbox_text_max;

    fn setting() -> SandboxSetting {
        SandboxSetting {
            attempt: 2,
            log_directory: "/var/log/pods/ns_web_uid-1".into(),
            cgroup_parent: "/kubepods/besteffort/poduid-1".into(),
            hostname: "web".into(),
            dns: DnsConfig::default(),
        }
    }

    fn config(pod: &Pod) -> PodSandboxConfig {
        sandbox_config(pod, &pod_ref(), setting(), &NodeRules::default()).expect("valid")
    }

    fn security(pod: &Pod) -> LinuxSandboxSecurityContext {
        config(pod).linux.and_then(|linux| linux.security_context).expect("always given")
    }

    fn with_context(context: serde_json::Value) -> Pod {
        let mut pod = pod("Always", vec![], vec![container("c")]);
        let context = serde_json::from_value(context).expect("a security context");
        pod.spec.as_mut().expect("spec").security_context = Some(context);
        pod
    }

    #[test]
    fn a_sandbox_is_confined_and_runs_as_its_pod_does() {
        let plain = security(&pod("Always", vec![], vec![container("c")]));
        assert_eq!(plain.seccomp.expect("always given").profile_type(), ProfileType::RuntimeDefault);
        assert_eq!((plain.run_as_user, plain.run_as_group, plain.selinux_options), (None, None, None));
        let made = security(&with_context(json!({
            "runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4, 5],
            "supplementalGroupsPolicy": "Strict", "seLinuxOptions": {"level": "s0:c1"},
            "seccompProfile": {"type": "Unconfined"},
        })));
        assert_eq!(made.run_as_user.map(|user| user.value), Some(1));
        assert_eq!(made.run_as_group.map(|group| group.value), Some(2));
        assert_eq!(made.supplemental_groups, [3, 4, 5]);
        assert_eq!(made.supplemental_groups_policy(), SupplementalGroupsPolicy::Strict);
        assert_eq!(made.selinux_options.expect("given").level, "s0:c1");
        assert_eq!(made.seccomp.expect("always given").profile_type(), ProfileType::RuntimeDefault);
        let unknown = with_context(json!({"supplementalGroupsPolicy": "x"}));
        let error = sandbox_config(&unknown, &pod_ref(), setting(), &NodeRules::default());
        assert_eq!(error, Err(UnknownGroupsPolicy("x".into())));
    }

    #[test]
    fn a_sandbox_is_privileged_if_any_container_is() {
        let privileged = |is| Some(SecurityContext { privileged: Some(is), ..SecurityContext::default() });
        let with = |is| Container { security_context: privileged(is), ..container("p") };
        assert!(!security(&pod("Always", vec![], vec![container("c"), with(false)])).privileged);
        assert!(security(&pod("Always", vec![], vec![container("c"), with(true)])).privileged);
        assert!(security(&pod("Always", vec![with(true)], vec![container("c")])).privileged);
        let mut debugged = pod("Always", vec![], vec![container("c")]);
        let ephemeral =
            EphemeralContainer { security_context: privileged(true), ..EphemeralContainer::default() };
        debugged.spec.as_mut().expect("spec").ephemeral_containers = Some(vec![ephemeral]);
        assert!(security(&debugged).privileged);
    }

    #[test]
    fn sysctls_are_named_with_dots() {
        let pod = with_context(json!({"sysctls": [
            {"name": "kernel.shm_rmid_forced", "value": "1"},
            {"name": "net/ipv4/ip_local_port_range", "value": "1024 65535"},
            {"name": "net/ipv4/conf/eth0.1/forwarding", "value": "1"},
            {"name": "net.ipv4.conf.eth0/2.forwarding", "value": "0"},
        ]}));
        let expected = [
            ("kernel.shm_rmid_forced", "1"),
            ("net.ipv4.conf.eth0/1.forwarding", "1"),
            ("net.ipv4.conf.eth0/2.forwarding", "0"),
            ("net.ipv4.ip_local_port_range", "1024 65535"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(config(&pod).linux.expect("always given").sysctls, expected.into());
    }

    #[test]
    fn a_sandbox_is_told_of_resources_and_overhead() {
        let mut c = container("c");
        c.resources = Some(resources(&[("cpu", "500m")], &[("memory", "1Mi")]));
        let mut pod = pod("Always", vec![], vec![c]);
        pod.spec.as_mut().expect("spec").overhead =
            Some([("memory".to_owned(), Quantity("2Mi".into()))].into());
        let linux = config(&pod).linux.expect("always given");
        let (own, over) = (linux.resources.expect("given"), linux.overhead.expect("given"));
        assert_eq!((own.cpu_shares, own.memory_limit_in_bytes), (512, 1 << 20));
        assert_eq!((over.cpu_shares, over.memory_limit_in_bytes), (2, 2 << 20));
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
        let config = config(&pod);
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
    fn of_a_pods_labels_and_annotations_the_runtime_keeps_a_share_of_its_answers() {
        let many = |count: usize, bytes: usize| -> BTreeMap<String, String> {
            (0..count).map(|number| (format!("key-{number:06}"), "x".repeat(bytes))).collect()
        };
        let mut pod = pod("Always", vec![], vec![]);
        pod.metadata.labels = Some(many(10_000, 60));
        let mut annotations = many(3, 100_000);
        annotations.insert("io.kubernetes.cri-o.Devices".to_owned(), "/dev/fuse".to_owned());
        pod.metadata.annotations = Some(annotations);
        let kept = config(&pod);
        let own = bytes(&pod_labels(&pod_ref()).into());
        let all = bytes(&kept.labels) + bytes(&kept.annotations) - own;
        assert!(all <= NodeRules::default().sandbox_text_max, "{all}");
        assert!(kept.labels.len() > 100, "{}", kept.labels.len());
        assert_eq!(kept.labels[labels::POD_UID], "uid-1");
        assert_eq!(kept.annotations["io.kubernetes.cri-o.Devices"], "/dev/fuse");
        assert!(kept.annotations.len() < 4);
        // On a node of few pods it keeps all that the API server takes.
        let rules = NodeRules { sandbox_text_max: sandbox_text_max(10), ..NodeRules::default() };
        pod.metadata.labels = None;
        pod.metadata.annotations = Some(many(2, 120_000));
        let kept = sandbox_config(&pod, &pod_ref(), setting(), &rules).expect("valid");
        assert_eq!(Some(kept.annotations), pod.metadata.annotations);
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
        assert_eq!(config(&pod).hostname, "");
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
