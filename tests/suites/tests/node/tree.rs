//! The tree of a whole node, a member of a cluster that signs its certificates, compared with declarations: every
//! message of `messages::CATALOGUE` has a seated receiver, and asks, by the ports that were handed out, form no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_kube::fake::FakeApi;
use bridge_tls::certificates::{CurrentPair, FakeCertificates, Purpose};
use k8s_openapi::api::core::v1::NodeAddress;
use kubelet::wiring::ManagedCertificate;
use messages::CATALOGUE;
use messages::config_manager::ReloadConfiguration;
use messages::facts::NodeAddressesObserved;
use messages::object_cache::PodObjectsChanged;
use supervision::{Asker, Outside, Policy, Tree};
use testkit::node::{FakeNode, is_ready, member};
use testkit::{Sandbox, sandbox};

use crate::life::world;
use crate::matrix::order_to_evict;
use crate::pods::web;

/// Actors that receive no message: NodeApi answers over HTTP.
const WITHOUT_MESSAGES: [&str; 1] = ["NodeApi"];

type Edge = (&'static str, &'static str);

/// A node with all optional parts, and a pod, so that there is a worker.
async fn whole(sandbox: &Sandbox, seed: u64) -> FakeNode {
    let mut world = world(seed).with_api();
    let signed = FakeApi::new(world.clock.clone());
    world.certificates = vec![ManagedCertificate {
        purpose: Purpose::Serving,
        store: Arc::new(FakeCertificates::default()),
        current: CurrentPair::default(),
        api: Arc::new(signed.client(&Io::current())),
        bootstrap: None,
    }];
    world.manifest("web.yaml", &web("web"));
    let node = FakeNode::start(sandbox, &world, &member().await);
    node.until("a pod to run", |pods| pods.values().any(|status| is_ready(status))).await;
    node
}

/// Tells facts that PodWorkerPool passes on to a worker only when they change.
async fn stir(node: &FakeNode) {
    node.node.reload.tell(ReloadConfiguration).expect("there is room");
    // It is read after a pause.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for observer in &node.node.address_observers {
        let address = NodeAddress { type_: "InternalIP".to_owned(), address: "192.0.2.7".to_owned() };
        observer.tell(NodeAddressesObserved([address].into())).expect("there is room");
    }
    for uid in node.statuses().await.into_keys() {
        for observer in &node.node.objects_changed {
            observer.tell(PodObjectsChanged { uid: uid.clone() }).expect("there is room");
        }
        node.node.evict.tell(order_to_evict(&uid)).expect("there is room");
    }
}

/// The messages that the actors of each kind receive, by the addresses and ports that were handed out.
async fn received(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let mut received: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for actor in tree.snapshot().await.actors {
        let of_kind = received.entry(actor.kind.to_owned()).or_default();
        of_kind.extend(actor.receives.iter().map(|message| (*message).to_owned()));
    }
    received
}

#[test]
fn the_tree_seats_every_receiver_and_hands_out_every_message_of_the_catalogue() {
    let received = sandbox(Policy::default(), async |sandbox| {
        let node = whole(sandbox, 91).await;
        stir(&node).await;
        sandbox.pass(Duration::from_secs(1)).await;
        let received = received(&node.tree).await;
        node.stop().await;
        received
    });
    let row = |(actor, messages): &(&str, &[&str])| {
        ((*actor).to_owned(), messages.iter().map(|message| (*message).to_owned()).collect())
    };
    let mut declared: BTreeMap<String, BTreeSet<String>> = CATALOGUE.iter().map(row).collect();
    declared.extend(WITHOUT_MESSAGES.map(|actor| (actor.to_owned(), BTreeSet::new())));
    assert_eq!(received, declared, "left: the running tree; right: messages::CATALOGUE");
}

/// A circle of the edges, as the names along it.
fn circle(edges: &BTreeSet<Edge>) -> Option<Vec<&'static str>> {
    fn walk(at: &'static str, edges: &BTreeSet<Edge>, way: &mut Vec<&'static str>) -> bool {
        let back = way.contains(&at);
        way.push(at);
        if back || edges.iter().filter(|(from, _)| *from == at).any(|(_, to)| walk(to, edges, way)) {
            return true;
        }
        way.pop();
        false
    }
    edges.iter().find_map(|(from, _)| {
        let mut way = Vec::new();
        walk(from, edges, &mut way).then_some(way)
    })
}

#[test]
fn asks_form_no_circle() {
    let edges = sandbox(Policy::default(), async |sandbox| {
        let node = whole(sandbox, 92).await;
        let edges = node.tree.asks();
        node.stop().await;
        edges
    });
    assert_eq!(circle(&edges), None, "asks in a circle wait for each other");
    let seated: BTreeSet<&str> = CATALOGUE.iter().map(|(actor, _)| *actor).chain(WITHOUT_MESSAGES).collect();
    for (from, to) in &edges {
        assert!(*from == Outside::NAME || seated.contains(from), "{from} asks {to} and has no seat");
    }
    // Edges that would be missing if no edges were recorded at all.
    for edge in [("PodManager", "PodWorkerPool"), ("PodWorker", "VolumeManager"), ("NodeApi", "Pleg")] {
        assert!(edges.contains(&edge), "{edge:?} is not among {edges:?}");
    }
}

#[test]
fn a_circle_would_be_found() {
    let of = |edges: &[Edge]| circle(&edges.iter().copied().collect());
    assert!(of(&[("a", "b"), ("b", "c"), ("d", "c"), ("c", "a")]).is_some());
    assert!(of(&[("a", "a")]).is_some());
    assert!(of(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]).is_none());
}
