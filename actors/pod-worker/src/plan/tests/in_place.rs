//! Restarts, starts and waits within a sandbox that stays: restart rules, ephemeral containers, hooks.

use k8s_openapi::api::core::v1::EphemeralContainer;

use super::*;

fn restart_all_on(code: i32) -> Option<Vec<ContainerRestartRule>> {
    Some(vec![ContainerRestartRule {
        action: "RestartAllContainers".into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes { operator: "In".into(), values: Some(vec![code]) }),
    }])
}

fn watcher() -> Container {
    Container {
        restart_policy: Some("Never".into()),
        restart_policy_rules: restart_all_on(88),
        ..container("watcher")
    }
}

fn restartable() -> Pod {
    pod("Never", vec![container("i"), sidecar("s")], vec![container("a"), watcher()])
}

/// The IDs of the instances of a reset, with `!` before those that are killed.
fn resets(plan: &PodPlan) -> Vec<String> {
    plan.reset.iter().map(|reset| format!("{}{}", if reset.kill { "!" } else { "" }, reset.id)).collect()
}

#[test]
fn an_exit_restarts_all_containers_the_cause_last() {
    let runtime = vec![
        running("a", 1),
        exited("a", 0, 0, 1, 0),
        exited("i", 0, 0, 1, 0),
        running("s", 0),
        exited("watcher", 0, 0, 1, 88),
    ];
    let plan = Case::new(restartable(), runtime).plan();
    assert_eq!(resets(&plan), ["!a-1", "a-0", "i-0", "!s-0", "watcher-0"]);
    assert!(plan.start.is_empty() && plan.finished.is_none() && !plan.is_idle());
    // An interrupted reset goes on.
    let plan = Case::new(restartable(), vec![exited("watcher", 0, 0, 1, 88)]).plan();
    assert_eq!(resets(&plan), ["watcher-0"]);
    // After the reset the pod begins anew, init containers first.
    let plan = Case::new(restartable(), vec![]).plan();
    assert_eq!((resets(&plan), starts(&plan)), (vec![], vec!["i#?".to_owned()]));
}

#[test]
fn restarts_of_all_containers_back_off() {
    let runtime = || vec![running("a", 1), running("s", 0), exited("watcher", 0, 0, 1, 88)];
    let mut case = Case::new(restartable(), runtime());
    for (waits, now) in [(10, 1_000), (20, 1_010), (40, 1_030)] {
        case.now = now;
        assert_eq!(resets(&case.plan()).len(), 3, "at {now}");
        case.backoff.restarted_all(at(now));
        let plan = case.plan();
        assert_eq!((plan.is_idle(), plan.look_again), (true, Some(at(now + waits))));
        assert_eq!(plan.waiting.keys().collect::<Vec<_>>(), ["watcher"]);
        assert_eq!(plan.waiting["watcher"].reason, "CrashLoopBackOff");
        assert_eq!(plan.backing_off.len(), 1);
    }
    // The clock was set back.
    case.now = 900;
    assert_eq!(resets(&case.plan()).len(), 3);
}

#[test]
fn other_exits_restart_nothing_else() {
    let runtime = |code, later: Option<RuntimeContainer>| {
        let first = exited("watcher", 0, 0, 1, code);
        let mut runtime = vec![running("a", 0), exited("i", 0, 0, 1, 0), running("s", 0)];
        runtime.extend(later);
        runtime.push(first);
        runtime
    };
    let plan = Case::new(restartable(), runtime(1, None)).plan();
    assert!(plan.reset.is_empty() && plan.start.is_empty(), "its own policy is Never: {plan:?}");
    // A restart of all containers has followed the older exit already.
    let plan = Case::new(restartable(), runtime(88, Some(running("watcher", 1)))).plan();
    assert!(plan.reset.is_empty(), "{plan:?}");
}

