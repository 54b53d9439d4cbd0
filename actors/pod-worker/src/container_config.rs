//! What the runtime is asked for as a container (rows 5.7, 5.16, 11.3, 11.7).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use messages::PodRef;
use messages::image_manager::PresentImage;
use messages::volume_manager::MountedVolumes;
use runtime_bridge::cri::wire::{
    ContainerConfig, ContainerMetadata, ImageSpec, Int64Value, KeyValue, LinuxContainerConfig,
    LinuxContainerResources, LinuxContainerSecurityContext, Mount, MountPropagation, SecurityProfile,
    security_profile::ProfileType,
};
use runtime_bridge::host::Layout;

use crate::env::{environment, expand_all};
use crate::hash::{container_hash, hash_text};
use crate::sandbox_config::{CPU_PERIOD_US, CPU_SHARES_MIN, namespaces, pod_labels};

/// The label of a container's name.
pub const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";

/// Where the managed hosts file is seen in a container.
const ETC_HOSTS: &str = "/etc/hosts";
/// Most likely to be killed when memory is short: what pods without requests get.
const OOM_SCORE_BEST_EFFORT: i64 = 1000;
/// Pods that the node cannot do without.
const OOM_SCORE_CRITICAL: i64 = -997;
const NODE_CRITICAL: &str = "system-node-critical";

/// Paths of /proc and /sys that an ordinary container does not see.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// Paths of /proc that an ordinary container only reads.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Why a container cannot be configured: its waiting reason is CreateContainerConfigError.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A mount names a volume that is not mounted.
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    VolumeMissing {
        /// The volume's name in the spec.
        volume: String,
        /// The container's name.
        container: String,
    },
    /// A mount has a propagation that does not exist.
    #[error("invalid MountPropagation mode: {0:?}")]
    InvalidPropagation(String),
    /// A mount shows a part of a volume.
    #[error("volumeMounts of container {container:?}: subPath of volume {volume:?} is not supported")]
    SubPath {
        /// The volume's name in the spec.
        volume: String,
        /// The container's name.
        container: String,
    },
}

/// What of a container is not in its spec.
#[derive(Clone, Copy, Debug)]
pub struct ContainerSetting<'a> {
    /// The restart count, which is the attempt.
    pub attempt: u32,
    /// The image on the node.
    pub image: &'a PresentImage,
    /// Where the pod's volumes are.
    pub volumes: &'a MountedVolumes,
    /// The managed hosts file on the node, if the pod has one.
    pub etc_hosts: Option<&'a str>,
    /// The file on the host into which the container writes why it ended.
    pub termination_log: Option<&'a str>,
}

/// The configuration of one instance of a container.
///
/// # Errors
/// [`ConfigError`] names what of the spec cannot be had.
pub fn container_config(
    pod: &Pod,
    pod_ref: &PodRef,
    container: &Container,
    setting: &ContainerSetting<'_>,
) -> Result<ContainerConfig, ConfigError> {
    let environment = environment(container);
    let mut labels: BTreeMap<String, String> = pod_labels(pod_ref).into();
    labels.insert(CONTAINER_NAME_LABEL.to_owned(), container.name.clone());
    Ok(ContainerConfig {
        metadata: Some(ContainerMetadata { name: container.name.clone(), attempt: setting.attempt }),
        image: Some(ImageSpec {
            image: setting.image.image_ref.clone(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        }),
        command: expand_all(container.command.as_deref(), &environment),
        args: expand_all(container.args.as_deref(), &environment),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        mounts: mounts(container, setting)?,
        labels,
        annotations: annotations(pod, container, setting.attempt),
        log_path: Layout::container_log_path(&container.name, setting.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(LinuxContainerConfig {
            resources: Some(resources(pod)),
            security_context: Some(security_context(pod, setting.image)),
        }),
        envs: environment
            .into_iter()
            .map(|(key, value)| KeyValue { key, value: value.into_bytes() })
            .collect(),
        ..ContainerConfig::default()
    })
}

/// What is needed to kill, adopt and show the container when nobody knows its pod any more.
fn annotations(pod: &Pod, container: &Container, attempt: u32) -> BTreeMap<String, String> {
    let key = |name: &str| format!("io.kubernetes.container.{name}");
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let mut annotations = BTreeMap::from([
        (key("hash"), hash_text(container_hash(container))),
        (key("restartCount"), attempt.to_string()),
        (key("terminationMessagePath"), text(&container.termination_message_path)),
        (key("terminationMessagePolicy"), text(&container.termination_message_policy)),
    ]);
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        annotations.insert("io.kubernetes.pod.deletionGracePeriod".to_owned(), seconds.to_string());
    }
    if let Some(seconds) = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds) {
        annotations.insert("io.kubernetes.pod.terminationGracePeriod".to_owned(), seconds.to_string());
    }
    if let Some(hook) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) {
        annotations.extend(serde_json::to_string(hook).ok().map(|json| (key("preStopHandler"), json)));
    }
    if let Some(ports) = container.ports.as_ref().filter(|ports| !ports.is_empty()) {
        annotations.extend(serde_json::to_string(ports).ok().map(|json| (key("ports"), json)));
    }
    annotations
}

