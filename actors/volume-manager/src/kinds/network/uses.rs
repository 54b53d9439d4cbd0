//! PURE: what the node does with a disk.

use std::collections::BTreeSet;
use std::path::Path;

use bridge_node::host::{BlockDisk, LinksBy, SeenDisks};
use bridge_node::mounts::MountPoint;

/// The names of these ways to a disk, and of the maps that join them.
pub(super) fn with_maps(seen: &SeenDisks, ways: &BTreeSet<String>) -> BTreeSet<String> {
    let is_map = |name: &&String| seen.disks.get(*name).is_some_and(|disk| disk.is_multipath);
    let held = ways.iter().filter_map(|way| seen.disks.get(way)).flat_map(|disk| &disk.holders);
    let maps: BTreeSet<String> = held.filter(is_map).cloned().collect();
    maps.into_iter().chain(ways.iter().cloned()).collect()
}

/// The map that joins these ways, if there is one.
pub(super) fn map_of<'s>(seen: &'s SeenDisks, ways: &BTreeSet<String>) -> Option<&'s BlockDisk> {
    let all = with_maps(seen, ways);
    all.iter().filter_map(|name| seen.disks.get(name)).find(|disk| disk.is_multipath)
}

/// What the node does with one of these devices, in words; mounts that are the volume's own do not count.
pub(super) fn in_use(
    seen: &SeenDisks,
    mounts: &[MountPoint],
    names: &BTreeSet<String>,
    is_own: &dyn Fn(&MountPoint) -> bool,
) -> Option<String> {
    names.iter().filter_map(|name| seen.disks.get(name)).find_map(|disk| {
        let held = disk.holders.iter().find(|holder| !names.contains(*holder));
        let part = disk.parts.values().flat_map(|part| &part.holders).next();
        if let Some(holder) = held.or(part) {
            return Some(format!("{holder} is made of {}", disk.name));
        }
        let paths = paths(seen, disk);
        let has = |path: &Path| paths.iter().any(|own| Path::new(own) == path);
        if let Some(swap) = seen.swaps.iter().find(|swap| has(swap)) {
            return Some(format!("the node swaps to {}", swap.display()));
        }
        if let Some(file) = seen.loops.iter().find(|file| has(file)) {
            return Some(format!("a loop device has {}", file.display()));
        }
        let mount = mounts.iter().filter(|mount| !is_own(mount)).find(|mount| is_of(mount, disk, &paths));
        mount.map(|mount| format!("{} is mounted at {}", disk.name, mount.path.display()))
    })
}

/// What the node does with the same disk by another way, in words: a file system that is mounted by two ways is lost.
pub(super) fn in_use_elsewhere(
    seen: &SeenDisks,
    mounts: &[MountPoint],
    names: &BTreeSet<String>,
) -> Option<String> {
    let own = names.iter().filter_map(|name| seen.disks.get(name)).map(|disk| &disk.wwid);
    let own: BTreeSet<&String> = own.filter(|wwid| !wwid.is_empty()).collect();
    // What a map of these joins is the same use.
    let is_joined = |disk: &BlockDisk| disk.holders.iter().any(|holder| names.contains(holder));
    let is_alike = |disk: &&BlockDisk| own.contains(&disk.wwid) && !names.contains(&disk.name);
    let alike = seen.disks.values().filter(is_alike).filter(|disk| !is_joined(disk));
    let alike: BTreeSet<String> = alike.map(|disk| disk.name.clone()).collect();
    let others = with_maps(seen, &alike).into_iter().filter(|name| !names.contains(name)).collect();
    in_use(seen, mounts, &others, &|_| false)
}

/// The paths that mean a disk or a part of it.
fn paths(seen: &SeenDisks, disk: &BlockDisk) -> BTreeSet<String> {
    let dir = |by: LinksBy| match by {
        LinksBy::Path => "/dev/disk/by-path",
        LinksBy::Id => "/dev/disk/by-id",
    };
    let names = disk.parts.keys().chain([&disk.name]);
    let mut paths: BTreeSet<String> = names.map(|name| format!("/dev/{name}")).collect();
    if !disk.mapper.is_empty() {
        paths.insert(format!("/dev/mapper/{}", disk.mapper));
    }
    let is_of = |name: &String| *name == disk.name || disk.parts.contains_key(name);
    let links = seen.links.iter().filter(|link| is_of(&link.disk));
    paths.extend(links.map(|link| format!("{}/{}", dir(link.by), link.name)));
    paths
}

/// Whether a mount is of the disk or a part of it: its file system, or the device itself in a directory of a pod.
fn is_of(mount: &MountPoint, disk: &BlockDisk, paths: &BTreeSet<String>) -> bool {
    let mut numbers = disk.parts.values().map(|part| part.number).chain([disk.number]);
    if paths.contains(&mount.source) || numbers.any(|number| number != (0, 0) && number == mount.device) {
        return true;
    }
    let below = mount.root.strip_prefix("/dev").or_else(|_| mount.root.strip_prefix("/"));
    let shows_device = |below: &Path| paths.contains(&format!("/dev/{}", below.display()));
    mount.fs_type == "devtmpfs" && below.is_ok_and(shows_device)
}

#[cfg(test)]
mod tests {
    use bridge_node::host::{DiskLink, Partition};

