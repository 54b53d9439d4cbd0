//! What the runtime is asked for as a container (rows 5.7, 5.16, 11.3, 11.7).

mod mounts;
mod resources;
mod security;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use messages::PodRef;
use messages::image_manager::PresentImage;
use messages::volume_manager::MountedVolumes;
use runtime_bridge::cri::wire::{
    ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig,
};
use runtime_bridge::host::Layout;

use crate::env::{environment, expand_all};
use crate::hash::{container_hash, hash_text};
use crate::sandbox_config::pod_labels;

/// The label of a container's name.
pub const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";

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
    /// The container whose processes this one sees (row 5.14).
    pub target_container_id: Option<&'a str>,
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
        mounts: mounts::mounts(container, setting)?,
        labels,
        annotations: annotations(pod, container, setting.attempt),
        log_path: Layout::container_log_path(&container.name, setting.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(LinuxContainerConfig {
            resources: Some(resources::resources(pod)),
            security_context: Some(security::security_context(
                pod,
                setting.image,
                setting.target_container_id,
            )),
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, EnvVar, VolumeMount};
    use runtime_bridge::cri::wire::MountPropagation;

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
            target_container_id: None,
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
}
