//! Readings of trees of files that behave like the kernel's, in either version, and of this machine. The texts are those of
//! real machines, shortened.

use std::fs;
use std::sync::Arc;

use bridge_io::clock::{Clock, SystemClock};
use tokio::runtime::Handle;

use super::*;
use crate::cgroups::{CgroupDriver, CgroupNames, CgroupVersion, Hierarchy};
use crate::stats::{Places, SystemStats};

const SANDBOX: &str = "51b0";
const CONTAINER: &str = "c0ffee";
const NET_DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    4096      10    0    0    0     0          0         0     4096      10    0    0    0     0       0          0
  eth0:550245105   50096    1    2    0     0          0         0  4091941   43740    3    4    0     0       0          0
";
const MEMINFO: &str =
    "MemTotal:        1024000 kB\nMemFree: 512000 kB\nSwapTotal: 2000 kB\nSwapFree: 500 kB\n";
const CPUINFO: &str = "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t\t: 0\n\n\
    processor\t: 2\nphysical id\t: 1\ncore id\t\t: 0\n";

fn put(root: &std::path::Path, files: &[(&str, &str)]) {
    for (file, content) in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

fn machine(root: &std::path::Path) {
    put(
        root,
        &[
            ("proc/meminfo", MEMINFO),
            ("proc/stat", "cpu  1 2 3\nbtime 1795000000\nprocesses 4\n"),
            ("proc/cpuinfo", CPUINFO),
            ("proc/partitions", "major minor  #blocks  name\n\n   8        0   10485760 sda\n"),
            ("proc/sys/kernel/pid_max", "32768\n"),
            ("proc/loadavg", "0.10 0.20 0.30 2/350 4711\n"),
            ("proc/1/net/dev", NET_DEV),
            ("proc/77/net/dev", NET_DEV),
            ("proc/77/fd/0", ""),
            (
                "proc/77/limits",
                "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n",
            ),
            ("logs/0.log", "words"),
            ("kubelet/x", ""),
        ],
    );
    std::os::unix::fs::symlink("socket:[4711]", root.join("proc/77/fd/1")).unwrap();
}

async fn read(root: &std::path::Path, version: CgroupVersion, names: CgroupNames, parts: Parts) -> Reading {
    let hierarchy = |path: &str, controllers: &[&str]| Hierarchy {
        path: root.join(path),
        controllers: controllers.iter().map(|one| (*one).to_owned()).collect(),
    };
    let hierarchies = match version {
        CgroupVersion::V2 => vec![hierarchy("cgroup", &[])],
        _ => vec![
            hierarchy("cpu", &["cpu", "cpuacct"]),
            hierarchy("memory", &["memory"]),
            hierarchy("blkio", &["blkio"]),
            hierarchy("pids", &["pids"]),
        ],
    };
    let places = Places { version, hierarchies, names, root: root.join("kubelet"), proc: root.join("proc") };
    let pod = WantedPod {
        sandbox: Some(SANDBOX.to_owned()),
        containers: vec![CONTAINER.to_owned(), "gone".to_owned()],
        logs: [("web".to_owned(), root.join("logs"))].into(),
    };
    let wish = Wish {
        parts,
        pods: [("u-1".to_owned(), pod), ("u-2".to_owned(), WantedPod::default())].into(),
        systems: [("runtime".to_owned(), Some("/runtime".to_owned())), ("kubelet".to_owned(), None)].into(),
        spaces: vec![root.to_owned()],
    };
    SystemStats::at(places, Handle::current()).usage(Arc::new(SystemClock)).read(wish).await.unwrap()
}

const ALL: Parts = Parts { processes: true, storage: true, details: true };

fn names(driver: CgroupDriver) -> CgroupNames {
    CgroupNames::new(driver, "/").unwrap()
}

fn interface() -> Interface {
    Interface {
        name: "eth0".to_owned(),
        received: Traffic { bytes: 550_245_105, packets: 50_096, errors: 1, dropped: 2 },
        sent: Traffic { bytes: 4_091_941, packets: 43_740, errors: 3, dropped: 4 },
    }
}

const MEMORY_STAT_V1: &str = "cache 10\nrss 20\nmapped_file 5\nswap 0\npgfault 7\npgmajfault 1\ninactive_file 3\n\
    total_cache 3000\ntotal_rss 2000\ntotal_mapped_file 500\ntotal_swap 60\ntotal_pgfault 700\ntotal_pgmajfault 10\n\
    total_inactive_file 1000\ntotal_active_file 400\n";

fn v1(root: &std::path::Path) {
    machine(root);
    for cgroup in [
        "",
        "kubepods",
        "kubepods/burstable",
        "kubepods/burstable/podu-1",
        "kubepods/burstable/podu-1/c0ffee",
    ] {
        put(
            root,
            &[
                (&format!("cpu/{cgroup}/cpuacct.usage"), "12345678900\n"),
                (&format!("cpu/{cgroup}/cpuacct.stat"), "user 700\nsystem 50\n"),
                (
                    &format!("cpu/{cgroup}/cpu.stat"),
                    "nr_periods 90\nnr_throttled 30\nthrottled_time 5000000000\nnr_bursts 0\nburst_time 0\n",
                ),
                (&format!("cpu/{cgroup}/cpu.shares"), "256\n"),
                (&format!("cpu/{cgroup}/cpu.cfs_period_us"), "100000\n"),
                (
                    &format!("cpu/{cgroup}/cpu.cfs_quota_us"),
                    if cgroup.ends_with("c0ffee") { "50000\n" } else { "-1\n" },
                ),
                (&format!("memory/{cgroup}/memory.usage_in_bytes"), "6000\n"),
                (&format!("memory/{cgroup}/memory.stat"), MEMORY_STAT_V1),
                (
                    &format!("memory/{cgroup}/memory.limit_in_bytes"),
                    if cgroup.ends_with("podu-1") { "9223372036854771712\n" } else { "10000\n" },
                ),
                (&format!("memory/{cgroup}/memory.memsw.limit_in_bytes"), "20000\n"),
                (&format!("memory/{cgroup}/memory.max_usage_in_bytes"), "7000\n"),
                (&format!("memory/{cgroup}/memory.failcnt"), "4\n"),
                (
                    &format!("memory/{cgroup}/memory.oom_control"),
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                ),
                (&format!("memory/{cgroup}/cgroup.procs"), "77\n"),
                (
                    &format!("blkio/{cgroup}/blkio.throttle.io_service_bytes_recursive"),
                    "8:0 Read 4096\n8:0 Write 512\n8:0 Total 4608\nTotal 4608\n",
                ),
                (
                    &format!("blkio/{cgroup}/blkio.throttle.io_serviced_recursive"),
                    "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
                ),
                (&format!("pids/{cgroup}/pids.current"), "9\n"),
                (&format!("pids/{cgroup}/pids.max"), "max\n"),
            ],
        );
    }
    put(
        root,
        &[
            ("memory/kubepods/burstable/podu-1/51b0/cgroup.procs", "77\n"),
            (
                "proc/pressure/cpu",
                "some avg10=1.50 avg60=0.25 avg300=0.00 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            ),
        ],
    );
}

#[tokio::test]
async fn version_1_is_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    v1(dir.path());
    let found = read(dir.path(), CgroupVersion::Hybrid, names(CgroupDriver::Cgroupfs), ALL).await;
    let pod = &found.pods["u-1"];
    assert_eq!(pod.containers.keys().collect::<Vec<_>>(), [CONTAINER], "the other one has ended");
    let web = &pod.containers[CONTAINER];
    assert_eq!(web.name, "/kubepods/burstable/podu-1/c0ffee");
    let throttling = Throttling {
        periods: 90,
        throttled_periods: 30,
        throttled_ns: 5_000_000_000,
        ..Throttling::default()
    };
    let cpu = CpuUse {
        total_ns: 12_345_678_900,
        user_ns: Some(7_000_000_000),
        system_ns: Some(500_000_000),
        throttling,
        shares: Some(256),
        period_us: Some(100_000),
        quota_us: Some(50_000),
        pressure: None,
    };
    assert_eq!(web.cpu, Some(cpu));
    let memory = MemoryUse {
        usage: 6000,
        working_set: 5000,
        limit: Some(10_000),
        rss: 2000,
        cache: 3000,
        mapped_file: 500,
        active_file: 400,
        inactive_file: 1000,
        page_faults: 7,
        major_page_faults: 1,
        max_usage: Some(7000),
        failures: Some(4),
        swap: Some(60),
        swap_limit: Some(20_000),
        oom_kills: Some(2),
        ..MemoryUse::default()
    };
    assert_eq!(web.memory, Some(memory));
    let pairs = |read: u64, write: u64| [("Read".to_owned(), read), ("Write".to_owned(), write)];
    let mut bytes: BTreeMap<_, _> = pairs(4096, 512).into();
    bytes.insert("Total".to_owned(), 4608);
    assert_eq!(web.io, [DeviceIo { device: (8, 0), bytes, operations: pairs(1, 2).into() }]);
    let processes = ProcessUse {
        count: 1,
        threads: Some(9),
        threads_max: None,
        files: Some(2),
        sockets: Some(1),
        files_max: Some(1024),
    };
    assert_eq!(web.processes, Some(processes));
    let group = pod.group.as_ref().unwrap();
    assert_eq!((group.memory.unwrap().limit, group.cpu.unwrap().quota_us), (None, None), "no bounds");
    assert_eq!(pod.network.as_ref().unwrap().1, [interface()]);
    assert_eq!(pod.logs["web"].inodes, 1);
    assert_eq!(found.pods["u-2"], PodReading::default(), "it is not on this machine");
    assert_eq!(
        found.root.cpu.unwrap().pressure.unwrap().some.total_us,
        12_345,
        "the kernel tells of the whole machine"
    );
    assert_eq!(
        found.pod_groups.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
        ["/kubepods", "/kubepods/burstable"]
    );
    assert_eq!(found.systems.len(), 0, "neither is there");
    assert_eq!(found.network, Some(vec![interface()]));
    assert_eq!(found.booted.unwrap().as_second(), 1_795_000_000);
    assert_eq!((found.memory_bytes, found.swap_bytes), (Some(1_024_000 * 1024), Some(2000 * 1024)));
    assert_eq!(found.processors, Some(Processors { logical: 3, cores: 2, sockets: 2 }));
    assert_eq!(found.devices["8:0"], "/dev/sda");
    assert!(found.node_space.unwrap().capacity > 0 && found.spaces.len() == 2);
}

const PRESSURE: &str =
    "some avg10=1.50 avg60=0.25 avg300=0.10 total=12345\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=99\n";

fn v2(root: &std::path::Path) {
    machine(root);
    let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice";
    let container = format!("{pod}/cri-containerd-c0ffee.scope");
    for cgroup in ["", "kubepods.slice", "runtime", pod, &container] {
        put(
            root,
            &[
                (
                    &format!("cgroup/{cgroup}/cpu.stat"),
                    "usage_usec 12345678\nuser_usec 7000000\nsystem_usec 500000\nnr_periods 90\nnr_throttled 30\nthrottled_usec 5000000\nnr_bursts 1\nburst_usec 20\n",
                ),
                (
                    &format!("cgroup/{cgroup}/memory.stat"),
                    "anon 2000\nfile 3000\nkernel 300\nfile_mapped 500\ninactive_file 1000\nactive_file 400\npgfault 700\npgmajfault 10\n",
                ),
                (&format!("cgroup/{cgroup}/cpu.pressure"), PRESSURE),
                (&format!("cgroup/{cgroup}/memory.pressure"), PRESSURE),
                (&format!("cgroup/{cgroup}/io.pressure"), PRESSURE),
                (
                    &format!("cgroup/{cgroup}/io.stat"),
                    "8:0 rbytes=4096 wbytes=512 rios=1 wios=2 dbytes=0 dios=0\n254:0\n",
                ),
                (&format!("cgroup/{cgroup}/cgroup.procs"), "77\n"),
            ],
        );
        if cgroup.is_empty() {
            continue;
        }
        put(
            root,
            &[
                (&format!("cgroup/{cgroup}/memory.current"), "6000\n"),
                (&format!("cgroup/{cgroup}/memory.max"), "10000\n"),
                (&format!("cgroup/{cgroup}/memory.peak"), "7000\n"),
                (&format!("cgroup/{cgroup}/memory.swap.current"), "60\n"),
                (&format!("cgroup/{cgroup}/memory.swap.max"), "max\n"),
                (&format!("cgroup/{cgroup}/memory.events"), "low 0\nhigh 0\nmax 4\noom 3\noom_kill 2\n"),
                (&format!("cgroup/{cgroup}/cpu.weight"), "10\n"),
                (&format!("cgroup/{cgroup}/cpu.max"), "50000 100000\n"),
                (&format!("cgroup/{cgroup}/pids.current"), "9\n"),
                (&format!("cgroup/{cgroup}/pids.max"), "100\n"),
            ],
        );
    }
    put(root, &[("proc/self/cgroup", "0::/runtime\n")]);
}

#[tokio::test]
async fn version_2_is_read_whole_with_the_names_of_systemd() {
    let dir = tempfile::tempdir().unwrap();
    v2(dir.path());
    let found = read(dir.path(), CgroupVersion::V2, names(CgroupDriver::Systemd), ALL).await;
    let web = &found.pods["u-1"].containers[CONTAINER];
    let pressure = Pressure {
        some: Stalled { total_us: 12_345, avg10: 1.5, avg60: 0.25, avg300: 0.1 },
        full: Stalled { total_us: 99, avg10: 0.5, ..Stalled::default() },
    };
    let cpu = CpuUse {
        total_ns: 12_345_678_000,
        user_ns: Some(7_000_000_000),
        system_ns: Some(500_000_000),
        throttling: Throttling {
            periods: 90,
            throttled_periods: 30,
            throttled_ns: 5_000_000_000,
            burst_periods: 1,
            burst_ns: 20_000,
        },
        shares: Some(2 + 9 * 262_142 / 9999),
        period_us: Some(100_000),
        quota_us: Some(50_000),
        pressure: Some(pressure),
    };
    assert_eq!(web.cpu, Some(cpu));
    let memory = web.memory.unwrap();
    assert_eq!((memory.usage, memory.working_set, memory.limit), (6000, 5000, Some(10_000)));
    assert_eq!((memory.rss, memory.cache, memory.kernel), (2000, 3000, Some(300)));
    assert_eq!((memory.swap, memory.swap_limit), (Some(60), None), "no bound");
    assert_eq!((memory.failures, memory.oom_kills, memory.max_usage), (Some(4), Some(2), Some(7000)));
    assert_eq!((memory.pressure, web.io_pressure), (Some(pressure), Some(pressure)));
    assert_eq!(web.io.len(), 1, "a device without figures is left out");
    assert_eq!(web.io[0].bytes["Write"], 512);
    assert_eq!(web.processes.unwrap().threads_max, Some(100));
    let root = found.root.memory.unwrap();
    assert_eq!((root.usage, root.working_set), (5000, 4000), "the root has no figure of its own");
    assert_eq!(root.swap, Some(1500 * 1024), "of the machine");
    assert_eq!(found.systems["kubelet"].name, "/runtime", "that of this process");
    assert_eq!(found.systems["runtime"].memory.unwrap().usage, 6000);
    assert_eq!(
        found.pods["u-1"].network.as_ref().unwrap().1,
        [interface()],
        "without its sandbox, by a container"
    );
}

#[tokio::test]
async fn processes_below_a_containers_cgroup_are_its_own_and_a_watcher_is_not() {
    let dir = tempfile::tempdir().unwrap();
    v2(dir.path());
    let pod = "cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice";
    let scope = format!("{pod}/cri-containerd-c0ffee.scope");
    put(
        dir.path(),
        &[
            (&format!("{scope}/cgroup.procs"), ""),
            (&format!("{scope}/container/cgroup.procs"), "77\n"),
            (&format!("{scope}/container/deeper/cgroup.procs"), "78\n79\n"),
            (&format!("{pod}/crio-conmon-c0ffee.scope/cpu.stat"), "usage_usec 1\n"),
        ],
    );
    let found = read(dir.path(), CgroupVersion::V2, names(CgroupDriver::Systemd), ALL).await;
    let web = &found.pods["u-1"].containers[CONTAINER];
    assert_eq!(web.processes.unwrap().count, 3);
    assert_eq!(web.cpu.unwrap().total_ns, 12_345_678_000);
    assert_eq!(found.pods["u-1"].network.as_ref().unwrap().1, [interface()]);
}

#[tokio::test]
async fn what_is_not_wished_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    v2(dir.path());
    let found = read(dir.path(), CgroupVersion::V2, names(CgroupDriver::Systemd), Parts::default()).await;
    let web = &found.pods["u-1"].containers[CONTAINER];
    assert!(web.cpu.is_some() && web.memory.is_some());
    assert_eq!((web.io.len(), web.processes, web.cpu.unwrap().shares), (0, None, None));
    assert_eq!((found.pods["u-1"].network.as_ref(), found.network.as_ref()), (None, None));
    assert!(found.node_space.is_none() && found.spaces.is_empty() && found.pods["u-1"].logs.is_empty());
}

