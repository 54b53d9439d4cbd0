//! PURE: the measured value of each signal, and the thresholds that it has passed.

use std::collections::BTreeMap;

use bridge_node::stats::{FileSystemRoom, NodeUsage, Room};
use pod_spec::quantity::Quantity;

use crate::signal::{Resource, Signal};
use crate::threshold::Threshold;

/// The measured value of one signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Observation {
    pub(crate) available: Quantity,
    pub(crate) capacity: Quantity,
}

/// The values of all signals that could be measured.
pub(crate) type Observations = BTreeMap<Signal, Observation>;

fn observation(room: Room, amount: fn(u64) -> Quantity) -> Observation {
    let left = amount(room.available.unsigned_abs());
    let available = if room.available < 0 { amount(0).minus(left) } else { left };
    Observation { available, capacity: amount(room.capacity) }
}

/// The values of signals in a measurement of the node.
pub(crate) fn observations(usage: &NodeUsage) -> Observations {
    let bytes = |room: Option<Room>| room.map(|room| observation(room, Quantity::binary));
    let count = |room: Option<Room>| room.map(|room| observation(room, Quantity::decimal));
    let on = |file_system: Option<FileSystemRoom>| {
        (bytes(file_system.map(|one| one.bytes)), count(file_system.and_then(|one| one.inodes)))
    };
    let (node_bytes, node_inodes) = on(usage.node_fs);
    let (image_bytes, image_inodes) = on(usage.image_fs);
    let (layer_bytes, layer_inodes) = on(usage.container_fs.or(usage.image_fs));
    let all = [
        (Signal::MemoryAvailable, bytes(usage.memory)),
        (Signal::AllocatableMemoryAvailable, bytes(usage.pods_memory)),
        (Signal::NodeFsAvailable, node_bytes),
        (Signal::NodeFsInodesFree, node_inodes),
        (Signal::ImageFsAvailable, image_bytes),
        (Signal::ImageFsInodesFree, image_inodes),
        (Signal::ContainerFsAvailable, layer_bytes),
        (Signal::ContainerFsInodesFree, layer_inodes),
        (Signal::PidAvailable, count(usage.pids)),
    ];
    all.into_iter().filter_map(|(signal, observed)| Some((signal, observed?))).collect()
}

/// The thresholds that are passed. With `min_reclaim`, also those above which less than their minimum reclaim is
/// available.
pub(crate) fn met(thresholds: &[Threshold], observed: &Observations, min_reclaim: bool) -> Vec<Threshold> {
    let is_met = |threshold: &&Threshold| {
        let Some(seen) = observed.get(&threshold.signal) else { return false };
        let more = threshold.min_reclaim.filter(|_| min_reclaim).map(|more| more.of(seen.capacity));
        let wanted = threshold.value.of(seen.capacity);
        more.map_or(wanted, |more| wanted.plus(more)) > seen.available
    };
    thresholds.iter().filter(is_met).copied().collect()
}

/// The value of the first of these thresholds that is about the resource, and how much of it is available.
pub(crate) fn shortage(
    resource: Resource,
    thresholds: &[Threshold],
    observed: &Observations,
) -> Option<(Quantity, Quantity)> {
    let of = |threshold: &Threshold| {
        let seen = observed.get(&threshold.signal)?;
        Some((threshold.value.of(seen.capacity), seen.available))
    };
    thresholds.iter().filter(|threshold| threshold.signal.resource() == resource).find_map(of)
}
