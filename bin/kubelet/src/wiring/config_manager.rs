//! Wires ConfigManager, which reads changed configurations, and the receivers of what changes while the kubelet runs.

use config_manager::{ConfigManager, ConfigManagerDeps, ConfigMetrics};
use supervision::{Seated, Supervised};

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<ConfigManager>) -> prometheus::Result<()> {
    let Wiring { bridge, actors, .. } = wiring;
    let metrics = ConfigMetrics::new()?;
    metrics.register(wiring.registry)?;
    let deps = ConfigManagerDeps {
        source: bridge.configuration.source.clone(),
        files: bridge.configuration.files.clone(),
        watched: bridge.configuration.watched.clone(),
        rotation: actors.logs.address(),
        eviction: actors.eviction.address(),
        images: actors.images.address(),
        resources: [actors.manager.address(), actors.pool.address(), actors.volumes.address()]
            .into_iter()
            .chain(actors.node.iter().map(Supervised::address))
            .collect(),
        node_status: actors.node.as_ref().map(Supervised::address),
        events: actors.events.address(),
        metrics,
    };
    seat.start(&wiring.places.actors, move || ConfigManager::new(deps.clone()));
    Ok(())
}
