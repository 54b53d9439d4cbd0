mod in_place;
mod lost;

use k8s_openapi::api::core::v1::ContainerRestartRule;
use k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes;
use messages::runtime::ContainerState as S;
use proptest::prelude::*;

use super::*;
use crate::backoff::BackoffBounds;
use crate::fixtures::{at, container, exited, instance, pod, probe, running, runtime_pod, sandbox, sidecar};

/// The inputs of a plan.
#[derive(Debug)]
struct Case {
    pod: Pod,
    runtime: RuntimePod,
    verdicts: BTreeMap<String, ContainerVerdict>,
    backoff: CrashBackoff,
    known: AttemptHistory,
    past: Past,
    network_ready: bool,
    seen_at: i64,
    now: i64,
}

impl Case {
    fn new(pod: Pod, containers: Vec<RuntimeContainer>) -> Self {
        Self {
            pod,
            runtime: runtime_pod(containers),
            verdicts: BTreeMap::new(),
            backoff: CrashBackoff::new(BackoffBounds::default()),
            known: AttemptHistory::default(),
            past: Past::default(),
            network_ready: true,
            seen_at: 1_000,
            now: 1_000,
        }
    }

    fn without_sandbox(mut self) -> Self {
        self.runtime.sandboxes.clear();
        self
    }

    fn dead_sandbox(mut self) -> Self {
        self.runtime.sandboxes = vec![sandbox(0, false)];
        self
    }

    fn verdict(mut self, id: &str, startup: Option<bool>, liveness: Option<bool>) -> Self {
        let name = id.split('-').next().expect("a name").to_owned();
        let verdict = ContainerVerdict { container_id: Arc::from(id), startup, liveness, readiness: None };
        self.verdicts.insert(name, verdict);
        self
    }

    fn plan(&self) -> PodPlan {
        plan(&Inputs {
            pod: &self.pod,
            runtime: &self.runtime,
            verdicts: &self.verdicts,
            backoff: &self.backoff,
            known: &self.known,
            past: &self.past,
            network_ready: self.network_ready,
            dead_kept: 1,
            seen_at: at(self.seen_at),
            now: at(self.now),
        })
    }
}

/// The started containers as `name#attempt`, with `?` where the log files decide the attempt.
fn starts(plan: &PodPlan) -> Vec<String> {
    plan.start
        .iter()
        .map(|start| match start.attempt {
            Some(attempt) => format!("{}#{attempt}", start.name),
            None => format!("{}#?", start.name),
        })
        .collect()
}

fn kills(plan: &PodPlan) -> Vec<(&str, &str)> {
    plan.kill.iter().map(|kill| (&*kill.id, kill.message.as_str())).collect()
}

fn two(policy: &str) -> Pod {
    pod(policy, vec![], vec![container("a"), container("b")])
}

#[test]
fn a_new_pod_gets_a_sandbox_and_its_containers() {
    let plan = Case::new(two("Always"), vec![]).without_sandbox().plan();
    assert_eq!(plan.create_sandbox, Some(NewSandbox { attempt: 0, replaces: false }));
    assert_eq!(starts(&plan), ["a#?", "b#?"]);
    assert!(!plan.kill_pod && plan.kill.is_empty() && plan.finished.is_none());
}

#[test]
fn a_running_pod_needs_nothing() {
    let plan = Case::new(two("Always"), vec![running("a", 0), running("b", 3)]).plan();
    assert!(plan.is_idle() && plan.finished.is_none() && plan.look_again.is_none());
}

#[test]
fn a_dead_sandbox_is_replaced_and_everything_killed() {
    let plan = Case::new(two("Always"), vec![running("a", 0), exited("b", 1, 0, 5, 0)]).dead_sandbox().plan();
    assert!(plan.kill_pod);
    assert_eq!(plan.create_sandbox, Some(NewSandbox { attempt: 1, replaces: true }));
    assert_eq!(starts(&plan), ["a#1", "b#2"]);
}

