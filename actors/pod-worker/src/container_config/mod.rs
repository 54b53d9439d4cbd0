//! The configuration of a container for the runtime (rows 5.7, 5.14, 5.16, 11.3, 11.7).

mod devices;
mod error;
mod mounts;
mod oom;
mod profiles;
mod resources;
mod security;
mod stop_signal;

use std::collections::BTreeMap;

use bridge_cri::wire::{ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig};
use bridge_node::host::Layout;
use k8s_openapi::api::core::v1::{Container, Pod};
use messages::PodRef;
use messages::image_manager::PresentImage;
use messages::volume_manager::MountedVolumes;
use pod_rules::labels::CONTAINER_NAME;
use pod_spec::resources::NodeResources;

use crate::env::Variables;
use crate::hash::{container_hash, hash_text};
use crate::node_rules::NodeRules;
use crate::sandbox_config::pod_labels;
use crate::security_groups;
use crate::spec::PodView;

pub use self::mounts::{SubPaths, sub_paths, wants_recursive_read_only};
pub use error::ConfigError;

/// The facts that a container's configuration needs besides its spec.
#[derive(Clone, Copy, Debug)]
pub struct ContainerSetting<'a> {
    /// The container's restart count, which is also its attempt at the runtime.
    pub attempt: u32,
    /// The container's image on the node.
    pub image: &'a PresentImage,
    /// The paths of the pod's volumes on the host, and the groups that have access to them.
    pub volumes: &'a MountedVolumes,
    /// The container's final environment.
    pub environment: &'a [(String, String)],
    /// The paths on the host of the parts of volumes, by the index of their mount.
    pub sub_paths: &'a BTreeMap<usize, String>,
    /// The images that the runtime mounts as volumes, by the volume's name.
    pub image_volumes: &'a BTreeMap<String, ImageSpec>,
    /// The paths within images of the parts of image volumes, by the index of their mount.
    pub image_sub_paths: &'a BTreeMap<usize, String>,
    /// Whether the runtime can make mounts recursively read-only.
    pub recursive_read_only: bool,
    /// The path on the host of the managed hosts file, if the pod has one.
    pub etc_hosts: Option<&'a str>,
    /// The path on the host of the termination log, into which the container writes why it ended.
    pub termination_log: Option<&'a str>,
    /// The ID of the container whose processes this one sees: an ephemeral container's `targetContainerName`.
    pub target: Option<&'a str>,
    /// The node's capacity and allocatable amounts.
    pub node: &'a NodeResources,
    /// The node's settings for all containers.
    pub rules: &'a NodeRules,
}

