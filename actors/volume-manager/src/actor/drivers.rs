//! CSI drivers that come and go, and the Node that the cluster knows them by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_csi::plugins::{PluginGone, PluginKind, PluginNews, PluginOffer};
use k8s_openapi::api::core::v1::Node;
use messages::facts::{CsiDriversObserved, CsiNodeState, DriverNode, NodeObserved};
use messages::node_status;
use messages::object_cache::PodObjectsChanged;
use pod_rules::volume_plugins::CSI;
use supervision::{Ctx, Effect};

use super::{Timer, VolumeManager};
use crate::drivers::{self, Refusal};

/// A driver that did not want to be asked for its capacity is looked up again after this time.
const PERIOD_WITHIN: Duration = Duration::from_secs(300);

/// Pause before the CSI drivers are followed again after the stream has ended.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// All plugins that there are have been offered so long after they are followed.
const OFFERED_WITHIN: Duration = Duration::from_secs(5);

/// What is known of drivers.
#[derive(Debug, Default)]
pub(super) struct Registered {
    /// The drivers that have registered with this incarnation; `None` for those that are gone.
    drivers: BTreeMap<String, Option<DriverNode>>,
    /// The number of the last offer of each plugin, by its socket.
    offered: BTreeMap<String, u64>,
    offers: u64,
    /// When the drivers were followed last, and how many offers had come by then: what was offered before is offered anew.
    followed: (Duration, u64),
    /// Drivers that are taken out of the CSINode at present.
    forgetting: BTreeSet<String>,
    node: Option<Arc<Node>>,
    /// The UID of the Node that has a CSINode.
    introduced: Option<String>,
    /// The UID of the Node for which a CSINode was made last.
    made_for: Option<Arc<str>>,
    /// How often in a row the CSINode could not be made.
    introductions: u32,
    csi_node: CsiNodeState,
}

impl Registered {
    /// The label of metrics about a volume: pods may name any driver, and one that never was here has no series of its own.
    pub(super) fn label<'l>(&self, plugin: &'l str) -> &'l str {
        let driver = plugin.strip_prefix(CSI).and_then(|rest| rest.strip_prefix(':'));
        if driver.is_none_or(|driver| self.drivers.contains_key(driver)) { plugin } else { CSI }
    }

    /// The names of the drivers that are registered.
    pub(super) fn names(&self) -> Vec<&String> {
        self.drivers.iter().filter(|(_, told)| told.is_some()).map(|(name, _)| name).collect()
    }
}

/// The wait before the CSINode is tried again, after so many failures: 0.2 s, doubling up to half a minute.
fn introduction_wait(failures: u32) -> Duration {
    Duration::from_millis(100).saturating_mul(1 << failures.min(9)).min(Duration::from_secs(30))
}

impl VolumeManager {
    pub(super) fn follow_drivers(&mut self, ctx: &mut Ctx<Self>) {
        self.csi.followed = (self.origin.elapsed(), self.csi.offers);
        let news = self.deps.backends.csi.plugins.follow(PluginKind::Csi);
        ctx.stream("CSI drivers", news, Self::driver_news, |_, ctx| {
            tracing::warn!("CSI drivers are no longer followed");
            ctx.set_timer(Timer::FollowDrivers, FOLLOW_AGAIN);
        });
    }

    /// What waits for a driver goes on.
    fn try_again(&mut self, ctx: &mut Ctx<Self>) {
        for uid in self.backoff.forget_all() {
            self.deps.waiters.tell_level(PodObjectsChanged { uid });
        }
        self.release_all(ctx);
    }

    fn driver_news(&mut self, news: PluginNews, ctx: &mut Ctx<Self>) {
        match news {
            PluginNews::Offered(offer) => self.offered(offer, ctx),
            PluginNews::Gone(gone) => self.gone_driver(&gone, ctx),
        }
    }