#[test]
fn another_network_mode_or_no_address_replaces_the_sandbox() {
    let mut case = Case::new(two("Always"), vec![running("a", 0), running("b", 0)]);
    case.pod.spec.as_mut().expect("spec").host_network = Some(true);
    assert_eq!(case.plan().create_sandbox, Some(NewSandbox { attempt: 1, replaces: false }));
    case.runtime.sandboxes[0].host_network = true;
    case.runtime.sandboxes[0].ips.clear();
    assert!(case.plan().is_idle());
    case.runtime.sandboxes[0].host_network = false;
    case.pod.spec.as_mut().expect("spec").host_network = None;
    assert_eq!(case.plan().create_sandbox, Some(NewSandbox { attempt: 1, replaces: true }));
}

#[test]
fn of_two_ready_sandboxes_the_one_with_live_containers_stays() {
    let mut case = Case::new(two("Always"), vec![running("a", 0), running("b", 0)]);
    case.runtime.sandboxes = vec![sandbox(1, true), sandbox(0, true)];
    let plan = case.plan();
    assert_eq!(plan.discard_sandboxes, [Arc::from("sb-1")]);
    assert!(!plan.kill_pod && plan.create_sandbox.is_none());
    case.runtime.containers[1].sandbox_id = Arc::from("sb-1");
    let plan = case.plan();
    assert!(plan.kill_pod);
    assert_eq!(plan.create_sandbox, Some(NewSandbox { attempt: 2, replaces: true }));
}

#[test]
fn a_pod_that_runs_once_gets_no_second_sandbox() {
    let plan = Case::new(two("Never"), vec![running("a", 0)]).dead_sandbox().plan();
    assert_eq!(plan.finished, Some(Finished::SandboxGone));
    // No container was ever created in the first sandbox.
    let plan = Case::new(two("Never"), vec![]).dead_sandbox().plan();
    assert_eq!(plan.create_sandbox, Some(NewSandbox { attempt: 1, replaces: true }));
    let done = vec![exited("a", 0, 0, 1, 0), exited("b", 0, 0, 1, 0)];
    assert_eq!(Case::new(two("OnFailure"), done).dead_sandbox().plan().finished, Some(Finished::Done));
    let half = vec![exited("a", 0, 0, 1, 0), exited("b", 0, 0, 1, 1)];
    assert_eq!(starts(&Case::new(two("OnFailure"), half).dead_sandbox().plan()), ["b#1"]);
}

#[test]
fn restart_policies() {
    let seen = || vec![exited("a", 0, 0, 1, 0), exited("b", 0, 0, 1, 3)];
    assert_eq!(starts(&Case::new(two("Always"), seen()).plan()), ["a#1", "b#1"]);
    assert_eq!(starts(&Case::new(two("OnFailure"), seen()).plan()), ["b#1"]);
    assert_eq!(Case::new(two("Never"), seen()).plan().finished, Some(Finished::Done));
    let running_one = vec![running("a", 0), exited("b", 0, 0, 1, 3)];
    let plan = Case::new(two("Never"), running_one).plan();
    assert!(plan.is_idle() && plan.finished.is_none());
    // Created and unknown instances are always replaced.
    let odd = vec![instance("a", 0, S::Created), instance("b", 0, S::Unknown)];
    let plan = Case::new(two("Never"), odd).plan();
    assert_eq!(starts(&plan), ["a#1", "b#1"]);
    assert_eq!(kills(&plan), [("b-0", "Container is in \"unknown\" state, try killing it before restart")]);
}

#[test]
fn container_rules_win_over_the_pods_policy() {
    let mut a = container("a");
    a.restart_policy = Some("Never".into());
    a.restart_policy_rules = Some(vec![ContainerRestartRule {
        action: "Restart".into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes { operator: "In".into(), values: Some(vec![42]) }),
    }]);
    let pod = || pod("Always", vec![], vec![a.clone()]);
    assert_eq!(starts(&Case::new(pod(), vec![exited("a", 0, 0, 1, 42)]).plan()), ["a#1"]);
    assert_eq!(Case::new(pod(), vec![exited("a", 0, 0, 1, 1)]).plan().finished, Some(Finished::Done));
}

