use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodReadinessGate, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use messages::facts::{DesiredPod, Rejection, Source, UNSUPPORTED_FIELDS, WorkerReport, WorkerState};
use messages::runtime::{ContainerState, Effective, RuntimeContainer, RuntimePod};

use crate::scenes::*;

fn terminated_report() -> WorkerReport {
    report(WorkerState::Terminated)
}

#[test]
fn the_gate_of_a_condition_takes_it_away() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    scene.node.no_ready_to_start = true;
    scene.step();
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    let types: Vec<_> = status.conditions.iter().flatten().map(|c| c.type_.as_str()).collect();
    assert_eq!(types, ["Initialized", "Ready", "ContainersReady", "PodScheduled"]);
}

#[test]
fn a_pod_starts() {
    let mut scene = Scene::new(spec("Always", vec![container("b"), container("a")]));
    let status = scene.step();
    assert_eq!(phase_of(status), "Pending");
    assert_eq!(waiting_for(status, "a"), "ContainerCreating");
    assert_eq!(told(status, "PodScheduled"), "True");
    assert_eq!(told(status, "PodReadyToStartContainers"), "False");
    assert_eq!(told(status, "Initialized"), "True");
    assert_eq!(
        told(status, "Ready"),
        "False ContainersNotReady: containers with unready status: [b a]",
        "in the order of the spec"
    );
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    assert_eq!(status.observed_generation, Some(2));
    assert_eq!(condition(status, "Ready").observed_generation, Some(2));
    assert_eq!(status.host_ip.as_deref(), Some("192.0.2.1"));
    let started = status.start_time.clone();

    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert_eq!(phase_of(status), "Pending");
    assert_eq!(told(status, "PodReadyToStartContainers"), "True");
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.5"));

    let status = scene.observed(observed(vec![running("a", "a0", 0), running("b", "b0", 0)]));
    assert_eq!(phase_of(status), "Running");
    assert_eq!(told(status, "Ready"), "True");
    assert_eq!(told(status, "ContainersReady"), "True");
    assert_eq!(status.start_time, started);
    let a = of(status, "a");
    assert_eq!(a.container_id.as_deref(), Some("containerd://a0"));
    assert_eq!(a.image_id, "registry.test/a@sha256:0");
    assert_eq!((a.ready, a.started, a.restart_count), (true, Some(true), 0));
    let names: Vec<_> = status.container_statuses.iter().flatten().map(|c| &*c.name).collect();
    assert_eq!(names, ["a", "b"], "sorted by name");
}

#[test]
fn waiting_reasons_come_from_the_worker() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    assert_eq!(waiting_for(scene.reported(waits("a", "ErrImagePull")), "a"), "ErrImagePull");
    assert_eq!(
        waiting_for(scene.reported(waits("a", "CreateContainerConfigError")), "a"),
        "CreateContainerConfigError"
    );
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert!(of(status, "a").state.clone().unwrap().running.is_some(), "an older reason is outlived");
}

#[test]
fn a_crash_loop_shows_how_the_last_run_ended() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    scene.observed(observed(vec![exited("a", "a0", 0, 1)]));
    let status = scene.reported(waits("a", "CrashLoopBackOff"));
    assert_eq!(phase_of(status), "Running");
    assert_eq!(waiting_for(status, "a"), "CrashLoopBackOff");
    let last = of(status, "a").last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.container_id.as_deref()), (1, Some("containerd://a0")));

    let status = scene.observed(observed(vec![running("a", "a1", 1), exited("a", "a0", 0, 1)]));
    let a = of(status, "a");
    assert_eq!((a.restart_count, a.ready), (1, true));
    assert_eq!(a.last_state.clone().unwrap().terminated.unwrap().exit_code, 1);
}

#[test]
fn restarts_are_counted_when_the_runtime_has_forgotten_the_earlier_ones() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    scene.observed(observed(vec![exited("a", "a5", 5, 1)]));
    let status = scene.observed(observed(vec![running("a", "fresh", 0)]));
    assert_eq!(of(status, "a").restart_count, 6);
    assert_eq!(of(status, "a").last_state.clone().unwrap().terminated.unwrap().exit_code, 1);
}

