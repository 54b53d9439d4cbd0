//! Wires GarbageCollector, which removes dead containers, superseded sandboxes and orphaned logs.

use garbage_collector::{Backends, GarbageCollector, GarbageCollectorDeps};
use supervision::Seated;

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<GarbageCollector>) {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let deps = GarbageCollectorDeps {
        backends: Backends {
            pods: wiring.operations.clone(),
            dirs: bridge.dirs.for_owner(messages::garbage_collector::RECEIVER),
        },
        clock: bridge.clock.clone(),
        policy: settings.garbage,
        manager: actors.manager.address(),
        pleg: actors.pleg.address(),
        pool: actors.pool.address(),
        touched: actors.pleg.address(),
        events: actors.events.address(),
    };
    seat.start(&wiring.places.actors, move || GarbageCollector::new(deps.clone()));
}
