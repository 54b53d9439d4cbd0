//! From the bytes of a manifest to the pods that PodManager is told of, or to all that is wrong with them.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::PodRef;
use messages::facts::{REFUSAL_BYTES_MAX, SourcePod};
use pod_rules::errors::listed;

use crate::manifests::GoodManifest;
use crate::pod_security::PodSecurity;
use crate::static_pod::{Source, static_pods};
use crate::unsupported::{Supported, refusal};

/// The result of `read`, in which a panic is an error. A manifest that makes the reader panic has no pod yet that could
/// be quarantined: it counts as wrong, and the other manifests are read.
pub(crate) fn contained<T>(
    origin: &str,
    read: impl FnOnce() -> Result<GoodManifest<T>, String>,
) -> Result<GoodManifest<T>, String> {
    supervision::contained(read).unwrap_or_else(|panic| Err(format!("{origin}: cannot be read: {panic}")))
}

/// The node for which manifests are read.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The node's name.
    pub(crate) node: String,
    /// The present time.
    pub(crate) seen: Timestamp,
    /// The standard that every pod has to meet.
    pub(crate) security: PodSecurity,
}

/// The pod of a manifest that holds one, or all that is wrong with it.
pub(crate) fn one_pod(
    source: &Source,
    bytes: &[u8],
    place: &Place,
) -> Result<GoodManifest<SourcePod>, String> {
    let GoodManifest { pods, ignored } = pods_of(source, bytes, place)?;
    let pod = pods.into_iter().next().ok_or_else(|| format!("{}: holds no pod", source.origin()))?;
    Ok(GoodManifest { pods: pod, ignored })
}

/// All pods of a manifest, or what is wrong with the first wrong pod.
pub(crate) fn pods_of(
    source: &Source,
    bytes: &[u8],
    place: &Place,
) -> Result<GoodManifest<Vec<SourcePod>>, String> {
    let decoded = static_pods(bytes, source, &place.node, place.seen).map_err(|error| error.to_string())?;
    for pod in &decoded.pods {
        if let Some(violation) = place.security.violation(pod) {
            let pod = PodRef::of(pod);
            let origin = source.origin();
            return Err(format!("{origin}: pod {}/{}: {violation}", pod.namespace, pod.name));
        }
    }
    if decoded.ignored_documents > 0 {
        tracing::warn!(
            path = source.origin(),
            ignored = decoded.ignored_documents,
            "Only the first document of a manifest is a static pod"
        );
    }
    let fields = &decoded.ignored_fields;
    let named = || listed(format!("{}: ", source.origin()), fields, REFUSAL_BYTES_MAX);
    let ignored = (!fields.is_empty()).then(named);
    Ok(GoodManifest { pods: decoded.pods.into_iter().map(source_pod).collect(), ignored })
}

fn source_pod(pod: Pod) -> SourcePod {
    let refused = refusal(&pod, &Supported::this_version());
    SourcePod { pod: Arc::new(pod), refused, made_anew: None }
}
