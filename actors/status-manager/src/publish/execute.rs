//! The calls themselves.

use bridge_kube::{ApiError, Delete, Patch, PodStatuses};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;

use super::queue::{Call, What};

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The pod as it is now.
    Patched(Box<Pod>),
    /// It is deleted, as far as that is ours.
    Deleted,
    /// There is no such pod any more, or another one has its name.
    Gone,
    /// It is to be tried again.
    Failed(ApiError),
}

/// Makes a call.
pub(crate) fn call(api: &dyn PodStatuses, call: Call) -> BoxFuture<'static, Outcome> {
    let namespace = call.namespace.as_str();
    match call.what {
        What::Patch(patch) => {
            let sent = api.patch_status(namespace, &call.name, &Patch::Strategic(patch));
            Box::pin(async move { sent.await.map_or_else(failed, |pod| Outcome::Patched(Box::new(pod))) })
        }
        What::Delete { uid } => {
            let how = Delete { grace_seconds: Some(0), uid: Some(uid) };
            let sent = api.delete(namespace, &call.name, &how);
            Box::pin(async move { sent.await.map_or_else(failed, |()| Outcome::Deleted) })
        }
    }
}

fn failed(error: ApiError) -> Outcome {
    // The server says Conflict, too, when it could not get its turn to write.
    let other_uid = error.is_conflict() && error.message.contains("UID in precondition");
    if error.is_not_found() || other_uid { Outcome::Gone } else { Outcome::Failed(error) }
}
