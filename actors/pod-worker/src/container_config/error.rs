//! The errors of configuring a container.

use pod_spec::expansion::TooLong;

use crate::security_groups::UnknownGroupsPolicy;

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
    /// A device names a volume that is not there.
    #[error("cannot find volume {volume:?} to pass into container {container:?}")]
    DeviceMissing {
        /// The volume's name in the spec.
        volume: String,
        /// The container's name.
        container: String,
    },
    /// The path of a device is not absolute.
    #[error("error DevicePath `{0}` must be an absolute path")]
    RelativeDevicePath(String),
    /// A mount has a propagation that does not exist.
    #[error("invalid MountPropagation mode: {0:?}")]
    InvalidPropagation(String),
    /// A `subPathExpr` refers to a variable without a value.
    #[error("{0}")]
    SubPathExpr(String),
    /// Command and arguments are too long once their variables are expanded.
    #[error("container {container:?}: command and args: {error}")]
    TooLong {
        /// The container's name.
        container: String,
        /// The limit that is exceeded.
        error: TooLong,
    },
    /// The `subPath` of a mount is an absolute path.
    #[error("error SubPath `{0}` must not be an absolute path")]
    AbsoluteSubPath(String),
    /// The `subPath` of a mount leads out of the volume.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    SubPathSteps(String),
    /// A mount cannot be made recursively read-only.
    #[error("failed to resolve recursive read-only mode: {0}")]
    RecursiveReadOnly(String),
    /// The spec wants a user other than root and names root.
    #[error("container's runAsUser breaks non-root policy (pod: {pod:?}, container: {container})")]
    RunAsRoot {
        /// `name_namespace(uid)`
        pod: String,
        /// The container's name.
        container: String,
    },
    /// The spec wants a user other than root, and the image has none.
    #[error("container has runAsNonRoot and image will run as root (pod: {pod:?}, container: {container})")]
    ImageRunsAsRoot {
        /// `name_namespace(uid)`
        pod: String,
        /// The container's name.
        container: String,
    },
    /// The spec wants a user other than root, and the image's user is a name.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: {pod:?}, container: {container})"
    )]
    ImageUserUnknown {
        /// The image's user.
        user: String,
        /// `name_namespace(uid)`
        pod: String,
        /// The container's name.
        container: String,
    },
    /// The spec wants a user other than root, and the image's user is no user ID.
    #[error(
        "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive (pod: {pod:?}, container: {container})"
    )]
    ImageUserInvalid {
        /// The image's user.
        uid: i64,
        /// `name_namespace(uid)`
        pod: String,
        /// The container's name.
        container: String,
    },
    /// A seccomp profile of the node without a name.
    #[error("localhostProfile must be set if seccompProfile type is Localhost.")]
    SeccompFileMissing,
    /// An AppArmor profile of the node without a name.
    #[error("missing localhost apparmor profile name")]
    AppArmorNameMissing,
    /// The type of an AppArmor profile does not exist.
    #[error("unknown apparmor profile type: {0:?}")]
    UnknownAppArmorType(String),
    /// The policy of supplemental groups does not exist.
    #[error(transparent)]
    GroupsPolicy(#[from] UnknownGroupsPolicy),
}
