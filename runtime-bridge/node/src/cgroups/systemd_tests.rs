//! The driver systemd against a D-Bus service that answers as systemd does, over a socket of its own.
// zbus generates such maps for an interface.
#![allow(clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::net::UnixStream;
use tokio::runtime::Handle;
use zbus::object_server::SignalEmitter;
use zbus::zvariant::{ObjectPath, OwnedObjectPath, OwnedValue};
use zbus::{Connection, Guid, connection, interface};

use super::files::Files;
use super::kernel::FakeKernel;
use super::systemd::{Connect, Slices};
use super::*;

const PATH: &str = "/org/freedesktop/systemd1";
const POD: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice";
const UNIT: &str = "kubepods-burstable-podu_1.slice";

#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
enum Refused {
    #[zbus(error)]
    ZBus(zbus::Error),
    UnitExists(String),
    NoSuchUnit(String),
    BadUnitSetting(String),
}

#[derive(Default)]
struct State {
    /// Units with their properties, each as text.
    units: BTreeMap<String, BTreeMap<String, String>>,
    calls: Vec<String>,
    jobs: u32,
    /// The result of the next jobs, instead of `done`.
    result: Option<&'static str>,
    connections: Vec<Connection>,
    /// So many jobs of others end before each answer, and one more.
    others: u32,
    /// A unit is stopped when this opens.
    gate: Option<Arc<tokio::sync::Notify>>,
}

/// A systemd with one hierarchy of version 2. Clones share it.
#[derive(Clone)]
struct FakeSystemd {
    state: Arc<Mutex<State>>,
    kernel: FakeKernel,
    root: PathBuf,
}

/// The path `/a.slice/a-b.slice` of the unit `a-b.slice`.
fn place(unit: &str) -> String {
    let name = unit.strip_suffix(".slice").unwrap();
    let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| format!("/{}.slice", &name[..end])).collect()
}

