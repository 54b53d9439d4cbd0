//! NodeStatus and Lease, each alone, with a fake API server and runtime; the actors that are told of the Node are
//! recorded.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_kube::fake::{FakeApi, Fault, On, Verb};
use bridge_metrics::Registry;
use bridge_node::host::{FakeHostAddresses, FakeMachine, Machine};
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::{AttachedVolume, Node};
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::RecordEvent;
use messages::eviction_manager::ResendPressure;
use messages::facts::{
    CsiDriversObserved, CsiNodeState, NodeAddressesObserved, NodeObserved, NodeResourcesConfigured,
    OtherVolumesObserved, RuntimeObserved,
};
use messages::node_status::{NodeStatusConfigured, PostNotReady, ResendNode, StatusPeriods};
use messages::pleg::ResendObserved;
use messages::runtime::RuntimeHealth;
use node_status::{
    Lease, LeaseConfig, LeaseDeps, NodeStatus, NodeStatusConfig, NodeStatusDeps, NodeStatusMetrics,
};
use pod_spec::quantity::Quantity;
use pod_spec::resources::NodeResources;
use stage::{Neighbour, Stage, alone, ask, runtime_well};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);
const NAME: &str = "node";

struct Neighbours {
    api: FakeApi,
    pods: Neighbour<NodeObserved>,
    lease: Neighbour<NodeObserved>,
    addresses: Neighbour<NodeAddressesObserved>,
    pleg: Neighbour<ResendObserved>,
    pressure: Neighbour<ResendPressure>,
    configuration: Neighbour<ResendConfiguration>,
    events: Neighbour<RecordEvent>,
}

impl Neighbours {
    fn new(stage: &Stage<'_>) -> Self {
        Self {
            api: FakeApi::new(stage.fakes.clock.clone()),
            pods: Neighbour::new("PodManager"),
            lease: Neighbour::new("Lease"),
            addresses: Neighbour::new("StatusManager"),
            pleg: Neighbour::new("Pleg"),
            pressure: Neighbour::new("EvictionManager"),
            configuration: Neighbour::new("ConfigManager"),
            events: Neighbour::new("EventRecorder"),
        }
    }

    async fn start(&self, stage: &Stage<'_>) -> Supervised<NodeStatus> {
        stage.start(self.deps(stage).await, NodeStatus::new)
    }

    async fn deps(&self, stage: &Stage<'_>) -> NodeStatusDeps {
        NodeStatusDeps {
            config: Arc::new(config().await),
            node: Arc::new(self.api.client(&Io::current())),
            node_watch: Arc::new(self.api.client(&Io::current())),
            images: stage.fakes.operations.clone(),
            runtime_configuration: stage.fakes.operations.clone(),
            addresses: Arc::new(FakeHostAddresses::default()),
            clock: stage.fakes.clock.clone(),
            observers: vec![self.pods.address(), self.lease.address()],
            address_observers: vec![self.addresses.address()],
            observed: self.pleg.address(),
            pressure: self.pressure.address(),
            configuration: self.configuration.address(),
            events: self.events.address(),
            metrics: NodeStatusMetrics::new(jiff::Timestamp::UNIX_EPOCH).unwrap(),
        }
    }

    /// The status of the Node's condition Ready as the API server has it.
    fn ready(&self) -> Option<String> {
        let node = self.api.get::<Node>(None, NAME)?;
        let conditions = node.status?.conditions?;
        Some(conditions.into_iter().find(|condition| condition.type_ == "Ready")?.status)
    }

    async fn until_ready(&self, stage: &Stage<'_>, actor: &Supervised<NodeStatus>) {
        self.tell_csi_node(stage, actor).await;
        stage.until("the Node to be ready", || self.ready().as_deref() == Some("True")).await;
    }

    /// Tells that the Node has its CSINode, as soon as there is a Node.
    async fn tell_csi_node(&self, stage: &Stage<'_>, actor: &Supervised<NodeStatus>) {
        stage.until("the Node to be made", || self.api.get::<Node>(None, NAME).is_some()).await;
        let uid = self.api.get::<Node>(None, NAME).and_then(|node| node.metadata.uid).expect("a UID");
        let csi_node = CsiNodeState::Of(uid.into());
        actor.address().tell(CsiDriversObserved { csi_node, ..CsiDriversObserved::default() }).unwrap();
    }