    fn offered(&mut self, offer: PluginOffer, ctx: &mut Ctx<Self>) {
        self.csi.offers += 1;
        let number = self.csi.offers;
        self.csi.offered.insert(offer.socket.clone(), number);
        let register =
            drivers::register(self.deps.backends.clone(), offer.facts.clone(), offer.socket.clone());
        ctx.effect(
            Effect::lasting("register a CSI driver"),
            None,
            register,
            move |actor, registered, ctx| {
                let (name, socket) = (offer.facts.name.clone(), offer.socket.clone());
                if actor.csi.offered.get(&socket) != Some(&number) {
                    // It has gone meanwhile, or is offered anew.
                    if registered.is_ok() && !actor.csi.offered.contains_key(&socket) {
                        actor.forget_driver(name, &socket, ctx);
                    }
                    return offer.failed("the plugin is gone");
                }
                match registered {
                    Ok(told) => {
                        tracing::info!(driver = name, "A CSI driver is registered");
                        actor.registered(name, told, ctx);
                        offer.accept();
                    }
                    Err(refusal) => match refusal {
                        Refusal::Invalid(why) => offer.invalid(why),
                        Refusal::Failed(why) => {
                            actor.lost_driver(name, ctx);
                            offer.failed(why);
                        }
                    },
                }
            },
        );
    }

    fn registered(&mut self, name: String, told: DriverNode, ctx: &mut Ctx<Self>) {
        self.csi.drivers.insert(name.clone(), Some(told));
        self.tell_drivers(ctx);
        self.look_at_capacity(name, false, ctx);
        self.try_again(ctx);
    }

    fn gone_driver(&mut self, gone: &PluginGone, ctx: &mut Ctx<Self>) {
        self.csi.offered.remove(&gone.socket);
        self.forget_driver(gone.facts.name.clone(), &gone.socket, ctx);
    }

    fn forget_driver(&mut self, name: String, socket: &str, ctx: &mut Ctx<Self>) {
        if self.deps.backends.csi.registry.deregister(&name, socket) {
            self.driver_is_gone(name, ctx);
        }
    }

    /// A driver that could not be registered is gone, as upstream has it: what the cluster knows of an earlier registration may
    /// be in the way of the next one, since a driver's entry in a CSINode cannot be changed.
    fn lost_driver(&mut self, name: String, ctx: &mut Ctx<Self>) {
        if !drivers::is_registered(&self.deps.backends, &name) {
            self.driver_is_gone(name, ctx);
        }
    }

    /// Drivers that went while no incarnation heard of it are gone, and what has failed for others of them is tried again.
    /// While all that is known agrees, nothing is done.
    pub(super) fn look_at_drivers(&mut self, ctx: &mut Ctx<Self>) {
        let (since, before) = self.csi.followed;
        if self.origin.elapsed().saturating_sub(since) >= OFFERED_WITHIN {
            self.csi.offered.retain(|_, number| *number > before);
            for known in self.deps.backends.csi.registry.registered() {
                if !self.csi.offered.contains_key(&known.socket) {
                    self.forget_driver(known.name, &known.socket, ctx);
                }
            }
        }
        for name in self.deps.backends.attachments.gone_drivers() {
            if drivers::is_registered(&self.deps.backends, &name) {
                self.deps.backends.attachments.driver_is_settled(&name);
            } else if !self.csi.forgetting.contains(&name) {
                self.driver_is_gone(name, ctx);
            }
        }
    }

    fn driver_is_gone(&mut self, name: String, ctx: &mut Ctx<Self>) {
        self.deps.backends.attachments.driver_is_gone(&name);
        if self.csi.drivers.insert(name.clone(), None) != Some(None) {
            tracing::info!(driver = name, "A CSI driver is gone");
        }
        self.tell_drivers(ctx);
        self.csi.forgetting.insert(name.clone());
        let forget = drivers::forget(self.deps.backends.clone(), name.clone());
        ctx.effect(Effect::lasting("forget a CSI driver"), None, forget, move |actor, forgotten, _| {
            actor.csi.forgetting.remove(&name);
            if let Err(error) = forgotten {
                tracing::warn!(error, "The CSINode still names a CSI driver that is gone");
            }
        });
    }

