//! Wires Pleg, which observes the runtime, and the receivers of its observations.

use pleg::{Pleg, PlegDeps, PlegMetrics};
use supervision::{Seated, Supervised};

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<Pleg>) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let metrics = PlegMetrics::new()?;
    metrics.register(wiring.registry)?;
    let deps = PlegDeps {
        config: settings.pleg.clone(),
        runtime: wiring.operations.clone(),
        exits: bridge.exits.clone(),
        dirs: bridge.dirs.for_owner(messages::pleg::RECEIVER),
        clock: bridge.clock.clone(),
        observers: vec![
            actors.pool.address(),
            actors.status.address(),
            actors.probes.address(),
            actors.garbage.address(),
            actors.logs.address(),
        ],
        runtime_observers: vec![actors.pool.address(), actors.status.address(), actors.manager.address()],
        runtime_watchers: actors.node.iter().map(Supervised::address).collect(),
        events: actors.events.address(),
        metrics,
    };
    seat.start(&wiring.places.actors, move || Pleg::new(deps.clone()));
    Ok(())
}
