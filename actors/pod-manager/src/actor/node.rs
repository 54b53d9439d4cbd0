//! The Node of the API server: pods are admitted to it, and mirror pods belong to it (row 1.5).

use std::collections::BTreeSet;
use std::time::Duration;

use actix::Handler;
use bridge_kube::ApiError;
use k8s_openapi::api::core::v1::Node;
use messages::PodUid;
use messages::facts::{NodeObserved, NodeResourcesConfigured};
use messages::node_status::ResendNode;
use supervision::{Ctx, Subsystem};

use super::{PodManager, Timer};

/// How often NodeStatus is asked for the Node until it has sent it.
const ASK_FOR_NODE: Duration = Duration::from_secs(1);
/// The deadline for fetching the Node before a pod is refused for its labels.
const FETCH_DEADLINE: Duration = Duration::from_secs(10);

impl PodManager {
    pub(super) fn ask_for_node(&self, ctx: &mut Ctx<Self>) {
        if let Some(node) = self.deps.node.as_ref().filter(|_| !self.known.node) {
            // Lost: it is asked for again.
            node.tell_level(ResendNode { receiver: Self::NAME });
            ctx.set_timer(Timer::AskForNode, ASK_FOR_NODE);
        }
    }

    /// Fetches the Node for pods that would be refused for its labels (row 16.2). One call at a time serves
    /// all pods that wait; a pod that comes while it is under way waits for the next call, since the labels
    /// may have changed after it began.
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
            // The Node as it was known before decides.
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
        // Without a Node at the API server, pods are admitted to the one that this kubelet is about to
        // register.
        let view = self.deps.config.node.as_observed(node.as_deref());
        let is_news = !std::mem::replace(&mut self.known.node, true)
            || (&view.labels, &view.taints) != (&self.node.labels, &self.node.taints);
        self.node = view;
        let uid = node.and_then(|node| node.metadata.uid.clone());
        let another = uid.is_some() && uid != self.node_uid;
        self.node_uid = uid.or(self.node_uid.take());
        if is_news && self.waiting > 0 {
            self.decide(ctx);
        }
        if another {
            // Mirror pods that failed for want of an owner can have one now.
            for name in self.mirrors.retry() {
                ctx.cancel_timer(&Timer::Mirror(name));
            }
            self.mirror(ctx);
        }
    }
}

impl Handler<NodeResourcesConfigured> for PodManager {
    type Result = ();
    fn handle(&mut self, configured: NodeResourcesConfigured, ctx: &mut Ctx<Self>) {
        let resources = configured.settings;
        if self.node.resources == resources {
            return;
        }
        self.deps.config.node.set_resources(&resources);
        self.node.set_resources(&resources);
        // Pods that were admitted or refused are not judged again.
        if self.waiting > 0 {
            self.decide(ctx);
        }
    }
}
