use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;

use super::*;

/// Makes cgroups and processes, as a runtime does.
trait Machine {
    fn add_pod(&self, qos: QosClass, uid: &str);
    /// A process in the pod's cgroup; its number.
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

/// Directories in which only what a test writes is a file: the kernel's own vanish with their directory.
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
        // In one hierarchy, two levels down.
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
        let cgroups =
            SystemCgroups::at(CgroupVersion::Hybrid, hierarchies.clone(), names.clone(), Handle::current());
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
    let cgroups = SystemCgroups::at(CgroupVersion::V1, hierarchies.clone(), names, Handle::current());
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
            // A cpuset without CPUs takes no process; one hierarchy with it is enough.
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
    let hierarchies = cgroups.tree_for_tests();
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
    contract(Arc::new(cgroups), &machine).await;
    drop(machine);
    assert!(hierarchies.iter().all(|hierarchy| !Path::new(hierarchy).join(&root).exists()));
}
