//! Wires NodeApi, which serves HTTP, and the ports through which it asks other actors.

use std::sync::Arc;

use bridge_metrics::Registry;
use bridge_reviews::{ClusterReviews, ReviewMetrics, Reviews};
use node_api::{
    Access, Answers, ApiMetrics, ContainerPlaces, Containers, NodeApi, NodeApiDeps, Registries, Secured,
    SharedAnswers, Submission,
};
use supervision::{Seated, Subsystem};

use super::{Bridge, Wiring};
use crate::KUBERNETES_VERSION;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<NodeApi>) -> prometheus::Result<()> {
    let Wiring { bridge, actors, .. } = wiring;
    let reviewed = ReviewMetrics::new()?;
    reviewed.register(wiring.registry)?;
    let deps = NodeApiDeps {
        config: wiring.settings.api.clone(),
        listeners: bridge.listeners.clone(),
        answers: Answers {
            tree: wiring.tree.clone(),
            metrics: wiring.api_metrics.clone(),
            pods: actors.manager.asked(),
            statuses: actors.status.asked(),
            events: actors.events.asked(),
            summary: actors.stats.asked(),
            usage: actors.stats.asked(),
            configuration: actors.configuration.asked(),
            kubernetes: KUBERNETES_VERSION.trim_start_matches('v'),
            clock: bridge.clock.clone(),
            shared: SharedAnswers::default(),
        },
        secured: secured(wiring, reviewed),
    };
    seat.start(&wiring.places.actors, move || NodeApi::new(deps.clone()));
    Ok(())
}

/// The HTTPS server's settings; `None` without one.
fn secured(wiring: &Wiring<'_>, reviewed: ReviewMetrics) -> Option<Secured> {
    let settings = &wiring.settings.server;
    // Both are taken even without HTTPS, so that the test that asks form no circle sees all edges on every node.
    let containers = containers(wiring);
    let submission = Submission::new(wiring.actors.sources.asked(), wiring.actors.sources.asked());
    let submission = Some(submission).filter(|_| wiring.settings.pod_submission);
    let tls = wiring.bridge.serving.clone()?;
    let reviews = wiring.bridge.cluster.as_ref().map(|cluster| {
        let reviews = ClusterReviews::new(&cluster.reviews, settings.ttls, reviewed);
        Arc::new(reviews) as Arc<dyn Reviews>
    });
    let metrics = wiring.api_metrics.clone();
    let access = Access { config: Arc::new(settings.access.clone()), tls, reviews, metrics };
    Some(Secured { access, containers, submission, offers: settings.offers.clone() })
}

fn containers(wiring: &Wiring<'_>) -> Containers {
    let Wiring { bridge, actors, .. } = wiring;
    Containers {
        pods: actors.manager.asked(),
        static_of: actors.manager.asked(),
        status: actors.status.asked(),
        runtime_pods: actors.pleg.asked(),
        runtime_pod: actors.pleg.asked(),
        runtime: wiring.operations.clone(),
        exec: wiring.operations.clone(),
        checkpointing: wiring.operations.clone(),
        streaming: wiring.operations.clone(),
        proxy: bridge.proxy.clone(),
        io: bridge.server.for_owner(NodeApi::NAME),
        clock: bridge.clock.clone(),
        split_streams: wiring.settings.server.split_streams,
        websockets: wiring.settings.server.websockets,
        metrics: wiring.api_metrics.clone(),
        places: ContainerPlaces::default(),
    }
}

/// NodeApi's metrics, with the registries of the pages besides `/metrics`.
pub(super) fn metrics(bridge: &Bridge, registry: &Registry) -> prometheus::Result<ApiMetrics> {
    let registries = Registries { main: registry.clone(), ..Registries::default() };
    ApiMetrics::new(registries, bridge.clock.now())
}