#[test]
fn an_init_container_can_restart_all_too() {
    let init = Container { restart_policy_rules: restart_all_on(88), ..watcher() };
    let own = pod("Never", vec![container("first"), init], vec![container("a")]);
    let runtime = vec![exited("first", 0, 0, 1, 0), exited("watcher", 0, 0, 1, 88)];
    assert_eq!(resets(&Case::new(own.clone(), runtime).plan()), ["first-0", "watcher-0"]);
    let runtime = vec![exited("first", 0, 0, 1, 0), exited("watcher", 0, 0, 1, 1)];
    assert_eq!(Case::new(own, runtime).plan().finished, Some(Finished::InitFailed));
}

fn with_ephemeral(mut pod: Pod) -> Pod {
    let debug = EphemeralContainer {
        name: "debug".into(),
        image: Some(crate::fixtures::IMAGE.into()),
        target_container_name: Some("a".into()),
        ..EphemeralContainer::default()
    };
    pod.spec.as_mut().expect("set").ephemeral_containers = Some(vec![debug]);
    pod
}

#[test]
fn an_ephemeral_container_is_started_once_and_before_all_else() {
    let own = with_ephemeral(pod("Always", vec![container("i")], vec![container("a")]));
    let plan = Case::new(own.clone(), vec![running("i", 0)]).plan();
    assert_eq!(starts(&plan), ["debug#?"]);
    assert_eq!(plan.start[0].kind, ContainerKind::Ephemeral);
    assert_eq!(plan.start[0].kind.field_path("debug"), "spec.ephemeralContainers{debug}");
    let ended = vec![exited("debug", 0, 0, 1, 1), running("a", 0), exited("i", 0, 0, 1, 0)];
    assert!(Case::new(own.clone(), ended).plan().is_idle(), "it is never restarted");
    assert_eq!(starts(&Case::new(own.clone(), vec![]).without_sandbox().plan()), ["i#?"]);
    let mut failed = Case::new(own, vec![running("i", 0)]);
    let waiting = WaitingReason { reason: "ErrImagePull".into(), message: String::new() };
    let hash = container_hash(&container("debug"));
    let failure = Failure { waiting: waiting.clone(), retry_at: at(1_010), hash };
    failed.known.failures.insert("debug".into(), failure);
    let plan = failed.plan();
    assert!(plan.start.is_empty());
    assert_eq!(plan.waiting.get("debug"), Some(&waiting));
}

#[test]
fn an_ephemeral_container_keeps_no_pod_alive() {
    let own = with_ephemeral(pod("Never", vec![], vec![container("a")]));
    let plan = Case::new(own, vec![exited("a", 0, 0, 1, 0), running("debug", 0)]).plan();
    assert_eq!(plan.finished, Some(Finished::Done));
}

#[test]
fn a_hook_holds_up_first_starts_after_it_and_nothing_else() {
    let own = pod("Always", vec![sidecar("s")], vec![container("a"), container("b"), container("c")]);
    let mut case = Case::new(own, vec![running("a", 0), exited("c", 0, 0, 1, 1), running("s", 0)]);
    case.known.hooking.insert("a".into(), Arc::from("a-0"));
    assert_eq!(starts(&case.plan()), ["c#1"], "b waits, c comes back");
    case.known.hooking.clear();
    assert_eq!(starts(&case.plan()), ["b#?", "c#1"]);
    case.known.hooking.insert("s".into(), Arc::from("s-0"));
    assert_eq!(starts(&case.plan()), ["c#1"]);
}

#[test]
fn the_hook_of_a_sidecar_holds_up_the_start_of_the_pod() {
    let own = pod("Always", vec![sidecar("s"), container("i")], vec![container("a")]);
    let mut case = Case::new(own, vec![running("s", 0)]);
    case.known.hooking.insert("s".into(), Arc::from("s-0"));
    assert!(case.plan().is_idle());
    case.known.hooking.clear();
    assert_eq!(starts(&case.plan()), ["i#?"]);
    case.known.hook_failed.insert("s".into(), Arc::from("s-0"));
    let plan = case.plan();
    assert_eq!(kills(&plan), [("s-0", "FailedPostStartHook")]);
    assert!(plan.start.is_empty());
}

