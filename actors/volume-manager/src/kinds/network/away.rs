//! Takes ways to disks from the node: only those that the kubelet has brought, and only while nothing uses them.

use std::collections::BTreeSet;

use bridge_node::host::{BlockDisk, SeenDisks};

use super::uses;
use crate::backends::Backends;
use crate::kinds::all_mounts;
use crate::steps::SetUpError;

/// Whether nothing uses these disks.
///
/// # Errors
/// What does.
pub(super) async fn is_idle(
    backends: &Backends,
    seen: &SeenDisks,
    names: &BTreeSet<String>,
) -> Result<(), SetUpError> {
    let mounts = all_mounts(backends).await?;
    match uses::in_use(seen, &mounts, &uses::with_maps(seen, names), &|_| false) {
        Some(why) => Err(SetUpError::Refused(format!("the disk stays on the node, which uses it: {why}"))),
        None => Ok(()),
    }
}

/// Removes these ways to a disk, and the map that joins them, but for the `kept` ones, which are places among the SCSI devices.
///
/// # Errors
/// The node uses one, or it cannot be removed.
pub(super) async fn remove(
    backends: &Backends,
    names: &BTreeSet<String>,
    kept: &BTreeSet<String>,
) -> Result<(), SetUpError> {
    let disks = &backends.network_disks;
    let refused = |error: bridge_node::host::DisksError| SetUpError::Refused(error.to_string());
    let seen = disks.look().await.map_err(refused)?;
    let is_brought = |disk: &&BlockDisk| !kept.contains(&disk.address);
    let brought = names.iter().filter_map(|name| seen.disks.get(name)).filter(is_brought);
    let ways: BTreeSet<String> = brought.map(|disk| disk.name.clone()).collect();
    if ways.is_empty() {
        return Ok(());
    }
    is_idle(backends, &seen, &ways).await?;
    let all = uses::with_maps(&seen, &ways);
    for map in all.difference(&ways) {
        disks.flush_map(map).await.map_err(refused)?;
    }
    for way in ways.iter().filter_map(|name| seen.disks.get(name)) {
        // Joined by a map when it was looked at, which is gone by now: whatever has it since is found by the bridge.
        disks.remove(way.clone()).await.map_err(refused)?;
    }
    Ok(())
}
