//! From a manifest to a static pod: identity, node and annotations of a pod that no API server has seen (rows 1.2
//! and 1.3).

mod identity;
mod references;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus, Toleration};
use messages::facts::REFUSAL_BYTES_MAX;
use pod_rules::annotations::{CONFIG_HASH, CONFIG_SOURCE};
use pod_rules::errors::listed;
use pod_rules::phases::PENDING;
use pod_rules::taints::NO_EXECUTE;

pub use identity::uid_of;
pub use references::api_reference;

use crate::decode::{self, DecodeError, Decoded};
use crate::default::with_defaults;
use crate::validate::{FieldError, validate_pod};

/// Annotation with the time at which the kubelet first saw the pod, RFC 3339.
pub const CONFIG_SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";

/// Where a manifest comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A file, by its path.
    File(String),
    /// A manifest URL.
    Http(String),
    /// A submission to the kubelet's server, by the words that errors name it with.
    Submission(String),
}

impl Source {
    /// The value of [`CONFIG_SOURCE`].
    pub fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => messages::facts::Source::File.as_str(),
            Self::Http(_) => messages::facts::Source::Http.as_str(),
            Self::Submission(_) => messages::facts::Source::Submission.as_str(),
        }
    }

    /// The path, the URL, or the words for a submission.
    pub fn origin(&self) -> &str {
        match self {
            Self::File(origin) | Self::Http(origin) | Self::Submission(origin) => origin,
        }
    }
}

/// Why a manifest gives no static pod.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ManifestError {
    /// The bytes are no Pod manifest.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A pod has no name.
    #[error("{origin}: invalid pod: name is needed for the pod")]
    Nameless {
        /// File or URL.
        origin: String,
    },
    /// Fields that Kubernetes' API does not allow.
    #[error("{origin}: pod {pod}: {}", listed(String::new(), errors, REFUSAL_BYTES_MAX))]
    Invalid {
        /// File or URL.
        origin: String,
        /// The pod, `namespace/name`.
        pod: String,
        /// All errors, in the order of the fields.
        errors: Vec<FieldError>,
    },
    /// The pod needs an object that only an API server has.
    #[error("{origin}: pod {pod}: static pods may not reference {resource}")]
    ApiReference {
        /// File or URL.
        origin: String,
        /// The pod, `namespace/name`.
        pod: String,
        /// The kind of the object, in upstream's words.
        resource: String,
    },
}

/// The static pods of one manifest, complete and valid, and the number of further YAML documents, which do not count.
///
/// `node` is the node's name and `seen` the present time. A manifest is taken whole or not at all.
///
/// # Errors
/// The first pod that is wrong.
pub fn static_pods(
    bytes: &[u8],
    source: &Source,
    node: &str,
    seen: Timestamp,
) -> Result<Decoded, ManifestError> {
    let origin = source.origin();
    let mut decoded = match source {
        Source::File(_) | Source::Submission(_) => decode::decode_pod(origin, bytes)?,
        Source::Http(_) => decode::decode_pods(origin, bytes)?,
    };
    let pods = std::mem::take(&mut decoded.pods)
        .into_iter()
        .map(|pod| static_pod(pod, source, node, seen))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Decoded { pods, ..decoded })
}

/// Completes one decoded pod, places it on `node` and validates it.
pub fn static_pod(pod: Pod, source: &Source, node: &str, seen: Timestamp) -> Result<Pod, ManifestError> {
    let origin = || source.origin().to_owned();
    if pod.metadata.name.as_ref().is_none_or(String::is_empty) {
        return Err(ManifestError::Nameless { origin: origin() });
    }
    let pod = placed(with_defaults(pod), source, node, seen);
    let full_name = format!(
        "{}/{}",
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default()
    );
    let errors = validate_pod(&pod);
    if !errors.is_empty() {
        return Err(ManifestError::Invalid { origin: origin(), pod: full_name, errors });
    }
    match api_reference(&pod) {
        Some(resource) => Err(ManifestError::ApiReference { origin: origin(), pod: full_name, resource }),
        None => Ok(pod),
    }
}

/// Gives a defaulted pod its identity and its node. The UID is computed first, from the manifest alone.
#[must_use]
pub fn placed(mut pod: Pod, source: &Source, node: &str, seen: Timestamp) -> Pod {
    let given = pod.metadata.uid.take().filter(|uid| !uid.is_empty());
    let uid = given.unwrap_or_else(|| uid_of(&pod, source, node));
    let metadata = &mut pod.metadata;
    let name = metadata.name.take().unwrap_or_default();
    metadata.name = Some(format!("{name}-{}", node.to_lowercase()));
    if metadata.namespace.as_ref().is_none_or(String::is_empty) {
        metadata.namespace = Some("default".to_owned());
    }
    let annotations = metadata.annotations.get_or_insert_with(BTreeMap::new);
    annotations.insert(CONFIG_HASH.to_owned(), uid.clone());
    annotations.insert(CONFIG_SOURCE.to_owned(), source.kind().to_owned());
    annotations.insert(CONFIG_SEEN_ANNOTATION.to_owned(), seen.to_string());
    metadata.uid = Some(uid);
    metadata.managed_fields = None;
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    if matches!(source, Source::File(_)) {
        tolerate_everything(spec.tolerations.get_or_insert_default());
    }
    pod.status = Some(PodStatus { phase: Some(PENDING.to_owned()), ..PodStatus::default() });
    pod
}

/// A static pod from a file tolerates every taint with effect NoExecute: it may be needed to repair the node.
fn tolerate_everything(tolerations: &mut Vec<Toleration>) {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let same = |other: &Toleration| {
        text(&other.key).is_empty()
            && text(&other.value).is_empty()
            && other.operator.as_deref() == Some("Exists")
            && other.effect.as_deref() == Some(NO_EXECUTE)
    };
    match tolerations.iter_mut().find(|other| same(other)) {
        Some(other) => other.toleration_seconds = None,
        None => tolerations.push(Toleration {
            operator: Some("Exists".to_owned()),
            effect: Some(NO_EXECUTE.to_owned()),
            ..Toleration::default()
        }),
    }
}
