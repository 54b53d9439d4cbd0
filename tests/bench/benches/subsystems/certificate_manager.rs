//! CertificateManager alone: it is told the node's addresses again and again, and finds that its certificate fits them.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Stage, Subject, wait};
use bridge_io::Io;
use bridge_kube::fake::FakeApi;
use bridge_tls::certificates::{CurrentPair, FakeAuthority, FakeCertificates, Purpose};
use certificate_manager::{
    CertificateManager, CertificateManagerDeps, CertificateMetrics, IdentityLost, ManagedCertificate,
};
use k8s_openapi::api::core::v1::NodeAddress;
use messages::facts::NodeAddressesObserved;
use supervision::{Place, Supervised, Tree, Vitality};

/// Messages of one round, whatever the number of pods.
const MESSAGES: u64 = 50;
const DAY: Duration = Duration::from_secs(24 * 3600);

struct Alone {
    tree: Tree,
    actor: Supervised<CertificateManager>,
    current: CurrentPair,
}

impl Alone {
    fn tell(&self) {
        let address = NodeAddress { type_: "InternalIP".to_owned(), address: "192.0.2.10".to_owned() };
        self.actor.address().tell(NodeAddressesObserved(Arc::from([address]))).expect("there is room");
    }
}

impl Subject for Alone {
    const NAME: &'static str = "CertificateManager";

    async fn start(stage: &Stage, _: usize) -> Self {
        let (api, current) = (FakeApi::new(stage.clock.clone()), CurrentPair::default());
        let role = ManagedCertificate {
            purpose: Purpose::Serving,
            store: Arc::new(FakeCertificates::default()),
            current: current.clone(),
            api: Arc::new(api.client(&Io::current())),
            bootstrap: None,
        };
        let deps = CertificateManagerDeps {
            node_name: "node".to_owned(),
            roles: vec![role],
            clock: stage.clock.clone(),
            node: Some(Count::default().sink()),
            lost: IdentityLost::default(),
            metrics: CertificateMetrics::new().expect("metrics are defined once"),
        };
        let seat = stage.tree.seat::<CertificateManager>(Vitality::Degradable);
        let actor = seat.start(&Place::Here, move || CertificateManager::new(deps.clone()));
        let alone = Self { tree: stage.tree.clone(), actor, current };
        alone.tell();
        wait("a request", async || !api.pending_requests().is_empty()).await;
        api.sign_requests(&FakeAuthority::default(), DAY);
        wait("the certificate", async || alone.current.get().is_some()).await;
        alone
    }

    async fn round(&self, _: u64) -> u64 {
        for _ in 0..MESSAGES {
            self.tell();
            // Only the latest message counts: each is handled before the next is sent.
            assert!(self.ask().await, "it answers");
        }
        MESSAGES
    }

    /// CertificateManager answers no asks but the one for its report.
    async fn ask(&self) -> bool {
        self.whole().await
    }

    async fn whole(&self) -> bool {
        let actors = self.tree.snapshot().await.actors;
        let report = actors.into_iter().find(|actor| actor.name == Self::NAME);
        report.is_some_and(|report| report.observed["kubelet-server"]["notAfter"].is_string())
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
