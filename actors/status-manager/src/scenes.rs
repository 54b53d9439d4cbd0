//! Pods, runtimes and reports for the tests of statuses.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus, Probe};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use messages::facts::{
    ContainerVerdict, DesiredPod, Rejection, SeenPod, Source, WaitingReason, WorkerReport, WorkerState,
};
use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod, RuntimeSandbox};
use messages::{PodRef, PodUid};

use crate::{NodeFacts, PodFacts, compute};

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_780_000_000 + second).unwrap()
}

pub(crate) fn pod_ref() -> PodRef {
    PodRef { uid: PodUid::new("uid-1"), namespace: Arc::from("default"), name: Arc::from("web") }
}

pub(crate) fn container(name: &str) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(format!("registry.test/{name}:1")),
        ..Container::default()
    }
}

pub(crate) fn sidecar(name: &str) -> Container {
    Container { restart_policy: Some("Always".to_owned()), ..container(name) }
}

pub(crate) fn with_readiness(mut container: Container) -> Container {
    container.readiness_probe = Some(Probe::default());
    container
}

pub(crate) fn with_startup(mut container: Container) -> Container {
    container.startup_probe = Some(Probe::default());
    container
}

pub(crate) fn spec(policy: &str, containers: Vec<Container>) -> PodSpec {
    PodSpec { restart_policy: Some(policy.to_owned()), containers, ..PodSpec::default() }
}

pub(crate) fn desired(spec: PodSpec) -> DesiredPod {
    let pod_ref = pod_ref();
    let metadata = ObjectMeta {
        name: Some(pod_ref.name.to_string()),
        namespace: Some(pod_ref.namespace.to_string()),
        uid: Some(pod_ref.uid.to_string()),
        generation: Some(2),
        ..ObjectMeta::default()
    };
    let pod = Arc::new(Pod { metadata, spec: Some(spec), status: None });
    DesiredPod { pod_ref, pod, source: Source::Api, rejected: None, made_anew: None }
}

pub(crate) fn created(name: &str, id: &str, attempt: u32) -> RuntimeContainer {
    RuntimeContainer {
        id: Arc::from(id),
        sandbox_id: Arc::from("sandbox"),
        name: Arc::from(name),
        attempt,
        state: ContainerState::Created,
        created_at: at(i64::from(attempt) * 10),
        started_at: None,
        finished_at: None,
        exit_code: 0,
        reason: Arc::from(""),
        message: Arc::from(""),
        image: Arc::from(format!("registry.test/{name}:1")),
        image_ref: Arc::from(format!("registry.test/{name}@sha256:0")),
        hash: None,
        annotations: Arc::default(),
        log_path: Arc::from(""),
        effective: None,
    }
}

pub(crate) fn running(name: &str, id: &str, attempt: u32) -> RuntimeContainer {
    RuntimeContainer {
        state: ContainerState::Running,
        started_at: Some(at(i64::from(attempt) * 10 + 1)),
        ..created(name, id, attempt)
    }
}

pub(crate) fn exited(name: &str, id: &str, attempt: u32, exit_code: i32) -> RuntimeContainer {
    RuntimeContainer {
        state: ContainerState::Exited,
        finished_at: Some(at(i64::from(attempt) * 10 + 5)),
        exit_code,
        reason: Arc::from(if exit_code == 0 { "Completed" } else { "Error" }),
        ..running(name, id, attempt)
    }
}

/// A pod with a ready sandbox and these containers, in the promised order of names.
pub(crate) fn observed(mut containers: Vec<RuntimeContainer>) -> RuntimePod {
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    let sandbox = RuntimeSandbox {
        id: Arc::from("sandbox"),
        attempt: 0,
        ready: true,
        created_at: at(0),
        ips: vec![Arc::from("10.0.0.5")],
        host_network: false,
        runtime_handler: Arc::from(""),
    };
    RuntimePod { pod: pod_ref(), sandboxes: vec![sandbox], containers }
}

/// The same pod after its sandbox has been stopped.
pub(crate) fn stopped(containers: Vec<RuntimeContainer>) -> RuntimePod {
    let mut pod = observed(containers);
    pod.sandboxes[0].ready = false;
    pod.sandboxes[0].ips.clear();
    pod
}

/// What a look has found that no actor has asked for.
pub(crate) fn seen(state: RuntimePod) -> SeenPod {
    SeenPod { state: Arc::new(state), touch: 0 }
}

