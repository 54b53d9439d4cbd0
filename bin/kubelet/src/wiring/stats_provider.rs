//! Wires StatsProvider, which tells what node, pods and containers use.

use std::sync::Arc;

use stats_provider::{Backends, StatsProvider, StatsProviderDeps};
use supervision::Seated;

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<StatsProvider>) {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let deps = StatsProviderDeps {
        node: Arc::from(settings.node.as_str()),
        began: bridge.clock.now(),
        config: Arc::new(settings.stats.clone()),
        backends: Backends {
            pods: actors.pleg.asked(),
            volumes: actors.volumes.asked(),
            usage: bridge.usage.clone(),
            runtime: wiring.operations.clone(),
            io: bridge.io.for_owner(messages::stats_provider::RECEIVER),
        },
    };
    seat.start(&wiring.places.actors, move || StatsProvider::new(deps.clone()));
}
