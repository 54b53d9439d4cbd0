//! Annotations of pods, and the words that stand in them.

use k8s_openapi::api::core::v1::Pod;

/// Where a kubelet had the pod from: [`messages::facts::Source`] has the values.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// The hash of a static pod, written when its manifest is read.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Marks the pod that stands for a static pod at the API server; the value is that pod's [`CONFIG_HASH`].
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// Names a container's AppArmor profile, from before there was a field for it: followed by the container's name.
pub const APPARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
/// A security profile in an annotation: the runtime's own default.
pub const PROFILE_RUNTIME_DEFAULT: &str = "runtime/default";
/// A security profile in an annotation: none.
pub const PROFILE_UNCONFINED: &str = "unconfined";
/// A security profile in an annotation: one of the node's own, whose name follows.
pub const PROFILE_LOCALHOST_PREFIX: &str = "localhost/";

/// The value of a pod's annotation.
pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
