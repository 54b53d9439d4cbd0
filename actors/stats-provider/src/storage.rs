//! PURE: figures of disks: file systems, writable layers, logs, and what a pod uses of the node's own disk.

use bridge_node::stats::DiskUsage;
use bridge_node::stats::usage::{Reading, Space};
use jiff::Timestamp;
use messages::stats::{ContainerStats, FsStats, PvcReference, Time, VolumeHealthStats, VolumeStats};
use messages::volume_manager::{self, PodVolumeStats};

use crate::told::Layer;

/// A file system of which nothing is known but the time.
fn unknown(at: Timestamp) -> FsStats {
    FsStats {
        time: Time(at),
        available_bytes: None,
        capacity_bytes: None,
        used_bytes: None,
        inodes_free: None,
        inodes: None,
        inodes_used: None,
    }
}

fn of_space(at: Timestamp, space: Option<&Space>) -> FsStats {
    FsStats {
        available_bytes: space.map(|space| space.available),
        capacity_bytes: space.map(|space| space.capacity),
        inodes_free: space.and_then(|space| space.inodes_free),
        inodes: space.and_then(|space| space.inodes),
        ..unknown(at)
    }
}

/// The node's own file system as a whole.
pub(crate) fn node_fs(reading: &Reading) -> Option<FsStats> {
    let space = reading.node_space.as_ref()?;
    let inodes = space.inodes.zip(space.inodes_free);
    Some(FsStats {
        used_bytes: Some(space.capacity.saturating_sub(space.free)),
        inodes_used: inodes.map(|(all, free)| all.saturating_sub(free)),
        ..of_space(reading.at, Some(space))
    })
}

/// A part of a file system of the runtime.
pub(crate) fn layer_fs(layer: &Layer, reading: &Reading) -> FsStats {
    let space = layer.mount_point.as_ref().and_then(|path| reading.spaces.get(path));
    FsStats { used_bytes: layer.used_bytes, inodes_used: layer.inodes_used, ..of_space(layer.at, space) }
}

/// The logs of a container, which lie on the node's own file system.
pub(crate) fn logs_fs(logs: DiskUsage, reading: &Reading) -> FsStats {
    FsStats {
        used_bytes: Some(logs.bytes),
        inodes_used: Some(logs.inodes),
        ..of_space(reading.at, reading.node_space.as_ref())
    }
}

/// What a pod uses of the node's own disk: its containers' writable layers and logs, of its volumes those on that disk, and what
/// else its containers have filled, which is `own`.
/// `volumes` has `None` for a volume of which nothing is known, and `is_whole` says whether all layers, logs and volumes were told
/// of. A sum that lacks a part is less than what the pod uses, so it is left out.
pub(crate) fn ephemeral(
    containers: &[ContainerStats],
    volumes: impl Iterator<Item = Option<FsStats>>,
    own: DiskUsage,
    mut is_whole: bool,
    reading: &Reading,
) -> Option<FsStats> {
    reading.node_space.as_ref()?;
    let mut sum = of_space(reading.at, reading.node_space.as_ref());
    let of_containers = containers.iter().flat_map(|one| one.rootfs.iter().chain(&one.logs).cloned());
    for part in of_containers.map(Some).chain(volumes) {
        let Some(part) = part else {
            is_whole = false;
            continue;
        };
        sum.used_bytes = add(sum.used_bytes, part.used_bytes);
        sum.inodes_used = add(sum.inodes_used, part.inodes_used);
        sum.time = sum.time.max(part.time);
    }
    if own.inodes > 0 {
        sum.used_bytes = add(sum.used_bytes, Some(own.bytes));
        sum.inodes_used = add(sum.inodes_used, Some(own.inodes));
    }
    if !is_whole {
        (sum.used_bytes, sum.inodes_used) = (None, None);
    }
    Some(sum)
}

fn volume_fs(volume: &volume_manager::VolumeStats) -> Option<FsStats> {
    let usage = volume.usage.as_ref()?;
    Some(FsStats {
        time: Time(volume.measured_at),
        available_bytes: Some(usage.available_bytes),
        capacity_bytes: Some(usage.capacity_bytes),
        used_bytes: Some(usage.used_bytes),
        inodes_free: Some(usage.inodes_free),
        inodes: Some(usage.inodes),
        inodes_used: Some(usage.inodes_used),
    })
}

/// The volumes that count to the pod's use of the node's own disk; `None` for one of which nothing is known.
pub(crate) fn on_node_disk(volumes: &PodVolumeStats) -> impl Iterator<Item = Option<FsStats>> {
    volumes.values().filter(|volume| volume.on_node_disk).map(volume_fs)
}

/// The volumes of a pod of this namespace, as VolumeManager has measured them.
pub(crate) fn volumes(volumes: &PodVolumeStats, namespace: &str) -> Vec<VolumeStats> {
    let one = |(name, volume): (&String, &volume_manager::VolumeStats)| {
        let claim = |name: &String| PvcReference { name: name.clone(), namespace: namespace.to_owned() };
        let condition = volume.usage.as_ref()?.condition.as_ref();
        Some(VolumeStats {
            fs: volume_fs(volume)?,
            name: name.clone(),
            pvc_ref: volume.claim.as_ref().map(claim),
            volume_health_stats: condition.map(|one| VolumeHealthStats { abnormal: one.abnormal }),
        })
    };
    volumes.iter().filter_map(one).collect()
}

fn add(sum: Option<u64>, one: Option<u64>) -> Option<u64> {
    match (sum, one) {
        (None, None) => None,
        (sum, one) => Some(sum.unwrap_or(0).saturating_add(one.unwrap_or(0))),
    }
}
