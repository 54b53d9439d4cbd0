//! The API's validation of a new v1 Pod, for pods that no API server has validated.
//!
//! It is upstream's of Kubernetes 1.36 with its default feature gates, with these differences: paths always name the
//! field that is wrong, with its index, where upstream leaves one out or misspells it; IP addresses with leading zeros or
//! with IPv4 in IPv6 are refused; and managedFields, which mean nothing without an API server, are not looked at.
//!
//! The pod is expected to be defaulted: a missing value that a default would fill is an error.

mod claims;
mod containers;
mod env;
mod ephemeral;
mod field;
mod metadata;
mod mounts;
mod names;
mod paths;
mod probes;
mod projected;
mod resources;
mod restart;
mod retired_volume_sources;
mod scheduling;
mod security;
mod selectors;
mod spec;
mod volumes;
mod windows;

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

pub use field::{ErrorKind, FieldError};
use field::{Errors, Path, items};

/// The errors of a pod, each with its field's path, kind and value, the first 32 MiB of them; empty when the pod is valid.
pub fn validate_pod(pod: &Pod) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (meta_path, spec_path) = (Path::new("metadata"), Path::new("spec"));
    let missing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&missing);
    metadata::validate(&pod.metadata, &meta_path, &mut errors);
    metadata::pod_annotations(&pod.metadata, spec, &meta_path.child("annotations"), &mut errors);
    spec::validate(spec, &pod.metadata, &spec_path, &mut errors);
    metadata::annotations_match_fields(&pod.metadata, spec, &spec_path, &mut errors);
    if !items(&spec.ephemeral_containers).is_empty() {
        errors.forbidden(&spec_path.child("ephemeralContainers"), "cannot be set on create");
    }
    let node = field::text(&spec.node_name);
    if !node.is_empty() && !items(&spec.scheduling_gates).is_empty() {
        let message = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&spec_path.child("nodeName"), message);
    }
    errors.into_vec()
}
