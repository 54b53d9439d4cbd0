use serde_json::json;

use super::*;
use crate::model::Actor;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A pod with one container `app` of the image `registry/x:1`, with this status.
fn pod(status: Value) -> Value {
    json!({
        "metadata": { "namespace": "default", "name": "web", "uid": "u-1" },
        "spec": { "containers": [{ "name": "app", "image": "registry/x:1", "readinessProbe": {} }] },
        "status": status,
    })
}

fn app(ready: bool, restarts: i32, state: Value) -> Value {
    json!({
        "name": "app", "ready": ready, "started": true, "restartCount": restarts, "image": "", "imageID": "",
        "state": state,
    })
}

fn condition(type_: &str, status: &str) -> Value {
    json!({ "type": type_, "status": status, "lastTransitionTime": "2026-01-01T11:55:00Z" })
}

fn pending(state: Value) -> Value {
    pod(json!({ "phase": "Pending", "containerStatuses": [app(false, 0, state)] }))
}

fn running() -> Value {
    pod(json!({
        "phase": "Running",
        "conditions": [condition("Ready", "True"), condition("ContainersReady", "True")],
        "containerStatuses": [app(true, 0, json!({ "running": { "startedAt": "2026-01-01T11:55:00Z" } }))],
    }))
}

fn worker(observed: Value) -> Actor {
    Actor {
        name: "PodWorker/u-1".to_owned(),
        kind: "PodWorker".to_owned(),
        parent: Some("PodWorkerPool".to_owned()),
        state: "running".to_owned(),
        observed,
        ..Actor::default()
    }
}

fn actor(name: &str, observed: Value) -> Actor {
    Actor { name: name.to_owned(), state: "running".to_owned(), observed, ..Actor::default() }
}

fn event(reason: &str, message: &str, count: u32, container: &str) -> Event {
    serde_json::from_value(json!({
        "object": { "pod": { "pod": { "uid": "u-1", "namespace": "default", "name": "web" },
                             "fieldPath": format!("spec.containers{{{container}}}") } },
        "type": "Warning", "reason": reason, "message": message, "count": count,
        "lastSeen": "2026-01-01T11:59:30Z",
    }))
    .unwrap()
}

fn answer(pod: Value, actors: Vec<Actor>, events: &[Event]) -> Answer {
    let pods: Vec<Pod> = vec![serde_json::from_value(pod).unwrap()];
    let tree = Supervision { actors, ..Supervision::default() };
    let subject = Asked::parse("web", None).unwrap().find("http://node", &pods, &tree).unwrap();
    why(&subject, &tree, events, &[], now())
}

#[track_caller]
fn says(answer: &Answer, verdict: Verdict, sentence: &str) {
    assert_eq!((answer.verdict, answer.sentence.as_str()), (verdict, sentence));
}

#[test]
fn a_pod_that_runs_says_since_when() {
    let answer = answer(running(), vec![worker(json!({ "state": "Syncing" }))], &[]);
    says(&answer, Verdict::Ready, "default/web runs and is Ready since 5 min");
    assert_eq!(answer.verdict.exit_code(), 0);
    assert_eq!(lines(&answer, None)[1..], ["  container app runs since 5 min"]);
}

#[test]
fn a_pod_that_has_ended_says_how() {
    let ended = |status: Value| answer(pod(status), Vec::new(), &[]);
    let state = |code: i32, reason: &str| {
        let ended = json!({ "exitCode": code, "reason": reason, "finishedAt": "2026-01-01T11:58:00Z" });
        [app(false, 0, json!({ "terminated": ended }))]
    };
    let done = ended(json!({ "phase": "Succeeded", "containerStatuses": state(0, "Completed") }));
    says(&done, Verdict::Succeeded, "default/web has succeeded 2 min ago");
    let failed = ended(json!({ "phase": "Failed", "containerStatuses": state(1, "Error") }));
    let how = "default/web has failed: container app ended 2 min ago (exit code 1, Error)";
    says(&failed, Verdict::Failed, how);
    let reason =
        |reason: &str, message: &str| json!({ "phase": "Failed", "reason": reason, "message": message });
    let refused = ended(reason("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu"));
    let sentence = "default/web was refused (OutOfcpu): Node didn't have enough resource: cpu";
    says(&refused, Verdict::Refused, sentence);
    assert_eq!(refused.verdict.exit_code(), 3);
    let evicted = ended(reason("Evicted", "The node was low on resource: memory."));
    says(&evicted, Verdict::Failed, "default/web was evicted: The node was low on resource: memory.");
    let late = ended(reason("DeadlineExceeded", "Pod was active too long"));
    says(&late, Verdict::Failed, "default/web has failed: DeadlineExceeded: Pod was active too long");
}