#[test]
fn a_container_that_vanished_while_running_is_told_as_lost() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    scene.observed(observed(vec![running("a", "a0", 0)]));
    let status = scene.observed(observed(vec![]));
    assert_eq!(phase_of(status), "Running", "it does not fall back to Pending");
    let a = of(status, "a");
    let last = a.last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    assert_eq!(a.restart_count, 1);

    let status = scene.observed(observed(vec![running("a", "a1", 1)]));
    assert_eq!(of(status, "a").restart_count, 1);
}

#[test]
fn a_container_that_vanished_and_does_not_come_back_has_ended_and_its_pod_fails() {
    let mut scene = Scene::new(spec("Never", vec![container("a"), container("b")]));
    scene.observed(observed(vec![running("a", "a0", 0), running("b", "b0", 0)]));
    let status = scene.observed(observed(vec![running("b", "b0", 0)]));
    let end = of(status, "a").state.clone().unwrap().terminated.unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    assert_eq!(phase_of(status), "Running", "the other one runs on");
    let again = of(scene.observed(observed(vec![running("b", "b0", 0)])), "a").clone();
    assert_eq!((again.restart_count, again.state.unwrap().terminated), (1, Some(end)), "told once");
    scene.observed(observed(vec![]));
    scene.reported(WorkerReport { state: WorkerState::Terminated, ..report(WorkerState::Syncing) });
    assert_eq!(phase_of(scene.step()), "Failed");
}

#[test]
fn a_container_that_the_runtime_cannot_tell_of_is_told_as_lost_once() {
    let mut scene = Scene::new(spec("Never", vec![container("a")]));
    scene.observed(observed(vec![running("a", "a0", 0)]));
    let mut unknown = running("a", "a0", 0);
    unknown.state = ContainerState::Unknown;
    let status = scene.observed(observed(vec![unknown]));
    let end = of(status, "a").state.clone().unwrap().terminated.unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    assert_eq!(phase_of(status), "Running", "it may still run");
    assert_eq!(of(status, "a").restart_count, 1);
}

#[test]
fn an_end_that_nobody_saw_counts_as_one_restart() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    scene.observed(observed(vec![running("a", "a3", 3)]));
    let unknown = RuntimeContainer { state: ContainerState::Unknown, ..running("a", "a3", 3) };
    assert_eq!(of(scene.observed(observed(vec![unknown.clone()])), "a").restart_count, 4);
    assert_eq!(of(scene.observed(observed(vec![unknown])), "a").restart_count, 4, "once");
    let next = vec![running("a", "a4", 4), exited("a", "a3", 3, 137)];
    assert_eq!(of(scene.observed(observed(next)), "a").restart_count, 4);
    assert_eq!(of(scene.observed(observed(vec![running("a", "a0", 0)])), "a").restart_count, 5);
}

#[test]
fn a_pod_stays_initialized_while_its_init_containers_run_again() {
    let mut pod = spec("Always", vec![container("a")]);
    pod.init_containers = Some(vec![container("i")]);
    let mut scene = Scene::new(pod);
    assert!(told(scene.observed(observed(vec![running("i", "i0", 0)])), "Initialized").starts_with("False"));
    scene.observed(observed(vec![running("a", "a0", 0), exited("i", "i0", 0, 0)]));
    let status = scene.observed(observed(vec![running("i", "i1", 1)]));
    assert_eq!(told(status, "Initialized"), "True");
}

#[test]
fn a_finished_pod_is_told_when_its_worker_has_stopped_everything() {
    let mut scene = Scene::new(spec("OnFailure", vec![container("a"), container("b")]));
    scene.observed(observed(vec![running("a", "a0", 0), running("b", "b0", 0)]));
    let status = scene.observed(observed(vec![exited("a", "a0", 0, 0), exited("b", "b0", 0, 0)]));
    assert_eq!(phase_of(status), "Running", "held back");
    assert_eq!(told(status, "Ready"), "False PodCompleted");
    assert_eq!(told(status, "Initialized"), "True PodCompleted");

    let status = scene.reported(terminated_report());
    assert_eq!(phase_of(status), "Succeeded");
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.5"));

    let status = scene.observed(RuntimePod::absent(pod_ref()));
    assert_eq!(phase_of(status), "Succeeded");
    assert_eq!(of(status, "a").state.clone().unwrap().terminated.unwrap().exit_code, 0);
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.5"), "addresses stay after the sandbox has gone");
}

