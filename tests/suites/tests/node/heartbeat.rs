//! The Node and its lease against an API server in memory: registered, renewed, restored, and never given up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_cri::fake::FakeRuntime;
use bridge_cri::{CriMetrics, Operations};
use bridge_io::Io;
use bridge_io::clock::Clock;
use bridge_kube::Patch;
use bridge_kube::fake::{FakeApi, Fault, On, Verb};
use bridge_node::host::{FakeHostAddresses, FoundAddresses};
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::Node;
use messages::event_recorder::RecordEvent;
use messages::facts::{CsiDriversObserved, CsiNodeState, NodeObserved, RuntimeObserved};
use messages::node_status::PostNotReady;
use messages::runtime::RuntimeHealth;
use node_status::{
    Lease, LeaseConfig, LeaseDeps, NodeStatus, NodeStatusConfig, NodeStatusDeps, NodeStatusMetrics,
};
use serde_json::json;
use supervision::{Address, AskPort, Outside, Place, Policy, Tree, Vitality};
use testkit::node::node_status;
use testkit::sandbox;

use crate::life::world;

const NAME: &str = "node";

/// The two actors, with recordings in place of all their neighbours.
struct Heart {
    api: FakeApi,
    runtime: Address<RuntimeObserved>,
    not_ready: AskPort<Outside, PostNotReady>,
    events: Arc<Mutex<Vec<String>>>,
    told: Arc<Mutex<Vec<String>>>,
}

fn recording() -> Arc<Mutex<Vec<String>>> {
    Arc::default()
}

async fn beat(tree: &Tree) -> Heart {
    let world = world(61);
    let api = FakeApi::new(world.clock.clone());
    let client = Arc::new(api.client(&Io::current()));
    let (events, told) = (recording(), recording());
    let (keep_event, keep_told) = (events.clone(), told.clone());
    let config = NodeStatusConfig {
        labels: [("disk".to_owned(), "ssd".to_owned())].into(),
        ..node_status(NAME).await
    };
    let found = FoundAddresses {
        default_routes: vec!["192.0.2.10".parse().expect("an address")],
        ..FoundAddresses::default()
    };
    let status = tree.seat::<NodeStatus>(Vitality::Vital);
    let lease = tree.seat::<Lease>(Vitality::Vital);
    let metrics = CriMetrics::new().expect("metrics are defined once");
    let operations = Arc::new(Operations::new(Arc::new(FakeRuntime::new(61)), Io::current(), metrics));
    let drivers: Address<CsiDriversObserved> = status.address();
    let deps = NodeStatusDeps {
        config: Arc::new(config),
        node: client.clone(),
        node_watch: client.clone(),
        images: operations.clone(),
        runtime_configuration: operations,
        addresses: Arc::new(FakeHostAddresses::new(found)),
        clock: world.clock.clone(),
        observers: vec![
            lease.address(),
            Address::sink("told", move |fact: NodeObserved| {
                let uid = fact.0.and_then(|node| node.metadata.uid.clone()).unwrap_or_default();
                // VolumeManager makes the CSINode of each Node that it is told of.
                let csi_node = CsiNodeState::Of(uid.as_str().into());
                drivers.tell_level(CsiDriversObserved { csi_node, ..CsiDriversObserved::default() });
                keep_told.lock().expect("no panic").push(uid);
            }),
        ],
        address_observers: Vec::new(),
        observed: Address::sink("observed", |_| {}),
        pressure: Address::sink("pressure", |_| {}),
        configuration: Address::sink("configuration", |_| {}),
        events: Address::sink("events", move |event: RecordEvent| {
            keep_event.lock().expect("no panic").push(event.reason.to_string());
        }),
        metrics: NodeStatusMetrics::new(world.clock.now()).expect("metrics are defined once"),
    };
    let lease_deps = LeaseDeps {
        config: Arc::new(LeaseConfig { node: NAME.to_owned(), duration_seconds: 40 }),
        heartbeat: client,
        clock: world.clock.clone(),
        node: status.address(),
    };
    let (runtime, not_ready) = (status.address(), status.asked());
    status.start(&Place::Here, move || NodeStatus::new(deps.clone()));
    lease.start(&Place::Here, move || Lease::new(lease_deps.clone()));
    Heart { api, runtime, not_ready, events, told }
}

impl Heart {
    fn runtime_is_well(&self) {
        let health = RuntimeHealth {
            name: Arc::from("containerd"),
            version: Arc::from("2.3.0"),
            answered: true,
            ready: true,
            network_ready: true,
            listed_ago: Some(Duration::ZERO),
            ..RuntimeHealth::default()
        };
        self.runtime.tell(RuntimeObserved(Arc::new(health))).expect("there is room");
    }

    fn ready(&self) -> Option<(String, String)> {
        let conditions = self.api.get::<Node>(None, NAME)?.status?.conditions?;
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        Some((ready.status, ready.message.unwrap_or_default()))
    }

    fn is_ready(&self) -> bool {
        self.ready().is_some_and(|(status, _)| status == "True")
    }