#[test]
fn a_pull_that_fails_is_named_with_its_tries() {
    let pod = pending(json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such host" } }));
    let events = [event("Failed", "Failed to pull image \"registry/x:1\": no such host", 3, "app")];
    let answer = answer(pod, vec![worker(json!({ "nextTries": { "app": 40 } }))], &events);
    let sentence = "default/web waits for its image: the pull of registry/x:1 failed 3 times (\"no such host\"); \
                    the next try is in 40 s";
    says(&answer, Verdict::Waits, sentence);
    assert_eq!(
        lines(&answer, None)[1..],
        [
            "  container app waits: ImagePullBackOff: no such host; next try in 40 s",
            "  event 30 s ago, 3 times: Warning Failed: Failed to pull image \"registry/x:1\": no such host",
        ]
    );
    assert!(lines(&answer, Some(20))[1..].iter().all(|line| crate::text::width(line) <= 20));
    assert_eq!(lines(&answer, Some(20))[0], sentence, "the sentence is whole");
}

#[test]
fn a_container_that_crashes_says_when_it_starts_again() {
    let message = "back-off 2m40s restarting failed container=app pod=web_default(u-1)";
    let mut status =
        app(false, 5, json!({ "waiting": { "reason": "CrashLoopBackOff", "message": message } }));
    status["lastState"] = json!({
        "terminated": { "exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T11:59:30Z" }
    });
    let pod = pod(json!({ "phase": "Running", "containerStatuses": [status] }));
    let answer = answer(pod, Vec::new(), &[]);
    let sentence =
        "default/web: container app crashes (exit code 1, 5 restarts); it starts again in 2 min 10 s";
    says(&answer, Verdict::Waits, sentence);
    let cause = &lines(&answer, None)[1];
    assert!(cause.ends_with("; last exit code 1 (Error) 30 s ago; 5 restarts"), "{cause}");
    assert_eq!(containers::back_off("back-off soon"), None);
}

#[test]
fn other_reasons_of_waiting_are_named() {
    let waiting = |reason: &str, message: &str| {
        let state = json!({ "waiting": { "reason": reason, "message": message } });
        answer(pending(state), Vec::new(), &[])
    };
    says(
        &waiting("CreateContainerConfigError", "secret \"s\" not found"),
        Verdict::Waits,
        "default/web waits for container app: CreateContainerConfigError (\"secret \"s\" not found\")",
    );
    says(
        &waiting("ErrImageNeverPull", "not present"),
        Verdict::Waits,
        "default/web waits for its image: ErrImageNeverPull (\"not present\")",
    );
}

#[test]
fn a_pod_that_is_not_ready_says_which_probe_fails() {
    let state = json!({ "running": { "startedAt": "2026-01-01T11:59:00Z" } });
    let conditions = [condition("Ready", "False"), condition("ContainersReady", "False")];
    let not_ready = pod(json!({
        "phase": "Running", "conditions": conditions, "containerStatuses": [app(false, 0, state)],
    }));
    let failure = "Readiness probe failed: HTTP probe failed with statuscode: 503";
    let events = [event("Unhealthy", failure, 4, "app"), event("Unhealthy", failure, 4, "other")];
    let known = answer(not_ready.clone(), Vec::new(), &events);
    let sentence = "default/web is not Ready: container app fails its readiness probe \
                    (\"HTTP probe failed with statuscode: 503\")";
    says(&known, Verdict::Waits, sentence);
    let early = answer(not_ready.clone(), Vec::new(), &[]);
    says(
        &early,
        Verdict::Waits,
        "default/web is not Ready: container app has not passed its readiness probe yet",
    );
    let mut starting = not_ready;
    starting["spec"]["containers"][0]["startupProbe"] = json!({});
    starting["status"]["containerStatuses"][0]["started"] = json!(false);
    let starting = answer(starting, Vec::new(), &[]);
    says(
        &starting,
        Verdict::Waits,
        "default/web is not Ready: container app has not passed its startup probe yet",
    );
}

#[test]
fn a_readiness_gate_is_a_condition() {
    let mut pod = running();
    let message = "corresponding condition of pod readiness gate \"x/y\" does not exist.";
    pod["spec"]["readinessGates"] = json!([{ "conditionType": "x/y" }]);
    pod["status"]["conditions"] = json!([
        { "type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": message },
        condition("x/z", "False"),
    ]);
    let answer = answer(pod, Vec::new(), &[]);
    says(&answer, Verdict::Waits, &format!("default/web is not Ready: {message}"));
    let types: Vec<&str> = answer.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, ["Ready"], "a condition of others that is false is no trouble");
}

