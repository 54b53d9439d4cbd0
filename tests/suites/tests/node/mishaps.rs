//! What may become of any message on a member of a cluster: it is lost, late, doubled or panicked over, or its mailbox is full, once
//! or with another such thing beside it, while pods start, run and stop; a panic over any other work of any actor: timers and
//! the results of effects, the first and later ones; an effect that does not end, before its work or after it; and an actor that
//! takes no more messages. The node comes to the same end as without: nothing runs twice, nothing is
//! missing and nothing is left. The messages come from `messages::CATALOGUE`, the other work from a run without a mishap. Here some
//! cases are drawn from the seed; `UNDERSTUDY_WHOLE=1` (make soak) plays every single one and more pairs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bridge_cri::Rpc;
use bridge_kube::fake::FakeApi;
use bridge_node::cgroups::Cgroups;
use bridge_node::checkpoint::CheckpointStore;
use k8s_openapi::api::core::v1::{Node, Pod};
use messages::CATALOGUE;
use messages::supervision::Fault;
use serde_json::{Value, json};
use supervision::State;
use testkit::node::{FakeNode, IMAGE, World, member};
use testkit::{Random, sandbox};
use tokio::time::Instant;

use crate::cluster::{is_told_ready, until, within};
use crate::levels::set_address;
use crate::matrix::{Phase, patient};
use crate::member::holds;
use crate::objects::{NS, clustered, config_map, object, secret};
use crate::pods::web;

/// It exists only where the cluster signs certificates; what becomes of its work is in `certificates`.
const ABSENT: &str = "CertificateManager";
/// A panic is ordered over the first piece of work of a name, and over these.
const LATER: [u32; 7] = [2, 3, 5, 8, 13, 21, 34];
/// So many cases are played where not all are.
const SAMPLE: usize = 40;
/// So many pairs are played where all single ones are.
const PAIRS: usize = 400;
/// The node is as it would be without a mishap so many seconds after it, at the latest: a fact is told again every minute, what was
/// late comes after 70 seconds, and an effect that hangs is given up after five minutes; there may be two of them.
const SETTLED_WITHIN_S: u64 = 1200;

const PHASES: [Phase; 3] = [Phase::Starting, Phase::Running, Phase::Stopping];

/// A mishap of one actor.
#[derive(Clone, Debug)]
struct Mishap {
    actor: &'static str,
    fault: Fault,
}

#[derive(Clone, Debug)]
struct Case {
    phase: Phase,
    mishaps: Vec<Mishap>,
}

/// All that may become of the messages of this name, but for panics.
fn troubles(message: &str) -> [Fault; 5] {
    let message = message.to_owned();
    [
        Fault::Drop { message: message.clone(), count: 1 },
        Fault::Drop { message: message.clone(), count: 3 },
        Fault::Hold { message: message.clone(), count: 1, ms: 3000 },
        Fault::Hold { message: message.clone(), count: 2, ms: 70_000 },
        Fault::Duplicate { message, count: 2 },
    ]
}

/// Every mishap of every actor: of one that does this work, and as often, when nothing happens to it.
fn mishaps(work: &Work) -> Vec<Mishap> {
    let mut all = Vec::new();
    for (actor, messages) in CATALOGUE.iter().filter(|(actor, _)| *actor != ABSENT) {
        let faults = messages.iter().flat_map(|message| troubles(message));
        let faults = faults.chain([Fault::SqueezeMailbox { bound: 0 }, Fault::SqueezeMailbox { bound: 1 }]);
        let faults = faults.chain([Fault::Stall]);
        all.extend(faults.map(|fault| Mishap { actor, fault }));
    }
    let each = |count: &u32| {
        let count = *count;
        [1].into_iter().chain(LATER.into_iter().filter(move |nth| *nth <= count))
    };
    for ((actor, what), count) in &work.done {
        let panics = each(count).map(|nth| Fault::PanicOn { message: (*what).to_owned(), nth });
        all.extend(panics.map(|fault| Mishap { actor, fault }));
    }
    for ((actor, effect), count) in &work.effects {
        for done in [false, true] {
            let hangs = each(count).map(|nth| Fault::Hang { effect: (*effect).to_owned(), nth, done });
            all.extend(hangs.map(|fault| Mishap { actor, fault }));
        }
    }
    all
}

