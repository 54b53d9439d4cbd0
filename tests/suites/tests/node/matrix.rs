//! Every actor panics on every message type it receives, while pods start, run and stop: no container is
//! restarted, duplicated or lost, and the node serves again within a second. The cases come from
//! `messages::CATALOGUE`, so a new message cannot be forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::Rpc;
use k8s_openapi::api::core::v1::NodeAddress;
use messages::config_manager::{GetConfiguration, ReloadConfiguration};
use messages::event_recorder::{EventObject, EventType, GetEvents, RecordAnnotatedEvent, RecordEvent};
use messages::facts::{NodeAddressesObserved, NodeObserved, Rejection};
use messages::garbage_collector::{CollectNow, RemoveDeadContainers};
use messages::image_manager::DeleteUnusedImages;
use messages::object_cache::{
    GetConfigMap, GetRuntimeClass, GetSecret, GetServiceAccount, GetServices, GetToken, PodObjectsChanged,
};
use messages::pleg::{GetRuntimePod, GetRuntimePods};
use messages::pod_manager::{ApiPodsChanged, GetStaticOf};
use messages::pod_set::{PodSetDigest, PodSetUpdate};
use messages::pod_sources::{SubmitPod, WithdrawPod};
use messages::pod_worker::EvictPod;
use messages::probe_manager::GetVerdicts;
use messages::stats_provider::{GetSummary, GetUsageMetrics, MetricsPage};
use messages::supervision::{Fault, PodsQuarantined};
use messages::volume_manager::{GetVolumeStats, GetVolumes};
use messages::{CATALOGUE, PodRef, PodUid};
use supervision::{EventKind, Policy, RestartPolicy, State, Tree};
use testkit::node::{FakeNode, is_ready, settings};
use testkit::sandbox;

use crate::life::world;
use crate::pods::{job, web};

/// Only a node that is a member of a cluster has them.
const MEMBERS_ONLY: [&str; 3] = ["NodeStatus", "Lease", "CertificateManager"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Running,
    Stopping,
}

/// Recovery is what is tested here; the limit has its own tests.
pub fn patient() -> Policy {
    Policy {
        restart: RestartPolicy { restarts_max: 1000, ..RestartPolicy::default() },
        child_restart: RestartPolicy { restarts_max: 1000, ..RestartPolicy::default() },
        dormant_children_max: 1000,
        ..Policy::default()
    }
}

/// Orders the panic at the actor, or at every worker.
async fn arm(tree: &Tree, actor: &str, message: &str) {
    let fault = Fault::PanicOn { message: message.to_owned(), nth: 1 };
    for report in tree.snapshot().await.actors {
        if report.kind == actor && !matches!(report.state, State::Stopped) {
            tree.inject(&report.name, fault.clone()).expect("the actor was just seen");
        }
    }
}

