//! Finding out what a volume of a pod is made of: a claim leads over the API server to its PersistentVolume.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bridge_kube::{Reply, VolumeObjects};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};

use crate::backends::Backends;
use crate::kinds;
use crate::source::{self, ClaimName, Source, Uses};

/// What was read, or why it could not be.
type Found<T> = Result<Arc<T>, String>;

/// The claims of a pod and the PersistentVolumes behind them, as one operation on the pod's volumes reads them: each once,
/// however many volumes of the pod name it.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    claims: Mutex<BTreeMap<String, Found<PersistentVolumeClaim>>>,
    volumes: Mutex<BTreeMap<String, Found<PersistentVolume>>>,
}

impl Claims {
    /// The claim.
    ///
    /// # Errors
    /// Why it cannot be read; it is not asked for again.
    pub(crate) async fn claim(
        &self,
        objects: &dyn VolumeObjects,
        namespace: &str,
        name: &str,
    ) -> Found<PersistentVolumeClaim> {
        once(&self.claims, name, || objects.claim(namespace, name)).await
    }

    async fn volume(&self, objects: &dyn VolumeObjects, name: &str) -> Found<PersistentVolume> {
        once(&self.volumes, name, || objects.volume(name)).await
    }
}

/// Reads the object unless it was read before.
async fn once<T>(
    found: &Mutex<BTreeMap<String, Found<T>>>,
    name: &str,
    read: impl FnOnce() -> Reply<T>,
) -> Found<T> {
    let before = found.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    if let Some(before) = before {
        return before;
    }
    let new = read().await.map(Arc::new).map_err(|error| error.to_string());
    found.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), new.clone());
    new
}

/// The source of the volume, read anew by each operation: a claim may be bound to another volume than at the last try.
///
/// # Errors
/// Upstream's text: the claim or its volume cannot be had, the pod may not use it in this way, or no kind serves it.
pub(crate) async fn resolve(
    backends: &Backends,
    claims: &Claims,
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
    let source = match behind(backends, claims, pod, namespace, &claim).await {
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
    claims: &Claims,
    pod: &Pod,
    namespace: &str,
    claim: &ClaimName,
) -> Result<Source, Refusal> {
    let Some(objects) = &backends.volume_objects else {
        return Err(Refusal::OfClaim("this node has no API server to read it from".to_owned()));
    };
    let found = claims.claim(objects.as_ref(), namespace, &claim.name).await;
    let found =
        found.map_err(|error| Refusal::OfClaim(format!("failed to fetch PVC from API server: {error}")))?;
    let name = source::bound_volume(&found).map_err(|error| Refusal::OfClaim(error.to_owned()))?;
    if claim.ephemeral {
        source::check_owner(&found, pod).map_err(Refusal::OfOwner)?;
    }
    let volume = claims.volume(objects.as_ref(), name).await;
    let volume = volume
        .map_err(|error| Refusal::OfClaim(format!("failed to fetch PV {name} from API server: {error}")))?;
    source::behind(&found, volume, claim.read_only).map_err(Refusal::OfClaim)
}