#[test]
fn a_changed_image_restarts_under_any_policy() {
    let mut seen = running("a", 0);
    seen.hash = Some(1);
    let plan = Case::new(two("Never"), vec![seen, running("b", 0)]).plan();
    assert_eq!(kills(&plan), [("a-0", "Container a definition changed, will be restarted")]);
    assert_eq!(starts(&plan), ["a#1"]);
}

#[test]
fn failed_probes_kill_the_instance_they_are_about() {
    let seen = || vec![running("a", 1), running("b", 0)];
    let plan = Case::new(two("Always"), seen()).verdict("a-1", None, Some(false)).plan();
    assert_eq!(kills(&plan), [("a-1", "Container a failed liveness probe, will be restarted")]);
    assert_eq!(plan.kill[0].reason, KillReason::LivenessProbe);
    assert_eq!(starts(&plan), ["a#2"]);
    let plan = Case::new(two("Never"), seen()).verdict("a-1", Some(false), None).plan();
    assert_eq!(kills(&plan), [("a-1", "Container a failed startup probe")]);
    assert!(plan.start.is_empty() && plan.finished.is_none());
    assert!(plan.replaced().is_empty(), "it does not come back");
    let plan = Case::new(two("OnFailure"), seen()).verdict("a-1", None, Some(false)).plan();
    assert_eq!(plan.replaced(), BTreeMap::from([("a".to_owned(), Arc::from("a-1"))]));
    // A verdict about an earlier instance does not count.
    assert!(Case::new(two("Always"), seen()).verdict("a-0", None, Some(false)).plan().is_idle());
    // When the last container is killed for good the pod ends.
    let last = vec![running("a", 0), exited("b", 0, 0, 1, 0)];
    let plan = Case::new(two("Never"), last).verdict("a-0", None, Some(false)).plan();
    assert_eq!(plan.finished, Some(Finished::Done));
    assert!(plan.is_idle());
}

#[test]
fn what_was_killed_to_be_replaced_comes_back_whatever_the_policy_says() {
    for policy in ["OnFailure", "Never"] {
        let seen = || vec![exited("a", 1, 0, 1, 0), running("b", 0)];
        assert!(Case::new(two(policy), seen()).plan().is_idle());
        let mut case = Case::new(two(policy), seen());
        case.known.replaced = Arc::new(BTreeMap::from([("a".to_owned(), Arc::from("a-1"))]));
        assert_eq!(starts(&case.plan()), ["a#2"]);
        // The container's image is being pulled: the pod has not ended either.
        case.runtime = runtime_pod(vec![exited("a", 1, 0, 1, 0), exited("b", 0, 0, 1, 0)]);
        case.known.pulling.insert("a".to_owned());
        let plan = case.plan();
        assert!(plan.start.is_empty() && plan.finished.is_none());
    }
}

fn with_init(policy: &str) -> Pod {
    pod(policy, vec![container("i1"), container("i2")], vec![container("a")])
}

#[test]
fn init_containers_run_one_after_another() {
    let step = |seen: Vec<RuntimeContainer>| starts(&Case::new(with_init("Always"), seen).plan());
    assert_eq!(starts(&Case::new(with_init("Always"), vec![]).without_sandbox().plan()), ["i1#?"]);
    assert_eq!(step(vec![]), ["i1#?"]);
    assert_eq!(step(vec![running("i1", 0)]), Vec::<String>::new());
    assert_eq!(step(vec![exited("i1", 0, 0, 1, 0)]), ["i2#?"]);
    assert_eq!(step(vec![exited("i1", 0, 0, 1, 0), running("i2", 0)]), Vec::<String>::new());
    assert_eq!(step(vec![exited("i1", 0, 0, 1, 0), exited("i2", 0, 0, 1, 0)]), ["a#?"]);
    // The instances of completed init containers may have been removed.
    assert_eq!(step(vec![exited("i2", 0, 0, 1, 0)]), ["a#?"]);
    assert!(Case::new(with_init("Always"), vec![running("a", 0)]).plan().is_idle());
    // After a reboot all instances have exited, in an old sandbox, and initialization begins again.
    let rebooted = vec![exited("a", 0, 2, 3, 255), exited("i1", 0, 0, 1, 0), exited("i2", 0, 1, 2, 0)];
    let plan = Case::new(with_init("Always"), rebooted).dead_sandbox().plan();
    assert_eq!(starts(&plan), ["i1#1"]);
    assert_eq!(plan.purge.len(), 2);
}

