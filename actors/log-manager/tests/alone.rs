//! LogManager alone: Pleg's facts name the containers with logs; the runtime and the logs are fakes.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::Fault;
use bridge_cri::{CriErrorKind, Rpc};
use bridge_node::host::FakeContainerLogs;
use log_manager::{Backends, LogManager, LogManagerDeps, LogRotation};
use messages::config_manager::ResendConfiguration;
use messages::facts::{PodObserved, SeenPod};
use messages::log_manager::LogRotationConfigured;
use messages::pleg::ResendObserved;
use messages::pod_set::{PodSetDigest, PodSetUpdate};
use messages::runtime::RuntimeContainer;
use stage::{Neighbour, Stage, alone, pod, seen, told};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);

fn deps(stage: &Stage<'_>, pleg: &Neighbour<ResendObserved>) -> LogManagerDeps {
    let fakes = &stage.fakes;
    LogManagerDeps {
        backends: Backends {
            runtime: fakes.operations.clone(),
            logs: Arc::new(FakeContainerLogs::new(fakes.disk.clone())),
        },
        clock: fakes.clock.clone(),
        rotation: LogRotation { bytes_max: Some(10), ..LogRotation::default() },
        pleg: pleg.address(),
        configuration: Neighbour::new("ConfigManager").address(),
    }
}

fn start(stage: &Stage<'_>, pleg: &Neighbour<ResendObserved>) -> Supervised<LogManager> {
    stage.start(deps(stage, pleg), LogManager::new)
}

fn directory() -> PathBuf {
    let pod = pod(0).pod_ref.clone();
    PathBuf::from(format!("/var/log/pods/{}_{}_{}/web", pod.namespace, pod.name, pod.uid))
}

/// Pleg's fact about a running container with a log that is too large.
async fn writer(stage: &Stage<'_>) -> PodObserved {
    let ran = stage.fakes.run(&pod(0)).await;
    let log = directory().join("0.log");
    stage.fakes.disk.write(&log, "more than ten bytes", 0o640);
    let mut seen = seen(&pod(0), 1);
    let container = &mut Arc::make_mut(&mut seen.state).containers[0];
    (container.id, container.log_path) = (Arc::from(ran.container), Arc::from(log.to_str().unwrap()));
    told([seen])
}

fn reopened(stage: &Stage<'_>) -> u64 {
    stage.fakes.runtime.counts().get(&Rpc::ReopenContainerLog).copied().unwrap_or(0)
}

/// The names of the files beside the log.
fn files(stage: &Stage<'_>) -> Vec<String> {
    let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    stage.fakes.disk.children(directory()).into_iter().map(name).collect()
}

#[test]
fn a_log_that_is_too_large_is_put_aside_and_begun_anew() {
    alone(async |stage| {
        let pleg = Neighbour::new("Pleg");
        let actor = start(stage, &pleg);
        let seen = writer(stage).await;
        stage.until("Pleg to be asked", || pleg.count() == 1).await;
        actor.address().tell(seen).unwrap();
        stage.until("another log", || reopened(stage) == 1).await;
        assert!(files(stage).iter().any(|name| name.starts_with("0.log.2027")), "{:?}", files(stage));
        assert_eq!(stage.observed::<LogManager>().await["rotated"], 1);
    });
}

#[test]
fn another_size_holds_from_the_next_look_on_and_rotation_is_switched_off_and_on() {
    alone(async |stage| {
        let pleg = Neighbour::new("Pleg");
        let small = LogRotation { bytes_max: Some(10), ..LogRotation::default() };
        let off = LogRotation { bytes_max: None, ..small };
        let actor = stage.start(LogManagerDeps { rotation: off, ..deps(stage, &pleg) }, LogManager::new);
        let configure = |settings| {
            actor.address().tell(LogRotationConfigured { settings }).unwrap();
        };
        let seen = writer(stage).await;
        stage.pass(30 * SECOND).await;
        assert_eq!(pleg.count(), 0, "nothing is to be rotated");
        configure(LogRotation { bytes_max: Some(1 << 20), ..small });
        stage.until("Pleg to be asked", || pleg.count() == 1).await;
        actor.address().tell(seen).unwrap();
        stage.pass(30 * SECOND).await;
        assert_eq!(reopened(stage), 0, "the log is not so large");
        configure(small);
        stage.until("another log", || reopened(stage) == 1).await;
        configure(small);
        configure(off);
        stage.fakes.disk.write(directory().join("0.log"), "more than ten bytes again", 0o640);
        stage.pass(60 * SECOND).await;
        assert_eq!((reopened(stage), pleg.count()), (1, 1));
    });
}

#[test]
fn a_new_incarnation_asks_for_the_configuration_that_has_changed_since_the_start() {
    alone(async |stage| {
        let pleg = Neighbour::new("Pleg");
        let configuration = Neighbour::<ResendConfiguration>::new("ConfigManager");
        let asks = configuration.address();
        let deps = LogManagerDeps { configuration: asks, ..deps(stage, &pleg) };
        let _actor = stage.start(deps, LogManager::new);
        stage.pass(SECOND).await;
        assert_eq!(configuration.count(), 0, "the first one has that of the start");
        stage.crash::<LogManager>().await;
        stage.until("ConfigManager to be asked", || configuration.count() == 1).await;
    });
}

