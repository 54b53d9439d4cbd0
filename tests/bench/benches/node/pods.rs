//! The pod of all measurements: a busybox container that exits at once on SIGTERM, as a manifest for a kubelet and as
//! the requests that a kubelet makes of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bridge_cri::wire::{
    ContainerConfig, ContainerMetadata, DnsConfig, ImageSpec, Int64Value, LinuxContainerConfig,
    LinuxContainerResources, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, Mount, NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
    SecurityProfile, security_profile::ProfileType,
};
use serde_json::{Value, json};

/// The label by which a pod of the benchmark is known, on the pod and, as every label of a pod, on its sandbox.
pub const LABEL: &str = "understudy.dev/bench";
/// Seconds until SIGKILL; never needed.
pub const GRACE_S: i64 = 30;
/// Between a pod's start and its deletion: before the shell has set its trap, SIGTERM does nothing to a first process.
pub const SETTLE: Duration = Duration::from_millis(500);
/// Between a burst and the idle time, so that the work after pods' starts is done by then.
pub const SETTLE_MANY: Duration = Duration::from_secs(5);
const IMAGE: &str = "understudy.dev/demo:1";
const SCRIPT: &str = "trap 'exit 0' TERM; sleep 100000 & wait";

/// The pod's manifest, as JSON.
pub fn manifest(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { LABEL: name } },
        "spec": {
            "terminationGracePeriodSeconds": GRACE_S,
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", SCRIPT],
            }],
        },
    })
}

/// The same pod, bound to a node.
pub fn bound(name: &str, node: &str) -> Value {
    let mut pod = manifest(name);
    pod["spec"]["nodeName"] = node.into();
    pod
}

fn namespaces() -> NamespaceOption {
    NamespaceOption {
        network: NamespaceMode::Pod.into(),
        pid: NamespaceMode::Container.into(),
        ipc: NamespaceMode::Pod.into(),
        target_id: String::new(),
        userns_options: None,
    }
}

fn resources() -> LinuxContainerResources {
    LinuxContainerResources { cpu_shares: 2, cpu_period: 100_000, ..LinuxContainerResources::default() }
}

fn labels(name: &str) -> BTreeMap<String, String> {
    [
        ("io.kubernetes.pod.name", name),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", name),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// The pod's sandbox, as the kubelet requests it; `name` is its UID, too.
pub fn sandbox_config(name: &str, cgroup_parent: &str, logs: &Path) -> PodSandboxConfig {
    let mut labels = labels(name);
    labels.insert(LABEL.to_owned(), name.to_owned());
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: name.to_owned(),
            uid: name.to_owned(),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        hostname: name.to_owned(),
        log_directory: logs.join(format!("default_{name}_{name}")).display().to_string(),
        dns_config: Some(DnsConfig { servers: vec!["127.0.0.1".to_owned()], ..DnsConfig::default() }),
        labels,
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: format!("{cgroup_parent}/kubepods/besteffort/pod{name}"),
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces()),
                seccomp: Some(SecurityProfile {
                    profile_type: ProfileType::RuntimeDefault.into(),
                    localhost_ref: String::new(),
                }),
                ..LinuxSandboxSecurityContext::default()
            }),
            overhead: Some(LinuxContainerResources::default()),
            resources: Some(resources()),
            ..LinuxPodSandboxConfig::default()
        }),
        ..PodSandboxConfig::default()
    }
}

/// The pod's container, as the kubelet requests it, with a hosts file and a termination log.
pub fn container_config(name: &str, files: &Path) -> ContainerConfig {
    let mut labels = labels(name);
    labels.insert("io.kubernetes.container.name".to_owned(), "main".to_owned());
    let mount = |file: &str, container_path: &str| Mount {
        container_path: container_path.to_owned(),
        host_path: files.join(file).display().to_string(),
        ..Mount::default()
    };
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        image: Some(ImageSpec {
            image: IMAGE.to_owned(),
            user_specified_image: IMAGE.to_owned(),
            ..ImageSpec::default()
        }),
        command: ["/bin/sh", "-c", SCRIPT].map(str::to_owned).to_vec(),
        mounts: vec![mount("etc-hosts", "/etc/hosts"), mount("termination-log", "/dev/termination-log")],
        labels,
        log_path: "main/0.log".to_owned(),
        linux: Some(LinuxContainerConfig {
            resources: Some(LinuxContainerResources { oom_score_adj: 1000, ..resources() }),
            security_context: Some(LinuxContainerSecurityContext {
                namespace_options: Some(namespaces()),
                run_as_user: Some(Int64Value { value: 0 }),
                seccomp: Some(SecurityProfile {
                    profile_type: ProfileType::Unconfined.into(),
                    localhost_ref: String::new(),
                }),
                masked_paths: ["/proc/acpi", "/proc/kcore", "/proc/keys", "/sys/firmware"]
                    .map(str::to_owned)
                    .to_vec(),
                readonly_paths: ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"]
                    .map(str::to_owned)
                    .to_vec(),
                ..LinuxContainerSecurityContext::default()
            }),
        }),
        ..ContainerConfig::default()
    }
}
