//! The actor: registers the Node, follows it, and posts its status.

mod handlers;
mod posting;

use std::sync::Arc;
use std::time::Duration;

use actix::Actor;
use bridge_cri::{CriError, ImageReads, RuntimeConfiguration};
use bridge_io::clock::Clock;
use bridge_kube::{ApiError, Follow, Followed, NodeObject, Select};
use bridge_node::host::{FoundAddresses, HostAddresses};
use k8s_openapi::api::core::v1::{ContainerImage, Node};
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::eviction_manager::ResendPressure;
use messages::facts::{
    CsiDriversObserved, NodeAddressesObserved, NodeObserved, OtherVolumesObserved, Pressure,
};
use messages::node_status::{self, SubsystemsReported};
use messages::pleg::ResendObserved;
use pod_rules::versions::version;
use pod_set::Level;
use supervision::{Address, Ctx, Reply, Subsystem};
use tokio::time::Instant;

use crate::NodeStatusConfig;
use crate::cadence::{Reports, jittered, registration_wait};
use crate::conditions::RuntimeState;
use crate::execute::Registered;
use crate::images::{RuntimeImage, listed};
use crate::metrics::NodeStatusMetrics;
use crate::status::NodeInput;
use crate::{execute, registration};

/// Period of asking the runtime for its images.
const IMAGES_EVERY: Duration = Duration::from_secs(30);
/// A new incarnation that has not heard of the runtime's health leaves the Node as it is for so long.
const HEALTH_WAIT: Duration = Duration::from_secs(10);

/// NodeStatus's configuration, effects and addresses.
#[derive(Clone)]
pub struct NodeStatusDeps {
    /// Configuration.
    pub config: Arc<NodeStatusConfig>,
    /// Registers the Node and posts its status.
    pub node: Arc<dyn NodeObject>,
    /// Follows the Node.
    pub node_watch: Arc<dyn Follow<Node>>,
    /// Lists the runtime's images.
    pub images: Arc<dyn ImageReads>,
    /// Tells the runtime the address range of pods.
    pub runtime_configuration: Arc<dyn RuntimeConfiguration>,
    /// Finds the machine's addresses.
    pub addresses: Arc<dyn HostAddresses>,
    /// Wall time and randomness.
    pub clock: Arc<dyn Clock>,
    /// The actors that are told of the Node.
    pub observers: Vec<Address<NodeObserved>>,
    /// The actors that are told of the node's addresses.
    pub address_observers: Vec<Address<NodeAddressesObserved>>,
    /// Pleg, asked for the runtime's health after a start.
    pub observed: Address<ResendObserved>,
    /// EvictionManager, asked for the node's pressure after a start.
    pub pressure: Address<ResendPressure>,
    /// ConfigManager, asked after a restart for settings that have changed.
    pub configuration: Address<ResendConfiguration>,
    /// EventRecorder.
    pub events: Address<RecordEvent>,
    /// Metrics, which outlive the incarnation.
    pub metrics: NodeStatusMetrics,
}

/// NodeStatus's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Try to register.
    Register,
    /// Compute the status, and post it if it has changed or is due.
    Update,
    /// Ask the runtime for its images.
    Images,
    /// Tell the Node again.
    TellNode,
    /// Tell its addresses again.
    TellAddresses,
}

/// NodeStatus: registers the Node and keeps its status current.
pub struct NodeStatus {
    deps: NodeStatusDeps,
    began: Instant,
    /// The Node as the API server has it, as far as is known.
    node: Option<Arc<Node>>,
    /// The Node as its observers are told of it.
    told: Level<NodeObserved, Timer>,
    addresses: Level<NodeAddressesObserved, Timer>,
    /// Whether this incarnation has created the Node, or has found it and corrected it.
    registered: bool,
    registering: bool,
    failures: u32,
    heard_of_runtime: bool,
    runtime: RuntimeState,
    images: Option<Vec<ContainerImage>>,
    /// Whether the machine's addresses have been looked for.
    looked: bool,
    looking: bool,
    found: Option<FoundAddresses>,
    /// The node's pressure; `None` until EvictionManager has told it.
    pressure: Option<Pressure>,
    volumes: Option<OtherVolumesObserved>,
    drivers: CsiDriversObserved,
    degraded: SubsystemsReported,
    failed: Option<Arc<str>>,
    /// The ask that waits until the last status is posted.
    last: Option<Reply<bool>>,
    posting: bool,
    again: bool,
    tries: u32,
    reports: Reports,
    posted_at: Option<Instant>,
    postings: u64,
    told_of_reboot: bool,
    unschedulable: bool,
    cidr: String,
    cidr_changing: bool,
    problem: Option<String>,
}

