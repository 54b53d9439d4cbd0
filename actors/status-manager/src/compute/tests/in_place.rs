//! Containers that count as waiting, are taken away, or are there for a while only.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, EphemeralContainer,
};

use super::*;

#[test]
fn a_container_waits_until_its_hook_has_ended() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    let hooked = Arc::new(BTreeSet::from(["a".to_owned()]));
    scene.reported(WorkerReport { starting: hooked, ..report(WorkerState::Syncing) });
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert_eq!((phase_of(status), &*waiting_for(status, "a")), ("Pending", "ContainerCreating"));
    assert_eq!((of(status, "a").ready, of(status, "a").started), (false, Some(false)));
    let status = scene.reported(report(WorkerState::Syncing));
    assert_eq!((phase_of(status), of(status, "a").ready), ("Running", true));
}

/// The API server refuses a status in which a container comes back after it has ended for good. So an instance that is
/// killed to be replaced is not shown as ended, whatever its exit code and the restart policy.
#[test]
fn an_instance_that_makes_room_for_another_has_not_ended() {
    for (policy, exit_code) in [("OnFailure", 0), ("Never", 0), ("Never", 137)] {
        let mut scene = Scene::new(spec(policy, vec![container("a")]));
        scene.reported(report(WorkerState::Syncing));
        scene.observed(observed(vec![running("a", "a0", 0)]));
        let replaced = Arc::new(BTreeMap::from([("a".to_owned(), Arc::from("a0"))]));
        scene.reported(WorkerReport { replaced, ..report(WorkerState::Syncing) });
        let status = scene.observed(observed(vec![exited("a", "a0", 0, exit_code)]));
        assert_eq!((phase_of(status), running_of(status, "a")), ("Running", true), "{policy} {exit_code}");
        assert_eq!((of(status, "a").ready, of(status, "a").started), (false, Some(false)));

        let status = scene.observed(observed(vec![running("a", "a1", 1), exited("a", "a0", 0, exit_code)]));
        assert_eq!((phase_of(status), running_of(status, "a")), ("Running", true));
        let last = of(status, "a").last_state.as_ref().and_then(|last| last.terminated.as_ref());
        assert_eq!(last.map(|last| last.exit_code), Some(exit_code));
        assert_eq!(of(status, "a").restart_count, 1);
    }
}

fn running_of(status: &PodStatus, name: &str) -> bool {
    of(status, name).state.as_ref().is_some_and(|state| state.running.is_some())
}

fn watched() -> Scene {
    let rule = ContainerRestartRule {
        action: "RestartAllContainers".into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes { operator: "In".into(), values: Some(vec![88]) }),
    };
    let watcher = Container {
        restart_policy: Some("Never".into()),
        restart_policy_rules: Some(vec![rule]),
        ..container("w")
    };
    let mut pod = spec("Never", vec![container("a"), watcher]);
    pod.init_containers = Some(vec![container("i")]);
    let mut scene = Scene::new(pod);
    scene.reported(report(WorkerState::Syncing));
    scene
}

#[test]
fn all_containers_are_restarted_in_place() {
    let mut scene = watched();
    let init = || exited("i", "i0", 0, 0);
    let both = vec![running("a", "a0", 0), init(), running("w", "w0", 0)];
    let status = scene.observed(observed(both));
    assert_eq!(told(status, "AllContainersRestarting"), "False");
    assert_eq!(phase_of(status), "Running");

    let status = scene.observed(observed(vec![running("a", "a0", 0), init(), exited("w", "w0", 0, 88)]));
    let started = "True RestartAllContainersStarted: container exited with restart policy rule";
    assert_eq!(told(status, "AllContainersRestarting"), started);
    assert_eq!(phase_of(status), "Running", "it comes back");

    let status = scene.observed(observed(vec![exited("w", "w0", 0, 88)]));
    assert_eq!(told(status, "AllContainersRestarting"), started);
    assert_eq!(waiting_for(status, "a"), "RestartingAllContainers");
    assert_eq!((of(status, "a").restart_count, phase_of(status)), (1, "Running"));

    let status = scene.observed(observed(vec![]));
    assert_eq!(told(status, "AllContainersRestarting"), "False");
    assert_eq!((&*waiting_for(status, "w"), of(status, "w").restart_count), ("RestartingAllContainers", 1));
    assert_eq!((phase_of(status), &*told(status, "Initialized")), ("Running", "True"));

    let again = vec![running("a", "a1", 1), exited("i", "i1", 1, 0), running("w", "w1", 1)];
    let status = scene.observed(observed(again));
    let last = of(status, "a").last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("RestartingAllContainers")));
    assert_eq!((of(status, "a").restart_count, of(status, "w").restart_count), (1, 1));
    assert_eq!((phase_of(status), &*told(status, "Ready")), ("Running", "True"));
}

#[test]
fn other_exits_end_the_pod_and_others_have_no_such_condition() {
    let mut scene = watched();
    let ended = vec![exited("a", "a0", 0, 0), exited("i", "i0", 0, 0), exited("w", "w0", 0, 1)];
    scene.observed(stopped(ended));
    let status = scene.reported(report(WorkerState::Terminated));
    assert_eq!((phase_of(status), &*told(status, "AllContainersRestarting")), ("Failed", "False PodFailed"));
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    let status = scene.step();
    assert!(status.conditions.iter().flatten().all(|c| c.type_ != "AllContainersRestarting"));
}

#[test]
fn an_ephemeral_container_has_a_status_and_no_say() {
    let mut pod = spec("Always", vec![container("a")]);
    pod.ephemeral_containers = Some(vec![EphemeralContainer {
        name: "debug".into(),
        image: Some("registry.test/debug:1".into()),
        ..EphemeralContainer::default()
    }]);
    let mut scene = Scene::new(pod);
    let debug = |status: &PodStatus| status.ephemeral_container_statuses.as_ref().unwrap()[0].clone();
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert_eq!((phase_of(status), &*told(status, "Ready")), ("Running", "True"));
    assert!(debug(status).state.unwrap().waiting.is_some());
    let status = scene.observed(observed(vec![running("a", "a0", 0), running("debug", "d0", 0)]));
    let shown = debug(status);
    assert_eq!(shown.container_id.as_deref(), Some("containerd://d0"));
    assert!(shown.state.unwrap().running.is_some() && !shown.ready && shown.started.is_none());
    let status = scene.observed(observed(vec![running("a", "a0", 0), exited("debug", "d0", 0, 3)]));
    assert_eq!(debug(status).state.unwrap().terminated.unwrap().exit_code, 3);
    assert_eq!((phase_of(status), &*told(status, "Ready")), ("Running", "True"));
}
