use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;

use super::files::{Files, KernelFiles};
use super::kernel::FakeKernel;
use super::*;
use crate::tenant_files::tests::Lease;

/// Makes cgroups and processes, as a runtime does.
trait Machine {
    fn add_pod(&self, qos: QosClass, uid: &str);
    /// Starts a process in the pod's cgroup; returns its process ID.
    fn start(&self, qos: QosClass, uid: &str) -> u32;
    fn stop(&self, pid: u32);
}

async fn contract(cgroups: Arc<dyn Cgroups>, machine: &dyn Machine) {
    use QosClass as Q;
    assert_eq!(cgroups.list_pod_cgroups().await, Ok(vec![]));
    assert_eq!(cgroups.pids("a-1").await, Ok(vec![]));
    cgroups.remove_pod_cgroup("a-1").await.unwrap();

    machine.add_pod(Q::BestEffort, "c-3");
    machine.add_pod(Q::Guaranteed, "a-1");
    machine.add_pod(Q::Burstable, "b-2");
    let listed = cgroups.list_pod_cgroups().await.unwrap();
    let expected = [(Q::Guaranteed, "a-1"), (Q::Burstable, "b-2"), (Q::BestEffort, "c-3")]
        .map(|(qos, uid)| PodCgroup { uid: uid.into(), qos, name: cgroups.names().pod(qos, uid).unwrap() });
    assert_eq!(listed, expected);

    let pid = machine.start(Q::Burstable, "b-2");
    assert_eq!(cgroups.pids("b-2").await, Ok(vec![pid]));
    assert_eq!(cgroups.pids("a-1").await, Ok(vec![]));
    let refused = cgroups.remove_pod_cgroup("b-2").await.unwrap_err();
    assert_eq!(refused, CgroupError::ProcessesLeft { uid: "b-2".into(), pids: vec![pid] });
    assert_eq!(
        refused.to_string(),
        format!("cgroup of pod b-2 is not removed: processes [{pid}] are left in it")
    );
    assert_eq!(cgroups.list_pod_cgroups().await.unwrap(), expected);

    machine.stop(pid);
    cgroups.remove_pod_cgroup("b-2").await.unwrap();
    cgroups.remove_pod_cgroup("b-2").await.unwrap();
    assert_eq!(cgroups.list_pod_cgroups().await.unwrap(), [expected[0].clone(), expected[2].clone()]);
    cgroups.remove_pod_cgroup("a-1").await.unwrap();
    cgroups.remove_pod_cgroup("c-3").await.unwrap();
    assert_eq!(cgroups.list_pod_cgroups().await, Ok(vec![]));

    for bad in ["", "../x", "a_b"] {
        let error = cgroups.remove_pod_cgroup(bad).await.unwrap_err();
        assert!(matches!(error, CgroupError::InvalidName { .. }), "{bad}: {error}");
        assert!(cgroups.pids(bad).await.is_err(), "{bad}");
    }
}

fn names(driver: CgroupDriver, root: &str) -> CgroupNames {
    CgroupNames::new(driver, root).unwrap()
}

struct FakeMachine(FakeCgroups);

impl Machine for FakeMachine {
    fn add_pod(&self, qos: QosClass, uid: &str) {
        self.0.add_pod(qos, uid).unwrap();
    }
    fn start(&self, _: QosClass, uid: &str) -> u32 {
        self.0.add_pid(uid, 4711);
        4711
    }
    fn stop(&self, pid: u32) {
        self.0.remove_pid(pid);
    }
}

#[tokio::test]
async fn fake_cgroups_keep_the_contract() {
    for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
        let cgroups = FakeCgroups::new(CgroupVersion::V2, names(driver, "/"));
        contract(Arc::new(cgroups.clone()), &FakeMachine(cgroups)).await;
    }
}

const SIZES: PageSizes = PageSizes { page: 4096, huge: Vec::new() };

