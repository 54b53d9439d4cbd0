//! The calls to the API server.

use bridge_kube::{ApiError, Delete, Patch, PodStatuses};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;

use super::queue::{Call, CallKind};

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Patched: the pod as the API server has it now.
    Patched(Box<Pod>),
    /// Deleted, or marked for deletion until its finalizers have run.
    Deleted,
    /// There is no such pod any more, or another pod has its name.
    Gone,
    /// The call failed and is to be tried again.
    Failed(ApiError),
}

/// Makes a call to the API server.
pub(crate) fn call(api: &dyn PodStatuses, call: Call) -> BoxFuture<'static, Outcome> {
    let namespace = call.namespace.as_str();
    match call.what {
        CallKind::Patch(patch) => {
            let sent = api.patch_status(namespace, &call.name, &Patch::Strategic(patch));
            Box::pin(async move { sent.await.map_or_else(failed, |pod| Outcome::Patched(Box::new(pod))) })
        }
        CallKind::Delete { uid } => {
            let how = Delete { grace_seconds: Some(0), uid: Some(uid) };
            let sent = api.delete(namespace, &call.name, &how);
            Box::pin(async move { sent.await.map_or_else(failed, |()| Outcome::Deleted) })
        }
    }
}

fn failed(error: ApiError) -> Outcome {
    // The server says Conflict also when concurrent writes kept it from writing.
    let other_uid = error.is_conflict() && error.message.contains("UID in precondition");
    if error.is_not_found() || other_uid { Outcome::Gone } else { Outcome::Failed(error) }
}
