//! Why a container cannot be configured.

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
    /// A mount has a propagation that does not exist.
    #[error("invalid MountPropagation mode: {0:?}")]
    InvalidPropagation(String),
    /// A `subPathExpr` refers to what has no value.
    #[error("{0}")]
    SubPathExpr(String),
    /// Command and arguments are too long with their variables.
    #[error("container {container:?}: command and args: {error}")]
    TooLong {
        /// The container's name.
        container: String,
        /// How long they may be.
        error: TooLong,
    },
    /// A part of a volume is not named relative to it.
    #[error("error SubPath `{0}` must not be an absolute path")]
    AbsoluteSubPath(String),
    /// A part of a volume leads out of it.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    SubPathSteps(String),
    /// A mount cannot be made read-only with all below it.
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
    /// A kind of AppArmor profile that does not exist.
    #[error("unknown apparmor profile type: {0:?}")]
    UnknownAppArmorType(String),
    /// A policy of groups that does not exist.
    #[error(transparent)]
    GroupsPolicy(#[from] UnknownGroupsPolicy),
}
