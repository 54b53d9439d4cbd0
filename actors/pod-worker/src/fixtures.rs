//! Pods and instances for the tests of the pure modules.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Probe, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod, RuntimeSandbox};
use messages::{PodRef, PodUid};

use crate::hash::container_hash;

/// The image of every container of these fixtures.
pub const IMAGE: &str = "img:1";

/// The moment this many seconds after an arbitrary one.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("in range")
}

pub fn pod_ref() -> PodRef {
    PodRef { uid: PodUid::new("uid-1"), namespace: Arc::from("ns"), name: Arc::from("web") }
}

pub fn container(name: &str) -> Container {
    Container { name: name.into(), image: Some(IMAGE.into()), ..Container::default() }
}

pub fn sidecar(name: &str) -> Container {
    Container { restart_policy: Some("Always".into()), ..container(name) }
}

pub fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
    let list = |items: &[(&str, &str)]| {
        Some(items.iter().map(|(name, text)| ((*name).to_owned(), Quantity((*text).to_owned()))).collect())
    };
    ResourceRequirements { requests: list(requests), limits: list(limits), ..ResourceRequirements::default() }
}

pub fn probe() -> Option<Probe> {
    Some(Probe::default())
}

pub fn pod(policy: &str, init: Vec<Container>, regular: Vec<Container>) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some("web".into()),
            namespace: Some("ns".into()),
            uid: Some("uid-1".into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            restart_policy: Some(policy.into()),
            init_containers: Some(init),
            containers: regular,
            termination_grace_period_seconds: Some(30),
            ..PodSpec::default()
        }),
        status: None,
    }
}

pub fn instance(name: &str, attempt: u32, state: ContainerState) -> RuntimeContainer {
    RuntimeContainer {
        id: Arc::from(format!("{name}-{attempt}")),
        sandbox_id: Arc::from("sb-0"),
        name: Arc::from(name),
        attempt,
        state,
        created_at: at(i64::from(attempt)),
        started_at: (state != ContainerState::Created).then(|| at(i64::from(attempt))),
        finished_at: (state == ContainerState::Exited).then(|| at(i64::from(attempt))),
        exit_code: 0,
        reason: Arc::from(""),
        message: Arc::from(""),
        image: Arc::from(IMAGE),
        image_ref: Arc::from("sha256:1"),
        hash: Some(container_hash(&container(name))),
        annotations: Arc::new(BTreeMap::new()),
        log_path: Arc::from(""),
        effective: None,
    }
}

pub fn running(name: &str, attempt: u32) -> RuntimeContainer {
    instance(name, attempt, ContainerState::Running)
}

pub fn exited(name: &str, attempt: u32, started: i64, finished: i64, exit_code: i32) -> RuntimeContainer {
    RuntimeContainer {
        created_at: at(started),
        started_at: Some(at(started)),
        finished_at: Some(at(finished)),
        exit_code,
        ..instance(name, attempt, ContainerState::Exited)
    }
}

pub fn sandbox(attempt: u32, ready: bool) -> RuntimeSandbox {
    RuntimeSandbox {
        id: Arc::from(format!("sb-{attempt}")),
        attempt,
        ready,
        created_at: at(i64::from(attempt)),
        ips: vec![Arc::from("10.0.0.1")],
        host_network: false,
        runtime_handler: Arc::from(""),
    }
}

/// A pod with one ready sandbox and these containers, newest first within a name, in the promised order of names.
pub fn runtime_pod(mut containers: Vec<RuntimeContainer>) -> RuntimePod {
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    RuntimePod { pod: pod_ref(), sandboxes: vec![sandbox(0, true)], containers }
}
