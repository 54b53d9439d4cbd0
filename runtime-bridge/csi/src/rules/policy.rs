//! PURE: what the CSIDriver object says of a driver.

use std::time::Duration;

use k8s_openapi::api::storage::v1::CSIDriver;

use super::access::go_quoted;
use super::capabilities::Capabilities;
use super::says;
use super::vol_data::Lifecycle;

/// When the kubelet gives a volume to the pod's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPolicy {
    /// Volumes of one node, with a type of file system.
    ReadWriteOnceWithFsType,
    /// Every volume.
    File,
    /// No volume.
    Never,
}

/// A token that a driver wants of the pods that use its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWanted {
    /// Its audience; empty: the API server.
    pub audience: String,
    /// How long it shall hold, seconds.
    pub seconds: Option<i64>,
}

/// What the CSIDriver object says of a driver; what holds without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverPolicy {
    /// Whether there is such an object.
    pub is_there: bool,
    /// Volumes are attached before they are staged.
    pub attach_required: bool,
    /// The driver is told of the pod.
    pub pod_info: bool,
    /// Volumes are published again from time to time.
    pub requires_republish: bool,
    /// File systems may be mounted with an SELinux context.
    pub se_linux_mount: bool,
    /// The tokens that it wants of pods.
    pub tokens: Vec<TokenWanted>,
    /// Tokens are told among the secrets, and not in the volume's context.
    pub tokens_in_secrets: bool,
    /// How often the driver is asked again how many volumes may be attached.
    pub update_period: Option<Duration>,
    group: Option<GroupPolicy>,
    lifecycles: Vec<String>,
}

impl DriverPolicy {
    /// What the object says; `None`: there is none.
    #[must_use]
    pub fn of(driver: Option<&CSIDriver>) -> Self {
        let spec = driver.map(|driver| driver.spec.clone()).unwrap_or_default();
        let tokens = spec.token_requests.unwrap_or_default().into_iter();
        let period =
            spec.node_allocatable_update_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let group = match spec.fs_group_policy.as_deref() {
            Some("File") => Some(GroupPolicy::File),
            Some("None") => Some(GroupPolicy::Never),
            Some("ReadWriteOnceWithFSType") => Some(GroupPolicy::ReadWriteOnceWithFsType),
            // Without the object the default holds; an object without the field is broken.
            _ if driver.is_none() => Some(GroupPolicy::ReadWriteOnceWithFsType),
            _ => None,
        };
        Self {
            is_there: driver.is_some(),
            attach_required: spec.attach_required != Some(false),
            pod_info: spec.pod_info_on_mount == Some(true),
            requires_republish: spec.requires_republish == Some(true),
            se_linux_mount: spec.se_linux_mount == Some(true),
            tokens: tokens
                .map(|wanted| TokenWanted { audience: wanted.audience, seconds: wanted.expiration_seconds })
                .collect(),
            tokens_in_secrets: spec.service_account_token_in_secrets == Some(true),
            update_period: period.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            group,
            lifecycles: spec.volume_lifecycle_modes.unwrap_or_default(),
        }
    }

    /// Checks that the driver has volumes that live so long.
    ///
    /// # Errors
    /// Upstream's message.
    pub fn supports(&self, driver: &str, lifecycle: Lifecycle) -> Result<(), String> {
        let quoted = go_quoted(lifecycle.word());
        if !self.is_there {
            return match lifecycle {
                Lifecycle::Persistent => Ok(()),
                Lifecycle::Ephemeral => Err(format!(
                    "volume mode {quoted} not supported by driver {driver} (no CSIDriver object)"
                )),
            };
        }
        if self.lifecycles.iter().any(|mode| mode == lifecycle.word()) {
            return Ok(());
        }
        let modes = self.lifecycles.iter().map(|mode| go_quoted(mode)).collect::<Vec<_>>().join(" ");
        Err(format!("volume mode {quoted} not supported by driver {driver} (only supports [{modes}])"))
    }

    /// When the kubelet gives a volume to the pod's group.
    ///
    /// # Errors
    /// Upstream's message for an object without a policy.
    pub fn group_policy(&self) -> Result<GroupPolicy, String> {
        self.group.ok_or_else(|| says("expected valid fsGroupPolicy, received nil value or empty string"))
    }
}