#[test]
fn a_terminal_phase_waits_for_live_containers() {
    let mut scene = Scene::new(spec("Never", vec![container("a")]));
    scene.observed(observed(vec![running("a", "a0", 0)]));
    let status = scene.reported(failed(WorkerState::Terminating, "Preempting"));
    assert_eq!((phase_of(status), status.reason.as_deref()), ("Running", None));
    assert_eq!(told(status, "Ready"), "False PodFailed");
    let status = scene.reported(failed(WorkerState::Terminated, "Preempting"));
    assert_eq!(phase_of(status), "Running", "the runtime still shows a live one");
    assert!(status.conditions.iter().flatten().all(|c| c.type_ != "DisruptionTarget"));

    let status = scene.observed(stopped(vec![exited("a", "a0", 0, 137)]));
    assert_eq!((phase_of(status), status.reason.as_deref()), ("Failed", Some("Preempting")));
    assert_eq!(status.message.as_deref(), Some("because"));
    assert_eq!(told(status, "DisruptionTarget"), "True TerminationByKubelet: because");

    let status = scene.reported(terminated_report());
    assert_eq!((phase_of(status), status.reason.as_deref()), ("Failed", Some("Preempting")));
    assert_eq!(told(status, "DisruptionTarget"), "True TerminationByKubelet: because");
}

/// The API server shows the pod with this status from now on.
fn shown(scene: &mut Scene, status: PodStatus) {
    let desired = scene.facts.desired.clone().unwrap();
    let mut pod = k8s_openapi::api::core::v1::Pod::clone(&desired.pod);
    pod.status = Some(status);
    scene.facts.desired = Some(Arc::new(DesiredPod { pod: Arc::new(pod), ..DesiredPod::clone(&desired) }));
}

#[test]
fn an_end_that_the_api_server_shows_is_final_for_a_pod_that_ends_and_is_taken_back_while_it_runs() {
    let theirs = PodStatus {
        phase: Some("Failed".into()),
        reason: Some("NodeLost".into()),
        message: Some("long ago".into()),
        ..PodStatus::default()
    };
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    scene.observed(observed(vec![running("a", "a0", 0)]));
    shown(&mut scene, theirs);
    assert_eq!(phase_of(scene.step()), "Running", "another writer's word");

    // After a restart of the kubelet the worker finds the pod ended, although the checkpoint says Running.
    let status = scene.reported(report(WorkerState::Terminating));
    assert_eq!(
        (phase_of(status), status.reason.as_deref()),
        ("Failed", Some("NodeLost")),
        "before the containers have died"
    );
    assert_eq!(told(status, "Ready"), "False PodFailed");
    scene.observed(stopped(vec![exited("a", "a0", 0, 0)]));
    let status = scene.reported(terminated_report());
    assert_eq!(
        (phase_of(status), status.message.as_deref()),
        ("Failed", Some("long ago")),
        "whatever the exit codes"
    );

    // The status is ours, with a reason that an earlier kubelet wrote to the API server.
    let mut scene = Scene::new(spec("Never", vec![container("a")]));
    scene.observed(observed(vec![exited("a", "a0", 0, 1)]));
    scene.reported(terminated_report());
    assert_eq!(phase_of(scene.step()), "Failed");
    let earlier =
        PodStatus { phase: Some("Failed".into()), reason: Some("Evicted".into()), ..PodStatus::default() };
    shown(&mut scene, earlier);
    assert_eq!(scene.step().reason.as_deref(), Some("Evicted"));
}