impl NodeStatus {
    /// An incarnation without facts.
    pub fn new(deps: NodeStatusDeps) -> Self {
        let reports = Reports::new(deps.config.report);
        Self {
            told: Level::new(deps.observers.iter().cloned(), Timer::TellNode),
            addresses: Level::new(deps.address_observers.iter().cloned(), Timer::TellAddresses),
            deps,
            began: Instant::now(),
            node: None,
            registered: false,
            registering: false,
            failures: 0,
            heard_of_runtime: false,
            runtime: RuntimeState::default(),
            images: None,
            looked: false,
            looking: false,
            found: None,
            pressure: None,
            volumes: None,
            drivers: CsiDriversObserved::default(),
            degraded: SubsystemsReported::default(),
            failed: None,
            last: None,
            posting: false,
            again: false,
            tries: 0,
            reports,
            posted_at: None,
            postings: 0,
            told_of_reboot: false,
            unschedulable: false,
            cidr: String::new(),
            cidr_changing: false,
            problem: None,
        }
    }

    fn known(&self) -> NodeInput<'_> {
        NodeInput {
            now: self.deps.clock.now(),
            elapsed: self.began.elapsed(),
            runtime: &self.runtime,
            images: self.images.as_deref(),
            found: self.found.as_ref(),
            pressure: self.pressure,
            volumes: self.volumes.as_ref(),
            drivers: &self.drivers,
            degraded: &self.degraded.0,
            failed: self.failed.as_deref(),
        }
    }

    fn event(&self, event_type: EventType, reason: &str, message: String) {
        // A full recorder counts what it drops.
        self.deps.events.tell_or_count(RecordEvent {
            object: EventObject::Node,
            event_type,
            reason: Arc::from(reason),
            message: Arc::from(message),
        });
    }

    fn status_event(&self, event: &str) {
        self.event(
            EventType::Normal,
            event,
            format!("Node {} status is now: {event}", self.deps.config.name),
        );
    }

    fn trouble(&mut self, what: &'static str, error: &ApiError) {
        tracing::warn!(%error, node = %self.deps.config.name, "{what}");
        self.problem = Some(error.to_string());
    }

    // ---- the machine's addresses ----

    fn look(&mut self, ctx: &mut Ctx<Self>) {
        if std::mem::replace(&mut self.looking, true) {
            return;
        }
        let config = &self.deps.config;
        let work =
            execute::addresses(self.deps.addresses.clone(), config.name.clone(), config.node_ips.clone());
        ctx.effect("addresses", None, work, |actor, found, ctx| {
            actor.looking = false;
            actor.found = found.or(actor.found.take());
            if !std::mem::replace(&mut actor.looked, true) {
                // Pods' status needs the addresses before there is a Node.
                if actor.node.is_none() {
                    let made = registration::initial(&actor.deps.config, &actor.known());
                    actor.tell_addresses(&made.node, ctx);
                }
                actor.register(ctx);
                actor.update(ctx);
            }
        });
    }

    fn list_images(&mut self, ctx: &mut Ctx<Self>) {
        ctx.effect("images", None, execute::images(self.deps.images.clone()), Self::images_listed);
    }

    fn images_listed(&mut self, images: Result<Vec<RuntimeImage>, CriError>, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Images, IMAGES_EVERY);
        match images {
            Ok(images) => self.images = Some(listed(images, self.deps.config.images_max)),
            Err(error) => tracing::debug!(%error, "Images are not known; the Node keeps those it has"),
        }
    }

    // ---- the Node ----

    fn register(&mut self, ctx: &mut Ctx<Self>) {
        if !self.deps.config.register || self.registered || self.registering || !self.looked {
            return;
        }
        self.registering = true;
        ctx.set_timer(Timer::Register, registration_wait(self.failures));
    }

    fn try_to_register(&mut self, ctx: &mut Ctx<Self>) {
        let made = registration::initial(&self.deps.config, &self.known());
        self.deps.metrics.tried(self.deps.clock.now());
        tracing::info!(node = %self.deps.config.name, "Attempting to register node");
        self.tell_addresses(&made.node, ctx);
        let work = execute::register(self.deps.node.clone(), made.node);
        ctx.effect("register", None, work, move |actor, answer, ctx| {
            actor.registering = false;
            match answer {
                Ok(Registered { node, new }) => {
                    tracing::info!(node = %actor.deps.config.name, new, "Successfully registered node");
                    actor.registered = true;
                    actor.failures = 0;
                    actor.problem = None;
                    if new {
                        actor.deps.metrics.registered(actor.deps.clock.now());
                        made.events.iter().for_each(|event| actor.status_event(event));
                    }
                    actor.learn(node, ctx);
                    actor.update(ctx);
                }
                Err(error) => {
                    actor.trouble("Unable to register node with API server", &error);
                    if actor.failures > 0 {
                        actor.deps.node.redial();
                    }
                    actor.failures = actor.failures.saturating_add(1);
                    actor.register(ctx);
                }
            }
        });
    }

    /// Takes the Node as the API server has it.
    fn learn(&mut self, node: Node, ctx: &mut Ctx<Self>) {
        if let Some(known) = &self.node
            && known.metadata.uid == node.metadata.uid
            && version(&known.metadata).zip(version(&node.metadata)).is_some_and(|(known, new)| new < known)
        {
            // The watch tells of a version older than the answer to our own posting.
            return;
        }
        let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        if std::mem::replace(&mut self.unschedulable, unschedulable) != unschedulable {
            self.status_event(if unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" });
        }
        let node = Arc::new(node);
        let volumes = |node: &Node| {
            let status = node.status.as_ref();
            let of = |status: &k8s_openapi::api::core::v1::NodeStatus| {
                (status.volumes_in_use.clone(), status.volumes_attached.clone())
            };
            status.map(of).unwrap_or_default()
        };
        let others_care = |told: &Arc<Node>| {
            told.metadata.uid != node.metadata.uid
                || told.metadata.labels != node.metadata.labels
                || told.metadata.annotations != node.metadata.annotations
                || told.spec != node.spec
                || volumes(told) != volumes(&node)
        };
        let news = self.told.fact().is_none_or(|told| told.0.as_ref().is_none_or(others_care));
        self.node = Some(node.clone());
        if news {
            self.told.set(NodeObserved(Some(node)), ctx);
        }
    }

    fn tell_addresses(&mut self, node: &Node, ctx: &mut Ctx<Self>) {
        let addresses =
            node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
        self.addresses.set(NodeAddressesObserved(Arc::from(addresses)), ctx);
    }

    fn followed(&mut self, news: Followed<Node>, ctx: &mut Ctx<Self>) {
        match news {
            Followed::All(nodes) => match nodes.into_iter().next() {
                Some(node) => {
                    // A list tells the present state, even if that is older than the state known before: the server's
                    // data may have been restored to an earlier time.
                    self.node = None;
                    self.seen(node, ctx);
                }
                None => self.lost(ctx),
            },
            Followed::Changed(node) => self.seen(node, ctx),
            Followed::Gone(node) => {
                if self.node.as_ref().is_none_or(|known| known.metadata.uid == node.metadata.uid) {
                    self.lost(ctx);
                }
            }
            // The last known Node stays.
            Followed::Unreadable(_) => {}
            Followed::Trouble(error) => {
                tracing::debug!(%error, "The Node cannot be followed for the moment");
            }
        }
    }

    fn seen(&mut self, node: Node, ctx: &mut Ctx<Self>) {
        self.learn(node, ctx);
        self.tell_runtime(ctx);
    }

    /// The Node has been deleted.
    fn lost(&mut self, ctx: &mut Ctx<Self>) {
        if self.registering || (self.node.is_none() && !self.registered) {
            // Until it is created there is no Node: actors that wait for it go on without it.
            if self.node.is_none() {
                self.told.set(NodeObserved(None), ctx);
            }
            return;
        }
        tracing::warn!(node = %self.deps.config.name, "The Node is gone");
        self.node = None;
        self.told.set(NodeObserved(None), ctx);
        self.registered = false;
        self.failures = 0;
        self.register(ctx);
    }

    fn tell_runtime(&mut self, ctx: &mut Ctx<Self>) {
        let cidrs = self.node.as_ref().and_then(|node| node.spec.as_ref()?.pod_cidrs.clone());
        let cidr = cidrs.unwrap_or_default().join(",");
        if cidr.is_empty() || cidr == self.cidr || self.cidr_changing {
            return;
        }
        self.cidr_changing = true;
        let work = execute::pod_cidr(self.deps.runtime_configuration.clone(), cidr.clone());
        ctx.effect("pod CIDR", None, work, move |actor, answer, _| {
            actor.cidr_changing = false;
            match answer {
                Ok(()) => {
                    tracing::info!(originalPodCIDR = actor.cidr, newPodCIDR = cidr, "Updating Pod CIDR");
                    actor.cidr = cidr;
                }
                // The next status tries again.
                Err(error) => tracing::warn!(%error, "failed to update pod CIDR"),
            }
        });
    }
}

