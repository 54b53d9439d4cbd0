//! Lease alone: it is told of another Node again and again, and renews the lease for each.

use std::sync::Arc;

use bench::alone::{Count, Stage, Subject, wait};
use bridge_io::Io;
use bridge_kube::fake::{FakeApi, Verb};
use k8s_openapi::api::core::v1::Node;
use messages::facts::NodeObserved;
use node_status::{Lease, LeaseConfig, LeaseDeps};
use supervision::{Place, Supervised, Tree, Vitality};

/// Messages of one round, however many pods there are.
const MESSAGES: u64 = 50;

struct Alone {
    tree: Tree,
    actor: Supervised<Lease>,
    api: FakeApi,
}

impl Alone {
    fn tell(&self, uid: String) {
        let mut node = Node::default();
        (node.metadata.name, node.metadata.uid) = (Some("node".to_owned()), Some(uid));
        self.actor.address().tell(NodeObserved(Some(Arc::new(node)))).expect("there is room");
    }

    fn renewals(&self) -> u64 {
        self.api.count(Verb::Update, "leases") + self.api.count(Verb::Create, "leases")
    }
}

impl Subject for Alone {
    const NAME: &'static str = "Lease";

    async fn start(stage: &Stage, _: usize) -> Self {
        let api = FakeApi::new(stage.clock.clone());
        let deps = LeaseDeps {
            config: Arc::new(LeaseConfig { node: "node".to_owned(), duration_seconds: 40 }),
            heartbeat: Arc::new(api.client(&Io::current())),
            clock: stage.clock.clone(),
            node: Count::default().sink(),
        };
        let seat = stage.tree.seat::<Lease>(Vitality::Vital);
        let actor = seat.start(&Place::Here, move || Lease::new(deps.clone()));
        let alone = Self { tree: stage.tree.clone(), actor, api };
        alone.tell("first".to_owned());
        wait("the lease", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, round: u64) -> u64 {
        for message in 0..MESSAGES {
            let before = self.renewals();
            self.tell(format!("{round}-{message}"));
            wait("a renewal", async || self.renewals() > before && self.whole().await).await;
        }
        MESSAGES
    }

    /// It answers no question but how it is.
    async fn ask(&self) -> bool {
        self.whole().await
    }

    async fn whole(&self) -> bool {
        let actors = self.tree.snapshot().await.actors;
        let report = actors.into_iter().find(|actor| actor.name == Self::NAME);
        report.is_some_and(|report| report.observed["renewals"].as_u64() > Some(0))
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