/// Hierarchies without controllers.
fn plain(paths: &[PathBuf]) -> Vec<Hierarchy> {
    paths.iter().map(|path| Hierarchy { path: path.clone(), controllers: Vec::new() }).collect()
}

/// Directories in which only a test's writes are files: the kernel's files vanish with their directory.
struct DirMachine {
    names: CgroupNames,
    hierarchies: Vec<PathBuf>,
}

impl DirMachine {
    fn pod(&self, hierarchy: usize, qos: QosClass, uid: &str) -> PathBuf {
        self.hierarchies[hierarchy].join(self.names.pod(qos, uid).unwrap().trim_start_matches('/'))
    }
}

impl Machine for DirMachine {
    fn add_pod(&self, qos: QosClass, uid: &str) {
        for hierarchy in 0..self.hierarchies.len() {
            fs::create_dir_all(self.pod(hierarchy, qos, uid).join("container/inner")).unwrap();
        }
    }
    fn start(&self, qos: QosClass, uid: &str) -> u32 {
        // The process is in one hierarchy, two levels down.
        fs::write(self.pod(1, qos, uid).join("container/inner/cgroup.procs"), "42\n").unwrap();
        42
    }
    fn stop(&self, _: u32) {
        let mut next = vec![self.hierarchies[1].clone()];
        while let Some(dir) = next.pop() {
            let _ = fs::remove_file(dir.join("cgroup.procs"));
            next.extend(fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|p| p.is_dir()));
        }
    }
}

#[tokio::test]
async fn a_tree_of_directories_keeps_the_contract() {
    for (driver, root) in [
        (CgroupDriver::Cgroupfs, "/"),
        (CgroupDriver::Cgroupfs, "/outer"),
        (CgroupDriver::Systemd, "/"),
        (CgroupDriver::Systemd, "/out-er/inner"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let hierarchies: Vec<_> = ["cpu", "systemd", "unified"].map(|name| dir.path().join(name)).to_vec();
        let names = names(driver, root);
        let cgroups = SystemCgroups::at(
            CgroupVersion::Hybrid,
            plain(&hierarchies),
            SIZES,
            names.clone(),
            Handle::current(),
        );
        contract(Arc::new(cgroups), &DirMachine { names, hierarchies }).await;
    }
}

#[tokio::test]
async fn one_left_in_a_single_hierarchy_is_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let hierarchies: Vec<_> = ["cpu", "memory"].map(|name| dir.path().join(name)).to_vec();
    let names = names(CgroupDriver::Cgroupfs, "/");
    let machine = DirMachine { names: names.clone(), hierarchies: hierarchies.clone() };
    fs::create_dir_all(machine.pod(1, QosClass::Burstable, "u")).unwrap();
    fs::create_dir_all(hierarchies[0].join("kubepods/burstable/not-a-pod")).unwrap();
    let cgroups = SystemCgroups::at(CgroupVersion::V1, plain(&hierarchies), SIZES, names, Handle::current());
    assert_eq!(cgroups.list_pod_cgroups().await.unwrap().len(), 1);
    cgroups.remove_pod_cgroup("u").await.unwrap();
    assert!(!machine.pod(1, QosClass::Burstable, "u").exists());
    assert!(hierarchies[0].join("kubepods/burstable/not-a-pod").exists());
    assert_eq!(cgroups.version(), CgroupVersion::V1);
}

/// The kernel's own cgroups, below a cgroup of this test.
struct KernelMachine {
    dirs: DirMachine,
    root: String,
    children: Mutex<Vec<Child>>,
}