#[test]
fn a_failed_init_container_is_restarted_or_fails_the_pod() {
    let seen = |reason: &str, code| {
        let mut failed = exited("i1", 0, 0, 1, code);
        failed.reason = Arc::from(reason);
        vec![failed]
    };
    assert_eq!(starts(&Case::new(with_init("OnFailure"), seen("Error", 1)).plan()), ["i1#1"]);
    let never = |reason, code| Case::new(with_init("Never"), seen(reason, code)).plan().finished;
    assert_eq!(never("Error", 1), Some(Finished::InitFailed));
    assert_eq!(never("OOMKilled", 0), Some(Finished::InitFailed));
    assert_eq!(never("Completed", 0), None);
    let unknown = vec![instance("i1", 0, S::Unknown)];
    assert_eq!(Case::new(with_init("Never"), unknown.clone()).plan().finished, Some(Finished::InitFailed));
    let plan = Case::new(with_init("Always"), unknown).plan();
    assert_eq!(plan.kill.len(), 1);
    assert_eq!(starts(&plan), ["i1#1"]);
    // An init container that was created and never ran is created anew.
    assert_eq!(starts(&Case::new(with_init("Never"), vec![instance("i1", 0, S::Created)]).plan()), ["i1#1"]);
}

fn with_sidecars() -> Pod {
    let mut s1 = sidecar("s1");
    s1.startup_probe = probe();
    s1.liveness_probe = probe();
    pod("Never", vec![s1, sidecar("s2")], vec![container("a")])
}

#[test]
fn a_sidecar_lets_the_next_start_once_it_has_started() {
    let case = |seen| Case::new(with_sidecars(), seen);
    assert_eq!(starts(&case(vec![]).plan()), ["s1#?"]);
    assert!(case(vec![running("s1", 0)]).plan().is_idle());
    let plan = case(vec![running("s1", 0)]).verdict("s1-0", Some(true), None).plan();
    assert_eq!(starts(&plan), ["s2#?"]);
    // Without a startup probe a running sidecar lets the next one start.
    let both = vec![running("s1", 0), running("s2", 0)];
    assert_eq!(starts(&case(both).verdict("s1-0", Some(true), None).plan()), ["a#?"]);
}

#[test]
fn sidecars_are_kept_running_while_there_is_work() {
    let case = |seen| Case::new(with_sidecars(), seen);
    let down = vec![running("a", 0), exited("s1", 0, 0, 1, 0)];
    assert_eq!(starts(&case(down).plan()), ["s1#1", "s2#?"]);
    let plan = case(vec![running("a", 0), running("s1", 0), running("s2", 0)])
        .verdict("s1-0", Some(false), None)
        .plan();
    assert_eq!(kills(&plan), [("s1-0", "Init container s1 failed startup probe")]);
    assert_eq!(starts(&plan), ["s1#1"]);
    let plan = case(vec![running("a", 0), running("s1", 0), running("s2", 0)])
        .verdict("s1-0", Some(true), Some(false))
        .plan();
    assert_eq!(kills(&plan), [("s1-0", "Init container s1 failed liveness probe")]);
    // The regular containers are done: sidecars are not restarted, and the pod ends.
    let done = vec![exited("a", 0, 0, 1, 0), exited("s1", 0, 0, 1, 0), running("s2", 0)];
    let plan = case(done).verdict("s1-0", Some(true), None).plan();
    assert_eq!(plan.finished, Some(Finished::Done));
    assert!(plan.is_idle());
}

#[test]
fn crash_loops_wait() {
    let mut case = Case::new(two("Always"), vec![running("a", 0), exited("b", 2, 990, 995, 1)]);
    let plan = case.plan();
    assert!(plan.start.is_empty());
    assert_eq!(plan.look_again, Some(at(995 + 20)));
    assert_eq!(
        plan.backing_off,
        [BackingOff { kind: ContainerKind::Regular, name: "b".into(), until: at(995 + 20) }]
    );
    let waiting = &plan.waiting["b"];
    assert_eq!(waiting.reason, "CrashLoopBackOff");
    assert_eq!(waiting.message, "back-off 20s restarting failed container=b pod=web_ns(uid-1)");
    case.now = 1_015;
    assert_eq!(starts(&case.plan()), ["b#3"]);
}

