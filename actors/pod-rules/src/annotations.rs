//! Annotations of pods, and the values that they have.

use k8s_openapi::api::core::v1::Pod;

/// The source from which a kubelet has the pod; the values are in [`messages::facts::Source`].
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// The hash of a static pod, set when its manifest is read.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Marks a mirror pod, which stands for a static pod at the API server; the value is the static pod's
/// [`CONFIG_HASH`].
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// Prefix of the annotation that names a container's AppArmor profile, from before the field existed; the
/// container's name follows.
pub const APPARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Value of a security profile: the runtime's default profile.
pub const PROFILE_RUNTIME_DEFAULT: &str = "runtime/default";
/// Value of a security profile: no profile.
pub const PROFILE_UNCONFINED: &str = "unconfined";
/// Prefix of the value of a security profile: a profile of the node, whose name follows.
pub const PROFILE_LOCALHOST_PREFIX: &str = "localhost/";

/// The value of the pod's annotation `key`.
pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