    fn lease(&self) -> Option<LeaseObject> {
        self.api.get::<LeaseObject>(Some("kube-node-lease"), NAME)
    }

    fn uid(&self) -> Option<String> {
        self.api.get::<Node>(None, NAME)?.metadata.uid
    }

    fn owner(&self) -> Option<String> {
        Some(self.lease()?.metadata.owner_references?.first()?.uid.clone())
    }

    fn seen(&self, reason: &str) -> usize {
        self.events.lock().expect("no panic").iter().filter(|event| *event == reason).count()
    }

    /// Lets time pass with a runtime that answers every five seconds.
    async fn live(&self, seconds: u64) {
        for _ in 0..seconds.div_ceil(5) {
            self.runtime_is_well();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }
}

#[test]
fn a_node_registers_gets_ready_and_renews_its_lease() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_bridge_tasks();
        let heart = beat(&sandbox.tree).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (status, message) = heart.ready().expect("it has registered");
        assert_eq!(status, "False");
        assert_eq!(
            message,
            "[container runtime status check may not have completed yet, PLEG is not healthy: pleg has yet to be \
             successful, network state unknown]"
        );
        heart.runtime_is_well();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(heart.is_ready(), "{:?}", heart.ready());
        assert_eq!((heart.seen("NodeReady"), heart.seen("NodeHasSufficientMemory")), (1, 1));
        assert_eq!(heart.owner(), heart.uid());
        heart.api.forget_log();
        heart.live(100).await;
        let renewals = heart.api.count(Verb::Update, "leases");
        assert!((9..=11).contains(&renewals), "{renewals}");
        assert_eq!(heart.api.count(Verb::Patch, "nodes/status"), 0, "nothing has changed");
        assert_eq!(heart.api.count(Verb::Get, "leases"), 0);
        heart.live(450).await;
        assert!(
            heart.api.count(Verb::Patch, "nodes/status") >= 1,
            "an unchanged status is posted now and then"
        );
        sandbox.tree.stop_all();
    });
}

#[test]
fn a_node_that_somebody_deletes_is_back_and_its_lease_is_its_own() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_bridge_tasks();
        let heart = beat(&sandbox.tree).await;
        heart.live(15).await;
        let first = heart.uid().expect("it has registered");
        assert!(heart.api.delete::<Node>(None, NAME, None));
        heart.live(15).await;
        let second = heart.uid().expect("it has registered again");
        assert_ne!(first, second);
        assert!(heart.is_ready());
        assert_eq!(heart.owner(), Some(second.clone()));
        let none = String::new;
        let mut told = heart.told.lock().expect("no panic").clone();
        // Lease asks as well, and gets the same answer.
        told.dedup();
        assert_eq!(told, [none(), first, none(), second]);
        sandbox.tree.stop_all();
    });
}

#[test]
fn an_api_server_that_is_away_finds_the_node_as_it_left_it() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_bridge_tasks();
        let heart = beat(&sandbox.tree).await;
        heart.live(15).await;
        heart.api.set_down(true);
        heart.live(120).await;
        heart.api.set_down(false);
        let before = heart.lease().and_then(|lease| lease.spec?.renew_time);
        heart.live(15).await;
        assert!(heart.is_ready());
        assert_ne!(heart.lease().and_then(|lease| lease.spec?.renew_time), before, "renewed");
        // The first try is refused, the Node is read anew, and the second one is taken.
        let no_labels = Patch::Merge(json!({"metadata": {"labels": null}}));
        heart.api.change::<Node>(None, NAME, None, &no_labels);
        heart.api.fault(On::call(Verb::Patch, "nodes/status"), 1, Fault::code(500));
        // The watch may be between two tries since the server was away.
        heart.live(90).await;
        let labels =
            heart.api.get::<Node>(None, NAME).and_then(|node| node.metadata.labels).unwrap_or_default();
        assert_eq!(labels.get("kubernetes.io/os").map(String::as_str), Some("linux"));
        assert!(!labels.contains_key("disk"), "only what a node must have is put back");
        sandbox.tree.stop_all();
    });
}

#[test]
fn a_runtime_that_is_silent_makes_the_node_not_ready() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_bridge_tasks();
        let heart = beat(&sandbox.tree).await;
        heart.live(20).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(heart.is_ready(), "not yet");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(heart.ready(), Some(("False".to_owned(), "container runtime is down".to_owned())));
        assert_eq!(heart.seen("NodeNotReady"), 1);
        heart.live(5).await;
        assert!(heart.is_ready());
        sandbox.tree.stop_all();
    });
}

#[test]
fn a_kubelet_that_gives_up_says_so_first() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_bridge_tasks();
        let heart = beat(&sandbox.tree).await;
        heart.live(10).await;
        let why = Arc::from("subsystem Pleg has failed: it crashed");
        let answer = heart.not_ready.ask(PostNotReady { why }, Duration::from_secs(2)).await;
        assert_eq!(answer, Ok(true));
        let expected = ("False".to_owned(), "subsystem Pleg has failed: it crashed".to_owned());
        assert_eq!(heart.ready(), Some(expected));
        sandbox.tree.stop_all();
    });
}