#[test]
fn an_eviction_for_want_of_something_is_a_disruption_and_one_for_a_limit_is_not() {
    for (message, disrupts) in [
        ("The node was low on resource: memory. ", true),
        ("Usage of EmptyDir volume \"x\" exceeds the limit \"1Mi\". ", false),
    ] {
        let mut scene = Scene::new(spec("Never", vec![container("a")]));
        scene.observed(RuntimePod::absent(pod_ref()));
        let mut report = failed(WorkerState::Terminated, "Evicted");
        report.failed = Some(Rejection::new("Evicted", message));
        let status = scene.reported(report);
        assert_eq!((phase_of(status), status.message.as_deref()), ("Failed", Some(message)));
        let told = status.conditions.iter().flatten().any(|c| c.type_ == "DisruptionTarget");
        assert_eq!(told, disrupts, "{message}");
    }
}

#[test]
fn a_deadline_is_no_disruption() {
    let mut scene = Scene::new(spec("Never", vec![container("a")]));
    scene.observed(RuntimePod::absent(pod_ref()));
    let status = scene.reported(failed(WorkerState::Terminated, "DeadlineExceeded"));
    assert_eq!((phase_of(status), status.reason.as_deref()), ("Failed", Some("DeadlineExceeded")));
    assert!(status.conditions.iter().flatten().all(|c| c.type_ != "DisruptionTarget"));
}

#[test]
fn a_deleted_pod_ends_by_its_exit_codes_whatever_the_restart_policy() {
    for (code, phase) in [(0, "Succeeded"), (143, "Failed")] {
        let mut scene = Scene::new(spec("Always", vec![container("a")]));
        scene.observed(observed(vec![running("a", "a0", 0)]));
        scene.observed(stopped(vec![exited("a", "a0", 0, code)]));
        let status = scene.reported(WorkerReport { deleted: true, ..terminated_report() });
        assert_eq!(phase_of(status), phase);
    }
}

#[test]
fn a_deleted_static_pod_keeps_its_phase() {
    let mut scene = Scene::new(spec("Always", vec![container("a")])).with_source(Source::File);
    scene.observed(observed(vec![running("a", "a0", 0)]));
    scene.observed(stopped(vec![exited("a", "a0", 0, 0)]));
    let status = scene.reported(WorkerReport { deleted: true, released: true, ..terminated_report() });
    assert_eq!(phase_of(status), "Running");
}

#[test]
fn what_never_started_is_failed_at_the_very_end() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    scene.reported(waits("a", "ImagePullBackOff"));
    scene.observed(stopped(vec![]));
    let status = scene.reported(WorkerReport { deleted: true, ..terminated_report() });
    assert_eq!(phase_of(status), "Pending");
    let status = scene.reported(WorkerReport { deleted: true, released: true, ..terminated_report() });
    assert_eq!(phase_of(status), "Failed");
    let end = of(status, "a").state.clone().unwrap().terminated.unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
}

#[test]
fn the_end_of_an_uninitialized_pod_blames_its_init_container_alone() {
    let mut pod = spec("Always", vec![container("a")]);
    pod.init_containers = Some(vec![container("i0"), container("i1")]);
    let mut scene = Scene::new(pod);
    scene.observed(stopped(vec![]));
    let status = scene.reported(WorkerReport { deleted: true, released: true, ..terminated_report() });
    assert_eq!(phase_of(status), "Failed");
    assert!(of(status, "i0").state.clone().unwrap().terminated.is_some());
    assert_eq!(waiting_for(status, "i1"), "PodInitializing");
    assert_eq!(waiting_for(status, "a"), "PodInitializing");
}

#[test]
fn init_containers_go_before() {
    let mut pod = spec("Never", vec![container("a")]);
    pod.init_containers = Some(vec![container("z"), container("y")]);
    let mut scene = Scene::new(pod);
    let status = scene.observed(observed(vec![running("z", "z0", 0)]));
    assert_eq!(phase_of(status), "Pending");
    assert_eq!(
        told(status, "Initialized"),
        "False ContainersNotInitialized: containers with incomplete status: [z y]"
    );
    assert_eq!(waiting_for(status, "a"), "PodInitializing");
    assert!(!of(status, "z").ready);

    let status = scene.observed(observed(vec![exited("z", "z0", 0, 0), running("y", "y0", 0)]));
    assert!(of(status, "z").ready);
    let names: Vec<_> = status.init_container_statuses.iter().flatten().map(|c| &*c.name).collect();
    assert_eq!(names, ["z", "y"], "in the order of the spec");

    let done = vec![exited("z", "z0", 0, 0), exited("y", "y0", 0, 0), running("a", "a0", 0)];
    let status = scene.observed(observed(done));
    assert_eq!((phase_of(status), &*told(status, "Initialized")), ("Running", "True"));

    // The runtime has collected the init containers, and nothing was written down.
    scene.status = None;
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert_eq!(of(status, "z").state.clone().unwrap().terminated.unwrap().exit_code, 0);
    assert_eq!((phase_of(status), &*told(status, "Initialized")), ("Running", "True"));
}

