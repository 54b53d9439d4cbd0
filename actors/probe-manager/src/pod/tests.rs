use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use messages::PodRef;
use messages::facts::Source;
use messages::runtime::RuntimeSandbox;
use proptest::prelude::*;

use super::*;

const START: i64 = 1_000_000;
const ADDED: Duration = Duration::from_secs(100);

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).expect("a small number of seconds")
}

/// `now` seconds after the kubelet's start, which is the fixed moment and so long ago that first probes are not spread.
fn at(now: u64) -> At {
    let seconds = i64::try_from(now).expect("small");
    At { now: secs(now), wall: wall(seconds), kubelet_started: wall(-3600), random: 0 }
}

fn probe(period: i32) -> Option<Probe> {
    Some(Probe { period_seconds: Some(period), ..Probe::default() })
}

fn desired(container: Container) -> Arc<DesiredPod> {
    let metadata = ObjectMeta { uid: Some("u".to_owned()), ..ObjectMeta::default() };
    let spec = Some(PodSpec { containers: vec![container], ..PodSpec::default() });
    let pod = Pod { metadata, spec, status: None };
    let pod_ref = PodRef::of(&pod);
    Arc::new(DesiredPod { pod_ref, pod: Arc::new(pod), source: Source::Api, rejected: None, made_anew: None })
}

fn all_three() -> Container {
    Container {
        name: "web".to_owned(),
        startup_probe: probe(5),
        liveness_probe: probe(10),
        readiness_probe: probe(10),
        ..Container::default()
    }
}

fn seen(id: &str, state: ContainerState, started: i64) -> RuntimePod {
    let pod = desired(Container::default()).pod_ref.clone();
    let sandbox = RuntimeSandbox {
        id: "s".into(),
        attempt: 0,
        ready: true,
        created_at: wall(0),
        ips: vec!["10.0.0.7".into()],
        host_network: false,
        runtime_handler: "".into(),
    };
    let container = RuntimeContainer {
        id: id.into(),
        sandbox_id: "s".into(),
        name: "web".into(),
        attempt: 0,
        state,
        created_at: wall(started),
        started_at: (state != ContainerState::Created).then(|| wall(started)),
        finished_at: None,
        exit_code: 0,
        reason: "".into(),
        message: "".into(),
        image: "".into(),
        image_ref: "".into(),
        hash: None,
        annotations: Arc::default(),
        log_path: "".into(),
        effective: None,
    };
    RuntimePod { pod, sandboxes: vec![sandbox], containers: vec![container] }
}

fn of(kind: ProbeKind) -> ProbeName {
    ("web".to_owned(), kind)
}

fn run(probes: &mut PodProbes, kind: ProbeKind, id: &str, at: u64, passed: Option<bool>) -> bool {
    let run = probes.begin(&of(kind)).expect("it is due");
    assert_eq!(&*run.container_id, id);
    probes.ended(&of(kind), id, RunEnd { due: run.due, at: secs(at), passed }) == RunChange::Changed
}

fn verdict(probes: &PodProbes) -> ContainerVerdict {
    probes.verdicts().remove("web").expect("it has been seen")
}