#[test]
fn an_init_container_that_waits_holds_up_the_rest() {
    let seen = vec![exited("i1", 2, 998, 999, 1)];
    let plan = Case::new(with_init("Always"), seen).plan();
    assert!(plan.start.is_empty() && plan.waiting.contains_key("i1"));
}

#[test]
fn failures_show_until_they_are_over_and_are_not_retried_early() {
    let mut case = Case::new(two("Always"), vec![running("a", 0)]);
    let waiting = WaitingReason { reason: "ErrImagePull".into(), message: "no".into() };
    let hash = container_hash(&container("b"));
    case.known.failures.insert("b".into(), Failure { waiting: waiting.clone(), retry_at: at(1_010), hash });
    let plan = case.plan();
    assert!(plan.start.is_empty() && plan.backing_off.is_empty());
    assert_eq!((plan.look_again, plan.waiting.get("b")), (Some(at(1_010)), Some(&waiting)));
    case.now = 1_010;
    let plan = case.plan();
    assert_eq!((starts(&plan), plan.waiting.get("b")), (vec!["b#?".to_owned()], Some(&waiting)));
    // A changed image is tried at once.
    case.now = 1_000;
    case.known.failures.get_mut("b").expect("there").hash += 1;
    assert_eq!(starts(&case.plan()), ["b#?"]);
}

#[test]
fn an_image_that_is_waited_for_holds_up_the_first_starts_after_it() {
    let mut case = Case::new(two("Always"), vec![]);
    case.known.pulling.insert("a".into());
    assert!(starts(&case.plan()).is_empty());
    case.known.pulling = ["b".to_owned()].into();
    assert_eq!(starts(&case.plan()), ["a#?"]);
    let mut case = Case::new(two("Always"), vec![exited("b", 0, 0, 1, 0)]);
    case.known.pulling.insert("a".into());
    assert_eq!(starts(&case.plan()), ["b#1"], "a restart waits for nothing before it");
    let mut case = Case::new(with_sidecars(), vec![running("a", 0), exited("s1", 0, 0, 1, 0)]);
    case.known.pulling.insert("s1".into());
    assert!(starts(&case.plan()).is_empty());
}

#[test]
fn what_the_whole_pod_lacks_holds_back_all_starts() {
    let mut case = Case::new(two("Always"), vec![exited("a", 0, 0, 1, 0)]).dead_sandbox();
    case.known.pod_retry_at = Some(at(1_010));
    let plan = case.plan();
    assert!(plan.is_idle());
    assert_eq!(plan.look_again, Some(at(1_010)));
    case.known.pod_retry_at = None;
    case.network_ready = false;
    let plan = case.plan();
    assert!(plan.is_idle() && plan.needs_network);
    case.runtime.containers = vec![running("a", 0)];
    assert!(!case.plan().kill_pod, "nothing is killed either");
    case.network_ready = true;
    case.known.pod_retry_at = Some(at(1_010));
    assert!(case.plan().kill_pod, "live containers of a dead sandbox go");
    (case.network_ready, case.known.pod_retry_at) = (false, None);
    case.pod.spec.as_mut().expect("spec").host_network = Some(true);
    assert_eq!(starts(&case.plan()), ["a#1", "b#?"]);
}