/// Sends what no other step sends, and crashes the subsystems that ask for resends when they come back.
async fn stir(node: &FakeNode) {
    let soon = Duration::from_millis(500);
    // Each of these may be the message that is panicked on; then there is no answer.
    let _ = node.node.events.ask(GetEvents, soon).await;
    let _ = node.node.verdicts.ask(GetVerdicts, soon).await;
    let _ = node.node.static_of.ask(GetStaticOf { mirror: PodUid::new("nobody") }, soon).await;
    let empty = SubmitPod { manifest: Arc::from(&b""[..]), tenant: Arc::from("jane") };
    let _ = node.node.submit.ask(empty, soon).await;
    let nothing = WithdrawPod { namespace: Arc::from("nowhere"), name: Arc::from("nothing") };
    let _ = node.node.withdraw.ask(nothing, soon).await;
    let _ = node.node.volumes.ask(GetVolumes, soon).await;
    let _ = node.node.volume_stats.ask(GetVolumeStats, soon).await;
    let _ = node.node.summary.ask(GetSummary { only_cpu_and_memory: true }, soon).await;
    let _ = node.node.usage.ask(GetUsageMetrics(MetricsPage::Resource), soon).await;
    let _ = node.node.runtime_pods.ask(GetRuntimePods, soon).await;
    let _ = node.node.runtime_pod.ask(GetRuntimePod { uid: PodUid::new("nobody") }, soon).await;
    let (namespace, name): (Arc<str>, Arc<str>) = (Arc::from("nowhere"), Arc::from("nothing"));
    let pods = node.statuses().await.into_keys().chain([PodUid::new("nobody")]);
    for uid in pods {
        for observer in &node.node.objects_changed {
            let _ = observer.tell(PodObjectsChanged { uid: uid.clone() });
        }
    }
    let nobody = PodUid::new("nobody");
    let secret = GetSecret { pod: nobody.clone(), namespace: namespace.clone(), name: name.clone() };
    let _ = node.node.secrets.ask(secret, soon).await;
    let _ = node
        .node
        .config_maps
        .ask(GetConfigMap { pod: nobody.clone(), namespace: namespace.clone(), name: name.clone() }, soon)
        .await;
    let _ = node.node.runtime_classes.ask(GetRuntimeClass { pod: nobody, name: name.clone() }, soon).await;
    let _ = node.node.services.ask(GetServices, soon).await;
    let nobody = PodUid::new("nobody");
    let account = GetServiceAccount { pod: nobody, namespace: namespace.clone(), name: name.clone() };
    let _ = node.node.accounts.ask(account, soon).await;
    let pod = PodRef { uid: PodUid::new("nobody"), namespace, name: name.clone() };
    let token = GetToken {
        pod,
        service_account: name.clone(),
        account_uid: Arc::default(),
        audience: name,
        expiration_seconds: None,
    };
    let _ = node.node.tokens.ask(token, soon).await;
    let _ = node.node.collect.tell(CollectNow);
    let _ = node.node.configuration.ask(GetConfiguration, soon).await;
    let _ = node.node.reload.tell(ReloadConfiguration);
    let _ = node.node.api_pods.tell(ApiPodsChanged(PodSetUpdate::Digest(PodSetDigest::default())));
    let address = NodeAddress { type_: "InternalIP".to_owned(), address: "192.0.2.99".to_owned() };
    for observer in &node.node.address_observers {
        let _ = observer.tell(NodeAddressesObserved([address.clone()].into()));
    }
    for observer in &node.node.node_observers {
        let _ = observer.tell(NodeObserved(None));
    }
    let _ = node.node.delete_images.ask(DeleteUnusedImages, soon).await;
    let event = RecordEvent {
        object: EventObject::Node,
        event_type: EventType::Normal,
        reason: Arc::from("Test"),
        message: Arc::from(""),
    };
    let annotated = RecordAnnotatedEvent { event, annotations: Arc::default() };
    let _ = node.node.record_annotated.tell(annotated);
    let nobody = PodUid::new("nobody");
    let _ = node.node.quarantined.tell(PodsQuarantined::default());
    let _ = node.node.evict.tell(order_to_evict(&nobody));
    let resending = [
        "PodManager",
        "PodWorkerPool",
        "StatusManager",
        "ProbeManager",
        "GarbageCollector",
        "EvictionManager",
    ];
    for actor in resending {
        node.tree.kill(actor).expect("every subsystem is in the tree");
    }
    for report in node.tree.snapshot().await.actors {
        if report.kind == "PodWorker" {
            node.tree.kill(&report.name).expect("the worker was just seen");
        }
    }
}

pub fn order_to_evict(uid: &PodUid) -> EvictPod {
    let why = Rejection::new("Evicted", "by the test");
    EvictPod { uid: uid.clone(), grace_seconds: None, why }
}

async fn evict(node: &FakeNode) {
    // Nothing that has ended is counted any more.
    let _ = node.node.remove_dead.ask(RemoveDeadContainers, Duration::from_millis(500)).await;
    for uid in node.statuses().await.keys() {
        let _ = node.node.evict.tell(order_to_evict(uid));
    }
}

