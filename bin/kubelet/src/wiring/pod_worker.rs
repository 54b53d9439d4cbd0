//! Wires PodWorkerPool and, through it, every PodWorker, which start and stop pods.

use std::sync::Arc;

use pod_worker::{PodWorkerDeps, PodWorkerMetrics, PodWorkerPool, PodWorkerPoolDeps};
use supervision::Seated;

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<PodWorkerPool>) -> prometheus::Result<()> {
    let actors = &wiring.actors;
    let metrics = PodWorkerMetrics::new()?;
    metrics.register(wiring.registry)?;
    let deps = PodWorkerPoolDeps {
        worker: worker(wiring, metrics),
        resend_desired: actors.manager.address(),
        resend_observed: actors.pleg.address(),
        report_followers: vec![
            actors.manager.address(),
            actors.status.address(),
            actors.probes.address(),
            actors.garbage.address(),
            actors.eviction.address(),
        ],
        resend_verdicts: actors.probes.address(),
        resend_node: actors.resend_node(),
        configuration: actors.configuration.address(),
    };
    let changed = wiring.changed();
    seat.start(&wiring.places.actors, move || {
        let mut deps = deps.clone();
        if let Some(now) = changed() {
            Arc::make_mut(&mut deps.worker.config).node = now.resources.clone();
        }
        PodWorkerPool::new(deps)
    });
    Ok(())
}

/// The dependencies of each worker.
fn worker(wiring: &Wiring<'_>, metrics: PodWorkerMetrics) -> PodWorkerDeps {
    let Wiring { bridge, settings, actors, .. } = wiring;
    PodWorkerDeps {
        pleg: actors.pleg.address(),
        mount: actors.volumes.asked(),
        unmount: actors.volumes.asked(),
        prepare_subpaths: actors.volumes.asked(),
        images: actors.images.asked(),
        secrets: actors.objects.asked(),
        config_maps: actors.objects.asked(),
        runtime_classes: actors.objects.asked(),
        services: actors.objects.asked(),
        status: actors.status.asked(),
        resend: actors.pool.address(),
        reports: actors.pool.address(),
        events: actors.events.address(),
        runtime: wiring.operations.clone(),
        pods: wiring.operations.clone(),
        exec: wiring.operations.clone(),
        dirs: bridge.dirs.clone(),
        ensure_cgroup: actors.resources.asked(),
        remove_cgroup: actors.resources.asked(),
        prober: bridge.prober.clone(),
        epoch: tokio::time::Instant::now(),
        clock: bridge.clock.clone(),
        compute: bridge.compute.clone(),
        resolv_conf: bridge.resolv_conf.clone(),
        config: Arc::new(settings.worker.clone()),
        metrics,
        fault_point: settings.fault_point.clone(),
    }
}