#[test]
fn a_step_that_lasts_is_what_the_pod_waits_for() {
    let creating = || pending(json!({ "waiting": { "reason": "ContainerCreating" } }));
    let at = |step: &str, seconds: u64| worker(json!({ "step": step, "stepSeconds": seconds }));
    let volumes = [event("FailedMount", "configmap \"c\" not found", 2, "")];
    let answer_of = |actors: Vec<Actor>, events: &[Event]| answer(creating(), actors, events);
    says(
        &answer_of(vec![at("MountVolumes", 12)], &volumes),
        Verdict::Waits,
        "default/web waits for its volumes since 12 s (\"configmap \"c\" not found\")",
    );
    says(
        &answer_of(vec![at("CreateContainer app", 70)], &[]),
        Verdict::Waits,
        "default/web waits for CreateContainer of app since 1 min 10 s",
    );
    let pulls = json!({ "pulls": [{
        "image": "registry/x:1", "state": "pulling", "pullingSeconds": 20,
        "waiting": [{ "pod": "web_default(u-1)", "container": "app", "seconds": 25 }],
    }] });
    let step = at("EnsureImage app registry/x:1, at most 3h", 25);
    says(
        &answer_of(vec![step.clone(), actor("ImageManager", pulls)], &[]),
        Verdict::Waits,
        "default/web waits for its image: registry/x:1 is being pulled since 20 s",
    );
    says(
        &answer_of(vec![step], &[]),
        Verdict::Waits,
        "default/web waits for its image registry/x:1 since 25 s",
    );
    let short = answer_of(vec![at("MountVolumes", 1)], &[]);
    assert_eq!(short.step, Some(StepNow { name: "MountVolumes".to_owned(), seconds: 1 }));
    assert!(!short.sentence.contains("volumes"), "{}", short.sentence);
}

#[test]
fn a_pod_without_a_sandbox_says_what_the_last_try_met() {
    let mut pod = pending(json!({ "waiting": { "reason": "ContainerCreating" } }));
    pod["status"]["conditions"] = json!([condition("PodReadyToStartContainers", "False")]);
    let volumes = [event("FailedMount", "secret \"s\" not found", 2, "")];
    let retry = worker(json!({ "retrySeconds": 3 }));
    says(
        &answer(pod.clone(), vec![retry], &volumes),
        Verdict::Waits,
        "default/web waits for volume data: secret \"s\" not found; the next try is in 3 s",
    );
    let problem = worker(json!({ "problem": "no network" }));
    says(
        &answer(pod.clone(), vec![problem], &[]),
        Verdict::Waits,
        "default/web waits for its sandbox: no network",
    );
    says(&answer(pod, Vec::new(), &[]), Verdict::Waits, "default/web waits for its sandbox");
}

