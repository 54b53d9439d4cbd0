//! Posts events to the API server.

use std::sync::Arc;

use bridge_kube::{ApiError, Events, Patch};

use crate::post::{EventWrite, Sent};

/// Posts an event. If the server no longer has the event to update, it is created anew.
pub(crate) async fn send(api: Arc<dyn Events>, post: EventWrite) -> Sent {
    let outcome = match &post.change {
        None => api.create(&post.event).await,
        Some(change) => {
            let metadata = &post.event.metadata;
            let name = metadata.name.as_deref().unwrap_or_default();
            let patch = Patch::Strategic(change.clone());
            match api.patch(metadata.namespace.as_deref(), name, &patch).await {
                Err(error) if error.is_not_found() => api.create(&post.event).await,
                outcome => outcome,
            }
        }
    };
    outcome.map_or_else(|error| failed(&error), |_| Sent::Taken)
}

fn failed(error: &ApiError) -> Sent {
    match error {
        // An earlier try arrived, and its answer was lost.
        error if error.is_already_exists() => Sent::Taken,
        // The client has come again as often as the server asked it to: a limit of the event's namespace is no reason for the
        // events of others to wait.
        error if error.is_transient() && error.code != 429 => {
            tracing::debug!(%error, "Event is not at the API server yet");
            Sent::Unanswered
        }
        error => {
            tracing::warn!(%error, "Server rejected event");
            Sent::Refused
        }
    }
}