#[test]
fn a_failed_init_container_fails_a_pod_that_is_not_restarted() {
    for (policy, phase) in [("Never", "Failed"), ("OnFailure", "Pending")] {
        let mut pod = spec(policy, vec![container("a")]);
        pod.init_containers = Some(vec![container("i")]);
        let mut scene = Scene::new(pod);
        scene.observed(observed(vec![exited("i", "i0", 0, 1)]));
        let status = scene.reported(terminated_report());
        assert_eq!(phase_of(status), phase, "{policy}");
    }
}

#[test]
fn sidecars() {
    let mut pod = spec("Never", vec![container("a")]);
    pod.init_containers = Some(vec![with_startup(with_readiness(sidecar("s")))]);
    let mut scene = Scene::new(pod);
    let status = scene.observed(observed(vec![running("s", "s0", 0)]));
    assert_eq!(phase_of(status), "Pending");
    assert_eq!(
        told(status, "Initialized"),
        "False ContainersNotInitialized: containers with incomplete status: [s]"
    );

    scene.verdicts("s", verdict("s0", Some(true), Some(false)));
    let status = scene.observed(observed(vec![running("s", "s0", 0), running("a", "a0", 0)]));
    assert_eq!((phase_of(status), &*told(status, "Initialized")), ("Running", "True"));
    assert_eq!(told(status, "Ready"), "False ContainersNotReady: containers with unready status: [s]");

    // A sidecar that starts again while the pod's own container runs does not take the phase back.
    let status = scene.observed(observed(vec![created("s", "s1", 1), running("a", "a0", 0)]));
    assert_eq!(phase_of(status), "Running");

    // The exit code of an ended sidecar does not count.
    scene.observed(stopped(vec![exited("s", "s1", 1, 137), exited("a", "a0", 0, 0)]));
    let status = scene.reported(terminated_report());
    assert_eq!(phase_of(status), "Succeeded");
}

#[test]
fn readiness_follows_the_verdict_on_this_very_instance() {
    let mut scene = Scene::new(spec("Always", vec![with_readiness(container("a"))]));
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert_eq!((of(status, "a").started, of(status, "a").ready), (Some(true), false));
    let status = scene.verdicts("a", verdict("a0", None, Some(true)));
    assert_eq!(told(status, "Ready"), "True");
    let status = scene.verdicts("a", verdict("a0", None, Some(false)));
    assert!(!of(status, "a").ready);
    scene.verdicts("a", verdict("a0", None, Some(true)));
    let status = scene.observed(observed(vec![running("a", "a1", 1), exited("a", "a0", 0, 1)]));
    assert!(!of(status, "a").ready, "the verdict is about another instance");
}

#[test]
fn startup_gates_readiness() {
    let mut scene = Scene::new(spec("Always", vec![with_startup(container("a"))]));
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert_eq!((of(status, "a").started, of(status, "a").ready), (Some(false), false));
    let status = scene.verdicts("a", verdict("a0", Some(true), None));
    assert_eq!((of(status, "a").started, of(status, "a").ready), (Some(true), true));
}

#[test]
fn ready_survives_a_restart_of_the_kubelet() {
    let probed = with_startup(with_readiness(container("a")));
    let mut scene = Scene::new(spec("Always", vec![probed]));
    scene.observed(observed(vec![running("a", "a0", 0)]));
    let before = scene.verdicts("a", verdict("a0", Some(true), Some(true))).clone();
    assert_eq!(told(&before, "Ready"), "True");

    scene.restart();
    assert_eq!(scene.step(), &before);
    assert_eq!(scene.observed(observed(vec![running("a", "a0", 0)])), &before);
    assert_eq!(scene.reported(report(WorkerState::Syncing)), &before);
    // ProbeManager is back but has no settled answer yet.
    assert_eq!(scene.verdicts("a", verdict("a0", None, None)), &before);
    let status = scene.verdicts("a", verdict("a0", Some(true), Some(false)));
    assert!(told(status, "Ready").starts_with("False"));
}

