//! CertificateManager against an API server in memory: certificates requested, renewed, refused and lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_io::clock::Clock;
use bridge_kube::fake::{FakeApi, Fault, On, Verb};
use bridge_tls::certificates::{CurrentPair, FakeAuthority, FakeCertificates, Pair, Purpose};
use certificate_manager::{
    CertificateManager, CertificateManagerDeps, CertificateMetrics, IdentityLost, ManagedCertificate,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::NodeAddress;
use messages::facts::NodeAddressesObserved;
use messages::supervision::Fault as ActorFault;
use supervision::{Address, Place, Policy, Subsystem, Tree, Vitality};
use testkit::{Sandbox, sandbox};

use crate::life::world;

const REQUESTS: &str = "certificatesigningrequests";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The actor, and the fakes around it.
struct Manager {
    /// Gets requests made with a valid certificate.
    api: FakeApi,
    /// Gets requests made without one.
    bootstrap: FakeApi,
    authority: FakeAuthority,
    store: FakeCertificates,
    current: CurrentPair,
    lost: IdentityLost,
    addresses: Address<NodeAddressesObserved>,
    clock: Arc<dyn Clock>,
}

fn manager(tree: &Tree, purpose: Purpose) -> Manager {
    let world = world(71);
    let clock: Arc<dyn Clock> = world.clock.clone();
    let (api, bootstrap) = (FakeApi::new(clock.clone()), FakeApi::new(clock.clone()));
    let store = FakeCertificates::default();
    let current = CurrentPair::default();
    let role = ManagedCertificate {
        purpose,
        store: Arc::new(store.clone()),
        current: current.clone(),
        api: Arc::new(api.client(&Io::current())),
        bootstrap: (purpose == Purpose::Client).then(|| Arc::new(bootstrap.client(&Io::current())) as _),
    };
    let lost = IdentityLost::default();
    let deps = CertificateManagerDeps {
        node_name: "node".to_owned(),
        roles: vec![role],
        clock: clock.clone(),
        node: None,
        lost: lost.clone(),
        metrics: CertificateMetrics::new().expect("metrics are defined once"),
    };
    let seat = tree.seat::<CertificateManager>(Vitality::Degradable);
    let addresses = seat.address();
    seat.start(&Place::Here, move || CertificateManager::new(deps.clone()));
    let authority = FakeAuthority::default();
    Manager { api, bootstrap, authority, store, current, lost, addresses, clock }
}

impl Manager {
    /// Waits at most an hour of sandbox time.
    async fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = tokio::time::Instant::now() + Duration::from_secs(3600);
        while !done(self) {
            assert!(tokio::time::Instant::now() < end, "waited an hour in vain for: {what}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn signed(&self, api: &FakeApi, lifetime: Duration) -> Arc<Pair> {
        let before = self.current.numbered().0;
        self.until("a request", |_| !api.pending_requests().is_empty()).await;
        api.sign_requests(&self.authority, lifetime);
        self.until("the certificate to be shown", |manager| manager.current.numbered().0 != before).await;
        self.current.get().expect("a pair is shown")
    }

    fn has(&self, addresses: &[(&str, &str)]) {
        let address =
            |(kind, at): &(&str, &str)| NodeAddress { type_: (*kind).into(), address: (*at).into() };
        let fact = NodeAddressesObserved(addresses.iter().map(address).collect());
        self.addresses.tell(fact).expect("there is room");
    }
}

fn run(test: impl AsyncFnOnce(&Sandbox)) {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_bridge_tasks();
        test(sandbox).await;
        sandbox.tree.stop_all();
    });
}

