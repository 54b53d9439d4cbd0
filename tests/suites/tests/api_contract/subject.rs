//! The subject of a case: a server, a client, and a namespace of the case's own.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bridge_io::Io;
use bridge_io::clock::FakeClock;
use bridge_kube::fake::FakeApi;
use bridge_kube::{ApiClient, ConnectSettings, Delete, FileIdentity, Kubeconfig, RateLimit};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde_json::{Value, json};

/// Cases that stop the server run alone; all others may run side by side.
static SERVER: RwLock<()> = RwLock::new(());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Memory,
    Real,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::Memory => "memory",
            Place::Real => "real",
        }
    }
}

pub enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

pub type Case = for<'a> fn(&'a Subject) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

#[derive(Clone)]
pub enum RealServer {
    At(ControlPlane),
    Missing { reason: String, fails: bool },
}

/// A control plane made by `tests/env/control-plane`.
#[derive(Clone)]
pub struct ControlPlane {
    pub directory: PathBuf,
    pub admin: PathBuf,
}

impl RealServer {
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        match (variable("UNDERSTUDY_CONTROL_PLANE_DIR"), variable("UNDERSTUDY_ADMIN_KUBECONFIG")) {
            (Some(directory), Some(admin)) => {
                RealServer::At(ControlPlane { directory: directory.into(), admin: admin.into() })
            }
            _ => RealServer::Missing {
                reason: "no API server: UNDERSTUDY_CONTROL_PLANE_DIR is not set".to_owned(),
                fails: variable("UNDERSTUDY_REQUIRE_CLUSTER").as_deref() == Some("1")
                    && variable("CI").is_some(),
            },
        }
    }
}

impl ControlPlane {
    /// Runs `tests/env/control-plane VERB DIR …` and returns its output.
    pub fn script(&self, verb: &str, arguments: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../env/control-plane");
        let mut command = Command::new(script);
        command.arg(verb).arg(&self.directory).args(arguments);
        let output = command.output().expect("the script runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "control-plane {verb}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub fn kubeconfig_text(&self) -> String {
        std::fs::read_to_string(&self.admin).expect("the administrator's kubeconfig")
    }

    /// A client with the identity and server in `text`, which is taken for the file at `path`.
    pub fn client(&self, io: &Io, path: &Path, text: &str, deadline: Duration) -> Result<ApiClient, String> {
        let kubeconfig = Kubeconfig::read(path, text).map_err(|error| error.to_string())?;
        let identity = Arc::new(FileIdentity::new(kubeconfig.user.clone()));
        let settings = ConnectSettings {
            kubeconfig,
            identity,
            user_agent: "understudy-contract/1".to_owned(),
            http1_only: false,
        };
        ApiClient::connected(&settings, io, UNLIMITED, deadline).map_err(|error| error.to_string())
    }

    pub fn admin(&self, io: &Io) -> ApiClient {
        self.client(io, &self.admin, &self.kubeconfig_text(), DEADLINE).expect("the administrator")
    }
}

pub const UNLIMITED: RateLimit = RateLimit { per_second: 0.0, burst: 0 };
/// The deadline of calls: generous, for machines under load.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub struct Subject {
    pub api: ApiClient,
    /// The case's own namespace.
    pub namespace: String,
    /// The server in memory, if the subject is that.
    pub fake: Option<FakeApi>,
}

fn case_name() -> String {
    static CASES: AtomicU32 = AtomicU32::new(0);
    format!("contract-{}-{}", std::process::id(), CASES.fetch_add(1, Ordering::Relaxed))
}

pub fn run(place: Place, real: &RealServer, case: Case) -> Outcome {
    match (place, real) {
        (Place::Memory, _) => judged(|| {
            let tokio =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            tokio.expect("a runtime").block_on(async {
                let start = "2026-01-02T03:04:05Z".parse().expect("a time");
                let fake = FakeApi::new(Arc::new(FakeClock::new(7, start)));
                let api = fake.client(&Io::current());
                Subject { api, namespace: case_name(), fake: Some(fake) }.judge(case).await;
            });
        }),
        (Place::Real, RealServer::Missing { reason, fails: true }) => Outcome::Failed(reason.clone()),
        (Place::Real, RealServer::Missing { reason, fails: false }) => Outcome::Skipped(reason.clone()),
        (Place::Real, RealServer::At(plane)) => {
            let _shared = SERVER.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            judged(|| {
                let io = Io::start(1).expect("an I/O runtime");
                let subject = Subject { api: plane.admin(&io.io()), namespace: case_name(), fake: None };
                wait_real_time(subject.judge(case));
            })
        }
    }
}

/// Runs a case about real connections, while no other case uses the server.
pub fn run_alone(real: &RealServer, case: fn(&ControlPlane)) -> Outcome {
    match real {
        RealServer::Missing { reason, fails: true } => Outcome::Failed(reason.clone()),
        RealServer::Missing { reason, fails: false } => Outcome::Skipped(reason.clone()),
        RealServer::At(plane) => {
            let _alone = SERVER.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            judged(|| case(plane))
        }
    }
}

pub fn judged(case: impl FnOnce()) -> Outcome {
    match catch_unwind(AssertUnwindSafe(case)) {
        Ok(()) => Outcome::Passed,
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
            Outcome::Failed(words.unwrap_or_else(|| "the case panicked".to_owned()))
        }
    }
}

/// Waits as an actor's thread does: without I/O of its own.
pub fn wait_real_time<T>(future: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    tokio.block_on(future)
}

impl Subject {
    async fn judge(self, case: Case) {
        let namespace: Namespace = object(json!({"metadata": {"name": self.namespace}}));
        self.api.create(&namespace).await.expect("a namespace");
        case(&self).await;
        // All other objects are deleted with the control plane, but other cases might hear of pods.
        for pod in self.api.list::<Pod>(&self.all()).await.expect("a list") {
            let name = pod.metadata.name.unwrap_or_default();
            let now = Delete { grace_seconds: Some(0), uid: None };
            let _ = self.api.delete::<Pod>(self.ns(), &name, &now).await;
        }
    }

    pub fn ns(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    /// Everything in this case's namespace.
    pub fn all(&self) -> bridge_kube::Select {
        bridge_kube::Select { namespace: Some(self.namespace.clone()), ..bridge_kube::Select::default() }
    }

    /// A pod bound to a node of the case, as a static pod's mirror is: no service account is asked for it.
    pub fn pod(&self, name: &str) -> Pod {
        object(json!({
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"nodeName": self.namespace, "automountServiceAccountToken": false,
                "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j:1"}]},
        }))
    }

    /// Creates a pod, and the service account that admission requires.
    pub async fn created(&self, name: &str) -> Pod {
        let account: k8s_openapi::api::core::v1::ServiceAccount =
            object(json!({"metadata": {"name": "default", "namespace": self.namespace}}));
        match self.api.create(&account).await {
            Ok(_) => {}
            Err(error) => assert!(error.is_already_exists(), "{error}"),
        }
        // Admission reads accounts from a cache of its own.
        for _ in 0..600 {
            match self.api.create(&self.pod(name)).await {
                Ok(pod) => return pod,
                Err(error) => assert!(error.is_forbidden(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the service account is not seen within a minute");
    }
}

pub fn object<K: bridge_kube::Object>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of this type")
}

pub fn json<K: bridge_kube::Object>(object: &K) -> Value {
    serde_json::to_value(object).expect("objects are JSON")
}
