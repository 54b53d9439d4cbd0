//! Containers that have run and of which the runtime has nothing any more (row 5.10).

use super::*;

/// A pod of which the runtime has these containers, after it has had those.
fn after(pod: Pod, ran: Vec<RuntimeContainer>, left: Vec<RuntimeContainer>) -> Case {
    let mut case = Case::new(pod, left);
    case.past.see(&runtime_pod(ran));
    case
}

fn two(policy: &str) -> Pod {
    pod(policy, vec![], vec![container("a"), container("b")])
}

#[test]
fn a_pod_that_runs_once_and_whose_containers_are_all_gone_has_ended() {
    let ran = || vec![running("a", 0), exited("b", 0, 1, 2, 0)];
    let wiped = after(two("Never"), ran(), vec![]).without_sandbox().plan();
    assert_eq!(wiped, PodPlan { finished: Some(Finished::Done), ..PodPlan::default() });
    let removed = after(two("Never"), ran(), vec![]).plan();
    assert_eq!(removed.finished, Some(Finished::Done), "its sandbox is still there");
    let rest = after(two("Never"), ran(), vec![exited("b", 0, 1, 2, 0)]).plan();
    assert_eq!(rest.finished, Some(Finished::Done), "what is left has ended, too");
}

#[test]
fn a_container_that_is_gone_is_not_run_again_beside_others_that_run() {
    let plan = after(two("Never"), vec![running("a", 0), running("b", 0)], vec![running("b", 0)]).plan();
    assert_eq!((starts(&plan), plan.finished), (vec![], None));
    let plan = after(two("Never"), vec![running("a", 0)], vec![]).plan();
    assert_eq!(starts(&plan), ["b#?"], "only the one that has never run is started");
    let plan = after(two("Never"), vec![running("a", 0)], vec![]).without_sandbox().plan();
    assert_eq!(starts(&plan), ["b#?"], "also in a new sandbox");
    let plan = after(two("Never"), vec![running("a", 0)], vec![]).dead_sandbox().plan();
    assert_eq!(plan.finished, Some(Finished::SandboxGone), "there is no second sandbox");
}

#[test]
fn what_is_gone_comes_back_if_the_policy_says_so() {
    let ran = || vec![running("a", 0), exited("b", 0, 1, 2, 0)];
    for (policy, started) in [("Always", vec!["a#?", "b#?"]), ("OnFailure", vec!["a#?"])] {
        for case in [after(two(policy), ran(), vec![]), after(two(policy), ran(), vec![]).without_sandbox()] {
            let plan = case.plan();
            assert_eq!(
                (starts(&plan), plan.finished),
                (started.iter().map(|s| (*s).to_owned()).collect(), None)
            );
        }
    }
    let done = || vec![exited("a", 0, 1, 2, 0), exited("b", 0, 1, 2, 0)];
    assert_eq!(
        after(two("OnFailure"), done(), vec![]).without_sandbox().plan().finished,
        Some(Finished::Done)
    );
}

#[test]
fn a_pod_that_has_never_run_starts_under_any_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let created = vec![instance("a", 0, S::Created)];
        let plan = after(two(policy), created, vec![]).without_sandbox().plan();
        assert_eq!(starts(&plan), ["a#?", "b#?"], "{policy}");
    }
}

#[test]
fn an_init_container_that_failed_unseen_fails_a_pod_that_runs_once() {
    let pod = || pod("Never", vec![container("i"), container("j")], vec![container("a")]);
    let unseen = after(pod(), vec![running("i", 0)], vec![]).without_sandbox().plan();
    assert_eq!(unseen.finished, Some(Finished::InitFailed));
    let completed = after(pod(), vec![exited("i", 0, 1, 2, 0)], vec![]).without_sandbox().plan();
    assert_eq!(starts(&completed), ["i#?"], "a new sandbox is initialized from the start");
    let proven = after(pod(), vec![running("i", 0)], vec![running("a", 0)]).plan();
    assert_eq!(
        (proven.finished, starts(&proven)),
        (None, vec![]),
        "a later container shows that it completed"
    );
}

#[test]
fn what_was_removed_to_begin_anew_has_not_run() {
    let mut watcher = container("a");
    watcher.restart_policy = Some("Never".into());
    watcher.restart_policy_rules = Some(vec![ContainerRestartRule {
        action: "RestartAllContainers".into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes { operator: "In".into(), values: Some(vec![88]) }),
    }]);
    let pod = || pod("Never", vec![], vec![watcher.clone(), container("b")]);
    let ran = || vec![exited("a", 0, 1, 2, 88), running("b", 0)];
    assert_eq!(starts(&after(pod(), ran(), vec![]).plan()), ["a#?", "b#?"]);
    let mut case = after(pod(), ran(), vec![running("a", 0)]);
    case.past.begin_anew(&["a".to_owned(), "b".to_owned()]);
    assert_eq!(starts(&case.plan()), ["b#?"], "also when the first of them runs already");
}

#[test]
fn an_ephemeral_container_that_is_gone_is_not_run_a_second_time() {
    let mut pod = pod("Always", vec![], vec![container("a")]);
    let debug = serde_json::from_value(serde_json::json!([{"name": "debug", "image": "img:1"}]));
    pod.spec.get_or_insert_default().ephemeral_containers = Some(debug.expect("it is one"));
    let left = || vec![running("a", 0)];
    assert_eq!(starts(&after(pod.clone(), left(), left()).plan()), ["debug#?"]);
    assert_eq!(starts(&after(pod, vec![running("a", 0), running("debug", 0)], left()).plan()), [""; 0]);
}