#[test]
fn nothing_is_lost_before_runtime_and_worker_have_spoken() {
    let mut scene = Scene::new(spec("Never", vec![container("a")]));
    let before = scene.observed(observed(vec![running("a", "a0", 0)])).clone();
    scene.restart();
    assert_eq!(scene.reported(WorkerReport { released: true, ..terminated_report() }), &before);
    // The node was rebooted.
    let status = scene.observed(RuntimePod::absent(pod_ref()));
    assert_eq!(phase_of(status), "Failed");
    let end = of(status, "a").state.clone().unwrap().terminated.unwrap();
    assert_eq!(end.reason.as_deref(), Some("ContainerStatusUnknown"));
}

#[test]
fn no_container_is_told_of_before_the_runtime_has_a_name() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    scene.node.runtime_name = None;
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert_eq!(waiting_for(status, "a"), "ContainerCreating");
    scene.node = node();
    assert_eq!(phase_of(scene.step()), "Running");
}

#[test]
fn a_rejected_pod_fails_without_containers() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    scene.facts.report = None;
    let pod = scene.facts.desired.take().unwrap();
    scene.facts.desired =
        Some(Arc::new(DesiredPod { rejected: Some(rejection("OutOfpods")), ..(*pod).clone() }));
    let status = scene.step();
    assert_eq!((phase_of(status), status.reason.as_deref()), ("Failed", Some("OutOfpods")));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: because"));
    assert_eq!((&status.container_statuses, &status.conditions), (&None, &None));
    assert!(status.start_time.is_some());
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    let mut refused = DesiredPod::clone(scene.facts.desired.as_ref().unwrap());
    refused.source = Source::Api;
    let theirs = PodStatus { qos_class: Some("Guaranteed".to_owned()), ..PodStatus::default() };
    Arc::make_mut(&mut refused.pod).status = Some(theirs);
    scene.facts.desired = Some(Arc::new(refused));
    assert_eq!(scene.step().qos_class.as_deref(), Some("Guaranteed"), "its spec may be gone");
}

#[test]
fn a_pod_that_asks_for_what_is_not_done_waits_until_it_does_not_or_is_deleted() {
    let why = Rejection::new(UNSUPPORTED_FIELDS, "spec.x");
    let waiting = |deleted: bool| {
        let mut scene = Scene::new(spec("Always", vec![container("a")]));
        scene.facts.report = None;
        let mut desired = DesiredPod::clone(&scene.facts.desired.take().unwrap());
        if deleted {
            Arc::make_mut(&mut desired.pod).metadata.deletion_timestamp = Some(Time(at(0)));
        }
        desired.rejected = Some(why.clone());
        scene.facts.desired = Some(Arc::new(desired));
        scene
    };
    let mut scene = waiting(false);
    let status = scene.step().clone();
    let told_of = (status.reason.as_deref(), status.message.as_deref(), status.start_time.is_some());
    assert_eq!((phase_of(&status), told_of), ("Pending", (Some(UNSUPPORTED_FIELDS), Some("spec.x"), false)));
    assert_eq!(waiting_for(&status, "a"), "ContainerCreating");
    assert!(told(&status, "Ready").starts_with("False ContainersNotReady"), "{status:?}");
    assert_eq!(scene.step(), &status, "told again it is the same");
    let woken = DesiredPod { rejected: None, ..DesiredPod::clone(scene.facts.desired.as_ref().unwrap()) };
    scene.facts.desired = Some(Arc::new(woken));
    scene.facts.report = Some(Arc::new(report(WorkerState::Syncing)));
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert_eq!((phase_of(status), &status.reason, &status.message), ("Running", &None, &None));
    assert!(status.start_time.is_some());
    let mut scene = waiting(true);
    let status = scene.step();
    assert_eq!((phase_of(status), status.reason.as_deref()), ("Failed", Some(UNSUPPORTED_FIELDS)));
}

