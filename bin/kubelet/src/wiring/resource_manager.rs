//! Wires ResourceManager, which manages the cgroups of pods, of their classes and of the node.

use resource_manager::{ResourceManager, ResourceManagerConfig, ResourceManagerDeps, ResourceMetrics};
use supervision::Seated;

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<ResourceManager>) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let metrics = ResourceMetrics::new()?;
    metrics.register(wiring.registry)?;
    let deps = ResourceManagerDeps {
        config: ResourceManagerConfig { housekeeping: settings.sweep.every, ..settings.resources.clone() },
        cgroups: bridge.cgroups.clone(),
        held_pods: actors.pleg.asked(),
        resend_desired: actors.manager.address(),
        events: actors.events.address(),
        metrics,
    };
    seat.start(&wiring.places.actors, move || ResourceManager::new(deps.clone()));
    Ok(())
}
