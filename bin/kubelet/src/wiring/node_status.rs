//! Wires NodeStatus and Lease, on a member of a cluster.

use std::sync::Arc;

use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::{NodeAddressesObserved, NodeObserved};
use messages::node_status::SubsystemReported;
use node_status::{Lease, LeaseDeps, NodeStatus, NodeStatusDeps, NodeStatusMetrics};
use pod_worker::PodWorker;
use supervision::{Address, EventKind, Seated, Subsystem, Supervised, SupervisionEvent, Tree};

use super::levels::Levels;
use super::{Actors, LastWords, Wiring};

pub(super) fn wire(
    wiring: &Wiring<'_>,
    status: Seated<NodeStatus>,
    lease: Seated<Lease>,
) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let (Some(cluster), Some(membership)) = (&bridge.cluster, &settings.membership) else { return Ok(()) };
    let metrics = NodeStatusMetrics::new(bridge.clock.now())?.with_boot(membership.node.machine.boot_second);
    metrics.register(wiring.registry)?;
    tell_of_dormancy(wiring.tree, status.address(), actors.events.address());
    let lease_deps = LeaseDeps {
        config: membership.lease.clone(),
        heartbeat: Arc::new(cluster.heartbeat.clone()),
        clock: bridge.clock.clone(),
        node: status.address(),
    };
    let addresses = address_observers(actors);
    let status_deps = NodeStatusDeps {
        config: membership.node.clone(),
        node: Arc::new(cluster.heartbeat.clone()),
        node_watch: Arc::new(cluster.api.clone()),
        images: wiring.operations.clone(),
        runtime_configuration: wiring.operations.clone(),
        addresses: bridge.addresses.clone(),
        clock: bridge.clock.clone(),
        observers: [lease.address()].into_iter().chain(node_observers(actors)).collect(),
        address_observers: addresses
            .into_iter()
            .chain(actors.certificates.iter().map(Supervised::address))
            .collect(),
        observed: actors.pleg.address(),
        pressure: actors.eviction.address(),
        events: actors.events.address(),
        metrics,
    };
    let place = &wiring.places.heartbeat;
    status.start(place, move || NodeStatus::new(status_deps.clone()));
    lease.start(place, move || Lease::new(lease_deps.clone()));
    Ok(())
}

/// The receivers of the Node. PodManager, which admits pods, gets it before PodSources, which lists them.
pub(super) fn node_observers(actors: &Actors) -> Vec<Address<NodeObserved>> {
    vec![actors.manager.address(), actors.sources.address(), actors.volumes.address()]
}

/// The actors that put the node's addresses into pods, or look for pods there.
pub(super) fn address_observers(actors: &Actors) -> Vec<Address<NodeAddressesObserved>> {
    vec![actors.status.address(), actors.pool.address(), actors.probes.address()]
}

/// The ways to the Node's Ready condition for a kubelet that ends by a failure of its own; `None` without a cluster.
pub(super) fn last_words(wiring: &Wiring<'_>) -> Option<LastWords> {
    let (status, cluster) = wiring.actors.node.as_ref().zip(wiring.bridge.cluster.as_ref())?;
    Some(LastWords {
        status: status.asked(),
        heartbeat: Arc::new(cluster.heartbeat.clone()),
        node_name: cluster.node_name.clone(),
        clock: wiring.bridge.clock.clone(),
    })
}

/// Reports a subsystem that is dormant after too many crashes by a condition of the Node and an event. The condition is
/// sent again to every incarnation of NodeStatus.
fn tell_of_dormancy(tree: &Tree, status: Address<SubsystemReported>, events: Address<RecordEvent>) {
    let levels = Levels::new(move |subsystem: &Arc<str>, dormant: Option<&Arc<str>>| {
        let told = SubsystemReported { subsystem: subsystem.clone(), dormant: dormant.cloned() };
        status.tell(told).is_ok()
    });
    tree.observe(move |event: &SupervisionEvent| {
        if event.actor == NodeStatus::NAME && matches!(event.what, EventKind::Started { .. }) {
            levels.tell_again();
        }
        // A worker is its pod's affair.
        if event.actor.split_once('/').is_some_and(|(kind, _)| kind == PodWorker::NAME) {
            return;
        }
        let dormant = match &event.what {
            EventKind::Dormant { retry_seconds } => {
                Some(format!("more crashes than its limit; it is tried again every {retry_seconds} s"))
            }
            EventKind::ChildrenDormant { dormant, reason } => {
                Some(format!("{dormant} of its workers are above their restart limit; the last: {reason}"))
            }
            EventKind::Started { .. } | EventKind::Stopped | EventKind::ChildrenAwake => None,
            _ => return,
        };
        if let Some(why) = &dormant {
            events.tell_or_count(RecordEvent {
                object: EventObject::Node,
                event_type: EventType::Warning,
                reason: Arc::from(pod_rules::reasons::SUBSYSTEM_DORMANT),
                message: Arc::from(format!("{}: {why}", event.actor)),
            });
        }
        levels.state(Arc::from(event.actor.as_str()), dormant.map(Arc::from));
    });
}
