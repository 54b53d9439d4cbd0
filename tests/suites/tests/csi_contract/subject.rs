//! The driver of a case, and how the case controls it.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_csi::fake::{FakeDriver, FakePlugins, Fault, Held, Serving, serve_driver};
use bridge_csi::rules::access::Access;
use bridge_csi::rules::capabilities::Capabilities;
use bridge_csi::rules::requests::{Publishing, Staging, publish, stage};
use bridge_csi::wire::node_service_capability::rpc::Type as Can;
use bridge_csi::wire::*;
use bridge_csi::{Candidate, CsiConnector, CsiError, CsiMetrics, Deadlines, Drivers, NodeInfo, Rpc};
use bridge_io::Io;
use csi_driver::DriverProcess;
use csi_driver::orders::fault_words;
use futures::FutureExt;

/// The name of the driver.
pub const NAME: &str = "contract.csi.example";
/// The deadline of calls over sockets.
pub const DEADLINE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Fake,
    Socket,
    Process,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::Fake => "fake",
            Place::Socket => "socket",
            Place::Process => "process",
        }
    }
}

pub enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

pub type Case = for<'a> fn(&'a Subject) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What is behind the endpoint.
enum Behind {
    Fake(FakeDriver, Mutex<Option<Serving>>),
    Process(Mutex<DriverProcess>),
}

pub struct Subject {
    pub place: Place,
    pub drivers: Drivers,
    pub directory: PathBuf,
    behind: Behind,
    candidate: Candidate,
}

/// Why nothing can be mounted here.
pub fn cannot_mount() -> Option<Outcome> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let reason = "only root can mount".to_owned();
    let is_demanded = std::env::var("CI").is_ok_and(|value| !value.is_empty());
    Some(if is_demanded { Outcome::Failed(reason) } else { Outcome::Skipped(reason) })
}

/// Starts the driver's process.
pub fn process(directory: &Path, registry: Option<&Path>) -> DriverProcess {
    DriverProcess::spawn(NAME, &directory.join("driver"), registry).expect("the driver starts")
}

