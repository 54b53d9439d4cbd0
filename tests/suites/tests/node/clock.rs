//! The machine's clock is set an hour ahead or back. Nothing waits for that hour, and nothing is repeated in a burst.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::{Behaviour, Fault, Match, RegistryImage};
use bridge_cri::{CriErrorKind, Rpc};
use bridge_io::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodStatus;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, is_ready, settings};
use testkit::{Sandbox, sandbox};

use crate::life::world;
use crate::pods::{job, web};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// One container that runs this command.
fn plain(name: &str, image: &str, command: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{{name: main, image: {image}, imagePullPolicy: IfNotPresent, command: [{command}]}}]
"
    )
}

/// Sets the clock of the machine, and the runtime's with it.
fn jump(world: &World, by: SignedDuration) {
    world.clock.skew(by);
    let now = i64::try_from(world.clock.now().as_nanosecond()).expect("a time of this century");
    let _same = world.runtime.clone().at_wall_time(now);
}

fn ready(pods: &BTreeMap<String, Arc<PodStatus>>, name: &str) -> bool {
    pods.get(name).is_some_and(|status| is_ready(status))
}

fn restarts(pods: &BTreeMap<String, Arc<PodStatus>>, name: &str) -> i32 {
    let status = pods.get(name).into_iter().flat_map(|status| status.container_statuses.iter().flatten());
    status.map(|container| container.restart_count).sum()
}

/// Waits until `done` is true, and fails when that takes longer than `within` of sandbox time.
async fn within(
    node: &FakeNode,
    what: &str,
    within: Duration,
    done: impl Fn(&BTreeMap<String, Arc<PodStatus>>) -> bool,
) {
    let begun = tokio::time::Instant::now();
    node.until(what, done).await;
    let took = begun.elapsed();
    assert!(took <= within, "{what}: after {took:?}");
}

/// Pods from before the jump, some in the middle of a wait when it comes.
async fn before(world: &World, node: &FakeNode) {
    world.manifest("web.yaml", &web("web"));
    world.manifest("goes.yaml", &web("goes"));
    world.manifest("job.yaml", &job("job"));
    world.manifest("crash.yaml", &plain("crash", IMAGE, "crash"));
    node.until("the pods of before", |pods| {
        let done = pods.get("job").is_some_and(|status| status.phase.as_deref() == Some("Succeeded"));
        ready(pods, "web") && ready(pods, "goes") && done && restarts(pods, "crash") == 3
    })
    .await;
    // Errors that lead to waits.
    let refused = Fault::Error(CriErrorKind::Other, "not now".to_owned());
    world.runtime.fault(Rpc::RunPodSandbox, 1, refused.clone());
    world.manifest("retried.yaml", &plain("retried", IMAGE, "serve"));
    world.manifest("pulled.yaml", &plain("pulled", "understudy.dev/late:1", "serve"));
    node.until("the image to be missed", |pods| {
        let status = pods.get("pulled").into_iter().flat_map(|status| status.container_statuses.iter());
        let mut waiting = status.flatten().filter_map(|one| one.state.as_ref()?.waiting.as_ref());
        waiting.any(|waiting| waiting.reason.as_deref() == Some("ImagePullBackOff"))
    })
    .await;
    world.runtime.publish("understudy.dev/late:1", RegistryImage::default());
}

async fn play(sandbox: &Sandbox, by: SignedDuration) {
    let world = world(11);
    world
        .runtime
        .behave(Match::Command("crash".to_owned()), vec![Behaviour::exits(Duration::from_secs(1), 1)]);
    let node = FakeNode::start(sandbox, &world, &settings());
    before(&world, &node).await;
    let known = node.by_name().await;
    let made = world.runtime.counts();
    let events = node.events().await.len();

    jump(&world, by);

    // A delay that was under way may be cut short once, and is never longer than it would have been.
    world.manifest("comes.yaml", &web("comes"));
    within(&node, "a pod that comes after it", Duration::from_secs(40), |pods| ready(pods, "comes")).await;
    within(&node, "a sandbox that is tried again", Duration::from_secs(30), |pods| ready(pods, "retried"))
        .await;
    within(&node, "an image that is tried again", Duration::from_secs(120), |pods| ready(pods, "pulled"))
        .await;
    world.remove_manifest("goes.yaml");
    within(&node, "a pod that goes after it", Duration::from_secs(60), |pods| !pods.contains_key("goes"))
        .await;
    within(&node, "the crash loop to go on", Duration::from_secs(200), |pods| restarts(pods, "crash") > 3)
        .await;
    sandbox.pass(Duration::from_secs(900)).await;

    let pods = node.by_name().await;
    for name in ["web", "job"] {
        assert_eq!(pods[name], known[name], "{name} has nothing to do with the clock");
    }
    // At full delay it would be six: one may come early, and the delays may begin anew once.
    let again = restarts(&pods, "crash") - restarts(&known, "crash");
    assert!((3..=12).contains(&again), "{again} restarts of a crash loop in about 20 minutes");
    let counts = world.runtime.counts();
    let since = |rpc: Rpc| counts.get(&rpc).unwrap_or(&0) - made.get(&rpc).unwrap_or(&0);
    let sandboxes = since(Rpc::RunPodSandbox);
    assert!(
        (2..=3).contains(&sandboxes),
        "{sandboxes} sandboxes for two or three pods, and none failed any more"
    );
    // The pod that ends has two running containers.
    assert_eq!(since(Rpc::StopContainer), 2);
    assert!(since(Rpc::ListContainers) < 1000, "{} lists in 20 minutes", since(Rpc::ListContainers));
    let events = node.events().await.len() - events;
    assert!(events < 150, "{events} events in 20 minutes");
    not_ahead(&pods, world.clock.now(), by);
    // A worker that crashes now begins its counts anew.
    sandbox.expect_crashes();
    for report in node.tree.snapshot().await.actors {
        if report.kind == "PodWorker" {
            node.tree.kill(&report.name).expect("the worker was just seen");
        }
    }
    world.remove_manifest("comes.yaml");
    within(&node, "a pod that goes", Duration::from_secs(60), |pods| !pods.contains_key("comes")).await;
    assert!(ready(&node.by_name().await, "web"));
}

/// No time in a status lies ahead, except times from before the clock was set back.
fn not_ahead(pods: &BTreeMap<String, Arc<PodStatus>>, now: Timestamp, by: SignedDuration) {
    let fresh = ["comes", "retried", "pulled"];
    for (name, status) in
        pods.iter().filter(|(name, _)| by > SignedDuration::ZERO || fresh.contains(&name.as_str()))
    {
        let conditions =
            status.conditions.iter().flatten().filter_map(|one| one.last_transition_time.as_ref());
        for time in conditions.map(|time| time.0).chain(status.start_time.as_ref().map(|time| time.0)) {
            // What began before the clock was set keeps its time.
            let known = name == "retried" || name == "pulled";
            let latest = if known { now + HOUR } else { now };
            assert!(time <= latest, "{name}: {time} at {now}");
        }
    }
}

#[test]
fn a_clock_set_an_hour_ahead_delays_and_hastens_nothing() {
    sandbox(Policy::default(), async |sandbox| play(sandbox, HOUR).await);
}

#[test]
fn a_clock_set_an_hour_back_delays_and_hastens_nothing() {
    sandbox(Policy::default(), async |sandbox| play(sandbox, -HOUR).await);
}
