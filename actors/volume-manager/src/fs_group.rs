//! The group to which a volume's files are given (row 10.23).

use std::path::Path;

use bridge_node::mounts::GroupChange;
use k8s_openapi::api::core::v1::{Pod, PodSecurityContext};

use crate::steps::Step;

fn context(pod: &Pod) -> Option<&PodSecurityContext> {
    pod.spec.as_ref()?.security_context.as_ref()
}

/// `spec.securityContext.fsGroup`.
pub(crate) fn of_pod(pod: &Pod) -> Option<u32> {
    u32::try_from(context(pod)?.fs_group?).ok()
}

/// The step that gives a volume which outlives its pods to the pod's group, as `fsGroupChangePolicy` asks for it.
pub(crate) fn change(pod: &Pod, path: &Path) -> Option<Step> {
    let gid = of_pod(pod)?;
    let policy = context(pod).and_then(|context| context.fs_group_change_policy.as_deref());
    let change = match policy {
        Some("OnRootMismatch") => GroupChange::OnRootMismatch,
        _ => GroupChange::Always,
    };
    Some(Step::SetGroup { path: path.to_path_buf(), gid, change })
}
