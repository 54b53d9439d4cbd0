//! The calls to the API server about mirror pods.

use std::sync::Arc;

use bridge_kube::{Delete, MirrorObjects};
use k8s_openapi::api::core::v1::Pod;
use messages::PodRef;
use pod_rules::origin::stands_for;

use crate::mirror::{MirrorError, Step, mirror_of};

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Done {
    /// This mirror pod exists now.
    Created(Box<Pod>),
    /// This mirror pod is gone.
    Deleted(PodRef),
}

/// Carries out one step.
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
        Step::Delete(mirror) => delete(&*api, &mirror, false).await.map(|()| Done::Deleted(mirror)),
    }
}

async fn create(api: &dyn MirrorObjects, node: &str, pod: &Arc<Pod>) -> Result<Done, MirrorError> {
    let no_node = || MirrorError::NoNode(node.to_owned());
    let owner =
        api.node(node).await.map_err(|error| if error.is_not_found() { no_node() } else { error.into() })?;
    let mirror = mirror_of(pod, &owner).ok_or_else(no_node)?;
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

/// Deletes a mirror; with `only_this` only the pod of this UID, since its successor may be there already.
async fn delete(api: &dyn MirrorObjects, mirror: &PodRef, only_this: bool) -> Result<(), MirrorError> {
    let uid = only_this.then(|| mirror.uid.to_string());
    let how = Delete { grace_seconds: Some(0), uid };
    match api.delete(&mirror.namespace, &mirror.name, &how).await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
        _ => Ok(()),
    }
}