    /// Asks a driver that wants that, now if `ask` says so and again after its period, how many volumes the node takes (row
    /// 10.28).
    pub(super) fn look_at_capacity(&mut self, name: String, ask: bool, ctx: &mut Ctx<Self>) {
        if self.csi.drivers.get(&name).is_none_or(Option::is_none)
            || self.deps.backends.csi.csi_nodes.is_none()
        {
            return;
        }
        let look = drivers::capacity(self.deps.backends.clone(), name.clone(), ask);
        ctx.effect("look at a CSI driver's capacity", None, look, move |_, period, ctx| {
            ctx.set_timer(Timer::Capacity(name), period.unwrap_or(PERIOD_WITHIN));
        });
    }

    /// Tells the Node's writer of the drivers.
    fn tell_drivers(&mut self, ctx: &mut Ctx<Self>) {
        let observed = CsiDriversObserved {
            drivers: Arc::new(self.csi.drivers.clone()),
            csi_node: self.csi.csi_node.clone(),
        };
        self.told_drivers.set(observed, ctx);
    }

    /// The Node has a CSINode, also before any driver is there: without one the scheduler counts no volumes.
    fn introduce(&mut self, node: &Arc<Node>, ctx: &mut Ctx<Self>) {
        let uid = node.metadata.uid.clone();
        if self.csi.introduced == uid || self.deps.backends.csi.csi_nodes.is_none() {
            return;
        }
        self.csi.introduced.clone_from(&uid);
        let introduce = drivers::introduce(self.deps.backends.clone(), node.clone());
        let uid: Arc<str> = uid.unwrap_or_default().into();
        ctx.effect("make the CSINode", None, introduce, move |actor, made, ctx| {
            actor.csi.csi_node = match made {
                Ok(()) => {
                    let before = actor.csi.made_for.replace(uid.clone());
                    if before.is_some_and(|before| before != uid) {
                        // The Node was deleted and has registered anew, and the drivers do not know.
                        let names = actor.csi.names().into_iter().cloned().collect();
                        let tell = drivers::tell_again(actor.deps.backends.clone(), names);
                        let telling = Effect::lasting("name the drivers in a new CSINode");
                        ctx.effect(telling, None, tell, |_, (), _| {});
                    }
                    CsiNodeState::Of(uid)
                }
                Err(error) => {
                    tracing::warn!(error, "The Node has no CSINode yet");
                    actor.csi.introduced = None;
                    actor.csi.introductions = actor.csi.introductions.saturating_add(1);
                    ctx.set_timer(Timer::Introduce, introduction_wait(actor.csi.introductions));
                    CsiNodeState::Failed(error.into())
                }
            };
            actor.tell_drivers(ctx);
        });
    }

    /// Tries again what has failed before.
    pub(super) fn introduce_again(&mut self, ctx: &mut Ctx<Self>) {
        if let Some(node) = self.csi.node.clone() {
            self.introduce(&node, ctx);
        }
    }
}

impl actix::Handler<NodeObserved> for VolumeManager {
    type Result = ();

    fn handle(&mut self, NodeObserved(node): NodeObserved, ctx: &mut Ctx<Self>) {
        // Attachments outlive an incarnation, which begins with no Node: that there is none may be news for them alone.
        self.deps.backends.attachments.learn(node.clone());
        // A volume that has left the Node may be told anew.
        self.tell_volumes(ctx);
        if self.csi.node != node {
            self.csi.node = node;
            self.introduce_again(ctx);
        }
        // A new incarnation of NodeStatus has heard of no driver and of no volume.
        self.tell_drivers(ctx);
        self.told_drivers.asked(node_status::RECEIVER, ctx);
        self.told_volumes.asked(node_status::RECEIVER, ctx);
    }
}
