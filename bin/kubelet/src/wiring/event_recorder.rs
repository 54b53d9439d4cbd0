//! Wires EventRecorder, which keeps events and sends them to the API server.

use std::sync::Arc;

use event_recorder::{EventMetrics, EventRecorder, EventRecorderDeps, EventSink};
use supervision::Seated;

use super::{Cluster, Wiring};

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<EventRecorder>) -> prometheus::Result<()> {
    let metrics = EventMetrics::new()?;
    metrics.register(wiring.registry)?;
    let post_to = |cluster: &Cluster| EventSink {
        api: Arc::new(cluster.events.clone()),
        node: cluster.node_name.clone(),
    };
    let deps = EventRecorderDeps {
        clock: wiring.bridge.clock.clone(),
        post: wiring.bridge.cluster.as_ref().map(post_to),
        metrics,
    };
    seat.start(&wiring.places.actors, move || EventRecorder::new(deps.clone()));
    Ok(())
}