impl FakeSystemd {
    fn new(root: &Path) -> Self {
        let kernel = FakeKernel::version_2(root, "cpu memory pids");
        Self { state: Arc::default(), kernel, root: root.to_owned() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    fn make(&self, unit: &str) {
        let mut dir = self.root.clone();
        for part in place(unit).split('/').filter(|part| !part.is_empty()) {
            self.kernel.write(&dir.join("cgroup.subtree_control"), "+cpu +memory +pids").unwrap();
            dir.push(part);
            if !dir.exists() {
                self.kernel.make_dir(&dir).unwrap();
            }
        }
    }

    /// Writes the known properties of every unit, and defaults for the rest, to the kernel's files, as a reload does.
    fn reload(&self) {
        let units = self.state().units.clone();
        for (unit, properties) in units {
            let dir = self.root.join(place(&unit).trim_start_matches('/'));
            let or = |name: &str, default: &str| properties.get(name).cloned().unwrap_or(default.to_owned());
            for (file, text) in [
                ("memory.max", or("MemoryMax", "max")),
                ("cpu.weight", or("CPUWeight", "100")),
                ("pids.max", or("TasksMax", "max")),
            ] {
                self.kernel.write(&dir.join(file), &text).unwrap();
            }
        }
    }

    async fn job(&self, unit: &str, emitter: &SignalEmitter<'_>) -> OwnedObjectPath {
        let (job, result) = {
            let mut state = self.state();
            state.jobs += 1;
            (state.jobs, state.result.unwrap_or("done"))
        };
        let path: OwnedObjectPath = ObjectPath::try_from(format!("{PATH}/job/{job}")).unwrap().into();
        // The ends of other units' jobs are reported as well.
        let other: OwnedObjectPath = ObjectPath::try_from(format!("{PATH}/job/0")).unwrap().into();
        let others = self.state().others;
        for _ in 0..=others {
            let (unit, result) = ("other.service".to_owned(), "failed".to_owned());
            Self::job_removed(emitter, 0, other.clone(), unit, result).await.unwrap();
        }
        Self::job_removed(emitter, job, path.clone(), unit.to_owned(), result.to_owned()).await.unwrap();
        path
    }

    fn keep(&self, unit: &str, properties: Vec<(String, OwnedValue)>) -> Vec<String> {
        let mut state = self.state();
        let kept = state.units.entry(unit.to_owned()).or_default();
        let mut told = Vec::new();
        for (name, value) in properties {
            let text =
                u64::try_from(&value).map_or_else(|_| format!("{value:?}"), |number| number.to_string());
            told.push(format!("{name}={text}"));
            kept.insert(name, text);
        }
        told
    }
}

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl FakeSystemd {
    fn subscribe(&self) {}

    #[zbus(property)]
    fn version(&self) -> String {
        "249.11-fake".to_owned()
    }

    async fn start_transient_unit(
        &self,
        name: String,
        mode: String,
        properties: Vec<(String, OwnedValue)>,
        _others: Vec<(String, Vec<(String, OwnedValue)>)>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Refused> {
        self.state().calls.push(format!("start {name} {mode}"));
        if self.state().units.contains_key(&name) {
            return Err(Refused::UnitExists(format!("Unit {name} already exists.")));
        }
        // systemd refuses these properties for a slice.
        if properties.iter().any(|(property, _)| property == "Delegate" || property == "PIDs") {
            return Err(Refused::BadUnitSetting(name));
        }
        if self.state().result.is_none() {
            self.keep(&name, properties);
            self.make(&name);
        }
        Ok(self.job(&name, &emitter).await)
    }

    fn set_unit_properties(
        &self,
        name: String,
        runtime: bool,
        properties: Vec<(String, OwnedValue)>,
    ) -> Result<(), Refused> {
        if !self.state().units.contains_key(&name) {
            return Err(Refused::NoSuchUnit(format!("Unit {name} not loaded.")));
        }
        let told = self.keep(&name, properties);
        self.state().calls.push(format!("set {name} {runtime} {}", told.join(" ")));
        Ok(())
    }

    async fn stop_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Refused> {
        self.state().calls.push(format!("stop {name} {mode}"));
        let gate = self.state().gate.clone();
        if let Some(gate) = gate {
            gate.notified().await;
        }
        if self.state().units.remove(&name).is_none() {
            return Err(Refused::NoSuchUnit(format!("Unit {name} not loaded.")));
        }
        self.kernel.remove_dir(&self.root.join(place(&name).trim_start_matches('/'))).unwrap();
        Ok(self.job(&name, &emitter).await)
    }

    fn reset_failed_unit(&self, name: String) {
        self.state().calls.push(format!("reset {name}"));
    }

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: OwnedObjectPath,
        unit: String,
        result: String,
    ) -> zbus::Result<()>;
}

fn connect(systemd: &FakeSystemd) -> Connect {
    let systemd = systemd.clone();
    Arc::new(move || {
        let systemd = systemd.clone();
        Box::pin(async move {
            let (ours, its) = UnixStream::pair()?;
            let served = systemd.clone();
            let serving = tokio::spawn(async move {
                let builder = connection::Builder::unix_stream(its).server(Guid::generate())?.p2p();
                builder.serve_at(PATH, served)?.build().await
            });
            let connection = connection::Builder::unix_stream(ours).p2p().build().await?;
            let served = serving.await.unwrap()?;
            systemd.state().connections.push(served);
            Ok(connection)
        })
    })
}

fn cgroups(systemd: &FakeSystemd) -> SystemCgroups {
    let sizes = PageSizes { page: 4096, huge: Vec::new() };
    let names = CgroupNames::new(CgroupDriver::Systemd, "/").unwrap();
    SystemCgroups::at(CgroupVersion::V2, systemd.kernel.hierarchies(), sizes, names, Handle::current())
        .with_files(Arc::new(systemd.kernel.clone()))
        .with_slices(Slices::over(CgroupVersion::V2, connect(systemd)))
}

fn values(memory: u64) -> CgroupValues {
    CgroupValues {
        cpu_shares: Some(512),
        cpu: Some(CpuLimit { quota_us: Limit::At(50_500), period_us: 100_000 }),
        memory: Some(Limit::At(memory)),
        pids: Some(Limit::At(32)),
        huge_pages: None,
    }
}

fn file(systemd: &FakeSystemd, name: &str) -> String {
    let path = systemd.root.join(POD.trim_start_matches('/')).join(name);
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn a_pods_cgroup_is_a_slice_that_systemd_knows_with_its_limits() {
    let dir = tempfile::tempdir().unwrap();
    let systemd = FakeSystemd::new(dir.path());
    let cgroups = cgroups(&systemd);
    let ensured = cgroups.ensure(POD, values(1 << 20)).await.unwrap();
    assert!(ensured.made && ensured.not_held.is_empty(), "{ensured:?}");
    let told =
        "MemoryMax=1048576 CPUWeight=20 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=510000 TasksMax=32";
    assert_eq!(systemd.calls(), [format!("start {UNIT} replace"), format!("set {UNIT} true {told}")]);
    assert!(systemd.state().units[UNIT]["Wants"].contains("kubepods-burstable.slice"));
    // The kernel's files and systemd's properties agree, so that a reload changes nothing.
    let held = |systemd: &FakeSystemd| {
        ["memory.max", "cpu.weight", "cpu.max", "pids.max"].map(|name| file(systemd, name))
    };
    assert_eq!(held(&systemd), ["1048576", "20", "51000 100000", "32"]);
    systemd.reload();
    assert_eq!(held(&systemd), ["1048576", "20", "51000 100000", "32"]);
    // The same values need no call, another value one call.
    assert_eq!(cgroups.ensure(POD, values(1 << 20)).await, Ok(Ensured::default()));
    assert_eq!(systemd.calls(), <[&str; 0]>::default());
    cgroups.update(POD, values(2 << 20)).await.unwrap();
    let told = told.replace("1048576", "2097152");
    assert_eq!(
        (systemd.calls(), file(&systemd, "memory.max")),
        (vec![format!("set {UNIT} true {told}")], "2097152".into())
    );
}

#[tokio::test]
async fn a_slice_that_is_there_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let systemd = FakeSystemd::new(dir.path());
    cgroups(&systemd).ensure(POD, values(1 << 20)).await.unwrap();
    systemd.calls();
    // A kubelet that has just started has sent no properties yet.
    let again = cgroups(&systemd).ensure(POD, values(1 << 20)).await.unwrap();
    assert!(!again.made && again.written.is_empty(), "{again:?}");
    let calls = systemd.calls();
    assert_eq!(calls[0], format!("start {UNIT} replace"), "it exists, and that is well");
    assert!(calls.len() == 2 && calls[1].starts_with("set"), "{calls:?}");
}

#[tokio::test]
async fn a_pods_slice_is_stopped_when_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let systemd = FakeSystemd::new(dir.path());
    let cgroups = cgroups(&systemd);
    cgroups.ensure(POD, values(1 << 20)).await.unwrap();
    systemd.calls();
    let procs = systemd.root.join(POD.trim_start_matches('/')).join("cgroup.procs");
    std::fs::write(&procs, "42\n").unwrap();
    let left = cgroups.remove_pod_cgroup("u-1").await;
    assert_eq!(left, Err(CgroupError::ProcessesLeft { uid: "u-1".into(), pids: vec![42] }));
    assert_eq!(systemd.calls(), <[&str; 0]>::default(), "stopping the slice would end the process");
    std::fs::write(&procs, "").unwrap();
    cgroups.remove_pod_cgroup("u-1").await.unwrap();
    assert_eq!(systemd.calls(), [format!("stop {UNIT} replace"), format!("reset {UNIT}")]);
    assert!(!procs.exists() && !systemd.state().units.contains_key(UNIT));
    cgroups.remove_pod_cgroup("u-1").await.unwrap();
    // A directory that another process has made is no unit, and is removed as well.
    systemd.make(UNIT);
    cgroups.remove_pod_cgroup("u-1").await.unwrap();
    assert_eq!(systemd.calls(), [format!("stop {UNIT} replace")]);
    assert!(!procs.exists());
}

#[tokio::test]
async fn what_systemd_refuses_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let systemd = FakeSystemd::new(dir.path());
    let cgroups = cgroups(&systemd);
    systemd.state().result = Some("failed");
    let error = cgroups.ensure(POD, values(1 << 20)).await.unwrap_err().to_string();
    assert_eq!(error, format!("systemd: cannot start {UNIT}: the job ended with \"failed\""));
    assert_eq!(systemd.calls(), [format!("start {UNIT} replace"), format!("reset {UNIT}")]);
    systemd.state().result = None;
    // A directory of the administrator's is no slice.
    systemd.make("kube.slice");
    let error = cgroups.update("/kube.slice", values(1 << 20)).await.unwrap_err().to_string();
    assert_eq!(error, "systemd: cannot set properties of kube.slice: Unit kube.slice not loaded.");
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_one_that_cannot_be_made_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let systemd = FakeSystemd::new(dir.path());
    let cgroups = cgroups(&systemd);
    cgroups.ensure(POD, values(1 << 20)).await.unwrap();
    let lost = std::mem::take(&mut systemd.state().connections);
    for connection in lost {
        connection.close().await.unwrap();
    }
    cgroups.update(POD, values(2 << 20)).await.unwrap();
    assert_eq!(file(&systemd, "memory.max"), "2097152");