fn mounts(container: &Container, setting: &ContainerSetting<'_>) -> Result<Vec<Mount>, ConfigError> {
    let own = container.volume_mounts.as_deref().unwrap_or_default();
    let mut mounts =
        own.iter().map(|mount| volume_mount(container, mount, setting)).collect::<Result<Vec<_>, _>>()?;
    let has_own_hosts = own.iter().any(|mount| mount.mount_path == ETC_HOSTS);
    if let Some(path) = setting.etc_hosts.filter(|_| !has_own_hosts) {
        mounts.push(Mount {
            container_path: ETC_HOSTS.to_owned(),
            host_path: path.to_owned(),
            ..Mount::default()
        });
    }
    // Last, as upstream has it: nothing of the pod's hides it.
    if let (Some(path), Some(log)) = (&container.termination_message_path, setting.termination_log)
        && !path.is_empty()
    {
        mounts.push(Mount { container_path: path.clone(), host_path: log.to_owned(), ..Mount::default() });
    }
    Ok(mounts)
}

fn volume_mount(
    container: &Container,
    mount: &VolumeMount,
    setting: &ContainerSetting<'_>,
) -> Result<Mount, ConfigError> {
    let names = || (mount.name.clone(), container.name.clone());
    let is_set = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
    if is_set(&mount.sub_path) || is_set(&mount.sub_path_expr) {
        let (volume, container) = names();
        return Err(ConfigError::SubPath { volume, container });
    }
    let Some(host_path) = setting.volumes.host_paths.get(&mount.name) else {
        let (volume, container) = names();
        return Err(ConfigError::VolumeMissing { volume, container });
    };
    let propagation = match mount.mount_propagation.as_deref() {
        None | Some("None") => MountPropagation::PropagationPrivate,
        Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => MountPropagation::PropagationBidirectional,
        Some(other) => return Err(ConfigError::InvalidPropagation(other.to_owned())),
    };
    let absolute = if mount.mount_path.starts_with('/') { "" } else { "/" };
    Ok(Mount {
        container_path: format!("{absolute}{}", mount.mount_path),
        host_path: host_path.clone(),
        readonly: mount.read_only.unwrap_or(false),
        propagation: propagation.into(),
        ..Mount::default()
    })
}

/// Those of a container without requests and limits; others are refused before they get here.
fn resources(pod: &Pod) -> LinuxContainerResources {
    let critical =
        pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref()) == Some(NODE_CRITICAL);
    LinuxContainerResources {
        cpu_shares: CPU_SHARES_MIN,
        cpu_period: CPU_PERIOD_US,
        oom_score_adj: if critical { OOM_SCORE_CRITICAL } else { OOM_SCORE_BEST_EFFORT },
        ..LinuxContainerResources::default()
    }
}

/// That of a container without a security context: the image's user, else root; no seccomp profile.
fn security_context(pod: &Pod, image: &PresentImage) -> LinuxContainerSecurityContext {
    let uid = match (image.uid, image.username.is_empty()) {
        (Some(uid), _) => Some(uid),
        (None, true) => Some(0),
        (None, false) => None,
    };
    LinuxContainerSecurityContext {
        namespace_options: Some(namespaces(pod)),
        run_as_user: uid.map(|value| Int64Value { value }),
        run_as_username: if uid.is_some() { String::new() } else { image.username.clone() },
        masked_paths: MASKED_PATHS.map(str::to_owned).to_vec(),
        readonly_paths: READONLY_PATHS.map(str::to_owned).to_vec(),
        seccomp: Some(SecurityProfile {
            profile_type: ProfileType::Unconfined.into(),
            localhost_ref: String::new(),
        }),
        ..LinuxContainerSecurityContext::default()
    }
}