#[test]
fn a_pod_that_initialises_names_the_container() {
    let mut pod = pending(json!({ "waiting": { "reason": "PodInitializing" } }));
    pod["spec"]["initContainers"] = json!([{ "name": "first" }]);
    pod["status"]["conditions"] = json!([condition("Initialized", "False")]);
    let mut first = app(false, 0, json!({ "running": { "startedAt": "2026-01-01T11:59:00Z" } }));
    first["name"] = json!("first");
    pod["status"]["initContainerStatuses"] = json!([first]);
    let answer = answer(pod, Vec::new(), &[]);
    says(&answer, Verdict::Waits, "default/web waits for its init container first, which runs since 1 min");
}

#[test]
fn a_pod_that_ends_says_what_is_stopped_and_how_long_that_may_take() {
    let mut deleted = running();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:28Z");
    deleted["metadata"]["deletionGracePeriodSeconds"] = json!(148);
    let stopping = worker(
        json!({ "state": "Terminating", "step": "StopContainer app", "stepSeconds": 119, "graceSeconds": 148 }),
    );
    let ending = answer(deleted, vec![stopping.clone()], &[]);
    let sentence = "default/web is ending for 2 min: waits for StopContainer of app, which has 28 s left";
    says(&ending, Verdict::Ends, sentence);
    // Its manifest was removed: only the worker has its name.
    let mut stopping = stopping;
    stopping.observed["pod"] = json!("default/web");
    let tree = Supervision { actors: vec![stopping], ..Supervision::default() };
    let subject = Asked::parse("web", None).unwrap().find("http://node", &[], &tree).unwrap();
    let ending = why(&subject, &tree, &[], &[], now());
    says(
        &ending,
        Verdict::Ends,
        "default/web is ending: waits for StopContainer of app, which has 29 s left",
    );
}

#[test]
fn what_ails_the_node_comes_first() {
    let waiting = || pending(json!({ "waiting": { "reason": "ContainerCreating" } }));
    let pleg = |runtime: Value| actor("Pleg", json!({ "runtime": runtime }));
    let away = pleg(json!({ "answered": false, "ready": false, "problem": "connection refused" }));
    says(
        &answer(waiting(), vec![away.clone()], &[]),
        Verdict::Waits,
        "node: the runtime does not answer (\"connection refused\"); default/web waits for it",
    );
    says(&answer(running(), vec![away], &[]), Verdict::Ready, "default/web runs and is Ready since 5 min");
    let network =
        pleg(json!({ "answered": true, "ready": true, "network_ready": false, "network_problem": "no CNI" }));
    says(
        &answer(waiting(), vec![network], &[]),
        Verdict::Waits,
        "node: the runtime's network is not ready (\"no CNI\"); default/web waits for it",
    );
    let mut volumes = actor("VolumeManager", Value::Null);
    volumes.state = "dormant".to_owned();
    let last = json!({ "handling": "MountVolumes", "reason": "boom", "place": "a.rs:1:2" });
    volumes.last_crash = serde_json::from_value(last).unwrap();
    let dormant = answer(waiting(), vec![volumes], &[]);
    let sentence = "node: VolumeManager is dormant after too many crashes (\"MountVolumes: boom at a.rs:1:2\"); \
                    default/web waits for it";
    says(&dormant, Verdict::Waits, sentence);
    let causes = lines(&dormant, None);
    let cause = "  VolumeManager has crashed too often: MountVolumes: boom at a.rs:1:2";
    assert!(causes.iter().any(|line| line == cause), "{causes:#?}");
}

#[test]
fn a_subsystem_that_leaves_the_pod_alone_is_named_with_its_panic() {
    let mut pleg = actor("Pleg", Value::Null);
    pleg.quarantined.insert("u-1".to_owned(), "boom\u{1b}[2J at a.rs:1:2".to_owned());
    let alone =
        answer(pending(json!({ "waiting": { "reason": "ContainerCreating" } })), vec![pleg.clone()], &[]);
    let sentence = "default/web waits for Pleg, which leaves it alone after repeated panics \
                    (\"boom␛[2J at a.rs:1:2\")";
    says(&alone, Verdict::Waits, sentence);
    assert_eq!(alone.left_alone_by.len(), 1);
    let well = answer(running(), vec![pleg], &[]);
    let sentence =
        "default/web runs and is Ready since 5 min, but Pleg leaves it alone (\"boom␛[2J at a.rs:1:2\")";
    says(&well, Verdict::Ready, sentence);
}

