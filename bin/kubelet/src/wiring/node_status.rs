//! Wires NodeStatus and Lease, on a member of a cluster.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_io::Io;
use bridge_kube::ApiClient;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::{NodeAddressesObserved, NodeObserved};
use messages::node_status::{Degradation, StatusPeriods, SubsystemsReported};
use node_status::{Lease, LeaseDeps, NodeStatus, NodeStatusConfig, NodeStatusDeps, NodeStatusMetrics};
use pod_rules::reasons::{PODS_LEFT_ALONE, SUBSYSTEM_DORMANT};
use pod_worker::PodWorker;
use supervision::{Address, EventKind, Seated, Subsystem, Supervised, SupervisionEvent, Tree};

use super::crowds::Crowds;
use super::levels::Levels;
use super::{Actors, LastWords, Wiring};

pub(super) fn wire(
    wiring: &Wiring<'_>,
    status: Seated<NodeStatus>,
    lease: Seated<Lease>,
) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let (Some(cluster), Some(membership)) = (&bridge.cluster, &settings.membership) else { return Ok(()) };
    let Some(heartbeat) = heartbeat(wiring) else { return Ok(()) };
    let metrics = NodeStatusMetrics::new(bridge.clock.now())?.with_boot(membership.node.machine.boot_second);
    metrics.register(wiring.registry)?;
    tell_of_degradation(wiring.tree, &bridge.io, status.address(), actors.events.address());
    let lease_deps = LeaseDeps {
        config: membership.lease.clone(),
        heartbeat: heartbeat.clone(),
        clock: bridge.clock.clone(),
        node: status.address(),
    };
    let addresses = address_observers(actors);
    let status_deps = NodeStatusDeps {
        config: membership.node.clone(),
        node: heartbeat,
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
        configuration: actors.configuration.address(),
        events: actors.events.address(),
        metrics,
    };
    let place = &wiring.places.heartbeat;
    let changed = wiring.changed();
    status.start(place, move || {
        let mut deps = status_deps.clone();
        if let Some(now) = changed() {
            let StatusPeriods { update, report } = now.node_status;
            let resources = now.resources.clone();
            deps.config = Arc::new(NodeStatusConfig { update, report, resources, ..(*deps.config).clone() });
        }
        NodeStatus::new(deps)
    });
    lease.start(place, move || Lease::new(lease_deps.clone()));
    Ok(())
}

/// The client of the heartbeats, each with the deadline of the configuration that is in force when it begins.
fn heartbeat(wiring: &Wiring<'_>) -> Option<Arc<ApiClient>> {
    let (cluster, membership) = wiring.bridge.cluster.as_ref().zip(wiring.settings.membership.as_ref())?;
    let (source, lease) = (wiring.bridge.configuration.source.clone(), membership.lease.duration_seconds);
    let deadline = move || heartbeat_deadline(lease, source.in_force().node_status.update);
    Some(Arc::new(cluster.heartbeat.with_deadline_by(deadline)))
}

/// The deadline of a heartbeat: after the next one is due or the lease has run out it would be of no use.
fn heartbeat_deadline(lease_seconds: i32, update: Duration) -> Duration {
    let lease = u64::try_from(lease_seconds).unwrap_or(0);
    update.min(Duration::from_secs(lease)).max(Duration::from_secs(1))
}

/// The receivers of the Node. PodManager, which admits pods, gets it before PodSources, which lists them.
pub(super) fn node_observers(actors: &Actors) -> Vec<Address<NodeObserved>> {
    vec![
        actors.manager.address(),
        actors.sources.address(),
        actors.volumes.address(),
        actors.objects.address(),
    ]
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
        heartbeat: heartbeat(wiring)?,
        node_name: cluster.node_name.clone(),
        clock: wiring.bridge.clock.clone(),
    })
}

/// Reports a subsystem that is dormant after too many crashes, or that leaves several pods alone for one cause, by a condition of
/// the Node and an event.
fn tell_of_degradation(
    tree: &Tree,
    io: &Io,
    status: Address<SubsystemsReported>,
    events: Address<RecordEvent>,
) {
    let levels = Arc::new(Levels::new(move |degraded| {
        if status.tell(SubsystemsReported(degraded)).is_err() {
            tracing::debug!("NodeStatus has ended and hears of no more degradations");
        }
    }));
    levels.tell_each_minute(io);
    let stated = levels.clone();
    let state = move |degradation: Degradation, subsystem: &str, why: Option<String>| {
        if let Some(why) = &why {
            let reason = match degradation {
                Degradation::Dormant => SUBSYSTEM_DORMANT,
                Degradation::PodsLeftAlone => PODS_LEFT_ALONE,
            };
            events.tell_or_count(RecordEvent {
                object: EventObject::Node,
                event_type: EventType::Warning,
                reason: Arc::from(reason),
                message: Arc::from(format!("{subsystem}: {why}")),
            });
        }
        stated.state(Arc::from(subsystem), why.map(|why| (degradation, Arc::from(why))));
    };
    let crowds = Mutex::new(Crowds::default());
    tree.observe(move |event: &SupervisionEvent| {
        if event.actor == NodeStatus::NAME && matches!(event.what, EventKind::Started { .. }) {
            levels.tell_again();
        }
        // A worker is its pod's affair.
        if event.actor.split_once('/').is_some_and(|(kind, _)| kind == PodWorker::NAME) {
            return;
        }
        for (subsystem, why) in crowds.lock().unwrap_or_else(PoisonError::into_inner).hear(event) {
            state(Degradation::PodsLeftAlone, &subsystem, why.map(str::to_owned));
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
        state(Degradation::Dormant, &event.actor, dormant);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_ends_before_the_next_and_within_the_lease() {
        let seconds = Duration::from_secs;
        assert_eq!(heartbeat_deadline(40, seconds(10)), seconds(10));
        assert_eq!(heartbeat_deadline(4, seconds(10)), seconds(4));
    }
}