    fn postings(&self) -> u64 {
        self.api.count(Verb::Patch, "nodes/status")
    }
}

async fn config() -> NodeStatusConfig {
    let amount = |(name, text): (&str, &str)| (name.to_owned(), Quantity::parse(text).unwrap());
    let amounts: BTreeMap<_, _> = [("cpu", "4"), ("memory", "8Gi"), ("pods", "110")].map(amount).into();
    NodeStatusConfig {
        name: Arc::from(NAME),
        register: true,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        provider_id: String::new(),
        controller_attach_detach: true,
        external_cloud: false,
        node_ips: Vec::new(),
        machine: FakeMachine::named(NAME).facts().await.unwrap(),
        resources: Arc::new(NodeResources { capacity: amounts.clone(), allocatable: amounts }),
        storage_isolation: false,
        kubelet_version: "v1.36.2",
        port: 10250,
        images_max: Some(50),
        update: 10 * SECOND,
        report: 300 * SECOND,
        declared_features: Vec::new(),
    }
}

fn tell_runtime(actor: &Supervised<NodeStatus>) {
    let well = RuntimeHealth { listed_ago: Some(Duration::ZERO), ..(*runtime_well()).clone() };
    actor.address().tell(RuntimeObserved(Arc::new(well))).unwrap();
}

/// Lets so many seconds pass, in which Pleg tells at its period that the runtime is healthy.
async fn pass_well(stage: &Stage<'_>, actor: &Supervised<NodeStatus>, seconds: u32) {
    for _ in 0..seconds / 5 {
        tell_runtime(actor);
        stage.pass(5 * SECOND).await;
    }
}

#[test]
fn the_node_is_registered_told_and_made_ready() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage).await;
        stage.until("the Node to be told", || near.pods.last().is_some_and(|told| told.0.is_some())).await;
        assert_eq!((near.pleg.count(), near.pressure.count()), (1, 1));
        assert!(near.addresses.count() > 0 && near.lease.count() > 0, "every observer is told");
        tell_runtime(&actor);
        near.until_ready(stage, &actor).await;
        assert_eq!(near.api.count(Verb::Create, "nodes"), 1);
        pass_well(stage, &actor, 40).await;
        let postings = near.postings();
        pass_well(stage, &actor, 60).await;
        assert_eq!(near.postings(), postings, "an unchanged status is not posted for minutes");
        assert!(near.events.heard().iter().any(|event| &*event.reason == "NodeReady"));
    });
}

#[test]
fn how_long_a_new_node_took_is_told() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let (deps, registry) = (near.deps(stage).await, Registry::new());
        deps.metrics.register(&registry).unwrap();
        let actor = stage.start(deps, NodeStatus::new);
        stage.until("the Node to be told", || near.pods.last().is_some_and(|told| told.0.is_some())).await;
        tell_runtime(&actor);
        near.until_ready(stage, &actor).await;
        let of = |name: &str| format!("kubelet_node_startup_{name}_duration_seconds");
        let expected = ["post_registration", "pre_registration", "registration"].map(of);
        let told = || registry.gather().iter().map(|family| family.name().to_owned()).collect::<Vec<_>>();
        stage.until("all of it", || told() == expected).await;
    });
}

/// NodeStatus of a node that is Ready and has been for a while.
async fn settled(stage: &Stage<'_>) -> (Neighbours, Supervised<NodeStatus>) {
    let near = Neighbours::new(stage);
    let actor = near.start(stage).await;
    tell_runtime(&actor);
    near.until_ready(stage, &actor).await;
    pass_well(stage, &actor, 40).await;
    (near, actor)
}

#[test]
fn a_new_incarnation_leaves_the_node_as_it_is_until_the_runtime_is_known() {
    alone(async |stage| {
        let (near, actor) = settled(stage).await;
        let postings = near.postings();
        near.pods.take();
        stage.crash::<NodeStatus>().await;
        stage.until("Pleg to be asked", || near.pleg.count() == 2 && near.pressure.count() == 2).await;
        stage.pass(5 * SECOND).await;
        assert_eq!((near.postings(), near.ready().as_deref()), (postings, Some("True")));
        pass_well(stage, &actor, 60).await;
        assert_eq!(near.ready().as_deref(), Some("True"));
        assert_eq!(near.api.list::<Node>().len(), 1);
        assert!(near.pods.heard().iter().all(|told| told.0.is_some()), "nobody is told that it is gone");
    });
}