pub fn run(place: Place, case: Case) -> Outcome {
    if place == Place::Process
        && let Some(outcome) = cannot_mount()
    {
        return outcome;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let deadlines = Deadlines { operation: DEADLINE, about: DEADLINE };
    match place {
        Place::Fake => {
            let tokio =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            tokio.unwrap().block_on(async {
                let driver = FakeDriver::new(NAME).with_deadlines(deadlines);
                let plugins = FakePlugins::default();
                plugins.show_driver(&driver);
                let drivers = Drivers::new(Arc::new(plugins), Io::current(), CsiMetrics::new().unwrap());
                let endpoint = format!("/plugins/{NAME}.sock");
                let behind = Behind::Fake(driver, Mutex::default());
                Subject::new(place, drivers, path, behind, endpoint).judge(case).await
            })
        }
        Place::Socket => {
            let io = Io::start(2).unwrap();
            let driver = io.io().enter(|| FakeDriver::new(NAME));
            let endpoint = path.join("csi.sock");
            let serving = serve_driver(&endpoint, Arc::new(driver.clone())).unwrap();
            let behind = Behind::Fake(driver, Mutex::new(Some(serving)));
            real(place, &io.io(), deadlines, path, behind, &endpoint, case)
        }
        Place::Process => {
            let io = Io::start(2).unwrap();
            let process = process(&path, None);
            let endpoint = process.endpoint();
            let behind = Behind::Process(Mutex::new(process));
            real(place, &io.io(), deadlines, path, behind, &endpoint, case)
        }
    }
}

fn real(
    place: Place,
    io: &Io,
    deadlines: Deadlines,
    directory: PathBuf,
    behind: Behind,
    endpoint: &Path,
    case: Case,
) -> Outcome {
    let connector = Arc::new(CsiConnector::new(io.clone(), deadlines));
    let drivers = Drivers::new(connector, io.clone(), CsiMetrics::new().unwrap());
    let subject = Subject::new(place, drivers, directory, behind, endpoint.display().to_string());
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    tokio.block_on(subject.judge(case))
}

impl Subject {
    fn new(place: Place, drivers: Drivers, directory: PathBuf, behind: Behind, endpoint: String) -> Self {
        let versions = vec!["1.0.0".to_owned()];
        let candidate = Candidate { name: NAME.into(), endpoint, versions, socket: "/registry/a".into() };
        Self { place, drivers, directory, behind, candidate }
    }

    async fn judge(self, case: Case) -> Outcome {
        let judged = AssertUnwindSafe(async {
            self.register().await;
            case(&self).await;
        });
        let judged = judged.catch_unwind().await;
        // What a failed case left is taken away behind the driver's back.
        let held = self.held();
        for path in held.published.keys().chain(held.staged.values().map(|staged| &staged.path)) {
            let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
        }
        match judged {
            Err(panic) => Outcome::Failed(words(&*panic)),
            Ok(()) if held.published.is_empty() && held.staged.is_empty() => Outcome::Passed,
            Ok(()) => Outcome::Failed(format!("the case leaves volumes: {held:?}")),
        }
    }

    /// Registers the driver.
    pub async fn register(&self) -> NodeInfo {
        self.drivers.register(self.candidate.clone()).await.expect("it registers")
    }

    fn order(&self, line: &str) -> Option<String> {
        match &self.behind {
            Behind::Fake(..) => None,
            Behind::Process(process) => {
                Some(process.lock().unwrap().order(line).unwrap_or_else(|error| panic!("{line}: {error}")))
            }
        }
    }

    fn fake(&self, act: impl FnOnce(&FakeDriver)) {
        if let Behind::Fake(driver, _) = &self.behind {
            act(driver);
        }
    }

    pub fn fault(&self, rpc: Rpc, times: usize, fault: Fault) {
        self.order(&format!("fault {rpc} {times} {}", fault_words(&fault)));
        self.fake(|driver| driver.fault(rpc, times, fault));
    }

    pub fn count(&self, rpc: Rpc) -> u64 {
        match &self.behind {
            Behind::Fake(driver, _) => driver.count(rpc),
            Behind::Process(_) => self.order(&format!("count {rpc}")).unwrap().parse().unwrap(),
        }
    }

    pub fn held(&self) -> Held {
        match &self.behind {
            Behind::Fake(driver, _) => driver.held(),
            Behind::Process(_) => serde_json::from_str(&self.order("held").unwrap()).unwrap(),
        }
    }

    pub fn broken(&self) -> Vec<String> {
        match &self.behind {
            Behind::Fake(driver, _) => driver.broken_rules(),
            Behind::Process(_) => serde_json::from_str(&self.order("broken").unwrap()).unwrap(),
        }
    }

    pub fn set_node(&self, id: &str, max: i64, topology: &[(&str, &str)]) {
        let pairs: Vec<_> = topology.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        self.order(&format!("node {id} {max}{}", pairs.concat()));
        let map = topology.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.fake(|driver| driver.set_node(id, max, map));
    }

    pub fn can(&self, able: &[Can]) {
        let names: Vec<_> = able.iter().map(Can::as_str_name).collect();
        self.order(&format!("can {}", names.join(" ")));
        self.fake(|driver| driver.set_capabilities(able));
    }

    pub fn limit(&self, bytes: i64) {
        self.order(&format!("limit {bytes}"));
        self.fake(|driver| driver.set_bytes_max(bytes));
    }

    pub fn ill(&self, words: &str) {
        self.order(&format!("condition {words}"));
        self.fake(|driver| driver.set_condition(true, words));
    }

    /// The driver ends at once and another process goes on where it was.
    pub fn dies_and_comes_back(&self) {
        match &self.behind {
            Behind::Process(process_of) => {
                let mut old = process_of.lock().unwrap();
                old.order("die").expect_err("it is dead");
                *old = process(&self.directory, None);
            }
            Behind::Fake(driver, serving) => {
                let mut serving = serving.lock().unwrap();
                if let Some(path) = serving.take().map(|serving| serving.path().to_owned()) {
                    *serving = Some(serve_driver(&path, Arc::new(driver.clone())).unwrap());
                }
            }
        }
    }

    /// Whether something is mounted there; the fakes mount nothing, and what they hold counts.
    pub fn is_there(&self, path: &str) -> bool {
        match self.place {
            Place::Process => csi_driver::is_mounted(Path::new(path)),
            _ => {
                let held = self.held();
                held.published.contains_key(path) || held.staged.values().any(|staged| staged.path == path)
            }
        }
    }

    fn made(&self, name: &str) -> String {
        let path = self.directory.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path.display().to_string()
    }

    /// Where a volume is staged; the directory is there, as it is before a call.
    pub fn staging_path(&self, volume: &str) -> String {
        self.made(&format!("staging/{volume}"))
    }

    /// Where a volume is published to a pod: only the directory above is there.
    pub fn target(&self, pod: &str) -> String {
        format!("{}/mount", self.made(&format!("pods/{pod}")))
    }

    pub async fn able(&self) -> Capabilities {
        self.drivers.capabilities(NAME).await.expect("capabilities")
    }

    pub async fn stage(&self, volume: &str, access: Access) -> Result<(), CsiError> {
        let path = self.staging_path(volume);
        let staging = Staging { volume_id: volume.into(), path, access, ..Default::default() };
        self.drivers.stage(NAME, stage(&staging, &self.able().await)).await
    }

    pub async fn publish(&self, volume: &str, pod: &str, access: Access) -> Result<(), CsiError> {
        self.publish_with(Publishing {
            volume_id: volume.into(),
            staging_path: self.staging_path(volume),
            target_path: self.target(pod),
            access,
            ..Default::default()
        })
        .await
    }

    pub async fn publish_with(&self, publishing: Publishing) -> Result<(), CsiError> {
        self.drivers.publish(NAME, publish(&publishing, &self.able().await)).await
    }

    pub async fn unpublish(&self, volume: &str, pod: &str) -> Result<(), CsiError> {
        let target_path = self.target(pod);
        self.drivers
            .unpublish(NAME, NodeUnpublishVolumeRequest { volume_id: volume.into(), target_path })
            .await
    }

    pub async fn unstage(&self, volume: &str) -> Result<(), CsiError> {
        let staging_target_path = self.staging_path(volume);
        let request = NodeUnstageVolumeRequest { volume_id: volume.into(), staging_target_path };
        self.drivers.unstage(NAME, request).await
    }
}

pub fn words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
    words.unwrap_or_else(|| "the case panicked".to_owned())
}
