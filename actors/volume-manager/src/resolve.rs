//! Finding out what a volume of a pod is made of: a claim leads over the API server to its PersistentVolume.

use k8s_openapi::api::core::v1::{Pod, Volume};

use crate::backends::Backends;
use crate::kinds;
use crate::source::{self, ClaimName, Source, Uses};

/// The source of the volume, read anew: a claim may be bound to another volume than at the last try.
///
/// # Errors
/// Upstream's text: the claim or its volume cannot be had, the pod may not use it in this way, or no kind serves it.
pub(crate) async fn resolve(
    backends: &Backends,
    pod: &Pod,
    volume: &Volume,
    uses: Uses,
) -> Result<Source, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let Some(claim) = source::claim_of(volume, pod) else {
        let source = source::migrated(Source::Inline(Box::new(volume.clone())), namespace)?;
        kinds::serving(&source)?.is_there(backends, &source).await?;
        return Ok(source);
    };
    let of_claim = |error: String| format!("error processing PVC {namespace}/{}: {error}", claim.name);
    let source = match behind(backends, pod, namespace, &claim).await {
        Ok(source) => source,
        Err(Refusal::OfClaim(error)) => return Err(of_claim(error)),
        Err(Refusal::OfOwner(error)) => return Err(error),
    };
    let source = source::migrated(source, namespace)?;
    if let Some(persistent) = source.persistent() {
        source::check_mode(&volume.name, persistent, uses)?;
    }
    kinds::serving(&source)?.is_there(backends, &source).await?;
    Ok(source)
}

enum Refusal {
    /// The claim, or the volume that it is bound to, cannot be had.
    OfClaim(String),
    /// The claim is not the pod's own.
    OfOwner(String),
}

async fn behind(
    backends: &Backends,
    pod: &Pod,
    namespace: &str,
    claim: &ClaimName,
) -> Result<Source, Refusal> {
    let Some(objects) = &backends.volume_objects else {
        return Err(Refusal::OfClaim("this node has no API server to read it from".to_owned()));
    };
    let found = objects.claim(namespace, &claim.name).await;
    let found =
        found.map_err(|error| Refusal::OfClaim(format!("failed to fetch PVC from API server: {error}")))?;
    let name = source::bound_volume(&found).map_err(|error| Refusal::OfClaim(error.to_owned()))?;
    if claim.ephemeral {
        source::check_owner(&found, pod).map_err(Refusal::OfOwner)?;
    }
    let volume = objects.volume(name).await;
    let volume = volume
        .map_err(|error| Refusal::OfClaim(format!("failed to fetch PV {name} from API server: {error}")))?;
    source::behind(&found, volume, claim.read_only).map_err(Refusal::OfClaim)
}
