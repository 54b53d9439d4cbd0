//! Statistics from trees of files that behave like the kernel's, in either version, and from this machine.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::runtime::Handle;

use super::*;
use crate::cgroups::{CgroupDriver, CgroupNames, CgroupVersion, Hierarchy};

const MIB: u64 = 1 << 20;

fn put(root: &Path, files: &[(&str, &str)]) {
    for (file, content) in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// A machine of 1000 MiB below `root`, and a limit of 4000 processes.
fn machine(root: &Path, version: CgroupVersion, controllers: &[&str]) -> SystemStats {
    let meminfo = "MemTotal:        1024000 kB\nMemFree:          512000 kB\n";
    put(
        root,
        &[
            ("proc/meminfo", meminfo),
            ("proc/sys/kernel/pid_max", "32768\n"),
            ("proc/sys/kernel/threads-max", "4000\n"),
            ("proc/loadavg", "0.10 0.20 0.30 2/350 4711\n"),
            ("kubelet/x", ""),
        ],
    );
    SystemStats::at(places(root, version, controllers), Handle::current())
}

fn places(root: &Path, version: CgroupVersion, controllers: &[&str]) -> Places {
    Places {
        version,
        hierarchies: vec![Hierarchy {
            path: root.join("cgroup"),
            controllers: controllers.iter().map(|one| (*one).to_owned()).collect(),
        }],
        names: CgroupNames::new(CgroupDriver::Cgroupfs, "/").unwrap(),
        root: root.join("kubelet"),
        proc: root.join("proc"),
    }
}

fn pod(uid: &str, root: &Path) -> PodPlaces {
    let place = |path: &str| BTreeMap::from([(path.to_owned(), root.join(path))]);
    PodPlaces {
        uid: uid.into(),
        namespace: "ns".into(),
        qos: QosClass::Burstable,
        logs: place("logs"),
        volumes: place("volume"),
    }
}

const BOTH: Wanted = Wanted { memory: true, disk: true };

#[tokio::test]
async fn version_1_counts_what_cannot_be_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let stats = machine(root, CgroupVersion::Hybrid, &["memory"]);
    let usage = (400 * MIB).to_string();
    let stat = format!("inactive_file 1\ntotal_inactive_file {}\n", 100 * MIB);
    let limit = (800 * MIB).to_string();
    put(
        root,
        &[
            ("cgroup/memory.usage_in_bytes", &usage),
            ("cgroup/memory.stat", &stat),
            ("cgroup/kubepods/memory.usage_in_bytes", &usage),
            ("cgroup/kubepods/memory.stat", &stat),
            ("cgroup/kubepods/memory.limit_in_bytes", &limit),
            ("cgroup/kubepods/burstable/poda/memory.usage_in_bytes", "1000\n"),
            ("cgroup/kubepods/burstable/poda/memory.stat", "total_inactive_file 5000\n"),
            ("volume/file", "content"),
        ],
    );
    let node = stats.node(RuntimePlaces::default()).await.unwrap();
    assert_eq!(node.problems, [""; 0]);
    assert_eq!(node.memory, Some(Room { available: (700 * MIB) as i64, capacity: 1000 * MIB }));
    assert_eq!(node.pods_memory, Some(Room { available: (500 * MIB) as i64, capacity: 800 * MIB }));
    assert_eq!(node.pids, Some(Room { available: 3650, capacity: 4000 }));
    assert_eq!((node.image_fs, node.container_fs), (None, None), "nobody has said where");
    let pods = stats.pods(vec![pod("a", root), pod("b", root)], BOTH).await.unwrap();
    assert_eq!(pods.keys().collect::<Vec<_>>(), ["a"], "b has no cgroup");
    assert_eq!(pods["a"].memory_bytes, Some(0), "never negative");
    assert_eq!((pods["a"].volumes["volume"].inodes, pods["a"].logs.len()), (2, 0));
    let unlimited = i64::MAX.to_string();
    put(root, &[("cgroup/kubepods/memory.limit_in_bytes", &unlimited)]);
    let node = stats.node(RuntimePlaces::default()).await.unwrap();
    assert_eq!((node.pods_memory, node.problems.len()), (None, 0));
}

#[tokio::test]
async fn version_2_has_no_figure_for_its_root() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let stats = machine(root, CgroupVersion::V2, &[]);
    let stat = format!("anon {}\nfile {}\ninactive_file {}\n", 200 * MIB, 300 * MIB, 150 * MIB);
    let current = (90 * MIB).to_string();
    put(
        root,
        &[
            ("cgroup/memory.stat", &stat),
            ("cgroup/kubepods/memory.stat", &format!("inactive_file {}\n", 40 * MIB)),
            ("cgroup/kubepods/memory.current", &current),
            ("cgroup/kubepods/memory.max", "max\n"),
            ("cgroup/kubepods/burstable/poda/memory.current", &current),
            ("cgroup/kubepods/burstable/poda/memory.stat", &format!("inactive_file {}\n", 10 * MIB)),
            ("logs/0.log", "some words"),
        ],
    );
    let node = stats.node(RuntimePlaces::default()).await.unwrap();
    assert_eq!(node.memory, Some(Room { available: (650 * MIB) as i64, capacity: 1000 * MIB }));
    assert_eq!((node.pods_memory, node.problems.len()), (None, 0), "pods are not bounded");
    put(root, &[("cgroup/kubepods/memory.max", &(100 * MIB).to_string())]);
    let node = stats.node(RuntimePlaces::default()).await.unwrap();
    assert_eq!(node.pods_memory, Some(Room { available: (50 * MIB) as i64, capacity: 100 * MIB }));
    let pods = stats.pods(vec![pod("a", root)], BOTH).await.unwrap();
    assert_eq!(pods["a"].memory_bytes, Some(80 * MIB));
    assert_eq!(pods["a"].logs["logs"].inodes, 1);
    let memory = Wanted { memory: true, disk: false };
    assert_eq!(stats.pods(vec![pod("a", root)], memory).await.unwrap()["a"].logs.len(), 0);
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_holds_nothing_else_up() {
    let dir = tempfile::tempdir().unwrap();
    let stats = machine(dir.path(), CgroupVersion::V2, &[]);
    let missing = RuntimePlaces { images: Some(dir.path().join("none")), containers: None };
    let node = stats.node(missing).await.unwrap();
    assert_eq!((node.memory, node.pods_memory, node.image_fs), (None, None, None));
    assert!(node.node_fs.is_some() && node.pids.is_some());
    let about: Vec<&str> = node.problems.iter().filter_map(|text| text.split(':').next()).collect();
    assert_eq!(about, ["memory", "memory of pods", "imagefs"]);
}

