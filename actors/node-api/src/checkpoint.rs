//! `/checkpoint`: the runtime writes a running container to a file (row 21.12).

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use bridge_cri::wire::CheckpointContainerRequest;

use crate::containers::{Containers, Named, either, plain};
use crate::logs::has_container;
use crate::routes::json;
use crate::streaming::query_pairs;

/// Has containers written to files in this directory, which no part of the kubelet removes.
pub(crate) fn checkpoint(directory: Arc<FilePath>) -> MethodRouter<Containers> {
    post(
        move |State(containers): State<Containers>, Path(parts): Path<Vec<String>>, request: Request| async move {
            let query = query_pairs(request.uri().query().unwrap_or_default());
            either(checkpointed(&containers, &Named::of(parts), &query, &directory).await)
        },
    )
}

async fn checkpointed(
    containers: &Containers,
    named: &Named,
    query: &[(String, String)],
    directory: &FilePath,
) -> Result<Response, Response> {
    let missing = |text: String| plain(StatusCode::NOT_FOUND, text);
    let Named { namespace, pod, container, .. } = named;
    let desired = containers.pod(named).await?.ok_or_else(|| missing("pod does not exist".to_owned()))?;
    if !has_container(&desired.pod, container) {
        return Err(missing(format!("container {container} does not exist")));
    }
    let timeout =
        query.iter().rev().find(|(key, _)| key == "timeout").map_or(Ok(0), |(_, text)| text.parse());
    let timeout: i64 = timeout.map_err(|_| missing("cannot parse value of timeout parameter".to_owned()))?;
    let failed = |why: String| {
        let text = format!("checkpointing of {namespace}/{pod}/{container} failed ({why})");
        plain(StatusCode::INTERNAL_SERVER_ERROR, text)
    };
    if timeout < 0 {
        return Err(failed("CheckpointContainer requires the timeout value to be > 0".to_owned()));
    }
    let held = containers.held(&desired).await?;
    let newest = held.iter().flat_map(|held| held.instances(container)).next().map(|one| one.id.to_string());
    let container_id = newest.ok_or_else(|| failed(format!("container {container} not found")))?;
    let now = containers.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let file = directory.join(format!("checkpoint-{}-{container}-{now}.tar", named.full_name()));
    let location = file.to_string_lossy().into_owned();
    tracing::info!(pod = named.full_name(), container, location, "A container is checkpointed");
    let request = CheckpointContainerRequest { container_id, location: location.clone(), timeout };
    let done = containers.checkpointing.checkpoint_container(request).await;
    done.map_err(|error| failed(error.status_text()))?;
    Ok(json(&serde_json::json!({ "items": [location] })))
}
