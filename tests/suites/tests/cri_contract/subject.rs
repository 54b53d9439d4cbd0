//! The subject of a case, and how the case makes pods on it and removes them.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bridge_cri::fake::{Behaviour, ExecScript, FakeRuntime, Match, RegistryImage, serve_fake};
use bridge_cri::wire::*;
use bridge_cri::{
    CriClient, CriMetrics, Deadlines, Endpoints, ExitWatcher, Operations, PidfdWatcher, Runtime,
};
use bridge_io::Io;
use futures::FutureExt;

/// The label by which a case finds its own objects again.
pub const CASE_LABEL: &str = "understudy.dev/contract-case";
pub const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
/// The cgroup above every pod of the suite, from the root of each hierarchy: the suite runs on several runtimes at once, and
/// removes what is empty there at its end.
fn cgroup() -> String {
    let parent = std::env::var("UNDERSTUDY_CGROUP_PARENT").unwrap_or_default();
    format!("{parent}/understudy-contract")
}
/// The fake's containers exit this long after they were started, where they exit by themselves.
const FAKE_RUN: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Fake,
    Socket,
    Real,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::Fake => "fake",
            Place::Socket => "socket",
            Place::Real => "real",
        }
    }
}

pub enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// `Some(reason)` when the case does not apply here.
pub type Verdict = Option<String>;
pub type Case = for<'a> fn(&'a Subject) -> Pin<Box<dyn Future<Output = Verdict> + 'a>>;

#[derive(Clone)]
pub enum RealRuntime {
    At { socket: String, image: String },
    Missing { reason: String, fails: bool },
}

impl RealRuntime {
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        match (variable("UNDERSTUDY_CRI_SOCKET"), variable("UNDERSTUDY_TEST_IMAGE")) {
            (Some(socket), Some(image)) => RealRuntime::At { socket, image },
            (socket, _) => {
                let missing =
                    if socket.is_none() { "UNDERSTUDY_CRI_SOCKET" } else { "UNDERSTUDY_TEST_IMAGE" };
                let required = variable("UNDERSTUDY_REQUIRE_RUNTIME").as_deref() == Some("1");
                RealRuntime::Missing {
                    reason: format!("no real runtime: {missing} is not set"),
                    fails: required && variable("CI").is_some(),
                }
            }
        }
    }
}

pub struct Subject {
    pub place: Place,
    pub runtime: Arc<dyn Runtime>,
    pub operations: Operations,
    pub exits: Arc<dyn ExitWatcher>,
    /// The fake of both fake places.
    pub fake: Option<FakeRuntime>,
    pub image: String,
    pub logs: PathBuf,
    io: Io,
    endpoint: Option<String>,
    case: String,
    pods: AtomicU32,
}

pub fn run(place: Place, real: &RealRuntime, case: Case) -> Outcome {
    match (place, real) {
        (Place::Fake, _) => {
            let tokio =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            tokio.expect("a runtime").block_on(async {
                let fake = scripted_fake();
                let (logs, runtime) = (temporary(), Arc::new(fake.clone()));
                let exits = Arc::new(fake.exit_watcher());
                let subject =
                    Subject::new(place, runtime, Io::current(), exits, Some(fake), "app", logs.path().into());
                subject.judge(case).await
            })
        }
        (Place::Socket, _) => {
            let (io, directory) = (Io::start(2).expect("an I/O runtime"), temporary());
            let fake = io.io().enter(scripted_fake).with_deadlines(Deadlines::new(Duration::from_secs(2)));
            let serving = serve_fake(&directory.path().join("cri.sock"), fake.clone()).expect("a socket");
            let mut endpoints = Endpoints::new(format!("unix://{}", serving.path().display()));
            endpoints.deadlines = Deadlines::new(Duration::from_secs(2));
            let client = CriClient::new(&io.io(), &endpoints).expect("an endpoint");
            let exits = Arc::new(fake.exit_watcher());
            let subject = Subject::new(
                place,
                Arc::new(client),
                io.io(),
                exits,
                Some(fake),
                "app",
                directory.path().join("logs"),
            );
            wait_real_time(subject.at(&endpoints.runtime).judge(case))
        }
        (Place::Real, RealRuntime::Missing { reason, fails: true }) => Outcome::Failed(reason.clone()),
        (Place::Real, RealRuntime::Missing { reason, fails: false }) => Outcome::Skipped(reason.clone()),
        (Place::Real, RealRuntime::At { socket, image }) => {
            let (io, logs) = (Io::start(2).expect("an I/O runtime"), temporary());
            let client = CriClient::new(&io.io(), &Endpoints::new(socket.as_str())).expect("an endpoint");
            let exits = Arc::new(PidfdWatcher::new(io.io(), 64));
            let subject =
                Subject::new(place, Arc::new(client), io.io(), exits, None, image, logs.path().into());
            wait_real_time(subject.at(socket).judge(case))
        }
    }
}