/// Panics over messages that only another mishap brings about, such as requests to be told again.
fn aftermaths(work: &Work) -> Vec<Mishap> {
    let mut all = Vec::new();
    for (actor, messages) in CATALOGUE.iter().filter(|(actor, _)| *actor != ABSENT) {
        let rare = messages.iter().filter(|message| !work.done.contains_key(&(*actor, **message)));
        let panics = rare.map(|message| Fault::PanicOn { message: (*message).to_owned(), nth: 1 });
        all.extend(panics.map(|fault| Mishap { actor, fault }));
    }
    all
}

/// The cases that are played.
fn cases(work: &Work) -> Vec<Case> {
    let all = mishaps(work);
    let seed = std::env::var("UNDERSTUDY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let mut index = |below: usize| random.below(below as u64) as usize;
    let mut drawn = |all: &[Mishap], mishaps: usize| Case {
        phase: PHASES[index(PHASES.len())],
        mishaps: (0..mishaps).map(|_| all[index(all.len())].clone()).collect(),
    };
    if std::env::var("UNDERSTUDY_WHOLE").is_ok_and(|whole| whole == "1") {
        let single = |mishap: &Mishap| PHASES.map(|phase| Case { phase, mishaps: vec![mishap.clone()] });
        let only = std::env::var("UNDERSTUDY_CASE").unwrap_or_default();
        let is_wanted = |case: &Case| format!("{case:?}").contains(&only);
        let either: Vec<Mishap> = all.iter().cloned().chain(aftermaths(work)).collect();
        let pairs = (0..PAIRS).map(|_| drawn(&either, 2));
        return all.iter().flat_map(single).chain(pairs).filter(is_wanted).collect();
    }
    (0..SAMPLE).map(|at| drawn(&all, 1 + at % 2)).collect()
}

/// What a node is seen to have come to, without what differs from one run to the next: times, IDs and addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    pods: BTreeMap<String, Value>,
    node: BTreeMap<String, String>,
    containers: BTreeMap<String, String>,
    mounts: Vec<String>,
    paths: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    checkpoints: BTreeSet<String>,
}

/// The UIDs that the API server gave to pods, which are random, and their names.
type Names = BTreeMap<String, &'static str>;

fn named(names: &Names, text: &str) -> String {
    names.iter().fold(text.to_owned(), |text, (uid, name)| text.replace(uid, name))
}

/// Without the versions of a volume's files, the names of termination messages and the IDs of containers.
fn steady(names: &Names, path: &Path) -> String {
    let is_version = |part: &str| part.starts_with("..2");
    let is_message = |part: &str| part.len() == 8 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let path = named(names, &path.to_string_lossy());
    let parts = path.split('/').map(|part| match part {
        part if is_version(part) => "..version",
        part if is_message(part) => "message",
        part => part,
    });
    let path = parts.collect::<Vec<_>>().join("/");
    match path.rsplit_once('-') {
        Some((link, _)) if path.starts_with("/var/log/containers/") => link.to_owned(),
        _ => path,
    }
}

fn without_chance(value: &mut Value) {
    const CHANCE: [&str; 9] = [
        "lastTransitionTime",
        "lastProbeTime",
        "startTime",
        "startedAt",
        "finishedAt",
        "containerID",
        "podIP",
        "podIPs",
        "resourceVersion",
    ];
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !CHANCE.contains(&key.as_str()));
            map.values_mut().for_each(without_chance);
        }
        Value::Array(all) => all.iter_mut().for_each(without_chance),
        _ => {}
    }
}

async fn seen(world: &World, api: &FakeApi, names: &Names) -> Seen {
    let mut seen = Seen::default();
    for pod in api.list::<Pod>() {
        let mut status = serde_json::to_value(&pod.status).expect("a status is JSON");
        without_chance(&mut status);
        let is_ending = pod.metadata.deletion_timestamp.is_some();
        let name = pod.metadata.name.unwrap_or_default();
        seen.pods.insert(name, json!({ "isEnding": is_ending, "status": status }));
    }
    let node = api.get::<Node>(None, "node").and_then(|node| node.status).unwrap_or_default();
    for one in node.conditions.into_iter().flatten() {
        seen.node.insert(one.type_, one.status);
    }
    // A subsystem that was dormant has once been named.
    seen.node.remove("KubeletDegraded");
    for one in node.addresses.into_iter().flatten() {
        seen.node.insert(one.type_, one.address);
    }
    for container in world.runtime.containers() {
        let name = container.metadata.map(|metadata| (metadata.name, metadata.attempt)).unwrap_or_default();
        let pod = container.labels.get("io.kubernetes.pod.name").cloned().unwrap_or_default();
        seen.containers.insert(format!("{pod}/{}/{}", name.0, name.1), format!("{:?}", container.state));
    }
    seen.mounts = world.disk.mounts().iter().map(|mount| steady(names, &mount.path)).collect();
    seen.mounts.sort();
    for dir in ["/var/lib/kubelet", "/var/log"] {
        seen.paths.extend(world.disk.paths_below(dir).iter().map(|path| steady(names, path)));
    }
    let cgroups = world.cgroups.list_pod_cgroups().await.expect("the fake lists them");
    seen.cgroups = cgroups.iter().map(|cgroup| named(names, &cgroup.uid)).collect();
    let checkpoints = world.checkpoints.list("").await.expect("the fake lists them");
    seen.checkpoints = checkpoints.iter().map(|checkpoint| named(names, checkpoint)).collect();
    seen
}