#[test]
fn without_a_network_no_probe_kills_but_on_the_nodes_own() {
    let mut case = Case::new(two("Always"), vec![running("a", 0), running("b", 0)]);
    let verdict = ContainerVerdict {
        container_id: "a-0".into(),
        startup: None,
        liveness: Some(false),
        readiness: None,
    };
    case.verdicts.insert("a".into(), verdict);
    let killed = |case: &Case| case.plan().kill.iter().map(|kill| kill.name.clone()).collect::<Vec<_>>();
    assert_eq!(killed(&case), ["a"]);
    case.network_ready = false;
    let plan = case.plan();
    assert!(plan.is_idle() && plan.needs_network);
    case.verdicts.clear();
    assert!(!case.plan().needs_network, "it lacks nothing");
    let image = case.pod.spec.as_mut().expect("spec");
    image.containers[0].image = Some("another".into());
    let plan = case.plan();
    assert!(plan.is_idle() && plan.needs_network, "nor does a change");
    case.pod.spec.as_mut().expect("spec").host_network = Some(true);
    assert!(case.plan().kill_pod, "its sandbox has a network of its own");
}

#[test]
fn one_dead_instance_per_container_is_kept() {
    let seen = vec![
        running("a", 3),
        exited("a", 2, 20, 21, 1),
        exited("a", 1, 10, 11, 1),
        instance("a", 0, S::Created),
        running("b", 0),
    ];
    let plan = Case::new(two("Always"), seen).plan();
    let pruned: Vec<&str> = plan.prune.iter().map(|prune| &*prune.id).collect();
    assert_eq!(pruned, ["a-1", "a-0"]);
}

fn any_instance(name: &'static str) -> impl Strategy<Value = Vec<RuntimeContainer>> {
    let state = prop_oneof![Just(S::Created), Just(S::Running), Just(S::Exited), Just(S::Unknown)];
    proptest::collection::vec((state, 0i32..2), 0..3).prop_map(move |states| {
        let count = states.len();
        let numbered = states.into_iter().enumerate().map(|(index, (state, code))| {
            let mut one = instance(name, u32::try_from(count - 1 - index).expect("few"), state);
            one.exit_code = code;
            one
        });
        numbered.collect()
    })
}

fn any_pod() -> impl Strategy<Value = Pod> {
    (0usize..3, 0usize..8, proptest::bool::ANY).prop_map(|(policy, sidecars, probes)| {
        let init = ["i1", "i2", "i3"].iter().enumerate().map(|(bit, name)| {
            let mut c = if sidecars & (1 << bit) != 0 { sidecar(name) } else { container(name) };
            c.startup_probe = probes.then(probe).flatten();
            c
        });
        let policy = ["Always", "OnFailure", "Never"][policy];
        pod(policy, init.collect(), vec![container("a"), container("b")])
    })
}

fn any_case() -> impl Strategy<Value = Case> {
    let seen =
        (any_instance("a"), any_instance("b"), any_instance("i1"), any_instance("i2"), any_instance("i3"));
    (any_pod(), seen, 0usize..4, proptest::option::of(proptest::bool::ANY)).prop_map(
        |(pod, (a, b, i1, i2, i3), sandboxes, startup)| {
            let mut case = Case::new(pod, [a, b, i1, i2, i3].concat());
            case.now = 10_000;
            case.runtime.sandboxes = match sandboxes {
                0 => vec![],
                1 => vec![sandbox(0, false)],
                2 => vec![sandbox(0, true)],
                _ => vec![sandbox(1, true), sandbox(0, true)],
            };
            for name in ["i1", "i2", "i3"] {
                if let Some(id) = case.runtime.latest(name).map(|c| c.id.clone()) {
                    case = case.verdict(&id, startup, None);
                }
            }
            case
        },
    )
}

