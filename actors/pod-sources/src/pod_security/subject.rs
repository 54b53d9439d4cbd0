//! What checks look at, and the words that they share.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EphemeralContainer, Lifecycle, PodSecurityContext, PodSpec, Probe,
    SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// What a check forbids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.detail)
    }
}

impl Violation {
    pub(super) fn new(reason: &'static str, detail: String) -> Option<Self> {
        Some(Self { reason, detail })
    }
}

/// A container of any kind.
pub(super) struct One<'a> {
    pub(super) name: &'a str,
    pub(super) context: Option<&'a SecurityContext>,
    pub(super) ports: &'a [ContainerPort],
    pub(super) probes: [Option<&'a Probe>; 3],
    pub(super) lifecycle: Option<&'a Lifecycle>,
}

impl<'a> One<'a> {
    fn of(container: &'a Container) -> Self {
        let probes = [&container.liveness_probe, &container.readiness_probe, &container.startup_probe];
        Self {
            name: &container.name,
            context: container.security_context.as_ref(),
            ports: container.ports.as_deref().unwrap_or_default(),
            probes: probes.map(Option::as_ref),
            lifecycle: container.lifecycle.as_ref(),
        }
    }

    fn of_ephemeral(container: &'a EphemeralContainer) -> Self {
        let probes = [&container.liveness_probe, &container.readiness_probe, &container.startup_probe];
        Self {
            name: &container.name,
            context: container.security_context.as_ref(),
            ports: container.ports.as_deref().unwrap_or_default(),
            probes: probes.map(Option::as_ref),
            lifecycle: container.lifecycle.as_ref(),
        }
    }
}

/// The pod that is judged.
pub(super) struct Subject<'a> {
    pub(super) metadata: &'a ObjectMeta,
    pub(super) spec: &'a PodSpec,
    /// Init containers first, ephemeral ones last.
    pub(super) containers: Vec<One<'a>>,
}

impl<'a> Subject<'a> {
    pub(super) fn of(metadata: &'a ObjectMeta, spec: &'a PodSpec) -> Self {
        let init = spec.init_containers.iter().flatten().map(One::of);
        let ephemeral = spec.ephemeral_containers.iter().flatten().map(One::of_ephemeral);
        let containers = init.chain(spec.containers.iter().map(One::of)).chain(ephemeral).collect();
        Self { metadata, spec, containers }
    }

    /// The pod's own security context.
    pub(super) fn context(&self) -> Option<&'a PodSecurityContext> {
        self.spec.security_context.as_ref()
    }

    /// The names of the containers of which this is true; each container is looked at.
    pub(super) fn containers_that(&self, mut is_so: impl FnMut(&One<'a>) -> bool) -> Vec<&'a str> {
        self.containers.iter().filter(|one| is_so(one)).map(|one| one.name).collect()
    }

    /// Whether the pod has user IDs of its own.
    pub(super) fn has_user_namespace(&self) -> bool {
        self.spec.host_users == Some(false)
    }

    /// Whether the pod is one for Windows.
    pub(super) fn is_for_windows(&self) -> bool {
        self.spec.os.as_ref().is_some_and(|os| os.name == "windows")
    }
}

/// The word for one, or that for several.
pub(super) fn plural(one: &'static str, several: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { several }
}

/// The items in quotes.
pub(super) fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let quoted: Vec<String> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    quoted.join(", ")
}

/// The containers with their names.
pub(super) fn named(containers: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", containers.len()), quoted(containers))
}

/// The pod, if it is one of those that set something, and the containers that do; `None` if none does.
pub(super) fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    let containers = (!containers.is_empty()).then(|| named(containers));
    let all: Vec<String> = pod.then(|| "pod".to_owned()).into_iter().chain(containers).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

/// Notes the value if it is forbidden, and says whether it is.
pub(super) fn note<'a>(values: &mut BTreeSet<&'a str>, forbidden: Option<&'a str>) -> bool {
    values.extend(forbidden);
    forbidden.is_some()
}