/// The lines that one has more than the other.
fn differences(now: &Seen, expected: &Seen) -> Vec<String> {
    let lines = |seen: &Seen| format!("{seen:#?}").lines().map(str::to_owned).collect::<Vec<_>>();
    let (now, expected) = (lines(now), lines(expected));
    let more = now.iter().filter(|line| !expected.contains(line)).map(|line| format!("+ {line}"));
    let fewer = expected.iter().filter(|line| !now.contains(line)).map(|line| format!("- {line}"));
    more.chain(fewer).collect()
}

/// Waits until the node is as expected; without an expectation as long as it may take.
async fn settled(world: &World, api: &FakeApi, names: &Names, expected: Option<&Seen>, what: &str) -> Seen {
    let end = Instant::now() + Duration::from_secs(SETTLED_WITHIN_S);
    let Some(expected) = expected else {
        tokio::time::sleep(Duration::from_secs(SETTLED_WITHIN_S)).await;
        return seen(world, api, names).await;
    };
    loop {
        let now = seen(world, api, names).await;
        if now == *expected {
            return now;
        }
        assert!(Instant::now() < end, "{what}: {:#?}", differences(&now, expected));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What happens in each part of a run, and how often a sandbox and a container were made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Course {
    running: Seen,
    ended: Seen,
    made: (u64, u64),
    work: Work,
}

/// How often each actor has begun each piece of work, and each effect with a deadline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Work {
    done: BTreeMap<(&'static str, &'static str), u32>,
    effects: BTreeMap<(&'static str, &'static str), u32>,
}

impl Work {
    fn add(&mut self, node: &FakeNode) {
        let (tree, Self { done, effects }) = (&node.tree, self);
        for (begun, all) in [(tree.begun(), done), (tree.effects_begun(), effects)] {
            for (step, count) in begun {
                let most = all.entry(step).or_default();
                *most = count.max(*most);
            }
        }
    }
}

/// The actors of this kind.
async fn names_of(node: &FakeNode, kind: &str) -> Vec<String> {
    let actors = node.tree.snapshot().await.actors.into_iter();
    actors.filter(|one| one.kind == kind && one.state != State::Stopped).map(|one| one.name).collect()
}

async fn arm(node: &FakeNode, mishaps: &[Mishap]) {
    for Mishap { actor, fault } in mishaps {
        for name in names_of(node, actor).await {
            node.tree.inject(&name, fault.clone()).expect("the actor was just seen");
        }
    }
}

/// A mailbox is full for half a minute; an actor that takes no messages is ended after that, as the watchdog does it.
async fn relieve(node: &FakeNode, mishaps: &[Mishap]) {
    let is_relieved = |one: &Mishap| matches!(one.fault, Fault::SqueezeMailbox { .. } | Fault::Stall);
    if !mishaps.iter().any(is_relieved) {
        return;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    for Mishap { actor, fault } in mishaps {
        for name in names_of(node, actor).await {
            match fault {
                Fault::SqueezeMailbox { .. } => {
                    let room = Fault::SqueezeMailbox { bound: 4096 };
                    node.tree.inject(&name, room).expect("the actor was just seen");
                }
                Fault::Stall => node.tree.kill(&name).expect("the actor was just seen"),
                _ => {}
            }
        }
    }
}

fn server() -> Pod {
    object(json!({
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 5, "serviceAccountName": "default",
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve"],
                "resources": { "requests": { "cpu": "10m" }, "limits": { "ephemeral-storage": "1Gi" } },
                "env": [{ "name": "A", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "a" } } }],
                "readinessProbe": { "exec": { "command": ["ready"] }, "periodSeconds": 1 },
                "volumeMounts": [
                    { "name": "settings", "mountPath": "/settings" },
                    { "name": "key", "mountPath": "/key" },
                    { "name": "data", "mountPath": "/part", "subPath": "part" },
                ],
            }],
            "volumes": [
                { "name": "settings", "configMap": { "name": "settings" } },
                { "name": "key", "secret": { "secretName": "key" } },
                { "name": "data", "emptyDir": {} },
            ],
        },
    }))
}