/// A volume whose group is in question.
#[derive(Clone, Copy, Debug)]
pub struct Grouped<'a> {
    /// The pod's group.
    pub group: Option<i64>,
    /// Whether the pod may only read.
    pub readonly: bool,
    /// The type of the file system; empty if the volume does not say it.
    pub fs_type: &'a str,
    /// The access modes of the persistent volume; `None`: inline.
    pub modes: Option<&'a [String]>,
}

/// Whether the kubelet gives a published volume to the pod's group itself: not where the driver does.
#[must_use]
pub fn kubelet_sets_group(policy: GroupPolicy, able: &Capabilities, volume: &Grouped<'_>) -> bool {
    if able.volume_mount_group || volume.group.is_none() || volume.readonly {
        return false;
    }
    match policy {
        GroupPolicy::Never => false,
        GroupPolicy::File => true,
        GroupPolicy::ReadWriteOnceWithFsType => {
            let one_node = |mode: &String| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod";
            !volume.fs_type.is_empty() && volume.modes.is_none_or(|modes| modes.iter().any(one_node))
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::storage::v1::{CSIDriverSpec, TokenRequest};

    use super::*;

    fn driver(spec: CSIDriverSpec) -> DriverPolicy {
        DriverPolicy::of(Some(&CSIDriver { spec, ..Default::default() }))
    }

    #[test]
    fn without_an_object_volumes_are_attached_and_persistent() {
        let policy = DriverPolicy::of(None);
        assert!(
            policy.attach_required && !policy.pod_info && !policy.se_linux_mount && policy.tokens.is_empty()
        );
        assert_eq!(policy.supports("d", Lifecycle::Persistent), Ok(()));
        assert_eq!(
            policy.supports("d", Lifecycle::Ephemeral),
            Err("volume mode \"Ephemeral\" not supported by driver d (no CSIDriver object)".to_owned())
        );
        assert_eq!(policy.group_policy(), Ok(GroupPolicy::ReadWriteOnceWithFsType));
    }

    #[test]
    fn what_an_object_says() {
        let policy = driver(CSIDriverSpec {
            attach_required: Some(false),
            fs_group_policy: Some("File".into()),
            node_allocatable_update_period_seconds: Some(60),
            service_account_token_in_secrets: Some(true),
            token_requests: Some(vec![TokenRequest {
                audience: "vault".into(),
                expiration_seconds: Some(600),
            }]),
            volume_lifecycle_modes: Some(vec!["Ephemeral".into()]),
            ..Default::default()
        });
        assert!(policy.is_there && !policy.attach_required && policy.tokens_in_secrets);
        assert_eq!(policy.tokens, [TokenWanted { audience: "vault".into(), seconds: Some(600) }]);
        assert_eq!(policy.update_period, Some(Duration::from_secs(60)));
        assert_eq!(policy.group_policy(), Ok(GroupPolicy::File));
        assert_eq!(
            policy.supports("d", Lifecycle::Persistent),
            Err("volume mode \"Persistent\" not supported by driver d (only supports [\"Ephemeral\"])"
                .to_owned())
        );
        let broken = driver(CSIDriverSpec::default()).group_policy().unwrap_err();
        assert_eq!(
            broken,
            "kubernetes.io/csi: expected valid fsGroupPolicy, received nil value or empty string"
        );
    }

    #[test]
    fn the_kubelet_sets_the_group_where_the_policy_says_so_and_the_driver_does_not() {
        let once = ["ReadWriteOnce".to_owned()];
        let many = ["ReadWriteMany".to_owned()];
        let volume = Grouped { group: Some(7), readonly: false, fs_type: "ext4", modes: Some(&once) };
        let plain = Capabilities::default();
        let by = |policy, volume: &Grouped<'_>| kubelet_sets_group(policy, &plain, volume);
        let default = GroupPolicy::ReadWriteOnceWithFsType;
        assert!(by(default, &volume) && by(GroupPolicy::File, &volume) && !by(GroupPolicy::Never, &volume));
        assert!(!by(default, &Grouped { modes: Some(&many), ..volume }));
        assert!(!by(default, &Grouped { fs_type: "", ..volume }), "the type is not known");
        assert!(by(default, &Grouped { modes: None, ..volume }), "inline volumes are of one node");
        assert!(!by(GroupPolicy::File, &Grouped { readonly: true, ..volume }));
        assert!(!by(GroupPolicy::File, &Grouped { group: None, ..volume }));
        let applies = Capabilities { volume_mount_group: true, ..plain };
        assert!(!kubelet_sets_group(GroupPolicy::File, &applies, &volume));
    }
}