/// The hosts file of a pod with a network of its own.
pub fn etc_hosts(pod: &Pod, hostname: &str, ips: &[String]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        text.push_str(&format!("{ip}\t{hostname}\n"));
    }
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
            text.push_str(&format!("{}\t{names}\n", alias.ip));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, EnvVar, HostAlias};

    use super::*;
    use crate::fixtures::{container, pod, pod_ref};

    fn config(container: &Container) -> Result<ContainerConfig, ConfigError> {
        let image = PresentImage { image_ref: "sha256:1".into(), uid: None, username: String::new() };
        let volumes = MountedVolumes { host_paths: [("v".to_owned(), "/host/v".to_owned())].into() };
        let setting = ContainerSetting {
            termination_log: Some("/host/log"),
            attempt: 3,
            image: &image,
            volumes: &volumes,
            etc_hosts: Some("/pods/uid-1/etc-hosts"),
        };
        container_config(&pod("Always", vec![], vec![container.clone()]), &pod_ref(), container, &setting)
    }

    fn mount(name: &str, path: &str) -> VolumeMount {
        VolumeMount { name: name.into(), mount_path: path.into(), ..VolumeMount::default() }
    }

    #[test]
    fn labels_and_annotations_carry_what_adoption_needs() {
        let mut c = container("c");
        c.termination_message_path = Some("/dev/termination-log".into());
        c.termination_message_policy = Some("File".into());
        c.ports = Some(vec![ContainerPort { container_port: 80, ..ContainerPort::default() }]);
        let config = config(&c).expect("valid");
        assert_eq!(config.labels["io.kubernetes.container.name"], "c");
        assert_eq!(config.labels["io.kubernetes.pod.uid"], "uid-1");
        let expected = [
            ("io.kubernetes.container.hash", hash_text(container_hash(&c))),
            ("io.kubernetes.container.ports", "[{\"containerPort\":80}]".into()),
            ("io.kubernetes.container.restartCount", "3".into()),
            ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log".into()),
            ("io.kubernetes.container.terminationMessagePolicy", "File".into()),
            ("io.kubernetes.pod.terminationGracePeriod", "30".into()),
        ];
        let expected: BTreeMap<String, String> =
            expected.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(config.annotations, expected);
        assert_eq!(config.log_path, "c/3.log");
        assert_eq!(config.metadata.expect("set").attempt, 3);
    }

    #[test]
    fn commands_see_the_environment() {
        let mut c = container("c");
        c.env = Some(vec![EnvVar { name: "A".into(), value: Some("1".into()), ..EnvVar::default() }]);
        c.command = Some(vec!["sh".into(), "-c".into(), "echo $(A) $$(A) $(B)".into()]);
        c.args = Some(vec!["$(A)".into()]);
        let config = config(&c).expect("valid");
        assert_eq!(config.command, ["sh", "-c", "echo 1 $(A) $(B)"]);
        assert_eq!(config.args, ["1"]);
        assert_eq!(config.envs, [KeyValue { key: "A".into(), value: b"1".to_vec() }]);
    }

    #[test]
    fn volumes_and_the_hosts_file_are_mounted() {
        let mut c = container("c");
        let mut read_only = mount("v", "data");
        read_only.read_only = Some(true);
        read_only.mount_propagation = Some("HostToContainer".into());
        c.volume_mounts = Some(vec![read_only]);
        let mounts = config(&c).expect("valid").mounts;
        assert_eq!((mounts[0].container_path.as_str(), mounts[0].host_path.as_str()), ("/data", "/host/v"));
        assert!(mounts[0].readonly);
        assert_eq!(mounts[0].propagation(), MountPropagation::PropagationHostToContainer);
        assert_eq!(mounts[1].container_path, "/etc/hosts");
        c.volume_mounts = Some(vec![mount("v", "/etc/hosts")]);
        assert_eq!(config(&c).expect("valid").mounts.len(), 1);
        c.volume_mounts = Some(vec![mount("x", "/x")]);
        let error = config(&c).expect_err("no such volume").to_string();
        assert_eq!(error, "cannot find volume \"x\" to mount into container \"c\"");
    }

    #[test]
    fn the_images_user_is_taken() {
        let user = |uid, username: &str| {
            let image = PresentImage { image_ref: String::new(), uid, username: username.into() };
            let context = security_context(&pod("Always", vec![], vec![]), &image);
            (context.run_as_user.map(|user| user.value), context.run_as_username)
        };
        assert_eq!(user(Some(7), ""), (Some(7), String::new()));
        assert_eq!(user(None, "nobody"), (None, "nobody".to_owned()));
        assert_eq!(user(None, ""), (Some(0), String::new()));
    }

    #[test]
    fn the_hosts_file_names_the_pod_and_its_aliases() {
        let mut pod = pod("Always", vec![], vec![]);
        pod.spec.as_mut().expect("spec").host_aliases =
            Some(vec![HostAlias { ip: "1.2.3.4".into(), hostnames: Some(vec!["a".into(), "b".into()]) }]);
        let text = etc_hosts(&pod, "web", &["10.0.0.1".into(), "fd00::1".into()]);
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\t"));
        assert!(text.ends_with(
            "ip6-allrouters\n10.0.0.1\tweb\nfd00::1\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
        ));
    }
}