#[test]
fn changed_places_for_pods_are_posted_and_the_status_is_posted_as_often_as_configured() {
    alone(async |stage| {
        let (near, actor) = settled(stage).await;
        let mut resources = (*config().await.resources).clone();
        resources.capacity.insert("pods".to_owned(), Quantity::decimal(7));
        let settings = Arc::new(resources);
        actor.address().tell(NodeResourcesConfigured { settings }).unwrap();
        let places = || {
            let status = near.api.get::<Node>(None, NAME).and_then(|node| node.status);
            status.and_then(|status| Some(status.capacity?.get("pods")?.0.clone()))
        };
        stage.until("the capacity to be posted", || places().as_deref() == Some("7")).await;
        let settings = StatusPeriods { update: SECOND, report: 2 * SECOND };
        actor.address().tell(NodeStatusConfigured { settings }).unwrap();
        // The posting that the period before has made due comes first.
        pass_well(stage, &actor, 600).await;
        let postings = near.postings();
        pass_well(stage, &actor, 60).await;
        assert!(near.postings() > postings + 10, "{} after {postings}", near.postings());
        assert_eq!(near.configuration.count(), 0);
        stage.crash::<NodeStatus>().await;
        stage.until("ConfigManager to be asked", || near.configuration.count() == 1).await;
    });
}

#[test]
fn a_new_node_is_not_ready_before_it_has_its_csi_node() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage).await;
        pass_well(stage, &actor, 30).await;
        let conditions = near.api.get::<Node>(None, NAME).and_then(|node| node.status?.conditions);
        let ready = conditions.into_iter().flatten().find(|one| one.type_ == "Ready").expect("a condition");
        let told = (&*ready.status, ready.message.as_deref());
        assert_eq!(told, ("False", Some("CSINode is not yet initialized")));
        near.until_ready(stage, &actor).await;
    });
}

#[test]
fn volumes_in_use_and_attached_are_told() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage).await;
        tell_runtime(&actor);
        near.until_ready(stage, &actor).await;
        let volume = "kubernetes.io/csi/d^v".to_owned();
        let own = Arc::new([volume.clone()].into());
        actor.address().tell(OtherVolumesObserved { own, ..OtherVolumesObserved::default() }).unwrap();
        let told = || near.pods.last().and_then(|told| told.0.clone()?.status.clone()).unwrap_or_default();
        let in_use = Some(vec![volume.clone()]);
        stage.until("the volume to be in use", || told().volumes_in_use == in_use).await;
        let mut node = near.api.get::<Node>(None, NAME).unwrap();
        let attached = vec![AttachedVolume { name: volume, device_path: "/dev/x".to_owned() }];
        node.status.get_or_insert_default().volumes_attached = Some(attached.clone());
        near.api.put(&node);
        stage.until("it to be attached", || told().volumes_attached.as_ref() == Some(&attached)).await;
        assert_eq!(told().volumes_in_use, in_use);
    });
}

#[test]
fn an_observer_whose_mailbox_was_full_is_told_when_it_asks() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.lease.refuse();
        let actor = near.start(stage).await;
        stage.until("the Node to be told", || near.pods.last().is_some_and(|told| told.0.is_some())).await;
        near.lease.fall_silent();
        actor.address().tell(ResendNode { receiver: "Lease" }).unwrap();
        stage.until("it to be told", || near.lease.last().is_some_and(|told| told.0.is_some())).await;
    });
}

#[test]
fn a_server_that_refuses_the_node_is_asked_again() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.api.fault(On::call(Verb::Create, "nodes"), 3, Fault::code(500));
        let actor = near.start(stage).await;
        tell_runtime(&actor);
        near.until_ready(stage, &actor).await;
        assert_eq!(near.api.count(Verb::Create, "nodes"), 4);
        near.api.fault(On::call(Verb::Patch, "nodes/status"), 2, Fault::code(500));
        let ill = RuntimeHealth {
            ready: false,
            runtime_problem: "it is restarting".to_owned(),
            ..(*runtime_well()).clone()
        };
        actor.address().tell(RuntimeObserved(Arc::new(ill))).unwrap();
        stage.until("the Node not to be ready", || near.ready().as_deref() == Some("False")).await;
    });
}

