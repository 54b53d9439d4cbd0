//! No open of a file that a pod can reach waits: `bridge_node`'s module of that name opens these. Every other place that opens
//! files is listed here, with the reason why no pod reaches them, or why opening them never waits.

use std::collections::BTreeMap;

use crate::source::files;

/// Where the kubelet opens files; the companion is no part of it.
const SEARCHED: [&str; 4] = ["runtime-bridge", "bin/kubelet", "actors", "messages"];
/// The module that opens what pods reach.
const OPENER: &str = "runtime-bridge/node/src/tenant_files.rs";
/// The calls that open a file.
const CALLS: [&str; 12] = [
    "File::open(",
    "File::create(",
    "File::create_new(",
    "File::options(",
    "OpenOptions::new(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::write(",
    "fs::copy(",
    "fs::open(",
    "openat(",
    "openat2(",
];

const ADMINISTRATORS: &str = "a file that the configuration of the node names; no pod is given it";
const DIRECTORIES: &str =
    "directories alone, by O_DIRECTORY: a lease is held on files, and nothing else is opened";
const KUBELETS_PROCESS: &str =
    "/proc of the kubelet's own mount namespace: containers have another instance of it";
const OWN_DIRECTORY: &str =
    "below the kubelet's own directory, in a directory of which no pod is given a part";

/// Other files of the sources that open files, how many opens each has, and why these wait for no pod.
const ELSEWHERE: &[(&str, usize, &str)] = &[
    ("bin/kubelet/src/config/document.rs", 1, ADMINISTRATORS),
    ("bin/kubelet/src/credential_providers/mod.rs", 1, ADMINISTRATORS),
    (
        "bin/kubelet/src/daemon.rs",
        2,
        "the host's name in /proc, and the node's resolv.conf, before there is a pod",
    ),
    ("bin/kubelet/src/identity.rs", 1, ADMINISTRATORS),
    ("runtime-bridge/kube/src/kubeconfig/pem.rs", 1, ADMINISTRATORS),
    (
        "runtime-bridge/node/src/beneath.rs",
        5,
        "with O_PATH, which opens nothing, directories, and the kubelet's own /proc",
    ),
    ("runtime-bridge/node/src/cgroups/own.rs", 1, KUBELETS_PROCESS),
    ("runtime-bridge/node/src/checkpoint/dir.rs", 4, OWN_DIRECTORY),
    ("runtime-bridge/node/src/du.rs", 1, DIRECTORIES),
    ("runtime-bridge/node/src/host/container_logs/disk.rs", 2, DIRECTORIES),
    ("runtime-bridge/node/src/host/docker_configs/disk.rs", 1, ADMINISTRATORS),
    ("runtime-bridge/node/src/host/kernel_settings.rs", 2, "/proc/sys, before there is an actor"),
    ("runtime-bridge/node/src/host/lock.rs", 2, ADMINISTRATORS),
    (
        "runtime-bridge/node/src/host/network_disks/exec.rs",
        2,
        "a file of the kernel in /sys, and a block device of the node: a lease is held on regular files",
    ),
    (
        "runtime-bridge/node/src/host/network_disks/records.rs",
        2,
        "records of iscsiadm, in a directory of the node",
    ),
    (
        "runtime-bridge/node/src/host/network_disks/sysfs.rs",
        2,
        "/sys, and /proc of the kubelet's own mount namespace",
    ),
    ("runtime-bridge/node/src/host/own_process.rs", 1, KUBELETS_PROCESS),
    ("runtime-bridge/node/src/host/own_use.rs", 1, KUBELETS_PROCESS),
    ("runtime-bridge/node/src/host/pod_dirs/disk.rs", 1, KUBELETS_PROCESS),
    ("runtime-bridge/node/src/host/pull_records/disk.rs", 1, DIRECTORIES),
    ("runtime-bridge/node/src/host/remove_tree.rs", 4, DIRECTORIES),
    ("runtime-bridge/node/src/host/selinux.rs", 3, "the node's policy in /etc/selinux, read once"),
    ("runtime-bridge/node/src/host/static_files/read.rs", 1, ADMINISTRATORS),
    ("runtime-bridge/node/src/host/system_logs.rs", 1, DIRECTORIES),
    ("runtime-bridge/node/src/mounts/atomic.rs", 6, DIRECTORIES),
    (
        "runtime-bridge/node/src/mounts/devices.rs",
        1,
        "a block device of the node: a lease is held on regular files",
    ),
    (
        "runtime-bridge/node/src/mounts/format.rs",
        1,
        "a block device of the node: a lease is held on regular files",
    ),
    ("runtime-bridge/node/src/mounts/mountinfo.rs", 1, KUBELETS_PROCESS),
    ("runtime-bridge/node/src/mounts/notes.rs", 1, "a new file by O_EXCL, on which nothing holds a lease"),
    ("runtime-bridge/node/src/mounts/ownership.rs", 3, "with O_PATH, which opens nothing, and directories"),
    ("runtime-bridge/node/src/mounts/program/group.rs", 1, KUBELETS_PROCESS),
    ("runtime-bridge/node/src/mounts/subpath.rs", 3, "with O_PATH, a directory, and a new file by O_EXCL"),
    ("runtime-bridge/node/src/mounts/swap.rs", 2, KUBELETS_PROCESS),
    ("runtime-bridge/node/src/mounts/sys.rs", 1, DIRECTORIES),
    ("runtime-bridge/tls/src/certificates/request.rs", 1, OWN_DIRECTORY),
    ("runtime-bridge/tls/src/certificates/store.rs", 3, OWN_DIRECTORY),
    ("runtime-bridge/tls/src/serving/files.rs", 2, ADMINISTRATORS),
];

/// How many calls of this code open files.
fn opens(code: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let calls = |call: &&str| {
        let at = code.match_indices(*call).map(|(at, _)| at);
        at.filter(|at| !code[..*at].ends_with(is_part)).count()
    };
    CALLS.iter().map(calls).sum()
}

#[test]
fn only_the_opener_opens_what_pods_can_reach() {
    let mut found = BTreeMap::new();
    for file in SEARCHED.iter().flat_map(|directory| files(directory)) {
        let opened = opens(&file.code());
        // Fakes are in no kubelet that is shipped.
        if opened > 0 && file.path != OPENER && !file.path.contains("/fake") {
            found.insert(file.path, opened);
        }
    }
    let listed: BTreeMap<String, usize> =
        ELSEWHERE.iter().map(|(path, opens, _)| ((*path).to_owned(), *opens)).collect();
    assert_eq!(
        listed, found,
        "left: the list; right: the sources. What a pod can reach is opened by {OPENER}; what it cannot is listed, with the reason"
    );
}

#[test]
fn opens_are_recognised() {
    assert_eq!(opens("let file = File::open(path)?;"), 1);
    assert_eq!(opens("let text = std::fs::read_to_string(path)?; rustix::fs::openat2(dir, name)"), 2);
    assert_eq!(opens("let log = LogFile::open(&io, path); tenant_files::read(path); open_beneath(dir)"), 0);
}
