//! Wires ProbeManager, which probes containers, and the receivers of its verdicts.

use std::sync::Arc;

use probe_manager::{Backends, ProbeLimits, ProbeManager, ProbeManagerDeps, ProbeMetrics};
use supervision::{Seated, Supervised};

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<ProbeManager>) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let metrics = ProbeMetrics::new();
    metrics.register(&wiring.api_metrics.registries().probes, wiring.registry)?;
    let deps = ProbeManagerDeps {
        backends: Backends { exec: wiring.operations.clone(), prober: bridge.prober.clone() },
        checkpoints: bridge.checkpoints.for_owner(messages::probe_manager::RECEIVER),
        clock: bridge.clock.clone(),
        kubelet_started: bridge.clock.now(),
        node_ip: Arc::from(settings.host_ips.first().map_or("127.0.0.1", String::as_str)),
        limits: ProbeLimits::default(),
        metrics,
        verdicts: vec![actors.pool.address(), actors.status.address()],
        events: actors.events.address(),
        resend_desired: actors.manager.address(),
        resend_observed: actors.pleg.address(),
        resend_reports: actors.pool.address(),
        node: actors.node.as_ref().map(Supervised::address),
    };
    seat.start(&wiring.places.actors, move || ProbeManager::new(deps.clone()));
    Ok(())
}