/// Plays one case; says whether the fault was met.
fn play(actor: &str, message: &str, phase: Phase) -> bool {
    sandbox(patient(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(7);
        let node = FakeNode::start(sandbox, &world, &settings());
        if phase == Phase::Starting {
            arm(&node.tree, actor, message).await;
        }
        world.manifest("a.yaml", &web("a"));
        world.manifest("b.yaml", &web("b"));
        world.manifest("job.yaml", &job("job"));
        if phase == Phase::Starting && actor == "PodWorker" {
            // Workers exist only once their pods do.
            sandbox.pass(Duration::from_millis(150)).await;
            arm(&node.tree, actor, message).await;
        }
        let up = |pods: &std::collections::BTreeMap<String, _>| {
            let ready =
                |name: &str| pods.get(name).is_some_and(|status: &std::sync::Arc<_>| is_ready(status));
            ready("a")
                && ready("b")
                && pods.get("job").is_some_and(|status| status.phase.as_deref() == Some("Succeeded"))
        };
        node.until("both pods and the job", up).await;
        if phase == Phase::Running {
            arm(&node.tree, actor, message).await;
            stir(&node).await;
            // One period of everything: relist, probes, manifests, resync.
            sandbox.pass(Duration::from_secs(100)).await;
            node.until("both pods and the job, still", up).await;
        }
        let counts = world.runtime.counts();
        let of = |rpc: Rpc| counts.get(&rpc).copied().unwrap_or(0);
        assert_eq!(world.runtime.sandboxes().len(), 3, "{actor} {message} {phase:?}: sandboxes");
        assert_eq!(of(Rpc::RunPodSandbox), 3, "{actor} {message} {phase:?}: sandboxes made");
        assert_eq!(of(Rpc::CreateContainer), 7, "{actor} {message} {phase:?}: containers made");
        assert_eq!(of(Rpc::StopContainer), 0, "{actor} {message} {phase:?}: containers stopped");
        for status in node.statuses().await.values() {
            let restarts = status.container_statuses.iter().flatten().map(|c| c.restart_count).sum::<i32>();
            assert_eq!(restarts, 0, "{actor} {message} {phase:?}: {status:?}");
        }
        if phase == Phase::Stopping {
            arm(&node.tree, actor, message).await;
        }
        for file in ["a.yaml", "b.yaml", "job.yaml"] {
            world.remove_manifest(file);
        }
        if phase == Phase::Stopping {
            evict(&node).await;
        }
        node.until_empty().await;
        node.until("all pods to be forgotten", |pods| pods.is_empty()).await;
        assert_eq!(
            world.runtime.counts().get(&Rpc::RunPodSandbox).copied(),
            Some(3),
            "{actor} {message} {phase:?}: nothing started again"
        );
        down_times(&node.tree).await
    })
}

/// Asserts that every crashed actor came back within a second; says whether one crashed.
async fn down_times(tree: &Tree) -> bool {
    let events = tree.snapshot().await.events;
    for event in &events {
        if let EventKind::Restarted { down_ms } = event.what {
            assert!(down_ms <= 1000, "{} was down for {down_ms} ms", event.actor);
        }
    }
    events
        .iter()
        .any(|event| matches!(&event.what, EventKind::Crashed(crash) if crash.reason.starts_with("fault:")))
}

#[test]
fn no_panic_on_any_message_touches_a_container() {
    let mut never_met = BTreeSet::new();
    let standalone = |(actor, _): &&(&str, _)| !MEMBERS_ONLY.contains(actor);
    for (actor, messages) in CATALOGUE.iter().filter(standalone) {
        for message in *messages {
            let met =
                [Phase::Starting, Phase::Running, Phase::Stopping].map(|phase| play(actor, message, phase));
            if !met.contains(&true) {
                never_met.insert((*actor, *message));
            }
        }
    }
    assert!(never_met.is_empty(), "faults that were never met: {never_met:?}");
}