#[test]
fn a_container_goes_from_starting_to_ready_to_unhealthy() {
    let mut probes = PodProbes::new(desired(all_three()), SavedPod::new(), ADDED);
    assert!(probes.observe(&seen("c1", ContainerState::Running, 100), at(100)));
    assert_eq!(probes.pod_ip("192.0.2.1"), "10.0.0.7");
    let initial =
        ContainerVerdict { container_id: "c1".into(), startup: None, liveness: None, readiness: Some(false) };
    assert_eq!(verdict(&probes), initial);
    assert_eq!(probes.due(&of(ProbeKind::Liveness)), Err(Blocked::Startup));
    assert_eq!(probes.due(&of(ProbeKind::Readiness)), Err(Blocked::Startup));
    assert_eq!(probes.due(&of(ProbeKind::Startup)), Ok(secs(100)));

    assert!(!run(&mut probes, ProbeKind::Startup, "c1", 101, Some(false)));
    assert!(run(&mut probes, ProbeKind::Startup, "c1", 106, Some(true)));
    assert_eq!(probes.due(&of(ProbeKind::Startup)), Err(Blocked::OnHold));
    assert_eq!(probes.due(&of(ProbeKind::Readiness)), Ok(secs(106)));
    assert_eq!(
        probes.due(&of(ProbeKind::Liveness)),
        Ok(secs(110)),
        "its ticks while it was held back are past"
    );

    assert!(run(&mut probes, ProbeKind::Readiness, "c1", 107, Some(true)));
    assert_eq!(verdict(&probes).readiness, Some(true));
    for (ended, changes) in [(111, false), (121, false), (131, true)] {
        assert_eq!(run(&mut probes, ProbeKind::Liveness, "c1", ended, Some(false)), changes);
    }
    assert_eq!(verdict(&probes).liveness, Some(false));
    assert_eq!(probes.due(&of(ProbeKind::Liveness)), Err(Blocked::OnHold));

    assert!(probes.observe(&seen("c2", ContainerState::Running, 140), at(140)));
    assert_eq!(verdict(&probes), ContainerVerdict { container_id: "c2".into(), ..initial });
    assert_eq!(probes.due(&of(ProbeKind::Startup)), Ok(secs(140)));
}

#[test]
fn a_pod_with_two_addresses_is_probed_at_that_of_the_nodes_family() {
    let mut probes = PodProbes::new(desired(all_three()), SavedPod::new(), ADDED);
    assert_eq!(probes.pod_ip("192.0.2.1"), "");
    let mut both = seen("c1", ContainerState::Running, 100);
    both.sandboxes[0].ips = vec!["fd00::7".into(), "10.0.0.7".into()];
    probes.observe(&both, at(100));
    assert_eq!(probes.pod_ip("192.0.2.1"), "10.0.0.7");
    assert_eq!(probes.pod_ip("2001:db8::1"), "fd00::7");
    both.sandboxes[0].ips = vec!["fd00::7".into()];
    probes.observe(&both, at(101));
    assert_eq!(probes.pod_ip("192.0.2.1"), "fd00::7");
}

#[test]
fn errors_are_no_verdict_and_answers_about_another_instance_are_dropped() {
    let container = Container { startup_probe: None, ..all_three() };
    let mut probes = PodProbes::new(desired(container), SavedPod::new(), ADDED);
    probes.observe(&seen("c1", ContainerState::Running, 100), at(100));
    for ended in [100, 110, 120, 130] {
        assert!(!run(&mut probes, ProbeKind::Liveness, "c1", ended, None));
    }
    let late = probes.begin(&of(ProbeKind::Readiness)).expect("it is due");
    probes.observe(&seen("c2", ContainerState::Running, 135), at(135));
    let answer = RunEnd { due: late.due, at: secs(136), passed: Some(true) };
    assert_eq!(probes.ended(&of(ProbeKind::Readiness), "c1", answer), RunChange::Dropped);
    assert_eq!(verdict(&probes).readiness, Some(false));
    assert!(run(&mut probes, ProbeKind::Readiness, "c2", 137, Some(true)));
}

#[test]
fn a_container_that_does_not_run_is_not_ready() {
    let container = Container { startup_probe: None, ..all_three() };
    let mut probes = PodProbes::new(desired(container), SavedPod::new(), ADDED);
    probes.observe(&seen("c1", ContainerState::Running, 100), at(100));
    run(&mut probes, ProbeKind::Readiness, "c1", 100, Some(true));
    let late = probes.begin(&of(ProbeKind::Readiness)).expect("it is due");
    assert!(probes.observe(&seen("c1", ContainerState::Exited, 100), at(105)));
    assert_eq!(verdict(&probes).readiness, Some(false));
    let answer = RunEnd { due: late.due, at: secs(106), passed: Some(true) };
    assert_eq!(probes.ended(&of(ProbeKind::Readiness), "c1", answer), RunChange::Dropped);
    assert!(!probes.may_run());
    assert_eq!(probes.due(&of(ProbeKind::Readiness)), Err(Blocked::NotRunning));
}

