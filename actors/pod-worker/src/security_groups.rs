//! The groups of a pod beside its processes' first one (row 17.5), and what a spec says of SELinux (row 17.4): for its
//! sandbox and its containers alike.

use bridge_cri::wire::{SeLinuxOption, SupplementalGroupsPolicy};
use k8s_openapi::api::core::v1::{PodSecurityContext, SELinuxOptions};

/// A policy that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported supplementalGroupsPolicy: {0}")]
pub struct UnknownGroupsPolicy(pub String);

/// `fsGroup`, by which the pod's volumes are shared, and `supplementalGroups`.
pub(crate) fn groups(pod: Option<&PodSecurityContext>) -> Vec<i64> {
    let Some(pod) = pod else { return Vec::new() };
    pod.fs_group.into_iter().chain(pod.supplemental_groups.iter().flatten().copied()).collect()
}

/// Whether the groups that the image's `/etc/group` has for the user count, too: they do unless the pod is strict.
///
/// # Errors
/// Neither `Merge` nor `Strict`.
pub(crate) fn groups_policy(
    pod: Option<&PodSecurityContext>,
) -> Result<SupplementalGroupsPolicy, UnknownGroupsPolicy> {
    match pod.and_then(|pod| pod.supplemental_groups_policy.as_deref()) {
        None | Some("Merge") => Ok(SupplementalGroupsPolicy::Merge),
        Some("Strict") => Ok(SupplementalGroupsPolicy::Strict),
        Some(other) => Err(UnknownGroupsPolicy(other.to_owned())),
    }
}

/// The runtime's form of it.
pub(crate) fn selinux(options: &SELinuxOptions) -> SeLinuxOption {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}
