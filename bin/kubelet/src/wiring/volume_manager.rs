//! Wires VolumeManager, which mounts the volumes of pods.

use std::sync::Arc;

use bridge_csi::{CsiMetrics, Drivers};
use bridge_kube::Traffic;
use prometheus::IntCounterVec;
use supervision::{Seated, Supervised};
use volume_manager::{
    Backends, Csi, Flex, Objects, Showing, VolumeManager, VolumeManagerDeps, VolumeMetrics,
};

use super::Wiring;

pub(super) fn wire(
    wiring: &Wiring<'_>,
    seat: Seated<VolumeManager>,
    rejections: IntCounterVec,
) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let metrics = VolumeMetrics::new();
    metrics.register(wiring.registry)?;
    let deps = VolumeManagerDeps {
        backends: Backends {
            mounts: bridge.mounts.clone(),
            pod_dirs: bridge.dirs.for_owner(messages::volume_manager::RECEIVER),
            events: actors.events.address(),
            volume_objects: bridge.cluster_api(Traffic::Volumes).map(|api| api as _),
            claim_statuses: bridge.cluster_api(Traffic::Volumes).map(|api| api as _),
            clock: bridge.clock.clone(),
            compute: bridge.compute.clone(),
            objects: Objects {
                showing: Showing::default(),
                secrets: actors.objects.asked(),
                config_maps: actors.objects.asked(),
                tokens: actors.objects.asked(),
                in_cluster: bridge.cluster.is_some(),
                node: settings.node_resources.clone(),
            },
            csi: csi(wiring)?,
            flex: Flex::new(bridge.flex_drivers.clone()),
            network_disks: bridge.network_disks.clone(),
            devices: Default::default(),
            attachments: Default::default(),
            selinux: settings.volumes.selinux.clone(),
        },
        sweep: settings.sweep,
        others_watchers: actors.node.iter().map(Supervised::address).collect(),
        driver_watchers: actors.node.iter().map(Supervised::address).collect(),
        resend_node: actors.resend_node(),
        configuration: actors.configuration.address(),
        waiters: actors.pool.address(),
        evict: actors.pool.address(),
        events: actors.events.address(),
        held_pods: actors.pleg.asked(),
        resend_desired: actors.manager.address(),
        metrics,
        rejections: Some(rejections),
        settings: settings.volumes.clone(),
    };
    let changed = wiring.changed();
    seat.start(&wiring.places.actors, move || {
        let mut deps = deps.clone();
        if let Some(now) = changed() {
            deps.backends.objects.node = now.resources.clone();
        }
        VolumeManager::new(deps)
    });
    Ok(())
}

/// CSI drivers, which register below the kubelet's directory.
fn csi(wiring: &Wiring<'_>) -> prometheus::Result<Csi> {
    let Wiring { bridge, settings, .. } = wiring;
    let metrics = CsiMetrics::new()?;
    for collector in metrics.collectors() {
        wiring.registry.register(collector)?;
    }
    let drivers = Arc::new(Drivers::new(bridge.plugins.drivers.clone(), bridge.io.clone(), metrics));
    Ok(Csi {
        node: settings.node.clone(),
        plugins: wiring.plugins.clone(),
        registry: drivers.clone(),
        volumes: drivers.clone(),
        figures: drivers,
        tells_health: settings.volumes.tells_health,
        csi_nodes: bridge.cluster_api(Traffic::Node).map(|api| api as _),
    })
}
