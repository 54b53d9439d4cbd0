//! Wires ObjectCache, which reads the objects that pods refer to from the API server.

use bridge_kube::Traffic;
use messages::object_cache::PodObjectsChanged;
use object_cache::{ObjectCache, ObjectCacheDeps};
use supervision::{Address, Seated};

use super::{Actors, Wiring};

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<ObjectCache>) {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let deps = ObjectCacheDeps {
        api: bridge.cluster_api(Traffic::Objects).map(|api| api as _),
        strategy: settings.objects,
        clock: bridge.clock.clone(),
        observers: observers(actors),
        resend_desired: actors.manager.address(),
        resend_node: actors.resend_node(),
    };
    seat.start(&wiring.places.actors, move || ObjectCache::new(deps.clone()));
}

/// The receivers of changed objects. The pool is last, since its workers ask VolumeManager, which must know of the
/// change by then.
pub(super) fn observers(actors: &Actors) -> Vec<Address<PodObjectsChanged>> {
    vec![actors.volumes.address(), actors.pool.address()]
}