    use super::*;
    use crate::kinds::tests::mount_point;

    fn disk(name: &str, minor: u32, wwid: &str) -> BlockDisk {
        BlockDisk {
            name: name.to_owned(),
            number: (8, minor),
            address: format!("2:0:0:{minor}"),
            wwid: wwid.to_owned(),
            ..BlockDisk::default()
        }
    }

    fn seen(disks: Vec<BlockDisk>) -> SeenDisks {
        let disks = disks.into_iter().map(|disk| (disk.name.clone(), disk)).collect();
        SeenDisks { disks, ..SeenDisks::default() }
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn used(seen: &SeenDisks, mounts: &[MountPoint]) -> Option<String> {
        in_use(seen, mounts, &with_maps(seen, &names(&["sdb"])), &|_| false)
    }

    #[test]
    fn a_disk_is_used_by_mounts_swap_and_what_is_made_of_it() {
        let idle = seen(vec![disk("sdb", 16, ""), disk("sda", 0, "")]);
        let mount = |source: &str, device| MountPoint {
            source: source.to_owned(),
            device,
            ..mount_point("/data", "ext4")
        };
        assert_eq!(used(&idle, &[mount("/dev/sda", (8, 0))]), None);
        let mounted = Some("sdb is mounted at /data".to_owned());
        assert_eq!(
            used(&idle, &[mount("/dev/sdb", (0, 40))]),
            mounted,
            "some file systems have numbers of their own"
        );
        assert_eq!(used(&idle, &[mount("/dev/root", (8, 16))]), mounted);
        let mut by_link = idle.clone();
        by_link.links = vec![DiskLink { by: LinksBy::Id, name: "scsi-1".to_owned(), disk: "sdb".to_owned() }];
        assert_eq!(used(&by_link, &[mount("/dev/disk/by-id/scsi-1", (0, 40))]), mounted);
        let shown = MountPoint { root: "/sdb".into(), ..mount_point("/maps/u", "devtmpfs") };
        assert_eq!(used(&idle, std::slice::from_ref(&shown)).as_deref(), Some("sdb is mounted at /maps/u"));
        let is_own = |mount: &MountPoint| mount.path.starts_with("/maps");
        assert_eq!(in_use(&idle, &[shown], &names(&["sdb"]), &is_own), None);

        let mut swaps = idle.clone();
        swaps.swaps = ["/dev/sdb".into()].into();
        assert_eq!(used(&swaps, &[]).as_deref(), Some("the node swaps to /dev/sdb"));
        let mut loops = idle.clone();
        loops.loops = ["/dev/sdb".into()].into();
        assert_eq!(used(&loops, &[]).as_deref(), Some("a loop device has /dev/sdb"));
        let mut parts = idle.clone();
        let part = Partition { number: (8, 17), holders: names(&["md0"]) };
        parts.disks.get_mut("sdb").expect("a disk").parts.insert("sdb1".to_owned(), part);
        assert_eq!(used(&parts, &[]).as_deref(), Some("md0 is made of sdb"));
        parts.disks.get_mut("sdb").expect("a disk").parts.get_mut("sdb1").expect("a part").holders.clear();
        assert_eq!(used(&parts, &[mount("/dev/sdb1", (8, 17))]), mounted);
        swaps.disks = parts.disks;
        swaps.swaps = ["/dev/sdb1".into()].into();
        assert!(used(&swaps, &[]).is_some());
    }

    #[test]
    fn a_map_of_ways_is_no_use_and_a_volume_group_is() {
        let mut sdb = disk("sdb", 16, "w");
        sdb.holders = names(&["dm-0"]);
        let map = |is_multipath| BlockDisk {
            is_multipath,
            slaves: names(&["sdb"]),
            mapper: "mpatha".to_owned(),
            number: (253, 0),
            ..disk("dm-0", 0, "")
        };
        let joined = seen(vec![sdb.clone(), map(true)]);
        assert_eq!(used(&joined, &[]), None);
        assert_eq!(map_of(&joined, &names(&["sdb"])).map(|map| map.name.as_str()), Some("dm-0"));
        let of_map = MountPoint { source: "/dev/mapper/mpatha".to_owned(), ..mount_point("/data", "ext4") };
        assert_eq!(used(&joined, &[of_map]).as_deref(), Some("dm-0 is mounted at /data"));
        let group = seen(vec![sdb, map(false)]);
        assert_eq!(used(&group, &[]).as_deref(), Some("dm-0 is made of sdb"));
        assert!(map_of(&group, &names(&["sdb"])).is_none());
    }

    #[test]
    fn another_way_to_the_same_disk_is_known_by_the_disks_number() {
        let two = seen(vec![disk("sdb", 16, "w"), disk("sdc", 32, "w"), disk("sdd", 48, "")]);
        let mount =
            [MountPoint { source: "/dev/sdc".to_owned(), device: (8, 32), ..mount_point("/data", "ext4") }];
        let own = names(&["sdb"]);
        assert_eq!(in_use_elsewhere(&two, &mount, &own).as_deref(), Some("sdc is mounted at /data"));
        assert_eq!(in_use_elsewhere(&two, &mount, &names(&["sdd"])), None, "it tells no number");
        assert_eq!(in_use_elsewhere(&two, &[], &own), None);
    }
}