impl Machine for KernelMachine {
    fn add_pod(&self, qos: QosClass, uid: &str) {
        self.dirs.add_pod(qos, uid);
    }
    fn start(&self, qos: QosClass, uid: &str) -> u32 {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        self.children.lock().unwrap().push(child);
        for hierarchy in 0..self.dirs.hierarchies.len() {
            // A cpuset without CPUs accepts no process; it is enough that one hierarchy has the process.
            let procs = self.dirs.pod(hierarchy, qos, uid).join("container/cgroup.procs");
            let _ = fs::write(procs, pid.to_string());
        }
        pid
    }
    fn stop(&self, pid: u32) {
        let mut children = self.children.lock().unwrap();
        let child = children.iter_mut().find(|child| child.id() == pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for KernelMachine {
    fn drop(&mut self) {
        for child in self.children.get_mut().unwrap() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for hierarchy in &self.dirs.hierarchies {
            let root = hierarchy.join(&self.root);
            for below in ["kubepods/burstable", "kubepods/besteffort", "kubepods", ""] {
                let _ = fs::remove_dir(root.join(below));
            }
        }
    }
}

#[tokio::test]
async fn the_kernels_cgroups_keep_the_contract() {
    let root = format!("understudy-test-{}", std::process::id());
    let names = names(CgroupDriver::Cgroupfs, &root);
    let cgroups = match SystemCgroups::detect(names.clone(), Handle::current()) {
        Ok(cgroups) => cgroups,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let hierarchies: Vec<PathBuf> =
        cgroups.tree_for_tests().hierarchies.iter().map(|one| one.path.clone()).collect();
    let machine = KernelMachine {
        dirs: DirMachine { names, hierarchies: hierarchies.clone() },
        root: root.clone(),
        children: Mutex::default(),
    };
    for hierarchy in &hierarchies {
        if let Err(error) = fs::create_dir_all(hierarchy.join(&root)) {
            return eprintln!("skipped: this process may not make cgroups in {hierarchy:?}: {error}");
        }
    }
    let cgroups = Arc::new(cgroups);
    contract(cgroups.clone(), &machine).await;
    // Only this machine has real processes.
    machine.add_pod(QosClass::Burstable, "k-1");
    machine.start(QosClass::Burstable, "k-1");
    assert_eq!(cgroups.kill("k-1").await, Ok(1));
    let ended = machine.children.lock().unwrap().last_mut().unwrap().wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
    assert_eq!(cgroups.kill("k-1").await, Ok(0));
    cgroups.remove_pod_cgroup("k-1").await.unwrap();
    drop(machine);
    assert!(hierarchies.iter().all(|hierarchy| !Path::new(hierarchy).join(&root).exists()));
}

const TWO_MB: u64 = 2 << 20;

fn limited(shares: u64, memory: u64) -> CgroupValues {
    CgroupValues {
        cpu_shares: Some(shares),
        cpu: Some(CpuLimit { quota_us: Limit::At(5000), period_us: 100_000 }),
        memory: Some(Limit::At(memory)),
        pids: Some(Limit::At(32)),
        huge_pages: Some(HugePages::Only([].into())),
    }
}

fn on(kernel: &FakeKernel, version: CgroupVersion) -> SystemCgroups {
    let sizes = PageSizes { page: 4096, huge: vec![TWO_MB] };
    let names = names(CgroupDriver::Cgroupfs, "/");
    SystemCgroups::at(version, kernel.hierarchies(), sizes, names, Handle::current())
        .with_files(Arc::new(kernel.clone()))
}

const POD: &str = "/kubepods/burstable/podu-1";

#[tokio::test]
async fn a_pods_values_in_version_1() {
    let dir = tempfile::tempdir().unwrap();
    let kernel =
        FakeKernel::version_1(dir.path(), &["cpu,cpuacct", "cpuset", "memory", "pids", "freezer", "systemd"]);
    let cgroups = on(&kernel, CgroupVersion::V1);
    let ensured = cgroups.ensure(POD, limited(512, 1 << 20)).await.unwrap();
    assert!(ensured.made && ensured.not_held.is_empty(), "{ensured:?}");
    let writes = kernel.writes();
    let expected = [
        "cpu.shares=512",
        "cpu.cfs_quota_us=5000",
        "memory.limit_in_bytes=1048576",
        "pids.max=32",
        "cpuset.cpus=0-3",
        "cpuset.mems=0",
    ];
    for expected in expected {
        let found = writes.contains(&format!("{}/{expected}", POD.trim_start_matches('/')));
        assert!(found, "{expected} in {writes:?}");
    }
    assert!(writes.contains(&"kubepods/cpuset.cpus=0-3".to_owned()), "a cpuset is handed down: {writes:?}");
    for hierarchy in kernel.hierarchies() {
        assert!(hierarchy.path.join(POD.trim_start_matches('/')).is_dir(), "{hierarchy:?}");
    }
    assert_eq!(cgroups.check(POD).await, Ok(()));

    // Values that already hold are not written; a value that another process changed is restored.
    let again = cgroups.ensure(POD, limited(512, 1 << 20)).await.unwrap();
    assert_eq!((again, kernel.writes()), (Ensured::default(), vec![]));
    fs::write(dir.path().join("memory").join(&POD[1..]).join("memory.limit_in_bytes"), "4096\n").unwrap();
    let corrected = cgroups.ensure(POD, limited(512, 1 << 20)).await.unwrap();
    assert!(!corrected.made);
    assert_eq!(kernel.writes(), ["kubepods/burstable/podu-1/memory.limit_in_bytes=1048576"]);

    assert_eq!(cgroups.list_pod_cgroups().await.unwrap().len(), 1);
    cgroups.remove_pod_cgroup("u-1").await.unwrap();
    assert!(matches!(cgroups.check(POD).await, Err(CgroupError::Missing { paths, .. }) if paths.len() == 5));
}

#[tokio::test]
async fn a_pods_values_in_version_2() {
    let dir = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::version_2(dir.path(), "cpuset cpu io memory hugetlb pids");
    let cgroups = on(&kernel, CgroupVersion::V2);
    cgroups.ensure(POD, limited(1024, TWO_MB)).await.unwrap();
    let expected = [
        "kubepods/burstable/podu-1/cpu.weight=39",
        "kubepods/burstable/podu-1/cpu.max=5000 100000",
        "kubepods/burstable/podu-1/memory.max=2097152",
        "kubepods/burstable/podu-1/pids.max=32",
        "kubepods/burstable/podu-1/hugetlb.2MB.max=0",
        "kubepods/burstable/podu-1/hugetlb.2MB.rsvd.max=0",
    ];
    assert_eq!(kernel.writes(), expected);
    for above in ["", "kubepods", "kubepods/burstable"] {
        let handed = fs::read_to_string(dir.path().join(above).join("cgroup.subtree_control")).unwrap();
        assert_eq!(handed, "cpu cpuset hugetlb io memory pids", "{above:?}");
    }
    let again = cgroups.ensure(POD, limited(1024, TWO_MB)).await.unwrap();
    assert_eq!((again, kernel.writes()), (Ensured::default(), vec![]));
    assert_eq!(cgroups.check("/kubepods/burstable").await, Ok(()));
    assert_eq!(cgroups.check("").await, Ok(()));
    cgroups.remove_pod_cgroup("u-1").await.unwrap();
    assert!(!dir.path().join(&POD[1..]).exists());
    let error = cgroups.update("/system", limited(2, 4096)).await.unwrap_err();
    assert!(error.to_string().starts_with("cgroup \"/system\" has some missing paths: "), "{error}");
}

#[tokio::test]
async fn a_missing_controller_is_told_and_nothing_else_stops() {
    let dir = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::version_1(dir.path(), &["cpu", "memory"]);
    let cgroups = on(&kernel, CgroupVersion::V1);
    let ensured = cgroups.ensure(POD, limited(512, 1 << 20)).await.unwrap();
    assert_eq!(ensured.not_held, ["pids.max=32: no hierarchy of the controller is mounted"]);
    assert!(kernel.writes().contains(&"kubepods/burstable/podu-1/memory.limit_in_bytes=1048576".to_owned()));
    let unlimited = CgroupValues { pids: Some(Limit::Unlimited), ..CgroupValues::default() };
    assert_eq!(cgroups.ensure(POD, unlimited).await.unwrap(), Ensured::default());

    let dir = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::version_2(dir.path(), "cpu memory pids");
    // Processes in a cgroup keep it from handing controllers down.
    fs::create_dir(dir.path().join("kubepods")).unwrap();
    for (file, text) in [("cgroup.controllers", "cpu memory pids"), ("cgroup.subtree_control", "")] {
        fs::write(dir.path().join("kubepods").join(file), text).unwrap();
    }
    kernel.refuse("cgroup.subtree_control", rustix::io::Errno::BUSY);
    let cgroups = on(&kernel, CgroupVersion::V2);
    let ensured = cgroups.ensure("/kubepods/podu", limited(512, 1 << 20)).await.unwrap();
    assert!(
        ensured.not_held.contains(&"cpu.weight=20: the kernel has no such file".to_owned()),
        "{ensured:?}"
    );
    let told = ensured.not_held.iter().any(|text| {
        text.starts_with("cannot write \"+cpu\" to ") && text.contains("kubepods/cgroup.subtree_control: ")
    });
    assert!(told, "{ensured:?}");
    let missing = cgroups.check("/kubepods/podu").await.unwrap_err();
    let expected = "cgroup \"/kubepods/podu\" has some missing controllers: cpu, memory, pids";
    assert_eq!(missing.to_string(), expected);
}

#[tokio::test]
async fn a_refused_value_is_named_and_the_others_are_written() {
    use rustix::io::Errno;
    let dir = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::version_1(dir.path(), &["cpu", "memory", "pids"]);
    let cgroups = on(&kernel, CgroupVersion::V1);
    for errno in [Errno::BUSY, Errno::ROFS, Errno::ACCESS, Errno::INVAL] {
        kernel.refuse("memory.limit_in_bytes", errno);
        let error = cgroups.ensure(POD, limited(512, 1 << 20)).await.unwrap_err();
        let file = dir.path().join("memory").join(&POD[1..]).join("memory.limit_in_bytes");
        let expected = format!("cannot write \"1048576\" to {}: ", file.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
        kernel.refuse_nothing();
    }
    assert!(kernel.writes().contains(&"kubepods/burstable/podu-1/pids.max=32".to_owned()));
    kernel.refuse("podu-2", Errno::ROFS);
    let error = cgroups.ensure("/kubepods/podu-2", limited(512, 4096)).await.unwrap_err();
    let expected = format!("cannot make cgroup {}: ", dir.path().join("cpu/kubepods/podu-2").display());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[tokio::test]
async fn a_cgroup_that_vanishes_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::version_2(dir.path(), "cpu memory pids");
    let cgroups = on(&kernel, CgroupVersion::V2);
    cgroups.ensure("/kubepods/burstable", CgroupValues::default()).await.unwrap();
    kernel.let_vanish(2);
    cgroups.ensure(POD, limited(512, 1 << 20)).await.unwrap();
    assert!(dir.path().join(&POD[1..]).join("memory.max").exists());
    kernel.let_vanish(100);
    let error = cgroups.ensure("/kubepods/podu-9", limited(512, 1 << 20)).await.unwrap_err();
    assert!(matches!(error, CgroupError::Io { .. } | CgroupError::NotWritten { .. }), "{error}");
}

#[tokio::test]
async fn the_fake_writes_what_differs_and_finds_what_is_missing() {
    let cgroups = FakeCgroups::new(CgroupVersion::V2, names(CgroupDriver::Systemd, "/"));
    let pod = cgroups.names().pod(QosClass::Burstable, "u-1").unwrap();
    assert!(cgroups.ensure(&pod, limited(512, 1 << 20)).await.unwrap().made);
    assert_eq!(cgroups.ensure(&pod, limited(512, 1 << 20)).await.unwrap(), Ensured::default());
    assert_eq!(cgroups.writes(), 1);
    assert_eq!(cgroups.list_pod_cgroups().await.unwrap()[0].name, pod);
    assert_eq!(cgroups.check(&cgroups.names().qos(QosClass::Burstable)).await, Ok(()));
    assert!(matches!(cgroups.update("/x.slice", limited(2, 1)).await, Err(CgroupError::Missing { .. })));
    cgroups.remove_pod_cgroup("u-1").await.unwrap();
    assert_eq!(cgroups.values(&pod), None);
}

/// The kernel's own cgroups: values are written and read back where this process is allowed to.
#[tokio::test]
async fn the_kernel_holds_a_pods_values() {
    let root = format!("understudy-test-values-{}", std::process::id());
    let names = names(CgroupDriver::Cgroupfs, &root);
    let cgroups = match SystemCgroups::detect(names.clone(), Handle::current()) {
        Ok(cgroups) => cgroups,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let pod = names.pod(QosClass::Burstable, "u-1").unwrap();
    let ensured = match cgroups.ensure(&pod, limited(512, 8 << 20)).await {
        Ok(ensured) => ensured,
        Err(error) => return eprintln!("skipped: this process may not make cgroups: {error}"),
    };
    let again = cgroups.ensure(&pod, limited(512, 8 << 20)).await.unwrap();
    let checked = cgroups.check(&pod).await;
    cgroups.remove_pod_cgroup("u-1").await.unwrap();
    for hierarchy in &cgroups.tree_for_tests().hierarchies {
        for below in ["kubepods/burstable", "kubepods", ""] {
            let _ = fs::remove_dir(hierarchy.path.join(&root).join(below));
        }
    }
    assert!(ensured.made, "{ensured:?}");
    assert!(again.written.is_empty() && !again.made, "read back as it was written: {again:?}");
    if ensured.not_held.is_empty() {
        assert_eq!(checked, Ok(()));
    }
}

/// A container may hold a lease on the files of its own cgroup.
#[test]
fn a_lease_on_a_file_of_a_cgroup_is_waited_for_by_no_thread() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cgroup.procs");
    fs::write(&file, "1\n2\n").unwrap();
    assert_eq!(sys::pids_in(dir.path()), Ok(vec![1, 2]));
    let Some(_lease) = Lease::on(&file) else { return };
    let read = sys::pids_in(dir.path()).unwrap_err().to_string();
    let written = KernelFiles.write(&file, "3").unwrap_err().to_string();
    for error in [read, written] {
        assert!(error.ends_with("a process holds a lease on it"), "{error}");
    }
}

#[tokio::test]
async fn a_container_that_leases_the_list_of_its_processes_is_killed_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let pod = dir.path().join(&POD[1..]);
    fs::create_dir_all(pod.join("container")).unwrap();
    for file in ["cgroup.procs", "cgroup.kill", "container/cgroup.procs"] {
        fs::write(pod.join(file), "").unwrap();
    }
    let unified = vec![Hierarchy { path: dir.path().to_owned(), controllers: Vec::new() }];
    let sizes = PageSizes { page: 4096, huge: Vec::new() };
    let names = names(CgroupDriver::Cgroupfs, "/");
    let cgroups = SystemCgroups::at(CgroupVersion::V2, unified, sizes, names, Handle::current());
    let Some(_lease) = Lease::on(&pod.join("container/cgroup.procs")) else { return };
    let left = CgroupError::ProcessesLeft { uid: "u-1".to_owned(), pids: Vec::new() };
    assert_eq!(cgroups.remove_pod_cgroup("u-1").await, Err(left), "so that what is left is killed");
    assert_eq!(cgroups.kill("u-1").await, Ok(1));
    assert_eq!(fs::read_to_string(pod.join("cgroup.kill")).unwrap(), "1");
    fs::remove_file(pod.join("cgroup.kill")).unwrap();
    let error = cgroups.kill("u-1").await.unwrap_err().to_string();
    assert!(error.ends_with("a process holds a lease on it"), "an old kernel: {error}");
}
