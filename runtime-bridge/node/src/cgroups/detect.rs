use std::path::{Path, PathBuf};

use crate::mounts::MountPoint;

/// The cgroup version of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// Version 1: one hierarchy per controller.
    V1,
    /// The same as [`CgroupVersion::V1`], with an additional hierarchy of version 2 that has no controllers.
    Hybrid,
    /// Version 2: one hierarchy for all controllers.
    V2,
}

impl CgroupVersion {
    /// 1 or 2, as upstream counts: a hybrid machine is 1, since its controllers are those of version 1.
    pub fn number(self) -> i64 {
        if self == Self::V2 { 2 } else { 1 }
    }
}

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// The mount point.
    pub path: PathBuf,
    /// The controllers by the kernel's names, and `systemd` for systemd's own hierarchy of version 1; empty for version
    /// 2, where each cgroup lists its own controllers.
    pub controllers: Vec<String>,
}

impl Hierarchy {
    /// Whether the hierarchy has this controller.
    pub(crate) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|own| own == controller)
    }
}

/// Where systemd and other init systems mount cgroups.
const USUAL_PLACE: &str = "/sys/fs/cgroup";
/// The controllers of version 1; other mount options are no controllers.
const CONTROLLERS: [&str; 14] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

/// The version and the mounted hierarchies; `None` without any.
pub(super) fn hierarchies(mounts: &[MountPoint]) -> Option<(CgroupVersion, Vec<Hierarchy>)> {
    let seen_at = |place: &Path| mounts.iter().rfind(|mount| mount.path == place);
    if seen_at(Path::new(USUAL_PLACE)).is_some_and(|mount| mount.fs_type == "cgroup2") {
        let unified = Hierarchy { path: PathBuf::from(USUAL_PLACE), controllers: Vec::new() };
        return Some((CgroupVersion::V2, vec![unified]));
    }
    // Hierarchies may be mounted again in containers' roots; of each, the mount with the shortest path counts.
    let mut unique: Vec<&MountPoint> = Vec::new();
    for mount in mounts.iter().filter(|mount| mount.fs_type == "cgroup" || mount.fs_type == "cgroup2") {
        match unique.iter_mut().find(|other| other.device == mount.device) {
            Some(other) if length(mount) < length(other) => *other = mount,
            Some(_) => {}
            None => unique.push(mount),
        }
    }
    let of_type = |fs_type| unique.iter().any(|mount| mount.fs_type == fs_type);
    let version = match (of_type("cgroup"), of_type("cgroup2")) {
        (true, true) => CgroupVersion::Hybrid,
        (true, false) => CgroupVersion::V1,
        (false, true) => CgroupVersion::V2,
        (false, false) => return None,
    };
    Some((version, unique.iter().map(|mount| hierarchy(mount)).collect()))
}

fn hierarchy(mount: &MountPoint) -> Hierarchy {
    let controller = |option: &String| match option.strip_prefix("name=") {
        Some(name) => Some(name.to_owned()),
        None => CONTROLLERS.contains(&option.as_str()).then(|| option.clone()),
    };
    let controllers = if mount.fs_type == "cgroup" {
        mount.fs_options.iter().filter_map(controller).collect()
    } else {
        Vec::new()
    };
    Hierarchy { path: mount.path.clone(), controllers }
}

fn length(mount: &MountPoint) -> usize {
    mount.path.as_os_str().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::mountinfo;

    /// Each hierarchy as `path: controllers`.
    fn detect(text: &str) -> Option<(CgroupVersion, Vec<String>)> {
        let (version, found) = hierarchies(&mountinfo::parse(text.as_bytes()).unwrap())?;
        let shown = |one: &Hierarchy| format!("{}: {}", one.path.display(), one.controllers.join(" "));
        Some((version, found.iter().map(shown).collect()))
    }

    #[test]
    fn unified() {
        let text = "30 24 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n\
            31 24 0:40 / /mnt/net_cls rw - cgroup cgroup rw,net_cls\n";
        assert_eq!(detect(text), Some((CgroupVersion::V2, vec!["/sys/fs/cgroup: ".into()])));
    }

    #[test]
    fn hybrid_with_a_hierarchy_mounted_twice() {
        let text = "30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            31 30 0:30 / /run/containers/x/rootfs/sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n\
            32 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            33 30 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            34 30 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let expected = [
            "/sys/fs/cgroup/cpu,cpuacct: cpu cpuacct",
            "/sys/fs/cgroup/systemd: systemd",
            "/sys/fs/cgroup/unified: ",
        ];
        assert_eq!(detect(text), Some((CgroupVersion::Hybrid, expected.map(String::from).to_vec())));
        assert_eq!(CgroupVersion::Hybrid.number(), 1);
    }

    #[test]
    fn version_1_alone_and_none() {
        let text = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(detect(text), Some((CgroupVersion::V1, vec!["/sys/fs/cgroup/memory: memory".into()])));
        assert_eq!(detect("30 24 0:26 / / rw - ext4 /dev/vda rw\n"), None);
    }
}
