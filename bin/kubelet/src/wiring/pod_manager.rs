//! Wires PodManager, which decides the desired pods, and the receivers of its facts.

use bridge_kube::Traffic;
use messages::facts::Source;
use pod_manager::{PodManager, PodManagerConfig, PodManagerDeps, PodManagerMetrics};
use prometheus::IntCounterVec;
use supervision::Seated;

use super::{Bridge, Settings, Wiring};

/// Returns the counts of the pods that were refused, for other subsystems that refuse pods.
pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<PodManager>) -> prometheus::Result<IntCounterVec> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let metrics = PodManagerMetrics::new()?;
    metrics.register(wiring.registry)?;
    let rejections = metrics.rejections();
    let deps = PodManagerDeps {
        config: PodManagerConfig { sources: sources(bridge, settings), node: settings.admission.clone() },
        observers: vec![
            actors.objects.address(),
            actors.pool.address(),
            actors.probes.address(),
            actors.volumes.address(),
            actors.resources.address(),
            actors.garbage.address(),
            actors.eviction.address(),
        ],
        status_observer: actors.status.address(),
        sources: actors.sources.address(),
        workers: actors.pool.asked(),
        reports: actors.pool.address(),
        statuses: actors.status.asked(),
        held_pods: actors.pleg.asked(),
        observed: actors.pleg.address(),
        pressure: actors.eviction.address(),
        node: actors.resend_node(),
        configuration: actors.configuration.address(),
        evict: actors.pool.address(),
        mirrors: actors.status.address(),
        api: bridge.cluster_api(Traffic::Statuses).map(|api| api as _),
        events: actors.events.address(),
        metrics,
    };
    let changed = wiring.changed();
    seat.start(&wiring.places.actors, move || {
        let mut deps = deps.clone();
        if let Some(now) = changed() {
            deps.config.node.set_resources(&now.resources);
        }
        PodManager::new(deps)
    });
    Ok(rejections)
}

/// The configured sources, all of which have to be heard before a pod's absence means its removal.
fn sources(bridge: &Bridge, settings: &Settings) -> Vec<Source> {
    let file = settings.static_pod_path.iter().map(|_| Source::File);
    let url = bridge.url.iter().map(|_| Source::Http);
    let submission = settings.pod_submission.then_some(Source::Submission);
    file.chain(url).chain(submission).chain(bridge.cluster.iter().map(|_| Source::Api)).collect()
}