/// A pod of this namespace with so many running containers, none of which has the log that it should have.
fn without_logs(number: usize, namespace: &str, containers: usize) -> SeenPod {
    let mut seen = seen(&pod(number), 1);
    let state = Arc::make_mut(&mut seen.state);
    state.pod.namespace = Arc::from(namespace);
    let log = format!("/var/log/pods/{namespace}_{}_{}/web/0.log", state.pod.name, state.pod.uid);
    let one = RuntimeContainer { log_path: Arc::from(log), ..state.containers[0].clone() };
    let numbered =
        |index: usize| RuntimeContainer { id: Arc::from(format!("{namespace}-{index:02}")), ..one.clone() };
    state.containers = (0..containers).map(numbered).collect();
    seen
}

#[test]
fn a_pod_of_many_logs_holds_up_none_of_another_namespace() {
    alone(async |stage| {
        let pleg = Neighbour::new("Pleg");
        let actor = start(stage, &pleg);
        let seen = told([without_logs(0, "crowd", 20), without_logs(1, "quiet", 2)]);
        actor.address().tell(seen).unwrap();
        stage.until("a try of each log", || reopened(stage) >= 22).await;
        let calls = stage.fakes.runtime.calls().into_iter();
        let reopens = calls.filter(|call| call.rpc == Rpc::ReopenContainerLog);
        let first: Vec<String> = reopens.map(|call| call.subject).take(4).collect();
        assert_eq!(first, ["crowd-00/log", "quiet-00/log", "crowd-01/log", "quiet-01/log"]);
    });
}

#[test]
fn a_new_incarnation_asks_who_writes_logs_and_touches_none_before() {
    alone(async |stage| {
        let pleg = Neighbour::new("Pleg");
        let actor = start(stage, &pleg);
        let seen = writer(stage).await;
        actor.address().tell(seen.clone()).unwrap();
        stage.pass(SECOND).await;
        stage.crash::<LogManager>().await;
        stage.until("Pleg to be asked again", || pleg.count() == 2).await;
        stage.pass(60 * SECOND).await;
        assert_eq!(reopened(stage), 0);
        actor.address().tell(seen).unwrap();
        stage.until("another log", || reopened(stage) == 1).await;
    });
}

#[test]
fn a_pleg_whose_mailbox_is_full_is_heard_all_the_same_and_asked_again() {
    alone(async |stage| {
        let pleg = Neighbour::new("Pleg");
        pleg.refuse();
        let actor = start(stage, &pleg);
        let seen = writer(stage).await;
        stage.until("Pleg to be asked", || pleg.refused().len() == 1).await;
        pleg.fall_silent();
        let digest = PodObserved(PodSetUpdate::Digest(PodSetDigest::default()));
        actor.address().tell(digest).unwrap();
        stage.until("Pleg to be asked again", || pleg.count() == 1).await;
        actor.address().tell(seen).unwrap();
        stage.until("another log", || reopened(stage) == 1).await;
        assert_eq!(pleg.count(), 1, "once it has taken that it is not asked again");
    });
}

#[test]
fn a_runtime_that_begins_no_other_log_keeps_the_old_one() {
    alone(async |stage| {
        let pleg = Neighbour::new("Pleg");
        let actor = start(stage, &pleg);
        let seen = writer(stage).await;
        let failed = Fault::Error(CriErrorKind::Other, "no such task".to_owned());
        stage.fakes.runtime.fault(Rpc::ReopenContainerLog, 1, failed);
        actor.address().tell(seen).unwrap();
        stage.until("the try", || reopened(stage) == 1).await;
        stage.pass(SECOND).await;
        assert_eq!(files(stage), ["0.log"], "it is where it was");
        let problems = stage.observed::<LogManager>().await["problems"].to_string();
        assert!(problems.contains("no such task"), "{problems}");
        stage.until("another log", || reopened(stage) == 2).await;
        stage.pass(SECOND).await;
        assert_eq!(stage.observed::<LogManager>().await["problems"], serde_json::json!([]));
    });
}

#[test]
fn a_disk_that_fails_is_told_of_and_looked_at_again() {
    alone(async |stage| {
        let pleg = Neighbour::new("Pleg");
        let actor = start(stage, &pleg);
        let seen = writer(stage).await;
        stage.fakes.disk.fail("sizes", directory(), 1, "Input/output error");
        actor.address().tell(seen).unwrap();
        stage.pass(11 * SECOND).await;
        let problems = stage.observed::<LogManager>().await["problems"].to_string();
        assert!(problems.contains("Input/output error"), "{problems}");
        assert_eq!(reopened(stage), 0);
        stage.until("another log", || reopened(stage) == 1).await;
    });
}