pub(crate) fn report(state: WorkerState) -> WorkerReport {
    WorkerReport {
        pod: pod_ref(),
        state,
        last_look: 0,
        released: false,
        starting: Arc::default(),
        replaced: Arc::default(),
        waiting: Arc::default(),
        failed: None,
        deleted: false,
        made_anew: None,
        pulled_ms: 0,
        blocked_on: None,
    }
}

pub(crate) fn waits(name: &str, reason: &str) -> WorkerReport {
    let reason = WaitingReason { reason: reason.to_owned(), message: "why".to_owned() };
    WorkerReport {
        waiting: Arc::new(BTreeMap::from([(name.to_owned(), reason)])),
        ..report(WorkerState::Syncing)
    }
}

pub(crate) fn failed(state: WorkerState, reason: &str) -> WorkerReport {
    WorkerReport { failed: Some(rejection(reason)), ..report(state) }
}

pub(crate) fn rejection(reason: &str) -> Rejection {
    Rejection::new(reason, "because")
}

pub(crate) fn verdict(id: &str, startup: Option<bool>, readiness: Option<bool>) -> ContainerVerdict {
    ContainerVerdict { container_id: Arc::from(id), startup, liveness: None, readiness }
}

pub(crate) fn node() -> NodeFacts {
    NodeFacts {
        runtime_name: Some(Arc::from("containerd")),
        host_ips: vec!["192.0.2.1".to_owned()],
        ..NodeFacts::default()
    }
}

/// One pod over time: a test changes the facts and looks at the status.
pub(crate) struct Scene {
    pub(crate) facts: PodFacts,
    pub(crate) node: NodeFacts,
    pub(crate) status: Option<PodStatus>,
    second: i64,
}

impl Scene {
    /// A pod that its worker has just begun to sync.
    pub(crate) fn new(spec: PodSpec) -> Self {
        let facts = PodFacts {
            desired: Some(Arc::new(desired(spec))),
            report: Some(Arc::new(report(WorkerState::Syncing))),
            ..PodFacts::default()
        };
        Self { facts, node: node(), status: None, second: 100 }
    }

    pub(crate) fn with_source(mut self, source: Source) -> Self {
        self.facts.desired = self.facts.desired.map(|d| Arc::new(DesiredPod { source, ..(*d).clone() }));
        self
    }

    pub(crate) fn observed(&mut self, pod: RuntimePod) -> &PodStatus {
        self.facts.observed = Some(Arc::new(pod));
        self.step()
    }

    pub(crate) fn reported(&mut self, report: WorkerReport) -> &PodStatus {
        self.facts.report = Some(Arc::new(report));
        self.step()
    }

    pub(crate) fn verdicts(&mut self, name: &str, verdict: ContainerVerdict) -> &PodStatus {
        self.facts.verdicts = Some(Arc::new(BTreeMap::from([(name.to_owned(), verdict)])));
        self.step()
    }

    /// The kubelet starts again and knows only the checkpoint.
    pub(crate) fn restart(&mut self) {
        self.facts = PodFacts { desired: self.facts.desired.take(), ..PodFacts::default() };
    }

    /// Computes the status a second later, and once more: the second time nothing may change.
    pub(crate) fn step(&mut self) -> &PodStatus {
        self.second += 1;
        let status = compute(&self.facts, &self.node, self.status.as_ref(), at(self.second)).unwrap();
        let again = compute(&self.facts, &self.node, Some(&status), at(self.second + 5)).unwrap();
        assert_eq!(again, status, "the same facts must give the same status");
        self.status.insert(status)
    }
}

pub(crate) fn of<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    [&status.container_statuses, &status.init_container_statuses]
        .into_iter()
        .flatten()
        .flatten()
        .find(|s| s.name == name)
        .unwrap()
}

pub(crate) fn waiting_for(status: &PodStatus, name: &str) -> String {
    of(status, name).state.clone().unwrap().waiting.unwrap().reason.unwrap()
}

pub(crate) fn condition<'a>(status: &'a PodStatus, type_: &str) -> &'a PodCondition {
    status.conditions.as_ref().unwrap().iter().find(|c| c.type_ == type_).unwrap()
}

/// A condition as `True`, `False reason` or `False reason: message`.
pub(crate) fn told(status: &PodStatus, type_: &str) -> String {
    let condition = condition(status, type_);
    let mut text = condition.status.clone();
    if let Some(reason) = &condition.reason {
        text = format!("{text} {reason}");
    }
    if let Some(message) = &condition.message {
        text = format!("{text}: {message}");
    }
    text
}

pub(crate) fn phase_of(status: &PodStatus) -> &str {
    status.phase.as_deref().unwrap()
}
