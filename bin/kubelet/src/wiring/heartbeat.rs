//! NodeStatus and Lease, on a member of a cluster.

use std::sync::Arc;

use bridge_cri::Operations;
use bridge_io::clock::Clock;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::eviction_manager::ResendPressure;
use messages::facts::{
    NodeAddressesObserved, NodeObserved, OtherVolumesObserved, PressureObserved, RuntimeObserved,
};
use messages::node_status::{ResendNode, SubsystemReported};
use messages::pleg::ResendObserved;
use node_status::{Lease, LeaseDeps, NodeStatus, NodeStatusDeps};
use pod_rules::reasons::SUBSYSTEM_DORMANT;
use pod_worker::PodWorker;
use supervision::{Address, Place, Seated, Subsystem, SupervisionEvent, Tree, Vitality, What};

use super::{Bridge, Cluster, LastWords, Membership, Settings};

/// Both, seated.
pub(super) struct Heartbeat {
    status: Seated<NodeStatus>,
    lease: Seated<Lease>,
    cluster: Cluster,
    membership: Membership,
}

/// Whom NodeStatus knows.
pub(super) struct Acquaintances {
    /// The runtime.
    pub operations: Operations,
    /// Who is told of the Node, besides Lease.
    pub observers: Vec<Address<NodeObserved>>,
    /// Who is told of the node's addresses.
    pub address_observers: Vec<Address<NodeAddressesObserved>>,
    /// Pleg.
    pub observed: Address<ResendObserved>,
    /// EvictionManager.
    pub pressure: Address<ResendPressure>,
    /// Where events go.
    pub events: Address<RecordEvent>,
}

/// Seats both if there is a cluster.
pub(super) fn seat(tree: &Tree, bridge: &Bridge, settings: &Settings) -> Option<Heartbeat> {
    let (cluster, membership) = bridge.cluster.clone().zip(settings.membership.clone())?;
    let status = tree.seat::<NodeStatus>(Vitality::Vital);
    let lease = tree.seat::<Lease>(Vitality::Vital);
    Some(Heartbeat { status, lease, cluster, membership })
}

impl Heartbeat {
    pub(super) fn last_words(&self, clock: Arc<dyn Clock>) -> LastWords {
        LastWords {
            status: self.status.address(),
            heartbeat: self.cluster.heartbeat.clone(),
            node_name: self.cluster.node_name.clone(),
            clock,
        }
    }

    pub(super) fn node(&self) -> Address<ResendNode> {
        self.status.address()
    }

    pub(super) fn runtime_watcher(&self) -> Address<RuntimeObserved> {
        self.status.address()
    }

    pub(super) fn volumes_watcher(&self) -> Address<OtherVolumesObserved> {
        self.status.address()
    }

    pub(super) fn pressure_watcher(&self) -> Address<PressureObserved> {
        self.status.address()
    }

    pub(super) fn start(self, tree: &Tree, place: &Place, bridge: &Bridge, known: &Acquaintances) {
        tell_of_dormancy(tree, self.status.address(), known.events.clone());
        let lease_deps = LeaseDeps {
            config: self.membership.lease,
            heartbeat: self.cluster.heartbeat.clone(),
            clock: bridge.clock.clone(),
            node: self.status.address(),
        };
        let status_deps = NodeStatusDeps {
            config: self.membership.node,
            heartbeat: self.cluster.heartbeat,
            api: self.cluster.api,
            operations: known.operations.clone(),
            addresses: bridge.addresses.clone(),
            clock: bridge.clock.clone(),
            observers: [self.lease.address()].into_iter().chain(known.observers.iter().cloned()).collect(),
            address_observers: known.address_observers.clone(),
            observed: known.observed.clone(),
            pressure: known.pressure.clone(),
            events: known.events.clone(),
        };
        self.status.start(place, move || NodeStatus::new(status_deps.clone()));
        self.lease.start(place, move || Lease::new(lease_deps.clone()));
    }
}

/// A subsystem that is left alone after too many crashes degrades the node: a condition and an event say so.
fn tell_of_dormancy(tree: &Tree, status: Address<SubsystemReported>, events: Address<RecordEvent>) {
    tree.observe(move |event: &SupervisionEvent| {
        // A worker is its pod's affair.
        if event.actor.starts_with(PodWorker::NAME) {
            return;
        }
        let dormant = match &event.what {
            What::Dormant { retry_seconds } => {
                Some(format!("more crashes than its limit; it is tried again every {retry_seconds} s"))
            }
            What::Started { incarnation: 2.. } => None,
            _ => return,
        };
        if let Some(why) = &dormant {
            let _ = events.tell(RecordEvent {
                object: EventObject::Node,
                event_type: EventType::Warning,
                reason: Arc::from(SUBSYSTEM_DORMANT),
                message: Arc::from(format!("{}: {why}", event.actor)),
            });
        }
        let subsystem = Arc::from(event.actor.as_str());
        let _ = status.tell(SubsystemReported { subsystem, dormant: dormant.map(Arc::from) });
    });
}