/// Waits as an actor's thread does: without I/O of its own.
pub fn wait_real_time<T>(future: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    tokio.block_on(future)
}

pub fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A fake that imitates the busybox commands of the cases.
pub fn scripted_fake() -> FakeRuntime {
    let fake = FakeRuntime::new(7).writing_logs();
    fake.add_image("app", RegistryImage::default());
    fake.behave(Match::Command("exit 7".into()), vec![Behaviour::exits(FAKE_RUN, 7)]);
    fake.behave(Match::Command("exit 0".into()), vec![Behaviour::exits(FAKE_RUN, 0)]);
    fake.behave(Match::Command("trap '' TERM".into()), vec![Behaviour::stubborn()]);
    let hello = Behaviour { log: vec!["hello".into()], ..Behaviour::forever() };
    fake.behave(Match::Command("echo hello".into()), vec![hello]);
    let spoken = ExecScript {
        stdout: b"out\n".to_vec(),
        stderr: b"err\n".to_vec(),
        exit_code: 3,
        ..Default::default()
    };
    fake.script_exec("exit 3", spoken);
    let counted: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    let stdout = counted.into_bytes();
    fake.script_exec("seq 100000", ExecScript { stdout, exit_code: 4, ..Default::default() });
    fake.script_exec("sleep 30", ExecScript { takes: Duration::from_secs(30), ..Default::default() });
    fake
}

impl Subject {
    fn new(
        place: Place,
        runtime: Arc<dyn Runtime>,
        io: Io,
        exits: Arc<dyn ExitWatcher>,
        fake: Option<FakeRuntime>,
        image: &str,
        logs: PathBuf,
    ) -> Self {
        static CASES: AtomicU32 = AtomicU32::new(0);
        let case = format!("{}-{}", std::process::id(), CASES.fetch_add(1, Ordering::Relaxed));
        let metrics = CriMetrics::new().expect("well-formed names");
        Self {
            place,
            operations: Operations::new(Arc::clone(&runtime), io.clone(), metrics),
            runtime,
            exits,
            fake,
            image: image.to_owned(),
            logs,
            io,
            endpoint: None,
            case,
            pods: AtomicU32::new(0),
        }
    }

    fn at(mut self, endpoint: &str) -> Self {
        self.endpoint = Some(endpoint.to_owned());
        self
    }

    /// The same runtime through another client, whose calls may take `request` (sandboxes twice that).
    pub fn hurried(&self, request: Duration) -> Operations {
        let mut endpoints = Endpoints::new(self.endpoint.as_deref().expect("a place with a socket"));
        endpoints.deadlines = Deadlines::new(request);
        let client = CriClient::new(&self.io, &endpoints).expect("an endpoint");
        Operations::new(Arc::new(client), self.io.clone(), CriMetrics::new().expect("well-formed names"))
    }

    async fn judge(self, case: Case) -> Outcome {
        let judged = AssertUnwindSafe(case(&self)).catch_unwind().await;
        let left = self.take_away().await;
        match (judged, left) {
            (Err(panic), _) => {
                let words = panic.downcast_ref::<String>().cloned();
                let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
                Outcome::Failed(words.unwrap_or_else(|| "the case panicked".to_owned()))
            }
            (Ok(_), Err(error)) => Outcome::Failed(format!("taking the case's pods away: {error}")),
            (Ok(Some(reason)), Ok(())) => Outcome::Skipped(reason),
            (Ok(None), Ok(())) => Outcome::Passed,
        }
    }

    /// Removes every sandbox of this case with its containers.
    async fn take_away(&self) -> Result<(), bridge_cri::CriError> {
        if let Some(fake) = &self.fake {
            fake.clear_faults();
            fake.set_down(false);
        }
        let filter = PodSandboxFilter { label_selector: self.case_labels(), ..Default::default() };
        let list = self.runtime.list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await?;
        for sandbox in list.items {
            let uid = sandbox.metadata.unwrap_or_default().uid;
            self.operations.stop_pod_sandbox(&uid, &sandbox.id).await?;
            self.operations.remove_pod_sandbox(&uid, &sandbox.id).await?;
        }
        Ok(())
    }

