//! Where a pod comes from: static pods are those of a file or URL, and mirrors stand for them at the API server.

use k8s_openapi::api::core::v1::Pod;
use messages::facts::Source;

use crate::annotations::{CONFIG_HASH, CONFIG_MIRROR, CONFIG_SOURCE, annotation};

/// Whether pods of this source are static: the kubelet has them from a manifest, and not from the API server.
pub fn is_static(source: Source) -> bool {
    source != Source::Api
}

/// The source that a pod's annotation names.
pub fn annotated_source(pod: &Pod) -> Option<Source> {
    annotation(pod, CONFIG_SOURCE).and_then(Source::from_annotation)
}

/// Whether a pod of the API server stands for a static pod.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, CONFIG_MIRROR).is_some()
}

/// Whether a pod of the API server is the mirror of just this static pod, in this version.
pub fn stands_for(mirror: &Pod, pod: &Pod) -> bool {
    annotation(mirror, CONFIG_MIRROR) == annotation(pod, CONFIG_HASH)
}
