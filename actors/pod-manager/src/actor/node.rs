//! The Node, as the API server has it: pods are admitted to it, and mirrors belong to it (row 1.5).

use std::collections::BTreeSet;
use std::time::Duration;

use actix::Handler;
use bridge_kube::ApiError;
use k8s_openapi::api::core::v1::Node;
use messages::PodUid;
use messages::facts::NodeObserved;
use messages::node_status::ResendNode;
use supervision::Ctx;

use super::{PodManager, Timer};

/// Until it has been heard of the Node it is asked for so often.
const ASK_FOR_NODE: Duration = Duration::from_secs(1);
/// How long a Node that is fetched before a refusal is waited for.
const FETCH_DEADLINE: Duration = Duration::from_secs(10);

impl PodManager {
    pub(super) fn ask_for_node(&self, ctx: &mut Ctx<Self>) {
        if let Some(node) = self.deps.node.as_ref().filter(|_| !self.known.node) {
            // Lost: it is asked for again.
            node.tell_level(ResendNode);
            ctx.set_timer(Timer::AskForNode, ASK_FOR_NODE);
        }
    }

    /// Fetches the Node for pods that would be refused for its labels (row 16.2). One call at a time serves all who wait;
    /// who comes while it is under way waits for the next, since the labels may have changed after it began.
    pub(super) fn fetch_node(&mut self, pods: BTreeSet<PodUid>, ctx: &mut Ctx<Self>) {
        let Some(api) = self.deps.api.as_ref().filter(|_| !pods.is_empty() && self.fetching_node.is_none())
        else {
            return;
        };
        self.fetching_node = Some(pods);
        let fetched = api.node_within(&self.deps.config.node.name, FETCH_DEADLINE);
        ctx.effect("fetch Node", None, fetched, Self::fetched_node);
    }

    fn fetched_node(&mut self, node: Result<Node, ApiError>, ctx: &mut Ctx<Self>) {
        match node {
            Ok(node) => self.node = self.deps.config.node.as_observed(Some(&node)),
            // What is known of it decides.
            Err(error) => {
                tracing::warn!(%error, "Node is not to be had before pods are refused for its labels")
            }
        }
        self.known.fetched_for = self.fetching_node.take().unwrap_or_default();
        self.decide(ctx);
        self.known.fetched_for.clear();
    }
}

impl Handler<NodeObserved> for PodManager {
    type Result = ();
    fn handle(&mut self, NodeObserved(node): NodeObserved, ctx: &mut Ctx<Self>) {
        ctx.cancel_timer(&Timer::AskForNode);
        self.known.node = true;
        // Without a Node pods are admitted to the one that is about to be registered.
        self.node = self.deps.config.node.as_observed(node.as_deref());
        let uid = node.and_then(|node| node.metadata.uid.clone());
        let another = uid.is_some() && uid != self.node_uid;
        self.node_uid = uid.or(self.node_uid.take());
        if self.waiting > 0 {
            self.decide(ctx);
        }
        if another {
            // Mirrors that had no owner have one now.
            for name in self.mirrors.retry() {
                ctx.cancel_timer(&Timer::Mirror(name));
            }
            self.mirror(ctx);
        }
    }
}