    pub fn case_labels(&self) -> std::collections::BTreeMap<String, String> {
        [(CASE_LABEL.to_owned(), self.case.clone())].into()
    }

    /// The configuration of a new pod, attempt 0.
    pub fn pod(&self) -> PodSandboxConfig {
        let number = self.pods.fetch_add(1, Ordering::Relaxed);
        let uid = format!("uid-{}-{number}", self.case);
        let mut labels = self.case_labels();
        labels.insert(POD_UID_LABEL.to_owned(), uid.clone());
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: format!("contract-{number}"),
                uid: uid.clone(),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: "contract".into(),
            log_directory: self.logs.join(uid).display().to_string(),
            labels,
            linux: Some(LinuxPodSandboxConfig { cgroup_parent: cgroup(), ..Default::default() }),
            ..Default::default()
        }
    }

    /// A container that runs `script` in a shell.
    pub fn shell(&self, name: &str, attempt: u32, script: &str) -> ContainerConfig {
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.into(), attempt }),
            image: Some(ImageSpec { image: self.image.clone(), ..Default::default() }),
            command: ["/bin/busybox", "sh", "-c"].map(String::from).into(),
            args: vec![script.into()],
            labels: [("io.kubernetes.container.name".to_owned(), name.to_owned())].into(),
            log_path: format!("{name}/{attempt}.log"),
            linux: Some(LinuxContainerConfig::default()),
            ..Default::default()
        }
    }

    pub async fn sandbox(&self, config: &PodSandboxConfig) -> String {
        let uid = uid_of(config);
        let attempt = config.metadata.as_ref().expect("metadata").attempt;
        let ensured = self.operations.ensure_sandbox(&uid, attempt, config.clone(), String::new()).await;
        ensured.expect("the sandbox runs").into_id()
    }

    /// Creates and starts a container in a sandbox.
    pub async fn started(&self, pod: &PodSandboxConfig, sandbox_id: &str, config: ContainerConfig) -> String {
        let id = self.created(pod, sandbox_id, config).await;
        self.operations.start_container(&uid_of(pod), &id).await.expect("the container starts");
        id
    }

    pub async fn created(&self, pod: &PodSandboxConfig, sandbox_id: &str, config: ContainerConfig) -> String {
        let attempt = config.metadata.as_ref().expect("metadata").attempt;
        let ensured =
            self.operations.ensure_container(&uid_of(pod), sandbox_id, attempt, config, pod.clone()).await;
        ensured.expect("the container is created").into_id()
    }

    pub async fn status(&self, container_id: &str) -> ContainerStatus {
        let request = ContainerStatusRequest { container_id: container_id.into(), verbose: false };
        let answer = self.operations.container_status(request).await.expect("the container is there");
        answer.status.expect("a status")
    }

    /// The status once the container has exited, within 30 s.
    pub async fn exited(&self, container_id: &str) -> ContainerStatus {
        for _ in 0..1500 {
            let status = self.status(container_id).await;
            if status.state() == ContainerState::ContainerExited {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("container {container_id} did not exit within 30 s");
    }

    /// The statuses the runtime lists for a filter, by ID.
    pub async fn listed(&self, filter: ContainerFilter) -> Vec<String> {
        let request = ListContainersRequest { filter: Some(filter) };
        let list = self.operations.list_containers(request).await.expect("a list");
        let mut ids: Vec<String> = list.containers.into_iter().map(|container| container.id).collect();
        ids.sort();
        ids
    }
}

/// Removes what runtimes leave behind, in version 2 or in each controller: the cgroup above the pods, and the empty ones
/// of sandboxes that were cut short (containerd 1.6 forgets them).
pub fn remove_cgroups() {
    let root = std::path::Path::new("/sys/fs/cgroup");
    let controllers = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    for parent in std::iter::once(root.to_owned()).chain(controllers) {
        let above = parent.join(cgroup().trim_start_matches('/'));
        let inside = std::fs::read_dir(&above).into_iter().flatten().flatten().map(|entry| entry.path());
        for cgroup in inside.filter(|path| path.is_dir()).chain(std::iter::once(above.clone())) {
            // A cgroup that does not exist, or is in use and not empty, is left: no case depends on it.
            let _kept = std::fs::remove_dir(cgroup);
        }
    }
}

pub fn uid_of(config: &PodSandboxConfig) -> String {
    config.metadata.as_ref().expect("metadata").uid.clone()
}