#[test]
fn a_client_certificate_is_asked_for_by_the_bootstrap_and_renewed_by_itself() {
    run(async |sandbox| {
        let manager = manager(&sandbox.tree, Purpose::Client);
        manager.until("a request", |manager| !manager.bootstrap.pending_requests().is_empty()).await;
        let csr = manager.bootstrap.pending_requests().remove(0);
        assert!(csr.metadata.name.is_some_and(|name| name.starts_with("csr-")));
        assert_eq!(csr.spec.signer_name, "kubernetes.io/kube-apiserver-client-kubelet");
        assert_eq!(
            csr.spec.usages.as_deref(),
            Some(&["digital signature".to_owned(), "client auth".to_owned()][..])
        );
        let first = manager.signed(&manager.bootstrap, DAY).await;
        assert_eq!(first.leaf.common_name, "system:node:node");
        assert_eq!(first.leaf.organizations, ["system:nodes".to_owned()].into());
        assert_eq!(manager.store.saves(), 1, "it is on disk");
        // Not before 70 % of its life, not after 90 %.
        tokio::time::sleep(DAY.mul_f64(0.69)).await;
        assert!(manager.api.pending_requests().is_empty());
        tokio::time::sleep(DAY.mul_f64(0.22)).await;
        // A request that is not signed is given up after a quarter of an hour, and another one is made.
        assert!(!manager.api.pending_requests().is_empty(), "by its own certificate");
        assert_eq!(
            manager.current.numbered().1.map(|pair| pair.leaf.not_before),
            Some(first.leaf.not_before)
        );
        let second = manager.signed(&manager.api, DAY).await;
        assert_ne!(first.client.1.secret_der(), second.client.1.secret_der(), "another key each time");
        assert_eq!((manager.store.saves(), manager.bootstrap.count(Verb::Create, REQUESTS)), (2, 1));
        // A certificate that expires before it is replaced is withdrawn, and the bootstrap server gets the next
        // request.
        tokio::time::sleep(DAY.mul_f64(1.1)).await;
        assert!(manager.current.get().is_none());
        manager.api.refuse_requests("Denied", "Late", "too late");
        manager.until("a request", |manager| !manager.bootstrap.pending_requests().is_empty()).await;
    });
}

#[test]
fn a_refusing_server_is_asked_at_longer_and_longer_waits() {
    run(async |sandbox| {
        let manager = manager(&sandbox.tree, Purpose::Client);
        manager.bootstrap.fault(On::call(Verb::Create, REQUESTS), usize::MAX, Fault::code(500));
        let mut tries = Vec::new();
        for second in [1, 4, 8, 17, 34, 66] {
            let until = Duration::from_secs(second) - Duration::from_secs(tries.iter().sum::<u64>());
            tokio::time::sleep(until).await;
            tries.push(until.as_secs());
        }
        // At 0, 2, 6, 14, 30, 62 and as much again as a tenth of the wait.
        let asked = manager.bootstrap.count(Verb::Create, REQUESTS);
        assert!((5..=6).contains(&asked), "{asked}");
        manager.bootstrap.forget_log();
        tokio::time::sleep(Duration::from_secs(320)).await;
        let asked = manager.bootstrap.count(Verb::Create, REQUESTS);
        assert!((9..=11).contains(&asked), "every 32 s: {asked}");
        manager.bootstrap.clear_faults();
        manager.signed(&manager.bootstrap, DAY).await;
        let shown = sandbox.report("CertificateManager").await.observed;
        assert_eq!(shown["kubelet-client"]["failures"], 0, "{shown}");
    });
}

#[test]
fn a_denied_request_is_told_and_asked_again() {
    run(async |sandbox| {
        let manager = manager(&sandbox.tree, Purpose::Client);
        for (kind, said) in [("Denied", "is denied"), ("Failed", "failed")] {
            manager.until("a request", |manager| !manager.bootstrap.pending_requests().is_empty()).await;
            manager.bootstrap.refuse_requests(kind, "Policy", "not this node");
            tokio::time::sleep(Duration::from_secs(1)).await;
            let shown = sandbox.report("CertificateManager").await.observed;
            let expected = format!(
                "Certificate request was not signed: cannot watch on the certificate signing request: certificate \
                 signing request {said}, reason: Policy, message: not this node"
            );
            assert_eq!(shown["kubelet-client"]["problem"], expected);
        }
        // The request is deleted, and later not signed for a quarter of an hour.
        manager.until("a request", |manager| !manager.bootstrap.pending_requests().is_empty()).await;
        let name = manager.bootstrap.pending_requests()[0].metadata.name.clone().expect("a name");
        manager.bootstrap.delete::<CertificateSigningRequest>(None, &name, None);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let shown = sandbox.report("CertificateManager").await.observed.to_string();
        assert!(shown.contains("was deleted"), "{shown}");
        manager.until("a request", |manager| !manager.bootstrap.pending_requests().is_empty()).await;
        tokio::time::sleep(Duration::from_secs(16 * 60)).await;
        assert_eq!(manager.bootstrap.pending_requests().len(), 2, "another one, with another key");
        // The first request is signed too late: its answer is not used any more.
        manager.signed(&manager.bootstrap, DAY).await;
    });
}

