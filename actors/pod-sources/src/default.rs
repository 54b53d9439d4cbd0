//! The defaults that the API server gives a v1 Pod, for pods that never pass through it.
//!
//! Pure and idempotent. Additions of admission plugins in a cluster (service-account tokens, priorities, tolerations
//! for unreachable nodes) are left out: static pods have none of them.

mod containers;
mod resources;
mod volumes;

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Fills in all fields that a manifest may leave out, as the API server of Kubernetes 1.36 does.
#[must_use]
pub fn with_defaults(mut pod: Pod) -> Pod {
    let spec = pod.spec.get_or_insert_with(PodSpec::default);
    set_if_empty(&mut spec.dns_policy, "ClusterFirst");
    set_if_empty(&mut spec.restart_policy, "Always");
    set_if_empty(&mut spec.scheduler_name, "default-scheduler");
    spec.security_context.get_or_insert_default();
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
    service_account(spec);
    for volume in spec.volumes.iter_mut().flatten() {
        volumes::set_defaults(volume);
    }
    containers::set_defaults(spec);
    resources::set_defaults(spec);
    pod
}

/// The service account's name has two fields of equal meaning; the deprecated one counts when the other is empty.
fn service_account(spec: &mut PodSpec) {
    let filled = |name: &Option<String>| name.as_ref().is_some_and(|name| !name.is_empty());
    if !filled(&spec.service_account_name) && filled(&spec.service_account) {
        spec.service_account_name.clone_from(&spec.service_account);
    }
    spec.service_account.clone_from(&spec.service_account_name);
}

/// Sets the field if it is missing or empty, which Kubernetes does not distinguish.
fn set_if_empty(field: &mut Option<String>, value: &str) {
    if field.as_ref().is_none_or(String::is_empty) {
        *field = Some(value.to_owned());
    }
}

/// Sets the number if it is missing or zero, which Kubernetes does not distinguish for plain integers.
fn set_if_zero(field: &mut Option<i32>, value: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(value);
    }
}
