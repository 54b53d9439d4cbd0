//! What a demo makes on the machine, and whether any of it is still there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::process::values;

/// Directories that a kubelet makes whatever its root directory is; those that were not there go again.
const SHARED: [&str; 4] = ["/var/lib/kubelet", "/var/log/containers", "/var/log/pods", "/run/mount"];
/// Settings of the kernel that a kubelet changes; they are put back.
const SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// The machine's own state, which is the same before and after.
#[derive(Debug, PartialEq, Eq)]
pub struct Machine {
    directories: Vec<bool>,
    settings: Vec<Option<String>>,
}

impl Machine {
    pub fn look() -> Self {
        let setting = |name: &&str| std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok();
        Self {
            directories: SHARED.iter().map(|path| Path::new(path).exists()).collect(),
            settings: SETTINGS.iter().map(setting).collect(),
        }
    }
}

/// The names of what one demo has made, read while it runs.
#[derive(Debug)]
pub struct Made {
    directory: PathBuf,
    /// Of its containerd: the words of `tests/env/containerd`.
    bridge: String,
    network: String,
    cgroup: String,
    run: PathBuf,
}

impl Made {
    /// From the demo's directory and the settings of the containerd in it, by the name of its directory.
    pub fn on_containers(directory: &Path, containerd: &str) -> Self {
        let names = [
            "UNDERSTUDY_BRIDGE",
            "UNDERSTUDY_CNI_NETWORK",
            "UNDERSTUDY_CGROUP_PARENT",
            "UNDERSTUDY_CRI_SOCKET",
        ];
        let [bridge, network, cgroup, socket] = values(&directory.join(containerd).join("env"), names);
        let run = Path::new(&socket).parent().expect("a socket lies in a directory").to_owned();
        Self { directory: directory.to_owned(), bridge, network, cgroup, run }
    }

    /// Whether rules of the firewall can be read here; its containerd makes some only then.
    pub fn sees_rules() -> bool {
        rules().is_some()
    }

    /// Whatever of it is there, in words for people. While the demo runs, it is all there.
    pub fn there(&self) -> BTreeSet<String> {
        let mut there = BTreeSet::new();
        for path in [&self.directory, &self.run, &Path::new("/sys/class/net").join(&self.bridge)] {
            if path.exists() {
                there.insert(path.display().to_string());
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("every process has mounts");
        let directory = self.directory.display().to_string();
        there.extend(
            mounts.lines().filter(|line| line.contains(&directory)).map(|line| format!("mount {line}")),
        );
        for cgroup in cgroups(&self.cgroup) {
            there.insert(cgroup.display().to_string());
        }
        let rules = rules().unwrap_or_default();
        there.extend(
            rules.lines().filter(|line| line.contains(&self.network)).map(|line| format!("nat {line}")),
        );
        there
    }
}

/// The rules of the table nat, where it can be read.
fn rules() -> Option<String> {
    let output = Command::new("iptables").args(["-w", "10", "-t", "nat", "-S"]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The cgroup in each hierarchy that has it.
fn cgroups(path: &str) -> Vec<PathBuf> {
    let base = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = std::iter::once(base.to_owned()).chain(hierarchies);
    all.map(|hierarchy| hierarchy.join(path.trim_start_matches('/'))).filter(|path| path.is_dir()).collect()
}

/// The processes that inherited this variable, with their command lines. A compiler's cache that was started by the way
/// stays for the next.
pub fn processes(variable: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc is there").flatten() {
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        if read("environ").split(|byte| *byte == 0).any(|one| one == variable.as_bytes()) {
            let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            if !command.contains("sccache") {
                found.push(format!("{} {command}", entry.file_name().display()));
            }
        }
    }
    found
}
