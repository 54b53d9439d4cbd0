//! The message to the cluster of a kubelet that ends by a failure of its own.

use std::sync::Arc;
use std::time::Duration;

use bridge_io::clock::Clock;
use bridge_kube::{ApiError, NodeObject, Patch};
use messages::node_status::PostNotReady;
use pod_rules::conditions;
use pod_rules::reasons::KUBELET_NOT_READY;
use serde_json::json;
use supervision::{AskPort, Failure, Outside};
use tokio::time::{Instant, timeout};

/// How long the kubelet's end is delayed for that message.
pub const NOT_READY_WITHIN: Duration = Duration::from_secs(2);

/// The two ways to write the Node's Ready condition.
#[derive(Clone)]
pub struct LastWords {
    pub(super) status: AskPort<Outside, PostNotReady>,
    pub(super) heartbeat: Arc<dyn NodeObject>,
    pub(super) node_name: String,
    pub(super) clock: Arc<dyn Clock>,
}

impl LastWords {
    /// Sets the Node's Ready condition to false because of this failure, within a bounded time, so that the cluster
    /// need not wait until the lease has run out. NodeStatus writes the condition; if NodeStatus has failed itself, cannot write
    /// it, or does not answer for half of that time, the condition is written without it.
    pub async fn not_ready(&self, failure: &Failure) {
        let why: Arc<str> = Arc::from(format!("subsystem {} has failed: {}", failure.actor, failure.reason));
        let end = Instant::now() + NOT_READY_WITHIN;
        if self.status.ask(PostNotReady { why: why.clone() }, NOT_READY_WITHIN / 2).await == Ok(true) {
            return;
        }
        match timeout(end.saturating_duration_since(Instant::now()), self.write(&why)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "The Node could not be written not ready"),
            Err(_) => tracing::warn!("The Node could not be written not ready in time"),
        }
    }

    async fn write(&self, why: &str) -> Result<(), ApiError> {
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ready = json!({
            "type": conditions::READY, "status": conditions::status(false), "reason": KUBELET_NOT_READY, "message": why,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        // Conditions are merged by type, so the others stay.
        let patch = Patch::Strategic(json!({ "status": { "conditions": [ready] } }));
        self.heartbeat.patch_status(&self.node_name, &patch).await.map(drop)
    }
}
