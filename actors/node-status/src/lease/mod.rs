//! Lease: shows the cluster that the node lives. It has a connection of its own, so that no other call delays it.

mod execute;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_io::clock::Clock;
use bridge_kube::Leases;
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use messages::facts::NodeObserved;
use messages::node_status::{ResendNode, lease};
use supervision::{Address, Ctx, Subsystem};

use self::execute::{Renewal, Round};
use crate::cadence::{jittered, lease_wait};

/// The lease's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// The Node's name, which is also the name of the lease and of its holder.
    pub node: String,
    /// `nodeLeaseDurationSeconds`; the lease is renewed four times as often.
    pub duration_seconds: i32,
}

impl LeaseConfig {
    /// Period of renewals.
    pub fn every(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.duration_seconds).unwrap_or(0)) / 4
    }
}

/// Lease's configuration, effects and address.
#[derive(Clone)]
pub struct LeaseDeps {
    /// Configuration.
    pub config: Arc<LeaseConfig>,
    /// Reads and writes the lease, on a connection without other calls.
    pub heartbeat: Arc<dyn Leases>,
    /// Wall time and randomness.
    pub clock: Arc<dyn Clock>,
    /// NodeStatus, asked for the Node.
    pub node: Address<ResendNode>,
}

/// Lease's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseTimer {
    /// Renew the lease.
    Renew,
}

/// Lease: renews the node's lease.
pub struct Lease {
    deps: LeaseDeps,
    owner: Option<String>,
    latest: Option<LeaseObject>,
    renewing: bool,
    failures: u32,
    renewals: u64,
    problem: Option<String>,
}

impl Lease {
    /// An incarnation that has seen no lease.
    pub fn new(deps: LeaseDeps) -> Self {
        Self { deps, owner: None, latest: None, renewing: false, failures: 0, renewals: 0, problem: None }
    }

    fn renew(&mut self, ctx: &mut Ctx<Self>) {
        if std::mem::replace(&mut self.renewing, true) {
            return;
        }
        let renewal = Renewal {
            api: self.deps.heartbeat.clone(),
            clock: self.deps.clock.clone(),
            config: self.deps.config.clone(),
            owner: self.owner.clone(),
        };
        ctx.effect("renew", None, renewal.round(self.latest.take()), Self::renewed);
    }

    fn renewed(&mut self, round: Round, ctx: &mut Ctx<Self>) {
        self.renewing = false;
        let mut wait = jittered(self.deps.config.every(), self.deps.clock.random_u64());
        self.problem = None;
        match round {
            Round::Renewed(lease) => {
                self.latest = Some(*lease);
                self.failures = 0;
                self.renewals += 1;
            }
            // The Node's UID has become known meanwhile.
            Round::WithoutNode if self.owner.is_some() => wait = Duration::ZERO,
            Round::WithoutNode => {
                self.failures = 0;
                self.deps.node.tell_level(ResendNode { receiver: Self::NAME });
            }
            Round::NotRenewed(error) => {
                tracing::warn!(%error, "Will retry updating lease");
                self.problem = Some(error.to_string());
            }
            Round::NotFound(error) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures > 1 {
                    self.deps.heartbeat.redial();
                }
                wait = lease_wait(self.failures);
                tracing::warn!(%error, retry_ms = wait.as_millis(), "Failed to ensure lease exists, will retry");
                self.problem = Some(error.to_string());
            }
        }
        ctx.set_timer(LeaseTimer::Renew, wait);
    }
}

impl Actor for Lease {
    type Context = Ctx<Self>;
}

impl Subsystem for Lease {
    const NAME: &'static str = lease::RECEIVER;
    type Timer = LeaseTimer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.deps.node.tell_level(ResendNode { receiver: Self::NAME });
        self.renew(ctx);
    }

    fn on_timer(&mut self, timer: LeaseTimer, ctx: &mut Ctx<Self>) {
        match timer {
            LeaseTimer::Renew => self.renew(ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "renewals": self.renewals,
            "nodeKnown": self.owner.is_some(),
            "problem": self.problem,
        })
    }
}

impl Handler<NodeObserved> for Lease {
    type Result = ();
    fn handle(&mut self, NodeObserved(node): NodeObserved, ctx: &mut Ctx<Self>) {
        // Without a Node the lease is still renewed: the node lives.
        let uid = node.and_then(|node| node.metadata.uid.clone());
        let another = uid.is_some() && uid != self.owner;
        self.owner = uid.or(self.owner.take());
        // The garbage collector of the cluster deletes a lease that belongs to an earlier Node together with it.
        if another {
            self.renew(ctx);
        }
    }
}