#[test]
fn while_a_pod_is_stopped_only_readiness_goes_on() {
    let container = Container { startup_probe: None, ..all_three() };
    let mut probes = PodProbes::new(desired(container), SavedPod::new(), ADDED);
    probes.observe(&seen("c1", ContainerState::Running, 100), at(100));
    run(&mut probes, ProbeKind::Readiness, "c1", 100, Some(true));
    let late = probes.begin(&of(ProbeKind::Liveness)).expect("it is due");
    probes.set_terminating(true);
    let answer = RunEnd { due: late.due, at: secs(101), passed: Some(false) };
    assert_eq!(probes.ended(&of(ProbeKind::Liveness), "c1", answer), RunChange::Dropped);
    assert_eq!(probes.due(&of(ProbeKind::Liveness)), Err(Blocked::Terminating));
    for (ended, changes) in [(111, false), (121, false), (131, true)] {
        assert_eq!(run(&mut probes, ProbeKind::Readiness, "c1", ended, Some(false)), changes);
    }
}

#[test]
fn a_container_is_not_probed_before_its_hook_has_ended() {
    let mut probes = PodProbes::new(desired(all_three()), SavedPod::new(), ADDED);
    probes.set_starting(&Arc::new(BTreeSet::from(["web".to_owned()])), secs(100));
    probes.observe(&seen("c1", ContainerState::Running, 100), at(100));
    assert_eq!(probes.due(&of(ProbeKind::Startup)), Err(Blocked::NotRunning));
    probes.set_starting(&Arc::default(), secs(133));
    assert_eq!(probes.due(&of(ProbeKind::Startup)), Ok(secs(135)), "not in arrears");
}

#[test]
fn a_restart_keeps_what_was_settled_about_the_same_instance() {
    let mut before = PodProbes::new(desired(all_three()), SavedPod::new(), ADDED);
    before.observe(&seen("c1", ContainerState::Running, 100), at(100));
    run(&mut before, ProbeKind::Startup, "c1", 101, Some(true));
    run(&mut before, ProbeKind::Readiness, "c1", 102, Some(true));

    let mut after = PodProbes::new(desired(all_three()), before.saved(), ADDED);
    after.observe(&seen("c1", ContainerState::Running, 100), at(200));
    assert_eq!(after.verdicts(), before.verdicts());
    assert_eq!(after.due(&of(ProbeKind::Startup)), Err(Blocked::OnHold));
    assert_eq!(after.due(&of(ProbeKind::Liveness)), Ok(secs(200)));
    assert!(!run(&mut after, ProbeKind::Readiness, "c1", 201, Some(true)));

    let mut other = PodProbes::new(desired(all_three()), before.saved(), ADDED);
    other.observe(&seen("c2", ContainerState::Running, 150), at(200));
    assert_eq!(verdict(&other).readiness, Some(false));
    assert_eq!(verdict(&other).startup, None);
}

#[test]
fn sidecars_are_probed_and_other_init_containers_are_not() {
    let mut pod = (*desired(Container { name: "plain".to_owned(), ..Container::default() })).clone();
    let mut object = (*pod.pod).clone();
    let init = |name: &str, restart_policy: Option<&str>| Container {
        name: name.to_owned(),
        restart_policy: restart_policy.map(str::to_owned),
        readiness_probe: probe(1),
        ..Container::default()
    };
    if let Some(spec) = &mut object.spec {
        spec.init_containers = Some(vec![init("once", None), init("web", Some("Always"))]);
    }
    pod.pod = Arc::new(object);
    let mut probes = PodProbes::new(Arc::new(pod), SavedPod::new(), ADDED);
    assert_eq!(probes.names(), [of(ProbeKind::Readiness)]);
    probes.observe(&seen("c1", ContainerState::Running, 100), at(100));
    let run = probes.begin(&of(ProbeKind::Readiness)).expect("it is due");
    assert_eq!(run.field_path, "spec.initContainers{web}");
    assert_eq!(run.timeout, secs(1));
}

