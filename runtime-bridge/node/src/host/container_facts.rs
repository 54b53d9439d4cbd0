//! Facts about the machine that every container's configuration depends on. They do not change while the kubelet runs.

use std::fs;
use std::path::Path;

use super::SelinuxLabels;
use crate::cgroups::CgroupVersion;
use crate::mounts::{MountPoint, mountinfo};
use crate::tenant_files;

/// The facts that containers are configured by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Whether the kernel accounts for swap by cgroup.
    pub swap_controller: bool,
    /// The sizes of huge pages in bytes, ascending.
    pub huge_page_sizes: Vec<u64>,
    /// Files that show the CPUs' temperature, by CPU; containers must not read them.
    pub thermal_paths: Vec<String>,
    /// Whether SELinux is on and this process is subject to it.
    pub selinux: bool,
    /// The labels of containers; `None` where SELinux is not on, or its policy does not tell.
    pub selinux_labels: Option<SelinuxLabels>,
}

impl ContainerFacts {
    /// Reads /proc and /sys, which takes microseconds. A fact that cannot be read counts as absent.
    pub fn of_this_machine(cgroups: CgroupVersion) -> Self {
        Self::below(Path::new("/"), cgroups)
    }

    fn below(root: &Path, cgroups: CgroupVersion) -> Self {
        let swap = match cgroups {
            CgroupVersion::V1 | CgroupVersion::Hybrid => {
                Some("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes".to_owned())
            }
            // The root cgroup has no such file, so the kubelet's own cgroup is checked.
            CgroupVersion::V2 => own_cgroup(&read(root, "proc/self/cgroup"))
                .map(|cgroup| format!("sys/fs/cgroup{cgroup}/memory.swap.max")),
        };
        let selinux = is_selinux_on(root);
        Self {
            swap_controller: swap.is_some_and(|file| root.join(file).exists()),
            huge_page_sizes: huge_page_sizes(&root.join("sys/kernel/mm/hugepages")),
            thermal_paths: thermal_paths(root),
            selinux,
            selinux_labels: if selinux { SelinuxLabels::below(root) } else { None },
        }
    }
}

fn read(root: &Path, path: &str) -> String {
    tenant_files::kernel_text(&root.join(path)).unwrap_or_default()
}

fn own_cgroup(text: &str) -> Option<String> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.trim_end_matches('/').to_owned())
}

/// Whether SELinux is on for this process on the machine whose root directory this is.
pub(super) fn is_selinux_on(root: &Path) -> bool {
    selinux(&read(root, "proc/self/mountinfo"), &read(root, "proc/self/attr/current"))
}

/// Whether SELinux is on, as container runtimes judge: its file system is mounted and writable, and this process has a
/// label other than the kernel's.
fn selinux(mounts: &str, label: &str) -> bool {
    let mounts = mountinfo::parse(mounts.as_bytes()).unwrap_or_default();
    let writable =
        |mount: &MountPoint| !mount.options.iter().chain(&mount.fs_options).any(|option| option == "ro");
    let mounted = mounts.iter().any(|mount| mount.fs_type == "selinuxfs" && writable(mount));
    mounted && label.trim_end_matches(['\0', '\n']) != "kernel"
}

fn huge_page_sizes(dir: &Path) -> Vec<u64> {
    let size = |name: &str| {
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        kib.checked_mul(1024)
    };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut sizes: Vec<u64> = entries.filter_map(|entry| size(entry.file_name().to_str()?)).collect();
    sizes.sort_unstable();
    sizes
}

fn thermal_paths(root: &Path) -> Vec<String> {
    let cpus = cpu_list(&read(root, "sys/devices/system/cpu/possible"));
    let paths = cpus.into_iter().map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle"));
    paths.filter(|path| root.join(path.trim_start_matches('/')).exists()).collect()
}

/// The numbers of a list such as `0-3,6`; empty for a text that is no list.
fn cpu_list(text: &str) -> Vec<u16> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A machine's root directory with these files.
    pub(crate) fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_machine_with_everything() {
        let root = machine(&[
            ("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", ""),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0"),
            ("sys/kernel/mm/hugepages/other/x", "0"),
            ("sys/devices/system/cpu/possible", "0-1,3\n"),
            ("sys/devices/system/cpu/cpu0/thermal_throttle/x", ""),
            ("sys/devices/system/cpu/cpu3/thermal_throttle/x", ""),
            ("sys/devices/system/cpu/cpu7/thermal_throttle/x", ""),
        ]);
        let facts = ContainerFacts::below(root.path(), CgroupVersion::Hybrid);
        assert!(facts.swap_controller && !facts.selinux);
        assert_eq!(facts.huge_page_sizes, [2 << 20, 1 << 30]);
        let path = |cpu| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
        assert_eq!(facts.thermal_paths, [path(0), path(3)]);
        assert!(!ContainerFacts::below(root.path(), CgroupVersion::V2).swap_controller);
    }

    #[test]
    fn selinux_is_on_where_its_files_are_and_the_process_is_under_it() {
        let mounted = "30 28 0:7 / /sys/fs/selinux rw,relatime shared:19 - selinuxfs selinuxfs rw\n";
        assert!(selinux(mounted, "system_u:system_r:kubelet_t:s0\0"));
        assert!(!selinux(mounted, "kernel\0"));
        assert!(!selinux(&mounted.replace(" rw,", " ro,"), "system_u:system_r:kubelet_t:s0\0"));
        assert!(!selinux("", "unconfined\n"));
    }

    #[test]
    fn a_machine_with_selinux_tells_the_labels_of_containers() {
        let contexts = "process = \"u:r:p_t:s0\"\nfile = \"u:object_r:f_t:s0\"\n";
        let mounted = "30 28 0:7 / /sys/fs/selinux rw,relatime shared:19 - selinuxfs selinuxfs rw\n";
        let mut files = vec![
            ("usr/share/containers/selinux/contexts", contexts),
            ("proc/self/attr/current", "system_u:system_r:kubelet_t:s0"),
        ];
        let off = ContainerFacts::below(machine(&files).path(), CgroupVersion::V2);
        assert_eq!((off.selinux, off.selinux_labels), (false, None), "it is installed and not on");
        files.push(("proc/self/mountinfo", mounted));
        let on = ContainerFacts::below(machine(&files).path(), CgroupVersion::V2);
        let labels = on.selinux_labels.expect("the policy tells");
        assert_eq!(labels.of_files(None, Some("s0:c7")).as_deref(), Some("u:object_r:f_t:s0:c7"));
    }

    #[test]
    fn in_version_2_the_own_cgroup_tells_of_swap() {
        let root = machine(&[
            ("proc/self/cgroup", "1:name=x:/other\n0::/system.slice/kubelet\n"),
            ("sys/fs/cgroup/system.slice/kubelet/memory.swap.max", "max"),
        ]);
        assert!(ContainerFacts::below(root.path(), CgroupVersion::V2).swap_controller);
        assert!(!ContainerFacts::below(root.path(), CgroupVersion::V1).swap_controller);
        assert_eq!(own_cgroup("0::/\n").as_deref(), Some(""));
    }

    #[test]
    fn a_machine_that_tells_nothing() {
        let root = machine(&[("sys/devices/system/cpu/possible", "what\n")]);
        for version in [CgroupVersion::V1, CgroupVersion::Hybrid, CgroupVersion::V2] {
            assert_eq!(ContainerFacts::below(root.path(), version), ContainerFacts::default());
        }
    }
}