#[test]
fn without_a_certificate_the_kubelet_ends_if_the_server_would_give_one() {
    let lost = |fault: Option<Fault>| {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_bridge_tasks();
            let manager = manager(&sandbox.tree, Purpose::Client);
            match fault {
                Some(fault) => manager.bootstrap.fault(On::call(Verb::Create, REQUESTS), usize::MAX, fault),
                None => manager.bootstrap.set_down(true),
            }
            tokio::time::sleep(Duration::from_secs(290)).await;
            assert!(manager.lost.borrow().is_none(), "before five minutes have passed");
            tokio::time::sleep(Duration::from_secs(60)).await;
            sandbox.tree.stop_all();
            manager.lost.borrow().clone()
        })
    };
    let said = "No valid client certificate is found and the server is responsive, exiting.";
    assert_eq!(lost(Some(Fault::code(401))).as_deref(), Some(said));
    assert_eq!(lost(Some(Fault::code(403))).as_deref(), Some(said));
    assert_eq!(lost(Some(Fault::code(503))), None);
    assert_eq!(lost(None), None);
}

#[test]
fn a_serving_certificate_holds_the_nodes_addresses_and_follows_them() {
    run(async |sandbox| {
        let manager = manager(&sandbox.tree, Purpose::Serving);
        manager.has(&[("Hostname", "node")]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(manager.api.pending_requests().is_empty(), "there is no IP yet");
        manager.has(&[("Hostname", "node"), ("InternalIP", "192.0.2.7")]);
        manager.until("a request", |manager| !manager.api.pending_requests().is_empty()).await;
        let csr = manager.api.pending_requests().remove(0);
        assert_eq!(csr.spec.signer_name, "kubernetes.io/kubelet-serving");
        assert_eq!(
            csr.spec.usages.as_deref(),
            Some(&["digital signature".to_owned(), "server auth".to_owned()][..])
        );
        // Another address before the request was signed: another request, and the first one is not used any more.
        manager.has(&[("Hostname", "node"), ("InternalIP", "192.0.2.7"), ("InternalIP", "2001:db8::7")]);
        manager.until("another one", |manager| manager.api.pending_requests().len() == 2).await;
        let pair = manager.signed(&manager.api, DAY).await;
        assert_eq!(pair.leaf.ips.len(), 2);
        assert_eq!(pair.leaf.dns_names, ["node".to_owned()].into());
        // A certificate with one address too many still fits; a new address is requested at once.
        manager.has(&[("Hostname", "node"), ("InternalIP", "192.0.2.7")]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(manager.api.pending_requests().is_empty());
        manager.has(&[("Hostname", "node"), ("InternalIP", "192.0.2.8")]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(manager.api.pending_requests().len(), 1);
        assert_eq!(manager.current.get().map(|pair| pair.leaf.ips.len()), Some(2), "shown until then");
        let pair = manager.signed(&manager.api, DAY).await;
        assert!(pair.leaf.ips.contains(&"192.0.2.8".parse().expect("an IP")));
        // CertificateManager keeps no client certificate here, so it never ends the kubelet.
        assert!(manager.lost.borrow().is_none());
    });
}

#[test]
fn what_is_not_on_disk_is_not_shown_and_crashes_keep_what_is() {
    run(async |sandbox| {
        sandbox.expect_crashes();
        let manager = manager(&sandbox.tree, Purpose::Client);
        manager.store.fail_next();
        manager.until("a request", |manager| !manager.bootstrap.pending_requests().is_empty()).await;
        manager.bootstrap.sign_requests(&manager.authority, DAY);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(manager.current.get().is_none(), "the disk was full");
        let first = manager.signed(&manager.bootstrap, DAY).await;
        tokio::time::sleep(DAY.mul_f64(0.91)).await;
        let asked = manager.api.pending_requests().len();
        assert!(asked > 0);
        sandbox.tree.inject("CertificateManager", ActorFault::PanicNow).expect("it is in the tree");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let shown = manager.current.get().expect("it stays").leaf.not_before;
        assert_eq!(shown, first.leaf.not_before);
        assert!(manager.api.pending_requests().len() > asked, "asked anew");
        manager.signed(&manager.api, DAY).await;
    });
}

#[test]
fn a_certificate_that_is_no_good_is_not_asked_for_again_at_once() {
    run(async |sandbox| {
        let manager = manager(&sandbox.tree, Purpose::Client);
        let end = manager.clock.now().as_second() + 300;
        while manager.clock.now().as_second() < end {
            manager.bootstrap.sign_requests(&manager.authority, Duration::ZERO);
            manager.api.sign_requests(&manager.authority, Duration::ZERO);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let asked =
            manager.bootstrap.count(Verb::Create, REQUESTS) + manager.api.count(Verb::Create, REQUESTS);
        assert!((8..=11).contains(&asked), "every 32 s: {asked}");
    });
}

/// A serving certificate is had, and replaced before it ends, although this has become of CertificateManager's work, while the
/// Node's addresses are told every minute; returns the names of the work.
fn lives_through(fault: Option<&ActorFault>) -> BTreeSet<&'static str> {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_bridge_tasks();
        sandbox.expect_crashes();
        let manager = manager(&sandbox.tree, Purpose::Serving);
        if let Some(fault) = fault {
            sandbox.tree.inject(CertificateManager::NAME, fault.clone()).expect("it is in the tree");
        }
        let another = async |before: Option<&Arc<Pair>>, within: Duration| {
            let end = tokio::time::Instant::now() + within;
            loop {
                let now = manager.current.get();
                if let Some(now) = now
                    && before.is_none_or(|before| before.leaf.not_before != now.leaf.not_before)
                {
                    return now;
                }
                assert!(tokio::time::Instant::now() < end, "{fault:?}: no certificate within {within:?}");
                // What a mailbox refuses or a fault drops is told again.
                let address = NodeAddress { type_: "InternalIP".into(), address: "192.0.2.7".into() };
                let _refused = manager.addresses.tell(NodeAddressesObserved([address].into()));
                manager.api.sign_requests(&manager.authority, DAY);
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        };
        let first = another(None, Duration::from_secs(3600)).await;
        another(Some(&first), DAY).await;
        assert!(manager.store.saves() >= 2, "{fault:?}: both are on disk");
        let work = sandbox.tree.begun();
        sandbox.tree.stop_all();
        work.into_keys().map(|(_, name)| name).collect()
    })
}

#[test]
fn whatever_becomes_of_its_work_the_node_has_a_certificate() {
    let work = lives_through(None);
    assert!(work.contains("renew") && work.contains("timer"), "{work:?}");
    let of = |text: &str| text.to_owned();
    let panics =
        work.iter().flat_map(|what| [1, 2].map(|nth| ActorFault::PanicOn { message: of(what), nth }));
    let message = || of("NodeAddressesObserved");
    let troubles = [
        ActorFault::Drop { message: message(), count: 3 },
        ActorFault::Hold { message: message(), count: 2, ms: 70_000 },
        ActorFault::Duplicate { message: message(), count: 2 },
    ];
    for fault in panics.chain(troubles) {
        lives_through(Some(&fault));
    }
}
