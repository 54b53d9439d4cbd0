//! The source of a pod: static pods come from a file, a URL or a submission, and mirror pods stand for them at the API
//! server.

use k8s_openapi::api::core::v1::Pod;
use messages::facts::Source;

use crate::annotations::{CONFIG_HASH, CONFIG_MIRROR, CONFIG_SOURCE, annotation};

/// Whether pods of this source are static: the kubelet reads them from a manifest, not from the API server.
pub fn is_static(source: Source) -> bool {
    source != Source::Api
}

/// The source in the pod's annotation [`CONFIG_SOURCE`]; `None` if it is absent or unknown.
pub fn annotated_source(pod: &Pod) -> Option<Source> {
    annotation(pod, CONFIG_SOURCE).and_then(Source::from_annotation)
}

/// Whether a pod of the API server is a mirror pod.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, CONFIG_MIRROR).is_some()
}

/// Whether a mirror pod stands for just this version of a static pod.
pub fn stands_for(mirror: &Pod, pod: &Pod) -> bool {
    annotation(mirror, CONFIG_MIRROR) == annotation(pod, CONFIG_HASH)
}
