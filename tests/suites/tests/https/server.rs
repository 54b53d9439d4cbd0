//! The server, with a pod on a fake runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_cri::fake::{Behaviour, ExecScript, FakeRuntime, Match, RegistryImage};
use bridge_cri::wire::{
    CheckpointContainerRequest, ContainerConfig, ContainerMetadata, CreateContainerRequest, ImageSpec,
    PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest, StartContainerRequest,
};
use bridge_cri::{Checkpointing, CriMetrics, Operations, Reply, Runtime};
use bridge_io::Io;
use bridge_io::clock::SystemClock;
use bridge_reviews::{FakeReviews, Reviews, User};
use bridge_serve::{Authorities, Bounds, System, serve_on};
use bridge_tls::serving::{CertificateSource, ServingSettings, ServingTls, protocol};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStatus, Pod, PodSpec, PodStatus,
};
use messages::facts::{DesiredPod, DesiredPods, Source};
use messages::pleg::GetRuntimePod;
use messages::pod_manager::GetStaticOf;
use messages::runtime::{
    ContainerState as RuntimeState, RuntimeContainer, RuntimePod, RuntimePods, RuntimeSandbox,
};
use messages::{PodRef, PodUid};
use node_api::{
    Access, AccessConfig, Answers, ApiMetrics, ContainerPlaces, Containers, HttpsOffers, LogLevel,
    Registries, SharedAnswers, Submission, ZPages, secured_routes,
};
use supervision::{AskPort, Policy, Tree};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::client::{Authority, Client, Identity};

pub const UID: &str = "0a1b";
/// The UID of the pod's mirror at the API server.
pub const MIRROR: &str = "2c3d";

/// The settings of a server.
pub struct Options {
    pub anonymous: bool,
    pub tokens: bool,
    pub always_allow: bool,
    pub exec_by_method: bool,
    /// The API server's reviews; `None` without an API server.
    pub reviews: Option<FakeReviews>,
    /// Reviews to use in place of `reviews`.
    pub asked: Option<Arc<dyn Reviews>>,
    pub debugging: bool,
    /// The requests for checkpoints; without it the runtime makes none.
    pub checkpointed: Option<Arc<Mutex<Vec<CheckpointContainerRequest>>>>,
    /// The directory of the machine's logs, if they are shown.
    pub system_logs: Option<PathBuf>,
    /// The program that tells the machine's journal, if queries of logs are answered.
    pub journal: Option<PathBuf>,
    /// How pods are submitted, if they can be.
    pub submission: Option<Submission>,
    /// The URL of the runtime's streaming server.
    pub streaming: String,
    /// The file of the authorities that may have signed that server's certificate, if not those of this machine.
    pub trusted: Option<PathBuf>,
    /// The feature gate ExtendWebSocketsToKubelet.
    pub websockets: bool,
    /// The places for readers of logs and for commands.
    pub places: ContainerPlaces,
    pub bounds: Bounds,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            anonymous: false,
            tokens: true,
            always_allow: false,
            exec_by_method: false,
            reviews: Some(reviews(&[])),
            asked: None,
            debugging: true,
            checkpointed: None,
            system_logs: None,
            journal: None,
            submission: None,
            streaming: "http://127.0.0.1:1".to_owned(),
            trusted: None,
            websockets: true,
            places: ContainerPlaces::default(),
            bounds: Bounds::SECURED,
        }
    }
}

/// Reviews in which `token-jane` is jane's, and these users may do this (user, verb, subresource).
pub fn reviews(allowed: &[(&str, &str, &str)]) -> FakeReviews {
    let jane = User { name: "jane".to_owned(), ..User::default() };
    let allowed =
        allowed.iter().map(|(user, verb, what)| ((*user).to_owned(), (*verb).to_owned(), (*what).to_owned()));
    FakeReviews {
        tokens: BTreeMap::from([("token-jane".to_owned(), jane)]),
        allowed: BTreeSet::from_iter(allowed),
        silent: false,
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub authority: Authority,
    /// Signed by the trusted authority: `admin` of `system:masters`.
    pub admin: Identity,
    files: TempDir,
    _serving: AbortOnDropHandle<std::io::Error>,
}

fn pod() -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some("web".to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    pod.metadata.uid = Some(UID.to_owned());
    let container = |name: &str| Container { name: name.to_owned(), ..Container::default() };
    pod.spec = Some(PodSpec { containers: vec![container("main"), container("late")], ..PodSpec::default() });
    pod
}

fn running(container: &str) -> PodStatus {
    let state =
        ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() };
    let status = ContainerStatus {
        name: "main".to_owned(),
        container_id: Some(format!("fake://{container}")),
        state: Some(state),
        ..ContainerStatus::default()
    };
    PodStatus { container_statuses: Some(vec![status]), ..PodStatus::default() }
}

