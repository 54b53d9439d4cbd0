//! Wires EvictionManager, which measures the node's resources, reports pressure to its observers, and evicts pods.

use std::sync::Arc;

use eviction_manager::{Backends, EvictionConfig, EvictionManager, EvictionManagerDeps, EvictionMetrics};
use messages::facts::PressureObserved;
use supervision::{Address, Seated, Supervised};

use super::{Actors, Wiring};

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<EvictionManager>) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let metrics = EvictionMetrics::new()?;
    metrics.register(wiring.registry)?;
    let deps = EvictionManagerDeps {
        config: Arc::new(settings.eviction.clone()),
        backends: Backends {
            stats: bridge.stats.clone(),
            runtime: wiring.operations.clone(),
            dirs: bridge.dirs.for_owner(messages::eviction_manager::RECEIVER),
            cgroups: bridge.cgroups.for_owner(messages::eviction_manager::RECEIVER),
            containers: actors.garbage.asked(),
            images: actors.images.asked(),
        },
        observers: observers(actors),
        pressure: actors.manager.asked(),
        evict: actors.pool.address(),
        manager: actors.manager.address(),
        pool: actors.pool.address(),
        configuration: actors.configuration.address(),
        events: actors.events.address(),
        annotated: actors.events.address(),
        metrics,
    };
    let changed = wiring.changed();
    seat.start(&wiring.places.actors, move || {
        let now = changed().map(|now| EvictionConfig::of(&now.eviction, deps.config.local_storage));
        let config = now.and_then(Result::ok).map_or_else(|| deps.config.clone(), Arc::new);
        EvictionManager::new(EvictionManagerDeps { config, ..deps.clone() })
    });
    Ok(())
}

fn observers(actors: &Actors) -> Vec<Address<PressureObserved>> {
    [actors.manager.address()].into_iter().chain(actors.node.iter().map(Supervised::address)).collect()
}