#[test]
fn the_last_word_is_posted_before_it_is_answered() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage).await;
        tell_runtime(&actor);
        near.until_ready(stage, &actor).await;
        let order = PostNotReady { why: Arc::from("Pleg has failed") };
        assert!(ask(&actor, order, 2 * SECOND).await.unwrap());
        assert_eq!(near.ready().as_deref(), Some("False"));
    });
}

struct LeaseNeighbours {
    api: FakeApi,
    node: Neighbour<ResendNode>,
}

impl LeaseNeighbours {
    fn new(stage: &Stage<'_>) -> Self {
        Self { api: FakeApi::new(stage.fakes.clock.clone()), node: Neighbour::new("NodeStatus") }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<Lease> {
        stage.start(self.deps(stage), Lease::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> LeaseDeps {
        LeaseDeps {
            config: Arc::new(LeaseConfig { node: NAME.to_owned(), duration_seconds: 40 }),
            heartbeat: Arc::new(self.api.client(&Io::current())),
            clock: stage.fakes.clock.clone(),
            node: self.node.address(),
        }
    }

    fn lease(&self) -> Option<LeaseObject> {
        self.api.get::<LeaseObject>(Some("kube-node-lease"), NAME)
    }

    /// Creates the Node and tells Lease of it.
    fn tell_node(&self, actor: &Supervised<Lease>) {
        let node = serde_json::json!({ "metadata": { "name": NAME } });
        let node = self.api.put::<Node>(&serde_json::from_value(node).unwrap());
        actor.address().tell(NodeObserved(Some(Arc::new(node)))).unwrap();
    }

    fn renewals(&self) -> u64 {
        self.api.count(Verb::Update, "leases")
    }
}

#[test]
fn a_lease_is_made_once_the_node_is_known_and_renewed_every_ten_seconds() {
    alone(async |stage| {
        let near = LeaseNeighbours::new(stage);
        let actor = near.start(stage);
        stage.until("the Node to be asked for", || near.node.count() > 0).await;
        stage.pass(SECOND).await;
        assert!(near.lease().is_none(), "it belongs to the Node");
        near.tell_node(&actor);
        stage.until("the lease", || near.lease().is_some()).await;
        let before = near.renewals();
        stage.pass(60 * SECOND).await;
        assert!((5..=6).contains(&(near.renewals() - before)), "{}", near.renewals() - before);
        assert_eq!(near.api.count(Verb::Create, "leases"), 1);
    });
}

#[test]
fn a_new_incarnation_of_lease_renews_the_lease_that_is_there() {
    alone(async |stage| {
        let near = LeaseNeighbours::new(stage);
        let actor = near.start(stage);
        near.tell_node(&actor);
        stage.until("the lease", || near.lease().is_some()).await;
        let (asked, before) = (near.node.count(), near.renewals());
        stage.crash::<Lease>().await;
        stage.until("the Node to be asked for", || near.node.count() > asked).await;
        stage.until("a renewal", || near.renewals() > before).await;
        assert_eq!(near.api.count(Verb::Create, "leases"), 1);
    });
}

#[test]
fn a_node_status_whose_mailbox_is_full_is_asked_again_by_lease() {
    alone(async |stage| {
        let near = LeaseNeighbours::new(stage);
        near.node.refuse();
        let actor = near.start(stage);
        stage.pass(25 * SECOND).await;
        assert!(near.node.refused().len() >= 2, "{}", near.node.refused().len());
        near.tell_node(&actor);
        stage.until("the lease", || near.lease().is_some()).await;
    });
}

#[test]
fn a_server_that_is_away_for_a_minute_finds_the_lease_renewed_at_once() {
    alone(async |stage| {
        let near = LeaseNeighbours::new(stage);
        let actor = near.start(stage);
        near.tell_node(&actor);
        stage.until("the lease", || near.lease().is_some()).await;
        near.api.set_down(true);
        stage.pass(60 * SECOND).await;
        assert!(stage.observed::<Lease>().await["problem"].is_string());
        near.api.set_down(false);
        let before = near.renewals();
        stage.pass(12 * SECOND).await;
        assert!(near.renewals() > before);
        assert!(stage.observed::<Lease>().await["problem"].is_null());
    });
}