fn held(sandbox: &str, container: &str) -> RuntimePods {
    let now = Timestamp::UNIX_EPOCH;
    let sandbox = RuntimeSandbox {
        id: sandbox.into(),
        attempt: 0,
        ready: true,
        created_at: now,
        ips: Vec::new(),
        host_network: false,
        runtime_handler: "".into(),
    };
    let container = RuntimeContainer {
        id: container.into(),
        sandbox_id: sandbox.id.clone(),
        name: "main".into(),
        attempt: 0,
        state: RuntimeState::Running,
        created_at: now,
        started_at: Some(now),
        finished_at: None,
        exit_code: 0,
        reason: "".into(),
        message: "".into(),
        image: "app".into(),
        image_ref: "app".into(),
        hash: None,
        annotations: Arc::default(),
        log_path: "".into(),
        effective: None,
    };
    let pod = RuntimePod { pod: PodRef::of(&pod()), sandboxes: vec![sandbox], containers: vec![container] };
    Arc::new(BTreeMap::from([(PodUid::new(UID), Arc::new(pod))]))
}

/// A runtime with one running container; the IDs of the sandbox and the container.
async fn runtime(files: &TempDir, streaming: &str) -> (FakeRuntime, String, String) {
    let runtime = FakeRuntime::new(1).writing_logs().with_streaming_address(streaming);
    runtime.add_image("app", RegistryImage::default());
    let lines = ["one", "two", "three"].map(str::to_owned).to_vec();
    runtime.behave(Match::Any, vec![Behaviour { log: lines, ..Behaviour::forever() }]);
    runtime.script_exec("whoami", ExecScript { stdout: b"root\n".to_vec(), ..ExecScript::default() });
    runtime
        .script_exec("false", ExecScript { stderr: b"no\n".to_vec(), exit_code: 1, ..ExecScript::default() });
    runtime.script_exec("large", ExecScript { stdout: vec![b'x'; 12 << 20], ..ExecScript::default() });
    let takes = Duration::from_secs(3600);
    runtime.script_exec("sleep", ExecScript { takes, ..ExecScript::default() });
    let metadata = PodSandboxMetadata {
        name: "web".to_owned(),
        namespace: "default".to_owned(),
        uid: UID.to_owned(),
        attempt: 0,
    };
    let config = PodSandboxConfig {
        metadata: Some(metadata),
        log_directory: files.path().display().to_string(),
        ..PodSandboxConfig::default()
    };
    let run = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
    let sandbox = runtime.run_pod_sandbox(run).await.unwrap().pod_sandbox_id;
    let container = ContainerConfig {
        metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        image: Some(ImageSpec { image: "app".to_owned(), ..ImageSpec::default() }),
        log_path: "0.log".to_owned(),
        ..ContainerConfig::default()
    };
    let create = CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(container),
        sandbox_config: Some(config),
    };
    let container = runtime.create_container(create).await.unwrap().container_id;
    runtime.start_container(StartContainerRequest { container_id: container.clone() }).await.unwrap();
    (runtime, sandbox, container)
}

fn desired() -> DesiredPods {
    let pod = Arc::new(pod());
    let desired =
        DesiredPod { pod_ref: PodRef::of(&pod), pod, source: Source::File, rejected: None, made_anew: None };
    DesiredPods {
        pods: Arc::new(BTreeMap::from([(PodUid::new(UID), Arc::new(desired))])),
        sources_ready: true,
    }
}

impl Server {
    /// The log of the running container.
    pub fn log(&self) -> std::path::PathBuf {
        self.files.path().join("0.log")
    }