fn job() -> Pod {
    object(json!({
        "metadata": { "name": "job", "namespace": "default" },
        "spec": {
            "nodeName": "node", "restartPolicy": "OnFailure", "serviceAccountName": "default",
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["job"],
            }],
        },
    }))
}

/// Plays a case; without an expectation the one of a run in which nothing happens.
fn play(case: &Case, expected: Option<&Course>) -> Course {
    println!("{case:?}");
    let Case { phase, mishaps } = case;
    sandbox(patient(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = clustered(7);
        set_address(&world, "192.0.2.20");
        config_map(&api, "settings", json!({ "a": "b" }));
        secret(&api, "key", json!({ "key": "Yg==" }));
        let node = FakeNode::start(sandbox, &world, &member().await);
        within(60, "a Node that is ready", || holds(&api, "Ready", "True")).await;
        if *phase == Phase::Starting {
            arm(&node, mishaps).await;
        }
        let mut names = Names::new();
        for (name, pod) in [("web", server()), ("job", job())] {
            names.insert(api.put(&pod).metadata.uid.expect("the server gives a UID"), name);
        }
        world.manifest("own.yaml", &web("own"));
        if *phase == Phase::Starting {
            // Workers exist only once their pods do.
            sandbox.pass(Duration::from_millis(150)).await;
            let of_workers =
                mishaps.iter().filter(|one| one.actor == "PodWorker").cloned().collect::<Vec<_>>();
            arm(&node, &of_workers).await;
            relieve(&node, mishaps).await;
        }
        let has_ended = || {
            let status = api.get::<Pod>(NS, "job").and_then(|pod| pod.status);
            status.is_some_and(|status| status.phase.as_deref() == Some("Succeeded"))
        };
        let is_served = || is_told_ready(&api, "web") && is_told_ready(&api, "own-node") && has_ended();
        within(SETTLED_WITHIN_S, "two pods that serve and one that has ended", is_served).await;
        if *phase == Phase::Running {
            arm(&node, mishaps).await;
        }
        config_map(&api, "settings", json!({ "a": "b", "c": "d" }));
        set_address(&world, "192.0.2.30");
        if *phase == Phase::Running {
            relieve(&node, mishaps).await;
            // A period of everything.
            sandbox.pass(Duration::from_secs(100)).await;
        }
        let running = expected.map(|expected| &expected.running);
        let running = settled(&world, &api, &names, running, "while pods run").await;
        let mut work = Work::default();
        work.add(&node);
        if *phase == Phase::Stopping {
            arm(&node, mishaps).await;
        }
        api.delete::<Pod>(NS, "web", None);
        api.delete::<Pod>(NS, "job", None);
        world.remove_manifest("own.yaml");
        if *phase == Phase::Stopping {
            relieve(&node, mishaps).await;
        }
        // Workers end with their pods, and their counts with them.
        for _ in 0..4 {
            sandbox.pass(Duration::from_secs(1)).await;
            work.add(&node);
        }
        until("the runtime to be empty", || {
            world.runtime.sandboxes().is_empty() && world.runtime.containers().is_empty()
        })
        .await;
        let ended = expected.map(|expected| &expected.ended);
        let ended = settled(&world, &api, &names, ended, "when pods are gone").await;
        let counts = world.runtime.counts();
        let of = |rpc: Rpc| counts.get(&rpc).copied().unwrap_or(0);
        let made = (of(Rpc::RunPodSandbox), of(Rpc::CreateContainer));
        work.add(&node);
        node.stop().await;
        Course { running, ended, made, work }
    })
}

#[test]
fn no_mishap_of_a_message_changes_what_a_node_comes_to() {
    let without = play(&Case { phase: Phase::Starting, mishaps: Vec::new() }, None);
    assert_eq!((without.ended.pods.len(), without.made), (0, (3, 5)), "{without:#?}");
    // Every one is told, each after what was said of it.
    let differs = |case: &Case| {
        let with = std::panic::catch_unwind(|| play(case, Some(&without)));
        with.map_or(true, |with| with.made != without.made)
    };
    let differing: Vec<Case> = cases(&without.work).into_iter().filter(differs).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}