#[test]
fn without_any_other_fact_the_last_warning_counts() {
    let events = [event("Strange", "a\u{1b}[31mb", 1, "")];
    let bare = || pod(json!({ "phase": "Pending" }));
    let warned = answer(bare(), Vec::new(), &events);
    says(&warned, Verdict::Waits, "default/web waits; its last warning, 30 s ago, is Strange: a␛[31mb");
    let silent = answer(bare(), Vec::new(), &[]);
    let sentence = "default/web waits: its phase is Pending, and no condition or event says for what";
    says(&silent, Verdict::Waits, sentence);
    for line in lines(&warned, None) {
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}

#[test]
fn events_are_the_pods_own_and_the_newest_five() {
    let mut events: Vec<Event> = (0..7).map(|number| event(&format!("R{number}"), "m", 1, "app")).collect();
    for (event, second) in events.iter_mut().zip(10i64..) {
        event.last_seen = Timestamp::from_second(now().as_second() - 60 + second).unwrap();
    }
    let mut other = event("Other", "m", 1, "app");
    other.object["pod"]["pod"]["uid"] = json!("u-2");
    events.push(other);
    let answer = answer(running(), Vec::new(), &events);
    let reasons: Vec<&str> = answer.events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["R6", "R5", "R4", "R3", "R2"]);
}

#[test]
fn volumes_say_what_they_show() {
    let mut pod = running();
    pod["spec"]["volumes"] = json!([
        { "name": "scratch", "emptyDir": { "medium": "Memory" } },
        { "name": "data", "persistentVolumeClaim": { "claimName": "disk-0" } },
        { "name": "tls", "secret": { "secretName": "web\u{1b}[2J" } },
        { "name": "driver", "csi": { "driver": "csi.example.com" } },
    ]);
    let answer = answer(pod, Vec::new(), &[]);
    let volumes: Vec<_> =
        answer.volumes.iter().map(|one| (one.name.as_str(), one.kind.as_str(), one.of.as_str())).collect();
    assert_eq!(
        volumes,
        [
            ("scratch", "emptyDir", ""),
            ("data", "persistentVolumeClaim", "disk-0"),
            ("tls", "secret", "web␛[2J"),
            ("driver", "csi", "csi.example.com"),
        ]
    );
}

/// The names of all fields of a document.
fn fields(value: &Value, into: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            into.insert(name.clone());
            fields(value, into);
        }),
        Value::Array(items) => items.iter().for_each(|item| fields(item, into)),
        _ => {}
    }
}

#[test]
fn every_field_of_the_documents_is_described() {
    let mut pleg = actor("Pleg", Value::Null);
    pleg.quarantined.insert("u-1".to_owned(), "boom".to_owned());
    let step = worker(json!({ "step": "MountVolumes", "stepSeconds": 9, "problem": "none" }));
    let mut status = app(false, 1, json!({ "waiting": { "reason": "X" } }));
    status["lastState"] = json!({ "terminated": { "exitCode": 1 } });
    let mut pod = pod(json!({ "conditions": [condition("Ready", "False")], "containerStatuses": [status] }));
    pod["spec"]["volumes"] = json!([{ "name": "scratch", "emptyDir": {} }]);
    let answer = answer(pod.clone(), vec![pleg, step], &[event("R", "m", 1, "app")]);
    let pods: Vec<Pod> = vec![serde_json::from_value(pod).unwrap()];
    let rows = crate::rows::rows(&pods, None, now());
    let documents = json!([serde_json::to_value(&answer).unwrap(), { "pods": rows }]);
    let mut named = std::collections::BTreeSet::new();
    fields(&documents, &mut named);
    let page = include_str!("../../../../docs/understudy.md");
    let missing: Vec<&String> = named.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(named.len() > 25 && missing.is_empty(), "docs/understudy.md does not describe {missing:?}");
}
