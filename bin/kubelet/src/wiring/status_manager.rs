//! Wires StatusManager, which writes every pod's status to disk and to the API server.

use bridge_kube::Traffic;
use status_manager::{StatusManager, StatusManagerDeps, StatusMetrics};
use supervision::Seated;

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<StatusManager>) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let metrics = StatusMetrics::new()?;
    metrics.register(wiring.registry)?;
    let deps = StatusManagerDeps {
        host_ips: settings.host_ips.clone(),
        ready_to_start_condition: settings.ready_to_start_condition,
        stop_signals: settings.worker.rules.stop_signals,
        image_volume_digests: settings.image_volume_digests,
        checkpoints: bridge.checkpoints.for_owner(messages::status_manager::RECEIVER),
        clock: bridge.clock.clone(),
        desired: actors.manager.address(),
        reports: actors.pool.address(),
        observed: actors.pleg.address(),
        touched: actors.pleg.address(),
        verdicts: actors.probes.address(),
        node: actors.resend_node(),
        api: bridge.cluster_api(Traffic::Statuses).map(|api| api as _),
        events: actors.events.address(),
        metrics,
    };
    seat.start(&wiring.places.actors, move || StatusManager::new(deps.clone()));
    Ok(())
}