/// The configuration of one instance of a container. An ephemeral container is given [as a
/// container](crate::ephemeral).
///
/// # Errors
/// [`ConfigError`] names the part of the spec that cannot be configured.
pub fn container_config(
    pod: &Pod,
    pod_ref: &PodRef,
    container: &Container,
    setting: &ContainerSetting<'_>,
) -> Result<ContainerConfig, ConfigError> {
    let mounts = mounts::mounts(pod, container, setting)?;
    let devices = devices::devices(pod, container, setting)?;
    security::verify_non_root(pod, pod_ref, container, setting.image)?;
    let mut security =
        security::security_context(pod, container, setting.image, setting.target, setting.rules)?;
    security_groups::add(&mut security.supplemental_groups, &setting.volumes.groups);
    let environment = setting.environment;
    let variables = Variables::new(environment);
    let too_long = |error| ConfigError::TooLong { container: container.name.clone(), error };
    let mut budget = variables.left().map_err(too_long)?;
    let mut expanded =
        |texts: &Option<Vec<String>>| variables.expand_all(texts.as_deref(), &mut budget).map_err(too_long);
    let (command, args) = (expanded(&container.command)?, expanded(&container.args)?);
    let mut labels: BTreeMap<String, String> = pod_labels(pod_ref).into();
    labels.insert(CONTAINER_NAME.to_owned(), container.name.clone());
    Ok(ContainerConfig {
        metadata: Some(ContainerMetadata { name: container.name.clone(), attempt: setting.attempt }),
        image: Some(ImageSpec {
            image: setting.image.image_ref.clone(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        mounts,
        devices,
        labels,
        annotations: annotations(pod, container, setting.attempt),
        log_path: Layout::container_log_path(&container.name, setting.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(LinuxContainerConfig {
            resources: Some(resources::resources(pod, container, setting.node, setting.rules)),
            security_context: Some(security),
        }),
        envs: environment
            .iter()
            .map(|(key, value)| KeyValue { key: key.clone(), value: value.clone().into_bytes() })
            .collect(),
        stop_signal: stop_signal::stop_signal(container, setting.rules).into(),
        ..ContainerConfig::default()
    })
}

/// The most bytes of one annotation, and of one kind of annotation of all containers of a pod. The runtime tells the annotations
/// of a pod's containers in one list, which has a bound of its own: what is longer is left out, and missed only when a kubelet has
/// to end the container without knowing its pod.
const ANNOTATION_BYTES_MAX: usize = 16 * 1024;
const ANNOTATIONS_BYTES_MAX: usize = 1024 * 1024;

/// The annotations by which a kubelet can kill, adopt and show the container when its pod is not known any
/// more.
fn annotations(pod: &Pod, container: &Container, attempt: u32) -> BTreeMap<String, String> {
    let key = |name: &str| format!("io.kubernetes.container.{name}");
    let max = ANNOTATION_BYTES_MAX.min(ANNOTATIONS_BYTES_MAX / PodView::of(pod).containers().count().max(1));
    let short = |text: &String| text.len() <= max;
    let text = |field: &Option<String>| field.clone().filter(short).unwrap_or_default();
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
        annotations.extend(json(hook, max).map(|json| (key("preStopHandler"), json)));
    }
    if let Some(ports) = container.ports.as_ref().filter(|ports| !ports.is_empty()) {
        annotations.extend(json(ports, max).map(|json| (key("ports"), json)));
    }
    annotations
}

fn json(value: &impl serde::Serialize, bytes_max: usize) -> Option<String> {
    serde_json::to_string(value).ok().filter(|text| text.len() <= bytes_max)
}

#[cfg(test)]
mod tests {
    use bridge_cri::wire::{MountPropagation, NamespaceMode, Signal};
    use k8s_openapi::api::core::v1::{
        ContainerPort, EnvVar, EphemeralContainer, Lifecycle, SecurityContext, VolumeDevice, VolumeMount,
    };

    use super::*;
    use crate::ephemeral::as_container;
    use crate::fixtures::{container, pod, pod_ref, resources};

    fn config(container: &Container) -> Result<ContainerConfig, ConfigError> {
        config_of(&pod("Always", vec![], vec![container.clone()]), container, None)
    }

    fn config_of(
        pod: &Pod,
        container: &Container,
        target: Option<&str>,
    ) -> Result<ContainerConfig, ConfigError> {
        let rules = NodeRules { stop_signals: true, ..NodeRules::default() };
        config_by(&rules, pod, container, target)
    }

    fn config_by(
        rules: &NodeRules,
        pod: &Pod,
        container: &Container,
        target: Option<&str>,
    ) -> Result<ContainerConfig, ConfigError> {
        let image = PresentImage { image_ref: "sha256:1".into(), uid: None, username: String::new() };
        let volumes = MountedVolumes {
            host_paths: [("v", "/host/v"), ("h", "/host/h"), ("k", "/host/k"), ("image", ""), ("none", "")]
                .map(|(name, path)| (name.to_owned(), path.to_owned()))
                .into(),
            groups: [7, 1234].into(),
            keep_labels: ["k".to_owned()].into(),
        };
        let environment: Vec<(String, String)> = container
            .env
            .iter()
            .flatten()
            .map(|one| (one.name.clone(), one.value.clone().unwrap_or_default()))
            .collect();
        let setting = ContainerSetting {
            environment: &environment,
            sub_paths: &BTreeMap::from([(1, "/pods/uid-1/volume-subpaths/v/c/1".to_owned())]),
            image_volumes: &BTreeMap::from([("image".to_owned(), image_volume())]),
            image_sub_paths: &BTreeMap::from([(3, "a/b".to_owned())]),
            recursive_read_only: true,
            termination_log: Some("/host/log"),
            attempt: 3,
            image: &image,
            volumes: &volumes,
            etc_hosts: Some("/pods/uid-1/etc-hosts"),
            target,
            node: &NodeResources::default(),
            rules,
        };
        container_config(pod, &pod_ref(), container, &setting)
    }

    fn image_volume() -> ImageSpec {
        let (image, user_specified_image) = ("sha256:2".to_owned(), "r/x:1".to_owned());
        ImageSpec { image, user_specified_image, ..ImageSpec::default() }
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
    fn what_the_runtime_keeps_of_a_container_does_not_grow_with_what_the_pod_says() {
        let mut c = container("c");
        c.termination_message_path = Some(format!("/{}", "x".repeat(1 << 20)));
        c.ports = Some(vec![ContainerPort::default(); 100_000]);
        let hook = serde_json::json!({"preStop": {"exec": {"command": ["\u{1}".repeat(440_000)]}}});
        c.lifecycle = Some(serde_json::from_value(hook).expect("a hook"));
        let annotations = config(&c).expect("valid").annotations;
        let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(bytes < 1024, "{bytes}");
    }

    #[test]
    fn many_containers_share_what_the_runtime_keeps_of_a_pod() {
        let mut c = container("c");
        c.lifecycle = Some(
            serde_json::from_value(serde_json::json!({"preStop": {"exec": {"command": ["x".repeat(8000)]}}}))
                .expect("a hook"),
        );
        let kept = |containers: usize| {
            let pod = pod("Always", vec![], vec![c.clone(); containers]);
            let config = config_of(&pod, &c, None).expect("valid");
            config.annotations.contains_key("io.kubernetes.container.preStopHandler")
        };
        assert_eq!((kept(100), kept(200)), (true, false));
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
    fn a_command_that_would_fill_the_memory_is_not_made() {
        let mut c = container("c");
        c.env =
            Some(vec![EnvVar { name: "A".into(), value: Some("x".repeat(1 << 20)), ..EnvVar::default() }]);
        c.command = Some(vec!["$(A)".repeat(3)]);
        c.args = Some(vec!["$(A)".repeat(5)]);
        let error = config(&c).expect_err("9 MiB with the variable itself").to_string();
        let expected = "container \"c\": command and args: environment, command and arguments would have more than \
                        8388608 bytes";
        assert_eq!(error, expected);
        c.args = Some(vec!["$(A)".repeat(3)]);
        assert_eq!(config(&c).expect("7 MiB").args[0].len(), 3 << 20);
    }

    #[test]
    fn volumes_and_the_hosts_file_are_mounted() {
        let mut c = container("c");
        let mut read_only = mount("v", "data");
        read_only.read_only = Some(true);
        read_only.mount_propagation = Some("HostToContainer".into());
        let mut part = mount("v", "part");
        part.sub_path = Some("a".into());
        (part.read_only, part.recursive_read_only) = (Some(true), Some("Enabled".into()));
        c.volume_mounts = Some(vec![read_only, part]);
        c.termination_message_path = Some("log".into());
        let mounts = config(&c).expect("valid").mounts;
        assert_eq!((mounts[0].container_path.as_str(), mounts[0].host_path.as_str()), ("/data", "/host/v"));
        assert!(mounts[0].readonly);
        assert_eq!(mounts[0].propagation(), MountPropagation::PropagationHostToContainer);
        assert!(!mounts[0].recursive_read_only);
        assert_eq!(mounts[1].host_path, "/pods/uid-1/volume-subpaths/v/c/1");
        assert!(mounts[1].readonly && mounts[1].recursive_read_only);
        assert_eq!(mounts[2].container_path, "/etc/hosts");
        assert_eq!((mounts[3].container_path.as_str(), mounts[3].host_path.as_str()), ("/log", "/host/log"));
        c.volume_mounts = Some(vec![mount("v", "/etc/hosts")]);
        assert_eq!(config(&c).expect("valid").mounts.len(), 2);
        c.volume_mounts = Some(vec![mount("x", "/x")]);
        let error = config(&c).expect_err("no such volume").to_string();
        assert_eq!(error, "cannot find volume \"x\" to mount into container \"c\"");
    }

    #[test]
    fn images_are_mounted_by_the_runtime_and_read_only() {
        let mut c = container("c");
        let writable = VolumeMount { read_only: Some(false), ..mount("image", "/whole") };
        c.volume_mounts = Some(vec![mount("v", "/v"), mount("v", "/part"), writable, mount("image", "part")]);
        let mut pod = pod("Always", vec![], vec![c.clone()]);
        let volumes = serde_json::json!([{"name": "v", "emptyDir": {}}, {"name": "image", "image": {"reference": "r/x:1"}}]);
        pod.spec.as_mut().expect("spec").volumes = serde_json::from_value(volumes).expect("volumes");
        let rules = NodeRules { selinux: true, ..NodeRules::default() };
        let mounts = config_by(&rules, &pod, &c, None).expect("valid").mounts;
        assert_eq!((&mounts[0].image, mounts[0].host_path.as_str()), (&None, "/host/v"));
        for (mount, path, part) in [(&mounts[2], "/whole", ""), (&mounts[3], "/part", "a/b")] {
            assert_eq!((mount.container_path.as_str(), mount.image_sub_path.as_str()), (path, part));
            assert_eq!((mount.host_path.as_str(), mount.image.as_ref()), ("", Some(&image_volume())));
            assert!(mount.readonly && !mount.selinux_relabel);
        }
        c.volume_mounts = Some(vec![mount("none", "/x")]);
        let error = config(&c).expect_err("its image is not there").to_string();
        assert_eq!(error, "cannot find volume \"none\" to mount into container \"c\"");
        c.volume_mounts = None;
        c.volume_devices = Some(vec![VolumeDevice { name: "image".into(), device_path: "/dev/x".into() }]);
        let error = config(&c).expect_err("an image is no device").to_string();
        assert_eq!(error, "cannot find volume \"image\" to pass into container \"c\"");
    }

    #[test]
    fn block_devices_are_given_by_their_links() {
        let device = |name: &str, path: &str| VolumeDevice { name: name.into(), device_path: path.into() };
        let mut c = container("c");
        c.volume_devices = Some(vec![device("v", "/dev/xvda"), device("h", "/dev/xvdb")]);
        let mut pod = pod("Always", vec![], vec![c.clone()]);
        let claim =
            serde_json::json!([{"name": "h", "persistentVolumeClaim": {"claimName": "x", "readOnly": true}}]);
        pod.spec.as_mut().expect("spec").volumes = serde_json::from_value(claim).expect("volumes");
        let config = config_of(&pod, &c, None).expect("valid");
        let given = |at: usize| {
            let device = &config.devices[at];
            (device.container_path.as_str(), device.host_path.as_str(), device.permissions.as_str())
        };
        assert_eq!((given(0), given(1)), (("/dev/xvda", "/host/v", "mrw"), ("/dev/xvdb", "/host/h", "r")));
        let mounts = config.mounts.iter().map(|mount| mount.container_path.as_str());
        assert_eq!(mounts.collect::<Vec<_>>(), ["/etc/hosts"], "a device is no mount");
        let mut error = |wrong| {
            c.volume_devices = Some(vec![wrong]);
            config_of(&pod, &c, None).expect_err("it cannot be had").to_string()
        };
        let [missing, relative] = [device("x", "/dev/x"), device("v", "dev/x")].map(&mut error);
        assert_eq!(missing, "cannot find volume \"x\" to pass into container \"c\"");
        assert_eq!(relative, "error DevicePath `dev/x` must be an absolute path");
    }

    #[test]
    fn a_claim_may_be_read_only_and_its_groups_have_access() {
        let mut c = container("c");
        c.volume_mounts = Some(vec![mount("h", "/h"), mount("v", "/v")]);
        let mut pod = pod("Always", vec![], vec![c.clone()]);
        let volumes = serde_json::json!([
            {"name": "h", "persistentVolumeClaim": {"claimName": "x", "readOnly": true}},
            {"name": "v", "persistentVolumeClaim": {"claimName": "y"}},
        ]);
        let spec = pod.spec.as_mut().expect("spec");
        spec.volumes = serde_json::from_value(volumes).expect("volumes");
        spec.security_context =
            serde_json::from_value(serde_json::json!({"supplementalGroups": [7]})).expect("a context");
        let config = config_of(&pod, &c, None).expect("valid");
        assert!(config.mounts[0].readonly, "the claim is asked for read-only");
        assert!(!config.mounts[1].readonly);
        let groups = config.linux.and_then(|linux| linux.security_context).expect("set").supplemental_groups;
        assert_eq!(groups, [7, 1234], "each group once");
    }

    #[test]
    fn with_selinux_all_but_the_hosts_own_is_labelled() {
        let mut c = container("c");
        c.volume_mounts =
            Some(vec![mount("v", "/v"), mount("v", "/part"), mount("h", "/h"), mount("k", "/k")]);
        c.termination_message_path = Some("/log".into());
        let mut pod = pod("Always", vec![], vec![c.clone()]);
        let volumes = serde_json::json!([
            {"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/host/h"}},
            {"name": "k", "persistentVolumeClaim": {"claimName": "k"}},
        ]);
        pod.spec.as_mut().expect("spec").volumes = serde_json::from_value(volumes).expect("volumes");
        let labelled = |selinux| -> Vec<(String, bool)> {
            let rules = NodeRules { selinux, ..NodeRules::default() };
            let config = config_by(&rules, &pod, &c, None).expect("valid");
            config.mounts.into_iter().map(|mount| (mount.container_path, mount.selinux_relabel)).collect()
        };
        let expected = [
            ("/v", true),
            ("/part", true),
            ("/h", false),
            ("/k", false),
            ("/etc/hosts", true),
            ("/log", true),
        ];
        assert_eq!(labelled(true), expected.map(|(path, yes)| (path.to_owned(), yes)));
        assert!(labelled(false).iter().all(|(_, yes)| !yes), "nobody could");
    }

    #[test]
    fn resources_security_and_signal_are_the_containers() {
        let mut c = container("c");
        c.resources = Some(resources(&[("cpu", "100m")], &[("memory", "1Mi")]));
        c.security_context = Some(SecurityContext { run_as_user: Some(7), ..SecurityContext::default() });
        c.lifecycle = Some(Lifecycle { stop_signal: Some("SIGINT".into()), ..Lifecycle::default() });
        let config = config(&c).expect("valid");
        assert_eq!(config.stop_signal(), Signal::Sigint);
        let linux = config.linux.expect("always given");
        let made = linux.resources.expect("always given");
        assert_eq!((made.cpu_shares, made.memory_limit_in_bytes), (102, 1 << 20));
        let user = linux.security_context.and_then(|context| context.run_as_user);
        assert_eq!(user.map(|user| user.value), Some(7));
    }

    #[test]
    fn a_container_that_would_be_root_against_its_will_is_not_configured() {
        let mut c = container("c");
        c.security_context =
            Some(SecurityContext { run_as_non_root: Some(true), ..SecurityContext::default() });
        let error = config(&c).expect_err("the image says nothing of a user").to_string();
        let expected =
            "container has runAsNonRoot and image will run as root (pod: \"web_ns(uid-1)\", container: c)";
        assert_eq!(error, expected);
    }

    #[test]
    fn an_ephemeral_container_sees_its_target() {
        let ephemeral = EphemeralContainer {
            name: "debug".into(),
            image: Some("i".into()),
            target_container_name: Some("c".into()),
            ..EphemeralContainer::default()
        };
        let mut pod = pod("Always", vec![], vec![container("c")]);
        pod.spec.as_mut().expect("spec").ephemeral_containers = Some(vec![ephemeral.clone()]);
        let config = config_of(&pod, &as_container(&ephemeral), Some("id-of-c")).expect("valid");
        assert_eq!(config.labels["io.kubernetes.container.name"], "debug");
        let security = config.linux.and_then(|linux| linux.security_context).expect("always given");
        let options = security.namespace_options.expect("always given");
        assert_eq!((options.pid(), options.target_id.as_str()), (NamespaceMode::Target, "id-of-c"));
    }
}
