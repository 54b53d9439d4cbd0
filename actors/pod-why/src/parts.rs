//! PURE: a pod's containers with their statuses.

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus, Pod};
use pod_rules::restart;

use crate::text::neutralised;

/// What a container is for in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It runs to its end before the others.
    Init,
    /// An init container that runs on beside the others.
    Sidecar,
    /// An ordinary container.
    Main,
}

/// A container of a pod's spec, what it is for, and its status.
pub type Part<'a> = (&'a Container, Role, Option<&'a ContainerStatus>);

/// The containers with their statuses, init containers first.
pub fn parts(pod: &Pod) -> Vec<Part<'_>> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let status = pod.status.as_ref();
    let inits = spec.init_containers.iter().flatten().map(|container| {
        let sidecar = restart::is_sidecar(container);
        let statuses = status.and_then(|status| status.init_container_statuses.as_deref());
        (container, if sidecar { Role::Sidecar } else { Role::Init }, statuses)
    });
    let mains = spec.containers.iter().map(|container| {
        (container, Role::Main, status.and_then(|status| status.container_statuses.as_deref()))
    });
    inits
        .chain(mains)
        .map(|(container, role, statuses)| {
            let own = statuses.unwrap_or_default().iter().find(|status| status.name == container.name);
            (container, role, own)
        })
        .collect()
}

/// Why a container has ended, in a word.
pub fn ended_as(ended: &ContainerStateTerminated) -> String {
    match ended.reason.as_deref() {
        Some(reason) if !reason.is_empty() => neutralised(reason),
        _ => match ended.signal {
            Some(signal) if signal != 0 => format!("Signal:{signal}"),
            _ => format!("ExitCode:{}", ended.exit_code),
        },
    }
}