proptest! {
    #[test]
    fn whatever_is_seen_the_plan_is_safe(case in any_case()) {
        let plan = case.plan();
        let runtime = &case.runtime;
        for start in &plan.start {
            // No second instance beside one that may live, unless that one is killed first.
            let lives = runtime.instances(&start.name)
                .filter(|c| Some(&c.id) == runtime.latest(&start.name).map(|c| &c.id))
                .any(|c| matches!(c.state, S::Running | S::Unknown));
            prop_assert!(!lives || plan.kill_pod || plan.kill.iter().any(|kill| kill.name == start.name));
            // No attempt is used twice.
            let highest = runtime.instances(&start.name).map(|c| c.attempt).max();
            prop_assert_eq!(start.attempt, highest.map(|attempt| attempt + 1));
        }
        let mut names: Vec<_> = plan.start.iter().map(|start| (start.kind == ContainerKind::Regular, start.index)).collect();
        let sorted = { let mut sorted = names.clone(); sorted.sort_unstable(); sorted.dedup(); sorted };
        prop_assert_eq!(&names, &sorted, "in order, each once");
        names.clear();
        // Regular containers and a plain init container never start in one plan.
        let plain = plan.start.iter().any(|start| start.kind == ContainerKind::Init);
        prop_assert!(!plain || plan.start.iter().all(|start| start.kind != ContainerKind::Regular));
        if plan.finished.is_some() {
            prop_assert!(plan.is_idle());
        }
        // No running instance is removed, unless it is killed first.
        for gone in plan.purge.iter().chain(&plan.prune) {
            let lives = runtime.live().any(|c| c.id == gone.id && c.state == S::Running);
            prop_assert!(!lives || plan.kill_pod);
        }
        prop_assert!(plan.create_sandbox.is_none() || runtime.ready_sandbox().is_none() || plan.kill_pod);
    }

    /// Plans that are carried out without a failure come to rest: running containers are not restarted.
    #[test]
    fn plans_come_to_rest(case in any_case()) {
        let mut case = case;
        for _ in 0..12 {
            let plan = case.plan();
            if plan.is_idle() {
                return Ok(());
            }
            apply(&mut case, &plan);
        }
        prop_assert!(false, "still busy: {:?}", case.plan());
    }
}

/// A runtime without failures: init containers exit with 0 at once, all others run.
fn apply(case: &mut Case, plan: &PodPlan) {
    let runtime = &mut case.runtime;
    if plan.kill_pod {
        for sandbox in &mut runtime.sandboxes {
            sandbox.ready = false;
        }
    }
    let now = at(case.now);
    for one in &mut runtime.containers {
        let live = matches!(one.state, S::Running | S::Unknown);
        if live && (plan.kill_pod || plan.kill.iter().any(|kill| kill.id == one.id)) {
            one.state = S::Exited;
            one.exit_code = 137;
            one.finished_at = Some(now);
        }
    }
    let gone = |id: &Arc<str>| plan.purge.iter().chain(&plan.prune).any(|prune| prune.id == *id);
    runtime.containers.retain(|one| !gone(&one.id));
    runtime.sandboxes.retain(|one| !plan.discard_sandboxes.contains(&one.id));
    if let Some(new) = &plan.create_sandbox {
        runtime.sandboxes.insert(0, sandbox(new.attempt, true));
    }
    for start in &plan.start {
        let state = if start.kind == ContainerKind::Init { S::Exited } else { S::Running };
        let mut one = instance(&start.name, start.attempt.unwrap_or(0), state);
        one.finished_at = (state == S::Exited).then_some(now);
        case.verdicts.insert(
            start.name.clone(),
            ContainerVerdict {
                container_id: one.id.clone(),
                startup: Some(true),
                liveness: None,
                readiness: None,
            },
        );
        let place = runtime.containers.partition_point(|c| c.name < one.name);
        runtime.containers.insert(place, one);
    }
    case.now += 1_000;
}

#[test]
fn a_plan_takes_work_by_the_number_of_containers() {
    let names: Vec<String> = (0..4000).map(|number| format!("a{number:04}")).collect();
    let all = pod("Always", vec![], names.iter().map(|name| container(name)).collect());
    let (first, last) = names.split_at(2000);
    let mut new = Case::new(all.clone(), vec![]);
    new.known.pulling = last.iter().cloned().collect();
    let dead = names.iter().flat_map(|name| (0..3).map(move |attempt| exited(name, attempt, 0, 5, 1)));
    let cases =
        [new, Case::new(all.clone(), dead.clone().collect()), Case::new(all, dead.collect()).dead_sandbox()];
    let begun = tokio::time::Instant::now();
    let plans = cases.map(|case| case.plan());
    let took = begun.elapsed();
    assert!(took.as_secs() < 5, "{took:?}");
    assert_eq!(
        plans.map(|plan| (plan.start.len(), plan.prune.len())),
        [(first.len(), 0), (4000, 8000), (4000, 0)]
    );
}
