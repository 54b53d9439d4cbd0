//! The supplemental groups of a pod (row 17.5) and its SELinux options (row 17.4), for its sandbox and its
//! containers alike.

use std::collections::BTreeSet;

use bridge_cri::wire::{SeLinuxOption, SupplementalGroupsPolicy};
use k8s_openapi::api::core::v1::{PodSecurityContext, SELinuxOptions};

/// The policy of supplemental groups does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported supplementalGroupsPolicy: {0}")]
pub struct UnknownGroupsPolicy(pub String);

/// The pod's supplemental groups: `fsGroup`, to which its volumes belong, and `supplementalGroups`.
pub(crate) fn groups(pod: Option<&PodSecurityContext>) -> Vec<i64> {
    let Some(pod) = pod else { return Vec::new() };
    pod.fs_group.into_iter().chain(pod.supplemental_groups.iter().flatten().copied()).collect()
}

/// Adds the groups that have access to the pod's volumes; a group that is there already is not added again.
pub(crate) fn add(groups: &mut Vec<i64>, of_volumes: &BTreeSet<i64>) {
    for group in of_volumes {
        if !groups.contains(group) {
            groups.push(*group);
        }
    }
}

/// Whether the user's groups in the image's `/etc/group` count, too (`Merge`, the default), or not
/// (`Strict`).
///
/// # Errors
/// The policy is neither `Merge` nor `Strict`.
pub(crate) fn groups_policy(
    pod: Option<&PodSecurityContext>,
) -> Result<SupplementalGroupsPolicy, UnknownGroupsPolicy> {
    match pod.and_then(|pod| pod.supplemental_groups_policy.as_deref()) {
        None | Some("Merge") => Ok(SupplementalGroupsPolicy::Merge),
        Some("Strict") => Ok(SupplementalGroupsPolicy::Strict),
        Some(other) => Err(UnknownGroupsPolicy(other.to_owned())),
    }
}

/// The SELinux options in the runtime's form.
pub(crate) fn selinux(options: &SELinuxOptions) -> SeLinuxOption {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}