#[test]
fn readiness_gates() {
    let mut pod = spec("Always", vec![container("a")]);
    pod.readiness_gates = Some(vec![PodReadinessGate { condition_type: "example.com/gate".into() }]);
    let mut scene = Scene::new(pod);
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert_eq!(told(status, "ContainersReady"), "True");
    assert_eq!(
        told(status, "Ready"),
        "False ReadinessGatesNotReady: corresponding condition of pod readiness gate \"example.com/gate\" \
         does not exist."
    );
}

#[test]
fn a_quarantined_pod_says_who_leaves_it_alone_and_why() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    scene.facts.quarantine.insert(Arc::from("VolumeManager"), Arc::from("index out of bounds at plan.rs:7"));
    let status = scene.step();
    assert_eq!(
        told(status, "understudy.dev/Quarantined"),
        "True RepeatedPanics: VolumeManager leaves the pod alone after repeated panics: index out of bounds at \
         plan.rs:7"
    );
    scene.facts.quarantine.clear();
    let status = scene.step();
    assert!(status.conditions.iter().flatten().all(|c| c.type_ != "understudy.dev/Quarantined"));
}

#[test]
fn long_termination_messages_share_the_room() {
    let mut scene = Scene::new(spec("Never", vec![container("a"), container("b")]));
    let mut end = exited("a", "a0", 0, 1);
    end.message = Arc::from("ä".repeat(10_000));
    let status = scene.observed(observed(vec![end]));
    let message = of(status, "a").state.clone().unwrap().terminated.unwrap().message.unwrap();
    assert_eq!(message.len(), 6 * 1024);
}

mod crowd;
mod in_place;
mod mounts;

#[test]
fn a_stop_signal_is_told_while_its_gate_is_on() {
    let mut scene = Scene::new(spec("Always", vec![container("a")]));
    let mut pod = observed(vec![running("a", "a0", 0)]);
    let effective = Effective { stop_signal: Some(Arc::from("SIGINT")), ..Effective::default() };
    pod.containers[0].effective = Some(Arc::new(effective));
    assert_eq!(of(scene.observed(pod.clone()), "a").stop_signal, None);
    scene.node.stop_signals = true;
    assert_eq!(of(scene.observed(pod), "a").stop_signal.as_deref(), Some("SIGINT"));
}

#[test]
fn a_mount_tells_whether_all_below_it_is_read_only() {
    let mount = |name: &str, mode: Option<&str>| serde_json::json!({"name": name, "mountPath": name, "readOnly": true, "recursiveReadOnly": mode});
    let mut writable = mount("e", None);
    writable["readOnly"] = false.into();
    let mounts = serde_json::json!([
        mount("a", None),
        mount("b", Some("Disabled")),
        mount("c", Some("IfPossible")),
        mount("d", Some("Enabled")),
        writable,
    ]);
    let spec = serde_json::json!({"containers": [{"name": "main", "volumeMounts": mounts}]});
    let mut scene = Scene::new(serde_json::from_value(spec).unwrap());
    let mut told = |handlers: &[&str], handler: &str| -> Vec<Option<String>> {
        scene.node.recursive_read_only = handlers.iter().map(|name| (*name).to_owned()).collect();
        let mut pod = observed(vec![running("main", "1", 0)]);
        pod.sandboxes[0].runtime_handler = Arc::from(handler);
        let status = scene.observed(pod);
        let mounts = of(status, "main").volume_mounts.clone().unwrap();
        mounts.into_iter().map(|mount| mount.recursive_read_only).collect()
    };
    let some = |modes: [&str; 4]| -> Vec<Option<String>> {
        modes.iter().map(|mode| Some((*mode).to_owned())).chain([None]).collect()
    };
    let never = some(["Disabled"; 4]);
    let can = some(["Disabled", "Disabled", "Enabled", "Enabled"]);
    assert_eq!(told(&[], ""), never);
    assert_eq!(told(&["", "other"], ""), can);
    assert_eq!(told(&[""], "other"), never, "another handler makes this pod");
    assert_eq!(told(&["other"], "other"), can);
}
