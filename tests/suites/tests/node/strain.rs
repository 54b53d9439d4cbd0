//! Many manifests at once, a pod that crashes its worker every time, a runtime that never answers for one pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::Fault;
use k8s_openapi::api::core::v1::PodStatus;
use kubelet::wiring::Settings;
use messages::pod_worker::GetWorkers;
use supervision::{Policy, State};
use testkit::node::{FakeNode, IMAGE, is_ready, settings};
use testkit::sandbox;

use crate::life::world;
use crate::pods::web;

type Pods = BTreeMap<String, Arc<PodStatus>>;

fn ready(pods: &Pods, name: &str) -> bool {
    pods.get(name).is_some_and(|status| is_ready(status))
}

/// No mailbox is fuller than its bound, and none has refused a message.
async fn mailboxes(node: &FakeNode) {
    for actor in node.tree.snapshot().await.actors {
        assert!(
            actor.mailbox_depth <= actor.mailbox_bound,
            "{}: {} messages wait, {} may",
            actor.name,
            actor.mailbox_depth,
            actor.mailbox_bound
        );
        assert_eq!(actor.restarts, 0, "{}: {:?}", actor.name, actor.last_crash);
    }
}

/// A web pod with the version as an argument of its command.
fn versioned(name: &str, version: u32) -> String {
    web(name).replace("[serve, main]", &format!("[serve, main, v{version}]"))
}

#[test]
fn two_hundred_manifests_come_change_and_go_at_once() {
    const CROWD: usize = 200;
    sandbox(Policy::default(), async |sandbox| {
        let world = world(21);
        let mut settings = settings();
        settings.admission.resources = Arc::default();
        settings.admission.pods_max = 300;
        for n in 0..5 {
            world.manifest(&format!("quiet{n}.yaml"), &web(&format!("quiet{n}")));
        }
        let node = FakeNode::start(sandbox, &world, &settings);
        let quiet = |pods: &Pods| (0..5).all(|n| ready(pods, &format!("quiet{n}")));
        node.until("the quiet pods", quiet).await;
        sandbox.pass(Duration::from_secs(10)).await;
        let before: Pods = node.by_name().await;

        for n in 0..CROWD {
            world.manifest(&format!("crowd{n}.yaml"), &versioned(&format!("crowd{n}"), 1));
        }
        mailboxes(&node).await;
        node.until("all of them", |pods| (0..CROWD).all(|n| ready(pods, &format!("crowd{n}")))).await;
        mailboxes(&node).await;

        // All at once: half of the pods change, a quarter is removed, and as many are added.
        let old: BTreeSet<String> = world.runtime.sandboxes().into_iter().map(|one| one.id).collect();
        for n in 0..CROWD {
            let file = format!("crowd{n}.yaml");
            match n % 4 {
                0 => world.remove_manifest(&file),
                1 | 2 => world.manifest(&file, &versioned(&format!("crowd{n}"), 2)),
                _ => world.manifest(&format!("new{n}.yaml"), &versioned(&format!("new{n}"), 1)),
            }
        }
        let stays = |n: usize| !n.is_multiple_of(4);
        node.until("the new order", |pods| {
            let crowd = (0..CROWD).all(|n| ready(pods, &format!("crowd{n}")) == stays(n));
            crowd && (0..CROWD).filter(|n| n % 4 == 3).all(|n| ready(pods, &format!("new{n}")))
        })
        .await;
        mailboxes(&node).await;
        node.until("the old ones to be gone", |_| {
            // The old sandboxes of the 50 pods of the crowd that stayed and of the 5 pods beside it.
            world.runtime.sandboxes().iter().filter(|one| old.contains(&one.id)).count() == 55
        })
        .await;
        assert_eq!(world.runtime.sandboxes().len(), 5 + 200);
        assert_eq!(world.runtime.containers().len(), 3 * 205);

        for n in 0..CROWD {
            world.remove_manifest(&format!("crowd{n}.yaml"));
            world.remove_manifest(&format!("new{n}.yaml"));
        }
        node.until("all to be gone", |pods| pods.len() == 5 && world.runtime.sandboxes().len() == 5).await;
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(node.by_name().await, before, "the other pods have not been touched");
        mailboxes(&node).await;
        let workers = node.tree.snapshot().await.actors;
        let living = workers.iter().filter(|a| a.kind == "PodWorker" && a.state != State::Stopped).count();
        assert_eq!(living, 5, "a worker for each pod and no other");
    });
}

/// A pod with one container of this name.
fn named(pod: &str, container: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {pod}}}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{{name: {container}, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve]}}]
"
    )
}