    let nowhere: Connect = Arc::new(|| {
        Box::pin(async { connection::Builder::address("unix:path=/no/such/bus")?.build().await })
    });
    let alone = cgroups.with_slices(Slices::over(CgroupVersion::V2, nowhere));
    let error = alone.update(POD, values(1 << 20)).await.unwrap_err();
    assert!(matches!(error, CgroupError::NoSystemd { .. }), "{error:?}");
    let said = "cannot reach systemd over D-Bus, which makes the cgroups with the cgroup driver systemd: ";
    assert!(error.to_string().starts_with(said), "{error}");
    assert_eq!(file(&systemd, "memory.max"), "2097152", "nothing is written behind systemd's back");
}

#[tokio::test]
async fn ends_of_other_jobs_hold_up_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let systemd = FakeSystemd::new(dir.path());
    // More than a listener has room for that does not take them.
    systemd.state().others = 200;
    let cgroups = cgroups(&systemd);
    let made = async {
        let pods = (0..32).map(|pod| format!("/kubepods.slice/kubepods-pod{pod}.slice"));
        let made = pods.map(|pod| cgroups.ensure(&pod, values(1 << 20)));
        for made in futures::future::join_all(made).await {
            assert!(made.unwrap().made);
        }
        cgroups.remove_pod_cgroup("7").await.unwrap();
    };
    tokio::time::timeout(std::time::Duration::from_secs(25), made).await.expect("systemd answers at once");
}