#[tokio::test]
async fn cgroups_that_go_while_they_are_read_are_left_out_and_no_figure_is_made_up() {
    let dir = tempfile::tempdir().unwrap();
    v2(dir.path());
    let pod =
        dir.path().join("cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice");
    let (away, over) = (dir.path().join("away"), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let ended = over.clone();
    let (from, to) = (pod.clone(), away.clone());
    let moving = std::thread::spawn(move || {
        let mut moves = 0;
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            fs::rename(&from, &to).unwrap();
            fs::rename(&to, &from).unwrap();
            moves += 1;
        }
        moves
    });
    for _ in 0..200 {
        let found = read(dir.path(), CgroupVersion::V2, names(CgroupDriver::Systemd), ALL).await;
        let pod = &found.pods["u-1"];
        for group in pod.group.iter().chain(pod.containers.values()) {
            assert!(group.cpu.is_none_or(|cpu| cpu.total_ns == 12_345_678_000), "{group:?}");
            assert!(
                group.memory.is_none_or(|memory| (memory.usage, memory.rss) == (6000, 2000)),
                "{group:?}"
            );
        }
        assert!(found.systems.contains_key("runtime"), "others are told of");
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(moving.join().unwrap() > 0);
    // The files of a cgroup that is going may be empty.
    for file in ["memory.stat", "memory.current", "cpu.stat", "cgroup.procs", "io.stat"] {
        fs::write(pod.join(file), "").unwrap();
    }
    let found = read(dir.path(), CgroupVersion::V2, names(CgroupDriver::Systemd), ALL).await;
    assert_eq!(found.pods["u-1"].group, None);
    assert!(found.pods["u-1"].containers[CONTAINER].cpu.is_some());
}

#[test]
fn torn_files_give_no_figures_and_no_panic() {
    assert_eq!(parse::pressure("some avg10=x"), None);
    assert_eq!(parse::pressure("some avg10=inf total=1"), None);
    assert_eq!(parse::pressure(""), None);
    assert_eq!(parse::interfaces("a\nb\neth0: 1 2 3\n", 9), None, "no figure of such a file can be trusted");
    assert_eq!(parse::interfaces("", 9), Some(Vec::new()));
    assert!(parse::blkio("8:x Read 1\n8:0 Read\n8:0 Other 5\nTotal 7", "").is_empty());
    assert!(parse::io_stat("8:0 rbytes\nx y=1").is_empty());
    assert_eq!(parse::keyed("a\nb x\nc 1\n"), [("c", 1)].into());
    assert_eq!((parse::processors(""), parse::boot_second("btime x"), parse::shares(0)), (None, None, None));
    let disks = "   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0 0 0\n   8       1 sda1 1 2\n";
    let disk = parse::disk(disks, (8, 0)).unwrap();
    assert_eq!((disk.reads, disk.write_ms, disk.weighted_ms), (1, 8, 11));
    assert_eq!((parse::disk(disks, (8, 1)), parse::disk(disks, (0, 45))), (None, None));
    let twice = parse::io_stat("8:0 rbytes=1\n8:0 rbytes=2\n");
    assert_eq!((twice.len(), twice[0].bytes["Read"]), (1, 2));
    let many = format!("a\nb\n{}", "eth0: 1 2 3 4 5 6 7 8 9 10 11 12\n".repeat(9));
    assert_eq!(parse::interfaces(&many, 3).unwrap().len(), 3);
    assert_eq!(parse::files_max("Max open files unlimited unlimited files"), None);
    let split = "4:memory:/a\n2:cpu,cpuacct:/b\n0::/c\n";
    assert_eq!(
        (parse::cgroup_of(split, false), parse::cgroup_of(split, true)),
        (None, Some("/c".to_owned()))
    );
    assert_eq!(parse::cgroup_of("4:memory:/a\n2:cpu,cpuacct:/a\n", false), Some("/a".to_owned()));
}

/// What must be true of both implementations.
async fn contract(usage: &dyn UsageReads) {
    let wish = Wish { parts: ALL, spaces: vec!["/".into()], ..Wish::default() };
    let found = usage.read(wish.clone()).await.unwrap();
    let cpu = found.root.cpu.unwrap();
    assert!(cpu.total_ns > 0);
    let memory = found.root.memory.unwrap();
    assert!(memory.working_set > 0 && memory.working_set <= found.memory_bytes.unwrap(), "{memory:?}");
    assert!(found.node_space.unwrap().capacity >= found.spaces[std::path::Path::new("/")].available);
    assert!(found.tasks.is_some() && found.booted.unwrap() < found.at);
    let again = usage.read(wish).await.unwrap();
    assert!(again.root.cpu.unwrap().total_ns >= cpu.total_ns && again.at >= found.at);
}

#[tokio::test]
async fn both_keep_the_contract() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    contract(&FakeUsage::new(clock.clone())).await;
    match SystemStats::detect(names(CgroupDriver::Cgroupfs), "/".as_ref(), Handle::current()) {
        Ok(stats) => contract(&stats.usage(clock)).await,
        Err(error) => eprintln!("skipped: {error}"),
    }
}
