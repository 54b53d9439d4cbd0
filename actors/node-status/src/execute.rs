//! NodeStatus's calls to the API server and the runtime, with their deadlines.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::{CriError, ImageReads, RuntimeConfiguration, wire};
use bridge_kube::{ApiError, NodeObject, Patch};
use bridge_node::host::{FoundAddresses, HostAddresses};
use k8s_openapi::api::core::v1::Node;

use crate::changes::patch;
use crate::images::RuntimeImage;
use crate::registration::reconciled;

/// A resolver that takes longer is not waited for.
const RESOLVE_MAX: Duration = Duration::from_secs(5);

/// The result of a registration.
#[derive(Debug)]
pub struct Registered {
    /// The Node as the API server has it.
    pub node: Node,
    /// Whether there was no Node of this name before.
    pub new: bool,
}

/// Creates the Node, or corrects the existing one.
pub async fn register(api: Arc<dyn NodeObject>, initial: Node) -> Result<Registered, ApiError> {
    match api.create(&initial).await {
        Ok(node) => return Ok(Registered { node, new: true }),
        // A Node that the kubelet may not create may exist all the same.
        Err(error) if error.is_already_exists() || error.is_forbidden() => {}
        Err(error) => return Err(error),
    }
    let name = initial.metadata.name.clone().unwrap_or_default();
    let existing = api.get(&name).await?;
    let node = match reconciled(&initial, &existing) {
        Some(node) => api.patch_status(&name, &Patch::Strategic(patch(&existing, &node))).await?,
        None => existing,
    };
    Ok(Registered { node, new: false })
}

/// The images of the runtime: all, or where no answer holds all, those that the kubelet knows otherwise.
pub async fn images(images: Arc<dyn ImageReads>) -> Result<Vec<RuntimeImage>, CriError> {
    let listed = images.list_all_images(Box::pin(std::future::ready(BTreeSet::<String>::new()))).await?;
    if let Some(error) = listed.too_long().filter(|_| listed.images.is_empty()) {
        // The Node tells more than a kubelet that has just started.
        return Err(error.clone());
    }
    let image = |image: wire::Image| RuntimeImage {
        digests: image.repo_digests,
        tags: image.repo_tags,
        size: image.size,
    };
    Ok(listed.images.into_iter().map(image).collect())
}

/// The machine's addresses; `None` if the resolver does not answer in time.
pub async fn addresses(
    host: Arc<dyn HostAddresses>,
    name: Arc<str>,
    asked: Vec<IpAddr>,
) -> Option<FoundAddresses> {
    let found = tokio::time::timeout(RESOLVE_MAX, host.find(&name, &asked)).await;
    match found {
        Ok(Ok(found)) => Some(found),
        // Without the resolver, the default route and the configured addresses are still known.
        Ok(Err(_)) => None,
        Err(_) => tokio::time::timeout(RESOLVE_MAX, host.find("localhost", &asked)).await.ok()?.ok(),
    }
}

/// Tells the runtime the address range of pods.
pub async fn pod_cidr(runtime: Arc<dyn RuntimeConfiguration>, cidr: String) -> Result<(), CriError> {
    let network_config = Some(wire::NetworkConfig { pod_cidr: cidr });
    let runtime_config = Some(wire::RuntimeConfig { network_config });
    runtime.update_runtime_config(wire::UpdateRuntimeConfigRequest { runtime_config }).await
}