#[test]
fn a_failed_hook_kills_its_container_whose_end_decides() {
    let own = pod("Never", vec![], vec![container("a")]);
    let mut case = Case::new(own, vec![running("a", 0)]);
    case.known.hook_failed.insert("a".into(), Arc::from("a-0"));
    let plan = case.plan();
    assert_eq!(kills(&plan), [("a-0", "FailedPostStartHook")]);
    assert!(plan.start.is_empty() && plan.finished.is_none());
    case.known.hook_failed.insert("a".into(), Arc::from("another"));
    assert!(case.plan().is_idle());
}

#[test]
fn probes_kill_no_container_whose_hook_runs() {
    let mut c = container("a");
    c.liveness_probe = probe();
    let mut case =
        Case::new(pod("Always", vec![], vec![c]), vec![running("a", 0)]).verdict("a-0", None, Some(false));
    assert_eq!(case.plan().kill.len(), 1);
    case.known.hooking.insert("a".into(), Arc::from("a-0"));
    assert!(case.plan().is_idle());
}

fn killed(reason: &str, code: i32) -> RuntimeContainer {
    RuntimeContainer { reason: reason.into(), ..exited("a", 0, 990, 1_000, code) }
}

#[test]
fn what_was_killed_comes_back_when_the_sandbox_was_seen_to_be_well() {
    let own = pod("Always", vec![], vec![container("a")]);
    let mut case = Case::new(own, vec![killed("Error", 137)]);
    let plan = case.plan();
    assert_eq!((plan.start.len(), plan.look_after), (0, Some(at(1_001))));
    case.now = 1_005;
    assert_eq!(case.plan().look_after, Some(at(1_001)), "what was seen is too old");
    case.seen_at = 1_001;
    let plan = case.plan();
    assert_eq!((starts(&plan), plan.look_after), (vec!["a#1".to_owned()], None));
    case.seen_at = 1_000;
    for (reason, code) in [("OOMKilled", 137), ("Error", 1), ("Error", 143)] {
        case.runtime.containers = vec![killed(reason, code)];
        assert_eq!(starts(&case.plan()), ["a#1"], "{reason} {code}");
    }
    // A runtime whose clock is ahead holds up no restart.
    case.runtime.containers = vec![exited("a", 0, 990, 2_000, 137)];
    assert_eq!(starts(&case.plan()), ["a#1"]);
}

proptest! {
    /// Whatever the exit code, and whenever the look was: a restart is planned, or waits until a moment, or
    /// waits for a look.
    #[test]
    fn a_restart_is_never_forgotten(code in 0i32..200, finished in 900i64..1_100, seen in 900i64..1_100) {
        let own = pod("Always", vec![], vec![container("a")]);
        let mut case = Case::new(own, vec![exited("a", 1, 0, finished, code)]);
        case.seen_at = seen;
        let plan = case.plan();
        let waits = plan.look_again.is_some() || plan.look_after.is_some();
        prop_assert!(waits != (starts(&plan) == ["a#2"]), "{plan:?}");
    }
}

#[test]
fn what_comes_back_is_found_in_work_by_the_number_of_containers() {
    let names = || (0..30_000).map(|number| format!("a{number:05}"));
    let kill = |name: String| KillContainer {
        id: Arc::from(format!("{name}-0")),
        name,
        kind: ContainerKind::Regular,
        message: String::new(),
        reason: KillReason::Other,
    };
    let start = |name: String| StartContainer {
        index: 0,
        kind: ContainerKind::Regular,
        name,
        attempt: Some(1),
        why: StartReason::Killed,
    };
    let plan = PodPlan {
        kill: names().map(kill).collect(),
        start: names().skip(1).map(start).collect(),
        ..PodPlan::default()
    };
    let begun = tokio::time::Instant::now();
    let replaced = plan.replaced();
    let took = begun.elapsed();
    assert!(took.as_secs() < 5, "{took:?}");
    assert_eq!((replaced.len(), replaced.contains_key("a00000")), (29_999, false));
}
