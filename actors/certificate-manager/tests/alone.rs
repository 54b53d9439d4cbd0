//! CertificateManager alone: it requests certificates from a fake API server, and stores and presents what it gets.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_kube::fake::{FakeApi, Fault, On, Verb};
use bridge_tls::certificates::{CurrentPair, FakeAuthority, FakeCertificates, Purpose};
use certificate_manager::{
    CertificateManager, CertificateManagerDeps, CertificateMetrics, IdentityLost, ManagedCertificate,
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::NodeAddress;
use messages::facts::NodeAddressesObserved;
use messages::node_status::ResendNode;
use stage::{Neighbour, Stage, alone};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
const REQUESTS: &str = "certificatesigningrequests";

struct Neighbours {
    api: FakeApi,
    authority: FakeAuthority,
    store: FakeCertificates,
    current: CurrentPair,
    lost: IdentityLost,
    node: Neighbour<ResendNode>,
}

impl Neighbours {
    fn new(stage: &Stage<'_>) -> Self {
        Self {
            api: FakeApi::new(stage.fakes.clock.clone()),
            authority: FakeAuthority::default(),
            store: FakeCertificates::default(),
            current: CurrentPair::default(),
            lost: IdentityLost::default(),
            node: Neighbour::new("NodeStatus"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<CertificateManager> {
        stage.start(self.deps(stage), CertificateManager::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> CertificateManagerDeps {
        let role = ManagedCertificate {
            purpose: Purpose::Serving,
            store: Arc::new(self.store.clone()),
            current: self.current.clone(),
            api: Arc::new(self.api.client(&Io::current())),
            bootstrap: None,
        };
        CertificateManagerDeps {
            node_name: "node".to_owned(),
            roles: vec![role],
            clock: stage.fakes.clock.clone(),
            node: Some(self.node.address()),
            lost: self.lost.clone(),
            metrics: CertificateMetrics::new().unwrap(),
        }
    }

    /// Starts the actor; its first certificate is asked for, signed and shown.
    async fn start_and_show(&self, stage: &Stage<'_>) -> Supervised<CertificateManager> {
        let actor = self.start(stage);
        tell_address(&actor);
        self.until_requested(stage, 1).await;
        self.until_shown(stage).await;
        actor
    }

    async fn until_requested(&self, stage: &Stage<'_>, requests: usize) {
        stage.until("a request", || self.api.pending_requests().len() == requests).await;
    }

    async fn until_shown(&self, stage: &Stage<'_>) {
        self.api.sign_requests(&self.authority, DAY);
        stage.until("the certificate to be shown", || self.current.get().is_some()).await;
    }
}

fn tell_address(actor: &Supervised<CertificateManager>) {
    let address = NodeAddress { type_: "InternalIP".to_owned(), address: "192.0.2.10".to_owned() };
    actor.address().tell(NodeAddressesObserved(Arc::from([address]))).unwrap();
}

#[test]
fn a_serving_certificate_is_asked_for_once_the_addresses_are_known() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        stage.until("the addresses to be asked for", || near.node.count() == 1).await;
        stage.pass(60 * SECOND).await;
        assert_eq!(near.api.count(Verb::Create, REQUESTS), 0, "nobody knows what it must hold");
        tell_address(&actor);
        near.until_requested(stage, 1).await;
        assert!(near.current.get().is_none() && near.store.saves() == 0, "it is not signed");
        near.until_shown(stage).await;
        assert_eq!((near.store.saves(), near.api.count(Verb::Create, REQUESTS)), (1, 1));
        assert!(near.lost.borrow().is_none());
    });
}

#[test]
fn a_new_incarnation_asks_for_the_addresses_and_requests_nothing_it_has() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start_and_show(stage).await;
        let shown = near.current.numbered().0;
        stage.crash::<CertificateManager>().await;
        stage.until("the addresses to be asked for", || near.node.count() == 2).await;
        tell_address(&actor);
        stage.pass(600 * SECOND).await;
        assert_eq!((near.current.numbered().0, near.api.count(Verb::Create, REQUESTS)), (shown, 1));
    });
}

#[test]
fn a_certificate_that_a_clock_that_jumped_ahead_has_withdrawn_is_shown_again() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let _actor = near.start_and_show(stage).await;
        let end = near.current.get().unwrap().leaf.not_after;
        stage.fakes.clock.skew(SignedDuration::from_hours(48));
        stage.until("the certificate to be withdrawn", || near.current.get().is_none()).await;
        stage.crash::<CertificateManager>().await;
        stage.fakes.clock.skew(SignedDuration::from_hours(-48));
        stage.until("the certificate to be shown", || near.current.get().is_some()).await;
        assert_eq!((near.current.get().unwrap().leaf.not_after, near.store.saves()), (end, 1));
    });
}

#[test]
fn a_request_in_flight_is_made_anew_after_a_crash() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_address(&actor);
        near.until_requested(stage, 1).await;
        stage.crash::<CertificateManager>().await;
        stage.pass(10 * SECOND).await;
        assert_eq!(near.api.count(Verb::Create, REQUESTS), 1, "the addresses are not known again yet");
        tell_address(&actor);
        near.until_requested(stage, 2).await;
        near.until_shown(stage).await;
        assert_eq!(near.store.saves(), 1, "the first one's key is gone");
    });
}

#[test]
fn a_certificate_that_was_saved_and_not_shown_before_a_crash_is_shown_after_it() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        stage.crash_on::<CertificateManager>("renew");
        tell_address(&actor);
        near.until_requested(stage, 1).await;
        near.api.sign_requests(&near.authority, DAY);
        stage.until_incarnation::<CertificateManager>(2).await;
        tell_address(&actor);
        stage.until("the certificate to be shown", || near.current.get().is_some()).await;
        stage.pass(60 * SECOND).await;
        assert_eq!(
            (near.store.saves(), near.api.count(Verb::Create, REQUESTS)),
            (1, 1),
            "it is not asked for again"
        );
    });
}

#[test]
fn a_disk_that_is_full_keeps_the_certificate_from_being_shown() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        near.store.fail_next();
        tell_address(&actor);
        near.until_requested(stage, 1).await;
        near.api.sign_requests(&near.authority, DAY);
        near.until_requested(stage, 1).await;
        assert!(near.current.get().is_none(), "what is not safe on disk is not shown");
        let problem = stage.observed::<CertificateManager>().await.to_string();
        assert!(problem.contains("No space left on device"), "{problem}");
        near.until_shown(stage).await;
    });
}

#[test]
fn a_server_that_answers_429_for_30_s_is_asked_again() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.api.fault(On::call(Verb::Create, REQUESTS), 1, Fault::too_many(30));
        let actor = near.start(stage);
        tell_address(&actor);
        stage.pass(60 * SECOND).await;
        assert_eq!(near.api.count(Verb::Create, REQUESTS), 2);
        near.until_shown(stage).await;
    });
}

#[test]
fn a_neighbour_that_takes_no_request_is_no_harm() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.node.refuse();
        let actor = near.start(stage);
        stage.until("the addresses to be asked for", || near.node.refused().len() == 1).await;
        tell_address(&actor);
        near.until_requested(stage, 1).await;
    });
}
