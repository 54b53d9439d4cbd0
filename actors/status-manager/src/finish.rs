//! The final container statuses of a pod whose worker has released everything: no container is left undecided (row
//! 8.1).

use k8s_openapi::api::core::v1::{ContainerStatus, PodSpec};

use crate::container_state::{last_terminated, lost, running, terminated, waiting};
use crate::spec::{self, Kind};

const MESSAGE: &str = "The container could not be located when the pod was terminated";

/// Turns every container that is not known to have ended into a failed one: its success can no longer be shown.
pub(crate) fn finish(spec: &PodSpec, init: &mut [ContainerStatus], regular: &mut [ContainerStatus]) {
    if has_initialized(spec, init, regular) {
        regular.iter_mut().for_each(end);
    }
    // Init containers after the last one that was ever started have no end to tell.
    let started = init.iter().rposition(|s| waiting(s).is_none() || last_terminated(s).is_some());
    let count = started.map_or(1, |last| last + 1).min(init.len());
    init[..count].iter_mut().for_each(end);
}

fn end(status: &mut ContainerStatus) {
    if terminated(status).is_none() {
        status.state = Some(lost(MESSAGE));
        status.ready = false;
        status.started = Some(false);
    }
}

fn has_initialized(spec: &PodSpec, init: &[ContainerStatus], regular: &[ContainerStatus]) -> bool {
    let Some(last) = spec::init(spec).last() else { return true };
    if regular.iter().any(|s| waiting(s).is_none() || last_terminated(s).is_some()) {
        return true;
    }
    init.iter().find(|s| s.name == last.name).is_some_and(|status| match last.kind {
        Kind::Sidecar => running(status).is_some() && status.started == Some(true),
        _ => [terminated(status), last_terminated(status)].into_iter().flatten().any(|t| t.exit_code == 0),
    })
}
