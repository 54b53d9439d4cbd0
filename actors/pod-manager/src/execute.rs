//! What is done about mirror pods.

use std::sync::Arc;

use bridge_kube::{ApiError, Delete, MirrorObjects};
use k8s_openapi::api::core::v1::Pod;
use messages::PodRef;
use pod_rules::origin::stands_for;

use crate::mirror::{Step, mirror_of};

/// Why a mirror is not as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MirrorError {
    /// The API server says no, or nothing.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// It must have an owner.
    #[error("Node {0} has no UID or is being deleted")]
    NoNode(String),
    /// Another pod has the name.
    #[error("pod {0} is there already, and is no mirror of the static pod")]
    NameTaken(PodRef),
}

/// What a step has led to.
#[derive(Debug)]
pub(crate) enum Done {
    /// This mirror is there now.
    Created(Box<Pod>),
    /// There is none any more.
    Deleted,
}

/// Carries a step out.
pub(crate) async fn mirror(
    api: Arc<dyn MirrorObjects>,
    node: String,
    step: Step,
) -> Result<Done, MirrorError> {
    match step {
        Step::Create(pod) => create(&*api, &node, &pod).await,
        Step::Replace(mirror, pod) => {
            delete(&*api, &mirror, true).await?;
            create(&*api, &node, &pod).await
        }
        Step::Delete(mirror) => delete(&*api, &mirror, false).await.map(|()| Done::Deleted),
    }
}

async fn create(api: &dyn MirrorObjects, node: &str, pod: &Arc<Pod>) -> Result<Done, MirrorError> {
    let owner = api.node(node).await?;
    let mirror = mirror_of(pod, &owner).ok_or_else(|| MirrorError::NoNode(node.to_owned()))?;
    match api.create(&mirror).await {
        Ok(created) => Ok(Done::Created(Box::new(created))),
        Err(error) if error.is_already_exists() => {
            let pod_ref = PodRef::of(pod);
            let there = api.get(&pod_ref.namespace, &pod_ref.name).await?;
            match stands_for(&there, pod) {
                true => Ok(Done::Created(Box::new(there))),
                false => Err(MirrorError::NameTaken(pod_ref)),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Only the very pod if it is to be replaced: its successor may be there already.
async fn delete(api: &dyn MirrorObjects, mirror: &PodRef, only_this: bool) -> Result<(), MirrorError> {
    let uid = only_this.then(|| mirror.uid.to_string());
    let how = Delete { grace_seconds: Some(0), uid };
    match api.delete(&mirror.namespace, &mirror.name, &how).await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
        _ => Ok(()),
    }
}
