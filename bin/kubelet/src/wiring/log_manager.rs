//! Wires LogManager, which rotates the logs of running containers.

use log_manager::{Backends, LogManager, LogManagerDeps};
use supervision::Seated;

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<LogManager>) {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let deps = LogManagerDeps {
        backends: Backends { runtime: wiring.operations.clone(), logs: bridge.logs.clone() },
        clock: bridge.clock.clone(),
        rotation: settings.logs,
        pleg: actors.pleg.address(),
        configuration: actors.configuration.address(),
    };
    let changed = wiring.changed();
    seat.start(&wiring.places.actors, move || {
        let rotation = changed().map_or(deps.rotation, |now| now.rotation);
        LogManager::new(LogManagerDeps { rotation, ..deps.clone() })
    });
}
