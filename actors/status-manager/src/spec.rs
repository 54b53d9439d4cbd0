//! One view of the three kinds of containers in a pod's spec, and their restart rules.

use k8s_openapi::api::core::v1::{ContainerRestartRule, PodSpec, ResourceRequirements, VolumeMount};
use pod_rules::restart::{self, RestartPolicy};

/// The kinds of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Runs to completion before the next.
    Init,
    /// An init container that stays (restartPolicy Always, row 5.13).
    Sidecar,
    /// One of `spec.containers`.
    Regular,
    /// One of `spec.ephemeralContainers`.
    Ephemeral,
}

/// A container of the spec, of whatever kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerSpec<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    pub(crate) image: &'a str,
    pub(crate) restart_policy: Option<&'a str>,
    pub(crate) rules: &'a [ContainerRestartRule],
    pub(crate) has_readiness_probe: bool,
    pub(crate) has_startup_probe: bool,
    pub(crate) volume_mounts: &'a [VolumeMount],
    pub(crate) resources: Option<&'a ResourceRequirements>,
}

macro_rules! view {
    ($container:expr, $kind:expr) => {
        ContainerSpec {
            name: &$container.name,
            kind: $kind,
            image: $container.image.as_deref().unwrap_or_default(),
            restart_policy: $container.restart_policy.as_deref(),
            rules: $container.restart_policy_rules.as_deref().unwrap_or_default(),
            has_readiness_probe: $container.readiness_probe.is_some(),
            has_startup_probe: $container.startup_probe.is_some(),
            volume_mounts: $container.volume_mounts.as_deref().unwrap_or_default(),
            resources: $container.resources.as_ref(),
        }
    };
}

/// `spec.initContainers`, sidecars among them, in order.
pub(crate) fn init(spec: &PodSpec) -> impl Iterator<Item = ContainerSpec<'_>> {
    spec.init_containers
        .iter()
        .flatten()
        .map(|c| view!(c, if restart::is_sidecar(c) { Kind::Sidecar } else { Kind::Init }))
}

/// `spec.containers`.
pub(crate) fn regular(spec: &PodSpec) -> impl Iterator<Item = ContainerSpec<'_>> {
    spec.containers.iter().map(|c| view!(c, Kind::Regular))
}

/// `spec.ephemeralContainers`.
pub(crate) fn ephemeral(spec: &PodSpec) -> impl Iterator<Item = ContainerSpec<'_>> {
    spec.ephemeral_containers.iter().flatten().map(|c| view!(c, Kind::Ephemeral))
}

impl ContainerSpec<'_> {
    /// Whether the container is started again after this exit: its own rules decide first, then its own policy, then
    /// the pod's.
    pub(crate) fn should_restart(&self, pod_policy: Option<&str>, exit_code: i32) -> bool {
        restart::restarts_after(self.restart_policy, self.rules, RestartPolicy::of(pod_policy), exit_code)
    }
}