#[derive(Clone, Debug)]
enum Step {
    Observe(u8, bool),
    Answer(u8, Option<bool>),
    Terminate,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..4, any::<bool>()).prop_map(|(id, running)| Step::Observe(id, running)),
        (0u8..3, any::<Option<bool>>()).prop_map(|(kind, passed)| Step::Answer(kind, passed)),
        (0u8..3, any::<Option<bool>>()).prop_map(|(kind, passed)| Step::Answer(kind, passed)),
        Just(Step::Restart),
        Just(Step::Terminate),
    ]
}

proptest! {
    /// Verdicts change only with a cause: an answer, or a fact about another instance or a stop. A restart is no cause.
    #[test]
    fn verdicts_change_only_with_a_cause(steps in proptest::collection::vec(step(), 1..60)) {
        let mut probes = PodProbes::new(desired(all_three()), SavedPod::new(), ADDED);
        let (mut now, mut last_seen, mut terminating) = (100u64, None, false);
        for step in steps {
            now += 7;
            let before = probes.verdicts();
            match step {
                Step::Observe(id, running) => {
                    let state = if running { ContainerState::Running } else { ContainerState::Exited };
                    let state = seen(&id.to_string(), state, 100);
                    let changed = probes.observe(&state, at(now));
                    prop_assert_eq!(changed, before != probes.verdicts());
                    prop_assert_eq!(probes.observe(&state, at(now)), false);
                    last_seen = Some(state);
                }
                Step::Answer(kind, passed) => {
                    let kind = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness][usize::from(kind)];
                    if let Some(run) = probes.begin(&of(kind)) {
                        prop_assert_eq!(probes.due(&of(kind)), Err(Blocked::UnderWay));
                        let ended = RunEnd { due: run.due, at: secs(now), passed };
                        let changed = probes.ended(&of(kind), &run.container_id, ended) == RunChange::Changed;
                        prop_assert_eq!(changed, before != probes.verdicts());
                        prop_assert!(!changed || passed.is_some());
                        prop_assert!(!terminating || kind == ProbeKind::Readiness);
                    }
                }
                Step::Terminate => {
                    terminating = true;
                    probes.set_terminating(true);
                    prop_assert_eq!(before, probes.verdicts());
                }
                Step::Restart => {
                    let mut again = PodProbes::new(probes.desired().clone(), probes.saved(), ADDED);
                    if let Some(state) = &last_seen {
                        again.observe(state, at(now));
                        prop_assert_eq!(before, again.verdicts());
                    }
                    if terminating { again.set_terminating(true); }
                    probes = again;
                }
            }
            for verdict in probes.verdicts().values() {
                // No container is ready before it has started.
                prop_assert!(verdict.readiness != Some(true) || verdict.startup == Some(true));
            }
        }
    }
}

/// The pod with the container `id` in its status, as an earlier kubelet reported it.
fn reported(id: &str, ready: bool) -> Arc<DesiredPod> {
    let status = ContainerStatus {
        name: "web".to_owned(),
        container_id: Some(format!("containerd://{id}")),
        ready,
        started: Some(true),
        ..ContainerStatus::default()
    };
    let mut pod = (*desired(all_three())).clone();
    Arc::make_mut(&mut pod.pod).status =
        Some(PodStatus { container_statuses: Some(vec![status]), ..PodStatus::default() });
    Arc::new(pod)
}

#[test]
fn what_an_earlier_kubelet_has_reported_holds_until_it_is_probed() {
    let began = |before_us: i64| At { kubelet_started: wall(before_us), ..at(20) };
    for (status, id, started, us, expected) in [
        (reported("c1", true), "c1", 0, 1, (Some(true), Some(true))),
        (reported("c1", true), "c1", 0, 15, (Some(true), Some(true))),
        (reported("c1", false), "c1", 0, 15, (Some(true), Some(false))),
        (reported("c1", true), "c2", 0, 15, (None, Some(false))),
        (reported("c1", true), "c1", 2, 1, (None, Some(false))),
    ] {
        let mut probes = PodProbes::new(status, SavedPod::default(), ADDED);
        probes.observe(&seen(id, ContainerState::Running, started), began(us));
        let verdict = probes.verdicts().remove("web").expect("it is there");
        assert_eq!((verdict.startup, verdict.readiness), expected, "{id} started at {started}, we at {us}");
    }
}
