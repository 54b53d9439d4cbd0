use std::path::{Path, PathBuf};

use crate::mounts::MountPoint;

/// Which cgroups a machine uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One hierarchy per controller.
    V1,
    /// As [`CgroupVersion::V1`], with a hierarchy of version 2 beside it that has no controllers.
    Hybrid,
    /// One hierarchy for all controllers.
    V2,
}

/// Where systemd and everybody after it mounts cgroups.
const USUAL_PLACE: &str = "/sys/fs/cgroup";

/// The version and where the hierarchies are mounted; `None` without any.
pub(super) fn hierarchies(mounts: &[MountPoint]) -> Option<(CgroupVersion, Vec<PathBuf>)> {
    let seen_at = |place: &Path| mounts.iter().rfind(|mount| mount.path == place);
    if seen_at(Path::new(USUAL_PLACE)).is_some_and(|mount| mount.fs_type == "cgroup2") {
        return Some((CgroupVersion::V2, vec![PathBuf::from(USUAL_PLACE)]));
    }
    // Containers' roots have hierarchies mounted again: of each the shortest path counts.
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
    Some((version, unique.iter().map(|mount| mount.path.clone()).collect()))
}

fn length(mount: &MountPoint) -> usize {
    mount.path.as_os_str().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::mountinfo;

    fn detect(text: &str) -> Option<(CgroupVersion, Vec<String>)> {
        let (version, paths) = hierarchies(&mountinfo::parse(text.as_bytes()).unwrap())?;
        Some((version, paths.iter().map(|path| path.display().to_string()).collect()))
    }

    #[test]
    fn unified() {
        let text = "30 24 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n\
            31 24 0:40 / /mnt/net_cls rw - cgroup cgroup rw,net_cls\n";
        assert_eq!(detect(text), Some((CgroupVersion::V2, vec!["/sys/fs/cgroup".into()])));
    }

    #[test]
    fn hybrid_with_a_hierarchy_mounted_twice() {
        let text = "30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            31 30 0:30 / /run/containers/x/rootfs/sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n\
            32 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            33 30 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
            34 30 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let paths = ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"];
        assert_eq!(detect(text), Some((CgroupVersion::Hybrid, paths.map(String::from).to_vec())));
    }

    #[test]
    fn version_1_alone_and_none() {
        let text = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(detect(text), Some((CgroupVersion::V1, vec!["/sys/fs/cgroup/memory".into()])));
        assert_eq!(detect("30 24 0:26 / / rw - ext4 /dev/vda rw\n"), None);
    }
}