#[tokio::test]
async fn a_pod_that_comes_back_waits_for_the_end_of_its_removal() {
    let dir = tempfile::tempdir().unwrap();
    let systemd = FakeSystemd::new(dir.path());
    let cgroups = cgroups(&systemd);
    cgroups.ensure(POD, values(1 << 20)).await.unwrap();
    systemd.calls();
    let gate = Arc::new(tokio::sync::Notify::new());
    systemd.state().gate = Some(gate.clone());
    // The incarnation that asks for the removal ends while systemd is at it.
    let removal = tokio::spawn(cgroups.remove_pod_cgroup("u-1"));
    while systemd.state().calls.is_empty() {
        tokio::task::yield_now().await;
    }
    removal.abort();
    let next = cgroups.for_owner("next");
    let abandoned = next.ensure(POD, values(3 << 20));
    let mut ensure = Box::pin(next.ensure(POD, values(2 << 20)));
    assert!(futures::poll!(&mut ensure).is_pending());
    let elsewhere = next.ensure("/kubepods.slice/kubepods-podu_2.slice", values(1 << 20));
    assert!(elsewhere.await.unwrap().made, "other pods do not wait");
    assert!(futures::poll!(&mut ensure).is_pending());
    drop(abandoned);
    systemd.calls();
    systemd.state().gate = None;
    gate.notify_one();
    assert!(ensure.await.unwrap().made);
    let calls = systemd.calls();
    let about: Vec<&str> = calls.iter().filter_map(|call| call.split(' ').next()).collect();
    assert_eq!(about, ["reset", "start", "set"], "{calls:?}");
    assert_eq!(file(&systemd, "memory.max"), "2097152");
}