async fn contract(stats: &dyn NodeStats) {
    let root = RuntimePlaces { images: Some("/".into()), containers: Some("/".into()) };
    let node = stats.node(root).await.unwrap();
    let memory = node.memory.unwrap();
    assert!(memory.available > 0 && memory.available as u64 <= memory.capacity, "{node:?}");
    let pids = node.pids.unwrap();
    assert!(pids.available > 0 && (pids.available as u64) < pids.capacity, "{node:?}");
    let (node_fs, image_fs) = (node.node_fs.unwrap(), node.image_fs.unwrap());
    assert_eq!(node_fs.device, image_fs.device);
    assert!(node_fs.bytes.available > 0 && node_fs.bytes.available as u64 <= node_fs.bytes.capacity);
}

#[tokio::test]
async fn both_keep_the_contract() {
    contract(&FakeStats::default()).await;
    let names = CgroupNames::new(CgroupDriver::Cgroupfs, "/").unwrap();
    match SystemStats::detect(names, Path::new("/"), Handle::current()) {
        Ok(stats) => contract(&stats).await,
        Err(error) => eprintln!("skipped: {error}"),
    }
}

#[tokio::test]
async fn a_pods_disk_is_counted_without_its_cgroup_and_cut_off_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let stats = machine(root, CgroupVersion::V2, &[]);
    put(
        root,
        &[("volume/a/file", "content"), ("logs/0.log", "words"), ("logs/0.log.20260102-150405.gz", "old")],
    );
    let found = stats.disk(pod("a", root), Duration::from_secs(60)).await.unwrap();
    assert_eq!((found.volumes["volume"].inodes, found.logs["logs"].inodes, found.cut), (3, 2, false));
    assert_eq!(found.own, DiskUsage::default());
    let late = stats.disk(pod("a", root), Duration::ZERO).await.unwrap();
    assert!(late.cut && late.volumes["volume"].inodes < 3, "{late:?}");
}

#[tokio::test]
async fn what_containers_fill_beside_volumes_counts_as_the_pods() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let stats = machine(root, CgroupVersion::V2, &["memory"]);
    let large = "x".repeat(100_000);
    put(
        root,
        &[
            ("cgroup/kubepods/burstable/poda/memory.stat", ""),
            ("kubelet/pods/a/etc-hosts", &large),
            ("kubelet/pods/a/containers/web/0a1b2c3d", &large),
            ("kubelet/pods/a/volumes/none/large", &large),
            ("kubelet/pods/b/etc-hosts", &large),
        ],
    );
    let disk = stats.disk(pod("a", root), Duration::from_secs(60)).await.unwrap();
    assert_eq!(disk.own.inodes, 4, "two files and two directories");
    assert!((200_000..300_000).contains(&disk.own.bytes), "{disk:?}");
    let pods = stats.pods(vec![pod("a", root)], BOTH).await.unwrap();
    assert_eq!(pods["a"].own, disk.own);
    let memory = Wanted { memory: true, disk: false };
    let pods = stats.pods(vec![pod("a", root)], memory).await.unwrap();
    assert_eq!(pods["a"].own, DiskUsage::default(), "it was not wanted");
}

#[test]
fn a_pod_with_too_many_names_is_cut_off_and_takes_nothing_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (large, small) = (root.join("large"), root.join("small"));
    for pod in ["a", "b"] {
        put(root, &[(&format!("cgroup/kubepods/burstable/pod{pod}/memory.stat"), "")]);
    }
    put(&large, &[("volume/0", "x")]);
    for number in 1..100 {
        fs::hard_link(large.join("volume/0"), large.join(format!("volume/{number}"))).unwrap();
    }
    put(&small, &[("volume/file", "content")]);
    let places = places(root, CgroupVersion::V2, &[]);
    let pods = [pod("a", &large), pod("b", &small)];
    let found = places.pods(&pods, BOTH, 30, Duration::from_secs(600));
    assert_eq!((found["a"].cut, found["b"].cut), (true, false));
    assert_eq!(found["b"].volumes["volume"].inodes, 2);
    let found = places.pods(&pods, BOTH, 1000, Duration::from_secs(600));
    assert_eq!((found["a"].cut, found["a"].volumes["volume"].inodes), (false, 2));
    let late = places.pods(&pods, BOTH, 1000, Duration::ZERO);
    assert!(late["a"].cut && late["b"].cut, "without time both are unknown: {late:?}");
}