    pub async fn start(options: Options) -> Self {
        let config = Arc::new(access(&options));
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let file = |name: &str| files.path().join(name);
        let own = authority.server();
        std::fs::write(file("tls.crt"), &own.certificate).unwrap();
        std::fs::write(file("tls.key"), &own.key).unwrap();
        std::fs::write(file("ca.crt"), &authority.pem).unwrap();
        let clock = Arc::new(SystemClock);
        let settings = ServingSettings {
            protocol: protocol("", &[], &[]).unwrap(),
            certificate: CertificateSource::Files { certificate: file("tls.crt"), key: file("tls.key") },
            client_ca: Some(file("ca.crt")),
        };
        let tls = ServingTls::start(settings, &Io::current(), clock.clone()).unwrap();
        let (runtime, sandbox, container) = runtime(&files, &options.streaming).await;
        let desired = desired();
        let status = Arc::new(running(&container));
        let held = held(&sandbox, &container);
        let one_of = held.clone();
        let (pods, all, one) = (desired.clone(), desired, status.clone());
        let metrics = ApiMetrics::new(Registries::default(), Timestamp::UNIX_EPOCH).unwrap();
        let answers = Answers {
            tree: Tree::new(Policy::default()),
            metrics: metrics.clone(),
            pods: AskPort::answering("PodManager", move |_| Some(pods.clone())),
            statuses: AskPort::answering("StatusManager", move |_| {
                Some(BTreeMap::from([(PodUid::new(UID), status.clone())]))
            }),
            events: AskPort::answering("EventRecorder", |_| Some(Vec::new())),
            summary: AskPort::answering("StatsProvider", |_| Some(Err("none".to_owned()))),
            usage: AskPort::answering("StatsProvider", |_| Some(Arc::default())),
            configuration: AskPort::answering("ConfigManager", |_| {
                Some(Arc::from(r#"{"kind":"KubeletConfiguration"}"#))
            }),
            kubernetes: "1.36.2",
            clock: clock.clone(),
            shared: SharedAnswers::default(),
        };
        let counted = CriMetrics::new().unwrap();
        let operations = Arc::new(Operations::new(Arc::new(runtime), Io::current(), counted));
        let containers = Containers {
            pods: AskPort::answering("PodManager", move |_| Some(all.clone())),
            static_of: AskPort::answering("PodManager", |ask: GetStaticOf| {
                Some((ask.mirror.as_str() == MIRROR).then(|| PodUid::new(UID)))
            }),
            status: AskPort::answering("StatusManager", move |_| Some(Some(one.clone()))),
            runtime_pods: AskPort::answering("Pleg", move |_| Some(Some(held.clone()))),
            runtime_pod: AskPort::answering("Pleg", move |ask: GetRuntimePod| {
                Some(one_of.get(&ask.uid).cloned())
            }),
            runtime: operations.clone(),
            exec: operations.clone(),
            checkpointing: match options.checkpointed {
                Some(notes) => Arc::new(Checkpoints(notes)),
                None => operations.clone(),
            },
            streaming: operations,
            proxy: Arc::new(sockets(options.trusted)),
            io: Io::current(),
            clock,
            split_streams: false,
            websockets: options.websockets,
            metrics: metrics.clone(),
            places: options.places,
        };
        let access = Access {
            config,
            tls: tls.clone(),
            reviews: options
                .asked
                .or_else(|| options.reviews.map(|reviews| Arc::new(reviews) as Arc<dyn Reviews>)),
            metrics,
        };
        let offers = offers(options.debugging, options.system_logs, options.journal);
        let routes = secured_routes(answers, containers, options.submission, &offers, access);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve_on(listener, routes, Some(tls), options.bounds));
        let admin = authority.client("admin", "system:masters");
        Self { address, authority, admin, files, _serving: AbortOnDropHandle::new(serving) }
    }

    /// A client with this certificate, or with none.
    pub fn client(&self, identity: Option<&Identity>) -> Client {
        Client::new(self.address, &self.authority, identity)
    }
}

/// The sockets of a kubelet that trusts the authorities of this file, or of this machine.
fn sockets(trusted: Option<PathBuf>) -> System {
    let sockets = System::new(Io::current());
    match trusted {
        Some(file) => sockets.trusting(Authorities { files: vec![file], directories: Vec::new() }),
        None => sockets,
    }
}

fn access(options: &Options) -> AccessConfig {
    AccessConfig {
        node: "n1".to_owned(),
        anonymous: options.anonymous,
        tokens: options.tokens,
        always_allow: options.always_allow,
        exec_by_method: options.exec_by_method,
    }
}

/// A runtime that notes what it is to write.
#[derive(Debug)]
struct Checkpoints(Arc<Mutex<Vec<CheckpointContainerRequest>>>);

impl Checkpointing for Checkpoints {
    fn checkpoint_container(&self, request: CheckpointContainerRequest) -> Reply<()> {
        self.0.lock().unwrap().push(request);
        Box::pin(async { Ok(()) })
    }
}

fn offers(debugging: bool, system_logs: Option<PathBuf>, journal: Option<PathBuf>) -> HttpsOffers {
    HttpsOffers {
        debugging,
        system_logs,
        journal,
        checkpoints: Some(PathBuf::from("/checkpoints")),
        zpages: ZPages {
            flagz: Some(Arc::new([("v".to_owned(), "2".to_owned())].into())),
            statusz: Some("1.36.2"),
            debug_flags: Some(LogLevel::default()),
            pprof: Some("kubelet\0--v=2".into()),
        },
    }
}

/// Longest wait of a test for something that happens at once.
pub const SOON: Duration = Duration::from_secs(60);