impl Actor for NodeStatus {
    type Context = Ctx<Self>;
}

impl Subsystem for NodeStatus {
    const NAME: &'static str = node_status::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.deps.observed.tell_level(ResendObserved { receiver: Self::NAME });
        self.deps.pressure.tell_level(ResendPressure { receiver: Self::NAME });
        if ctx.incarnation() > 1 {
            self.deps.configuration.tell_level(ResendConfiguration { receiver: Self::NAME });
        }
        let follow = self.deps.node_watch.follow(Select::named(None, &self.deps.config.name));
        ctx.stream("node", follow, Self::followed, |_, _| {
            tracing::warn!("The Node is no longer followed; each posting tells how it is");
        });
        self.look(ctx);
        self.list_images(ctx);
        ctx.set_timer(Timer::Update, self.deps.config.update.min(HEALTH_WAIT));
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Register => self.try_to_register(ctx),
            Timer::Images => self.list_images(ctx),
            Timer::TellNode => self.told.due(ctx),
            Timer::TellAddresses => self.addresses.due(ctx),
            Timer::Update => {
                let period = jittered(self.deps.config.update, self.deps.clock.random_u64());
                ctx.set_timer(Timer::Update, period);
                self.heard_of_runtime |= self.began.elapsed() >= HEALTH_WAIT;
                self.look(ctx);
                self.register(ctx);
                self.tell_runtime(ctx);
                self.update(ctx);
            }
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "registered": self.registered,
            "postings": self.postings,
            "notReady": self.runtime.errors(self.began.elapsed()),
            "degraded": *self.degraded.0,
            "problem": self.problem,
        })
    }
}
