//! Wires VolumeManager, which mounts the volumes of pods.

use pod_spec::quantity::Quantity;
use pod_spec::resources::NodeResources;
use supervision::{Seated, Supervised};
use volume_manager::{Backends, Objects, VolumeManager, VolumeManagerDeps, VolumeMetrics};

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<VolumeManager>) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let metrics = VolumeMetrics::new();
    metrics.register(wiring.registry.library())?;
    let deps = VolumeManagerDeps {
        backends: Backends {
            mounts: bridge.mounts.clone(),
            pod_dirs: bridge.dirs.for_owner(messages::volume_manager::RECEIVER),
            allocatable_memory_bytes: allocatable_memory_bytes(&settings.node_resources),
            objects: Objects {
                secrets: actors.objects.asked(),
                config_maps: actors.objects.asked(),
                tokens: actors.objects.asked(),
                in_cluster: bridge.cluster.is_some(),
                node: settings.node_resources.clone(),
            },
        },
        sweep: settings.sweep,
        others_watchers: actors.node.iter().map(Supervised::address).collect(),
        events: actors.events.address(),
        held_pods: actors.pleg.asked(),
        resend_desired: actors.manager.address(),
        metrics,
    };
    seat.start(&wiring.places.actors, move || VolumeManager::new(deps.clone()));
    Ok(())
}

/// The bytes of memory that pods may use: the bound of tmpfs volumes without a size of their own.
fn allocatable_memory_bytes(node: &NodeResources) -> u64 {
    let memory = node.allocatable.get("memory").copied().unwrap_or(Quantity::ZERO);
    u64::try_from(memory.units_rounded_up()).unwrap_or(0)
}
