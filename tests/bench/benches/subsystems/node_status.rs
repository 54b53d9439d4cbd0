//! NodeStatus alone: the node's pressure changes again and again, and each change is posted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Stage, Subject, runtime_well, wait};
use bridge_io::Io;
use bridge_io::clock::Clock;
use bridge_kube::fake::{FakeApi, Verb};
use bridge_node::host::{FakeHostAddresses, FakeMachine, Machine};
use messages::facts::{Pressure, PressureObserved, RuntimeObserved};
use messages::pleg::ResendObserved;
use node_status::{NodeStatus, NodeStatusConfig, NodeStatusDeps, NodeStatusMetrics};
use pod_spec::resources::NodeResources;
use supervision::{Address, Place, Supervised, Tree, Vitality};

/// Messages of one round, whatever the number of pods.
const MESSAGES: u64 = 50;

struct Alone {
    tree: Tree,
    actor: Supervised<NodeStatus>,
    api: FakeApi,
}

impl Alone {
    fn postings(&self) -> u64 {
        self.api.count(Verb::Patch, "nodes/status")
    }

    fn tell(&self, memory: bool) {
        let pressure = Pressure { memory, ..Pressure::default() };
        self.actor.address().tell(PressureObserved(pressure)).expect("there is room");
    }
}

async fn config() -> NodeStatusConfig {
    NodeStatusConfig {
        name: Arc::from("node"),
        register: true,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        provider_id: String::new(),
        controller_attach_detach: true,
        external_cloud: false,
        node_ips: Vec::new(),
        machine: FakeMachine::named("node").facts().await.expect("a machine with facts"),
        resources: Arc::new(NodeResources::default()),
        storage_isolation: false,
        kubelet_version: "v1.36.2",
        port: 10250,
        images_max: Some(50),
        update: Duration::from_secs(10),
        report: Duration::from_secs(300),
        declared_features: Vec::new(),
    }
}

impl Subject for Alone {
    const NAME: &'static str = "NodeStatus";

    async fn start(stage: &Stage, _: usize) -> Self {
        let api = FakeApi::new(stage.clock.clone());
        let seat = stage.tree.seat::<NodeStatus>(Vitality::Vital);
        let (runtime, sinks): (Address<RuntimeObserved>, _) = (seat.address(), Count::default());
        let deps = NodeStatusDeps {
            config: Arc::new(config().await),
            node: Arc::new(api.client(&Io::current())),
            node_watch: Arc::new(api.client(&Io::current())),
            images: stage.operations.clone(),
            runtime_configuration: stage.operations.clone(),
            addresses: Arc::new(FakeHostAddresses::default()),
            clock: stage.clock.clone(),
            observers: vec![sinks.sink(), sinks.sink(), sinks.sink()],
            address_observers: vec![sinks.sink(), sinks.sink(), sinks.sink(), sinks.sink()],
            observed: Address::sink("Pleg", move |_: ResendObserved| {
                runtime.tell(RuntimeObserved(runtime_well())).expect("there is room");
            }),
            pressure: sinks.sink(),
            configuration: sinks.sink(),
            events: sinks.sink(),
            metrics: NodeStatusMetrics::new(stage.clock.now()).expect("metrics are defined once"),
        };
        let actor = seat.start(&Place::Here, move || NodeStatus::new(deps.clone()));
        let alone = Self { tree: stage.tree.clone(), actor, api };
        wait("the Node", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, _: u64) -> u64 {
        for message in 0..MESSAGES {
            let before = self.postings();
            self.tell(message % 2 == 0);
            wait("a posting", async || self.postings() > before && self.ask().await).await;
        }
        MESSAGES
    }

    /// NodeStatus answers no asks but the one for its report.
    async fn ask(&self) -> bool {
        self.whole().await
    }

    async fn whole(&self) -> bool {
        let actors = self.tree.snapshot().await.actors;
        let report = actors.into_iter().find(|actor| actor.name == Self::NAME);
        report.is_some_and(|report| {
            report.observed["registered"] == true && report.observed["postings"].as_u64() > Some(0)
        })
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
