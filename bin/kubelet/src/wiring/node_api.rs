//! Wires NodeApi, which serves HTTP, and the ports through which it asks other actors.

use std::sync::Arc;
use std::time::Duration;

use bridge_reviews::{ClusterReviews, Reviews};
use node_api::{Access, Answers, Containers, NodeApi, NodeApiDeps, Secured, SharedAnswers};
use prometheus::Registry;
use supervision::{Seated, Subsystem};

use super::{Bridge, Wiring};

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<NodeApi>) {
    let Wiring { bridge, actors, .. } = wiring;
    let deps = NodeApiDeps {
        config: wiring.settings.api.clone(),
        listeners: bridge.listeners.clone(),
        answers: Answers {
            tree: wiring.tree.clone(),
            registry: wiring.registry.clone(),
            probes: wiring.probe_registry.clone(),
            pods: actors.manager.asked(),
            statuses: actors.status.asked(),
            events: actors.events.asked(),
            summary: actors.stats.asked(),
            usage: actors.stats.asked(),
            shared: SharedAnswers::default(),
        },
        secured: secured(wiring),
    };
    seat.start(&wiring.places.actors, move || NodeApi::new(deps.clone()));
}

/// The HTTPS server's settings; `None` without one.
fn secured(wiring: &Wiring<'_>) -> Option<Secured> {
    let settings = &wiring.settings.server;
    // Taken even without HTTPS, so that the test that asks form no circle sees all edges on every node.
    let containers = containers(wiring);
    let tls = wiring.bridge.serving.clone()?;
    let reviews = wiring.bridge.cluster.as_ref().map(|cluster| {
        let reviews = ClusterReviews::new(&cluster.reviews, settings.ttls);
        Arc::new(reviews) as Arc<dyn Reviews>
    });
    let access = Access { config: Arc::new(settings.access.clone()), tls, reviews };
    Some(Secured { access, containers, offers: settings.offers.clone() })
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
        streaming: wiring.operations.clone(),
        proxy: bridge.proxy.clone(),
        io: bridge.io.for_owner(NodeApi::NAME),
        clock: bridge.clock.clone(),
        split_streams: wiring.settings.server.split_streams,
    }
}

/// The registry of `/metrics/probes` for everything besides the probes.
pub(super) fn probe_registry(bridge: &Bridge) -> prometheus::Result<Registry> {
    let registry = Registry::new();
    let help = "Start time of the process since unix epoch in seconds.";
    let started = prometheus::Gauge::new("process_start_time_seconds", help)?;
    started.set(Duration::from_millis(bridge.clock.now().as_millisecond().unsigned_abs()).as_secs_f64());
    registry.register(Box::new(started))?;
    Ok(registry)
}
