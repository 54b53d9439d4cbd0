//! Posts the status: computed from the last known Node, and after a failure from the Node read anew.

use bridge_kube::{ApiError, Patch};
use k8s_openapi::api::core::v1::Node;
use messages::event_recorder::EventType;
use pod_rules::conditions::READY;
use supervision::Ctx;
use tokio::time::Instant;

use super::NodeStatus;
use crate::cadence::tries_max;
use crate::changes::{changed, patch};
use crate::status::{Updated, updated};

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == READY && condition.status == "True")
}

impl NodeStatus {
    /// Computes the status, and posts it if it has changed or is due.
    pub(super) fn update(&mut self, ctx: &mut Ctx<Self>) {
        if !self.looked || self.registering || (self.deps.config.register && !self.registered) {
            self.over();
            return;
        }
        if !self.heard_of_runtime && self.failed.is_none() {
            // Until the runtime's health is known, the status posted last is nearer the truth than an unknown health.
            return;
        }
        if self.posting {
            self.again = true;
            return;
        }
        self.tries = 0;
        self.post(ctx);
    }

    fn post(&mut self, ctx: &mut Ctx<Self>) {
        let Some(before) = self.node.clone() else {
            self.read(ctx);
            return;
        };
        let made = updated(&before, &self.deps.config, &self.known());
        self.tell_addresses(&made.node, ctx);
        for problem in &made.problems {
            tracing::warn!(problem, "Failed to set some node status fields");
        }
        let news = changed(&before, &made.node);
        if !self.reports.due(news, self.posted_at.map(|at| at.elapsed())) {
            self.posting = false;
            self.over();
            return;
        }
        self.posting = true;
        let patch = Patch::Strategic(patch(&before, &made.node));
        let work = self.deps.node.patch_status(&self.deps.config.name, &patch);
        ctx.effect("post", None, work, move |actor, answer, ctx| actor.posted(answer, news, &made, ctx));
    }

    fn posted(&mut self, answer: Result<Node, ApiError>, news: bool, made: &Updated, ctx: &mut Ctx<Self>) {
        match answer {
            Ok(node) => {
                self.posting = false;
                self.problem = None;
                self.postings += 1;
                self.posted_at = Some(Instant::now());
                self.reports.posted(news, self.deps.clock.random_u64());
                made.events.iter().for_each(|event| self.status_event(event));
                if made.rebooted && !std::mem::replace(&mut self.told_of_reboot, true) {
                    let config = &self.deps.config;
                    let boot = &config.machine.boot_id;
                    let text = format!("Node {} has been rebooted, boot id: {boot}", config.name);
                    self.event(EventType::Warning, "Rebooted", text);
                }
                if is_ready(&node) {
                    self.deps.metrics.ready(self.deps.clock.now());
                }
                self.learn(node, ctx);
                self.tell_runtime(ctx);
                if std::mem::take(&mut self.again) {
                    self.update(ctx);
                } else {
                    self.over();
                }
            }
            Err(error) => self.failed_to_post(&error, ctx),
        }
    }

    fn failed_to_post(&mut self, error: &ApiError, ctx: &mut Ctx<Self>) {
        self.trouble("Error updating node status, will retry", error);
        if error.is_not_found() {
            self.posting = false;
            self.lost(ctx);
            self.over();
            return;
        }
        if self.tries > 0 {
            // After two failures in a row the connection may be dead (row 20.1).
            self.deps.node.redial();
        }
        self.tries += 1;
        if self.tries < tries_max(error.is_transient()) {
            self.read(ctx);
        } else {
            tracing::error!("Unable to update node status: update node status exceeds retry count");
            self.posting = false;
            self.again = false;
            self.over();
        }
    }

    fn read(&mut self, ctx: &mut Ctx<Self>) {
        self.posting = true;
        let work = self.deps.node.get(&self.deps.config.name);
        ctx.effect("read", None, work, |actor, answer, ctx| match answer {
            Ok(node) => {
                actor.problem = None;
                actor.learn(node, ctx);
                actor.post(ctx);
            }
            Err(error) => actor.failed_to_post(&error, ctx),
        });
    }

    /// Answers the ask for the last status: nothing more is posted for now.
    fn over(&mut self) {
        if let Some(last) = self.last.take() {
            last.send(self.node.as_ref().is_some_and(|node| !is_ready(node)));
        }
    }
}
