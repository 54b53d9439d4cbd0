//! The Node, as the API server has it: pods are admitted to it, and mirrors belong to it (row 1.5).

use std::time::Duration;

use actix::Handler;
use messages::facts::NodeObserved;
use messages::node_status::ResendNode;
use supervision::Ctx;

use super::{PodManager, Timer};

/// Until it has been heard of the Node it is asked for so often.
const ASK_FOR_NODE: Duration = Duration::from_secs(1);

impl PodManager {
    pub(super) fn ask_for_node(&self, ctx: &mut Ctx<Self>) {
        if let Some(node) = self.deps.node.as_ref().filter(|_| !self.known.node) {
            // Refused or lost: it is asked for again.
            let _ = node.tell(ResendNode);
            ctx.set_timer(Timer::AskForNode, ASK_FOR_NODE);
        }
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