#[test]
fn a_pod_that_crashes_its_worker_every_time_harms_no_other() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(22);
        let settings = Settings {
            fault_point: Some(Arc::new(|step| {
                assert!(!step.ends_with("StartContainer poison"), "poisoned");
                Box::pin(std::future::ready(()))
            })),
            ..settings()
        };
        world.manifest("other.yaml", &web("other"));
        let node = FakeNode::start(sandbox, &world, &settings);
        node.until("the other pod", |pods| ready(pods, "other")).await;
        let before = node.by_name().await["other"].clone();
        world.manifest("bad.yaml", &named("bad", "poison"));
        node.until("its status to say so", |pods| {
            let conditions =
                pods.get("bad").into_iter().flat_map(|status| status.conditions.iter().flatten());
            conditions
                .into_iter()
                .any(|one| one.type_ == "understudy.dev/Quarantined" && one.status == "True")
        })
        .await;
        world.manifest("more.yaml", &web("more"));
        node.until("one that comes meanwhile", |pods| ready(pods, "more")).await;
        sandbox.pass(Duration::from_secs(1200)).await;
        // The pod was tried again, seldom, and nothing has piled up.
        let made = world.runtime.counts()[&Rpc::CreateContainer];
        assert!(made < 3 + 3 + 60, "{made} containers were created");
        assert!(world.runtime.containers().len() < 6 + 10, "{:?}", world.runtime.containers());
        assert_eq!(node.by_name().await["other"], before);
        for report in node.tree.snapshot().await.actors {
            let worker = report.kind == "PodWorker";
            assert!(worker || report.restarts == 0, "{}: {:?}", report.name, report.last_crash);
        }
        assert!(node.tree.snapshot().await.actors.iter().all(|actor| actor.state != State::Failed));
        // With another spec it is another pod; the one before is removed, though its worker was in its back-off.
        world.manifest("bad.yaml", &named("bad", "cured"));
        node.until("the cured one", |pods| ready(pods, "bad")).await;
        node.until("nothing of the bad one", |_| {
            world.runtime.sandboxes().len() == 3 && world.runtime.containers().len() == 7
        })
        .await;
        let conditions = node.by_name().await["bad"].conditions.clone().unwrap_or_default();
        assert!(conditions.iter().all(|one| one.type_ != "understudy.dev/Quarantined"), "{conditions:?}");
        assert_eq!(node.by_name().await["other"], before);
    });
}

/// The waits that the workers report.
async fn blocked(node: &FakeNode) -> Vec<(String, String)> {
    let reports = node.node.workers.ask(GetWorkers, Duration::from_secs(5)).await.unwrap_or_default();
    let blocked = reports.values().filter_map(|report| {
        Some((report.pod.name.trim_end_matches("-node").to_owned(), report.blocked_on.clone()?))
    });
    blocked.collect()
}

/// Waits until exactly this pod reports that it waits for this.
async fn waits_for(node: &FakeNode, pod: &str, step: &str) {
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let told = blocked(node).await;
        if let [(name, what)] = told.as_slice()
            && name == pod
            && what.starts_with(step)
        {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "{pod} waits for {step}, told is {told:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_call_that_never_returns_holds_up_its_own_pod_only() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(23);
        world.manifest("first.yaml", &web("first"));
        world.manifest("second.yaml", &web("second"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("both", |pods| ready(pods, "first") && ready(pods, "second")).await;

        // The next sandbox is never created.
        world.runtime.fault(Rpc::RunPodSandbox, 1, Fault::Hang);
        world.manifest("stuck.yaml", &web("stuck"));
        sandbox.pass(Duration::from_secs(25)).await;
        world.manifest("third.yaml", &web("third"));
        node.until("the third", |pods| ready(pods, "third")).await;
        waits_for(&node, "stuck", "RunPodSandbox (").await;
        assert!(!ready(&node.by_name().await, "stuck"));

        // The next container to be stopped is never stopped.
        world.runtime.fault(Rpc::StopContainer, 1, Fault::Hang);
        world.remove_manifest("first.yaml");
        sandbox.pass(Duration::from_secs(25)).await;
        world.remove_manifest("second.yaml");
        node.until("the second to be gone", |pods| !pods.contains_key("second")).await;
        node.until("the first to say so", |_| true).await;
        let told: BTreeMap<String, String> = blocked(&node).await.into_iter().collect();
        assert!(told.get("first").is_some_and(|what| what.starts_with("StopContainer ")), "{told:?}");
        assert!(told.keys().all(|name| name == "first" || name == "stuck"), "{told:?}");
        assert!(ready(&node.by_name().await, "third"));
        let called = world.runtime.counts()[&Rpc::RunPodSandbox];
        // When the deadlines have passed, both go on.
        node.until("the stuck one", |pods| ready(pods, "stuck")).await;
        let end = tokio::time::Instant::now() + Duration::from_secs(300);
        while world.runtime.sandboxes().len() != 2 {
            assert!(tokio::time::Instant::now() < end, "{:?}", world.runtime.sandboxes());
            sandbox.pass(Duration::from_millis(100)).await;
        }
        assert_eq!(world.runtime.counts()[&Rpc::RunPodSandbox], called + 1);
        assert_eq!(world.runtime.most_at_once(), 1);
        assert!(blocked(&node).await.is_empty());
    });
}
