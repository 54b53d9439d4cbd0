//! A whole node with its Node and lease, a few pods on it, and counts of its requests.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_kube::fake::{FakeApi, Verb};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use serde_json::json;
use testkit::Sandbox;
pub use testkit::node::member;
use testkit::node::{FakeNode, IMAGE, NODE, World, is_ready};
use tokio::time::Instant;

use crate::life::world;
use crate::pods::web;

pub const NS: Option<&str> = Some("default");
pub const MINUTE: Duration = Duration::from_secs(60);
/// From the first answer after an outage to a new pod's being Ready.
pub const BACK_WITHIN: Duration = Duration::from_secs(2);

/// A settled node: one static pod, two pods of the API server.
pub struct Scene {
    pub world: World,
    pub api: FakeApi,
    pub node: FakeNode,
    began: Instant,
    before: BTreeMap<String, i64>,
}

pub fn pod(name: &str) -> Pod {
    let json = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve"],
                "envFrom": [{"configMapRef": {"name": "settings", "optional": true}}]
            }]
        }
    });
    serde_json::from_value(json).expect("a pod")
}

/// Waits at most ten minutes of sandbox time.
pub async fn until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + 10 * MINUTE;
    while !done() {
        assert!(Instant::now() < end, "waited 10 minutes in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A world with a cluster, in which nothing has happened yet.
pub fn clustered(seed: u64) -> (World, FakeApi) {
    let world = world(seed).with_api();
    let api = world.api.clone().expect("a cluster");
    world.manifest("fixed.yaml", &web("fixed"));
    (world, api)
}

impl Scene {
    /// A node on which everything has come to rest.
    pub async fn settled(sandbox: &Sandbox, seed: u64) -> Self {
        let (world, api) = clustered(seed);
        for name in ["web", "other"] {
            api.put(&pod(name));
        }
        let node = FakeNode::start(sandbox, &world, &member().await);
        let mut scene = Self { world, api, node, began: Instant::now(), before: BTreeMap::new() };
        for name in ["web", "other", "fixed-node"] {
            scene.until_ready(name).await;
        }
        until("the Node to be Ready", || scene.is_node_ready()).await;
        sandbox.pass(MINUTE).await;
        scene.mark();
        scene
    }

    /// Marks the running containers, which must not be harmed, and counts requests from now on.
    pub fn mark(&mut self) {
        self.before = self.running();
        self.began = Instant::now();
        self.api.forget_log();
    }

    fn running(&self) -> BTreeMap<String, i64> {
        let containers = self.world.runtime.containers();
        containers.into_iter().map(|container| (container.id, container.started_at)).collect()
    }

    pub fn is_told_ready(&self, name: &str) -> bool {
        let pod = self.api.get::<Pod>(NS, name);
        pod.and_then(|pod| pod.status).is_some_and(|status| is_ready(&status))
    }

    pub async fn until_ready(&self, name: &str) {
        until(&format!("{name} to be Ready"), || self.is_told_ready(name)).await;
    }

    pub fn node_condition(&self, kind: &str) -> Option<(String, String)> {
        let conditions = self.api.get::<Node>(None, NODE)?.status?.conditions?;
        let found = conditions.into_iter().find(|condition| condition.type_ == kind)?;
        Some((found.status, found.message.unwrap_or_default()))
    }

    pub fn is_node_ready(&self) -> bool {
        self.node_condition("Ready").is_some_and(|(status, _)| status == "True")
    }

    pub fn renewed(&self) -> Option<jiff::Timestamp> {
        Some(self.api.get::<Lease>(Some("kube-node-lease"), NODE)?.spec?.renew_time?.0)
    }

    /// Events of a reason about an object.
    pub fn events(&self, about: &str, reason: &str) -> Vec<Event> {
        let mut events: Vec<Event> = self.api.list();
        events.retain(|event| {
            event.involved_object.name.as_deref() == Some(about) && event.reason.as_deref() == Some(reason)
        });
        events
    }

    /// The state that `/supervision` shows of an actor.
    pub async fn observed(&self, actor: &str) -> String {
        let actors = self.node.tree.snapshot().await.actors;
        let report = actors.into_iter().find(|report| report.name == actor).expect("it is there");
        report.observed.to_string()
    }

    /// The containers that ran at the mark still run and have not been restarted.
    pub fn assert_unharmed(&self) {
        let now = self.running();
        for (id, started) in &self.before {
            assert_eq!(now.get(id), Some(started), "container {id}: {now:?}");
        }
    }

    /// Nothing has been started since the mark.
    pub fn assert_nothing_new(&self) {
        assert_eq!(self.running(), self.before);
    }

    /// Prints the requests per minute since the mark, and asserts that each kind is within its bound: the one in
    /// `bounds`, or `others`.
    pub fn assert_calm(&self, what: &str, bounds: &[(Verb, &str, f64)], others: f64) {
        let minutes = self.began.elapsed().as_secs_f64() / 60.0;
        let mut wild = Vec::new();
        println!("{what}: requests a minute over {minutes:.1} min");
        for ((verb, target), count) in self.api.attempts() {
            let rate = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / minutes;
            let bound = bounds.iter().find(|(v, t, _)| *v == verb && *t == target);
            let bound = bound.map_or(others, |(_, _, bound)| *bound);
            println!("  {:6} {target:20} {rate:7.2} (at most {bound})", verb.as_str());
            if rate > bound {
                wild.push(format!("{} {target}: {rate:.2} a minute, at most {bound}", verb.as_str()));
            }
        }
        assert!(wild.is_empty(), "{what}: {wild:#?}");
    }

    /// A pod that is created now is Ready at the API server within this time.
    pub async fn assert_serves(&self, name: &str, within: Duration) {
        let begun = Instant::now();
        if self.api.get::<Pod>(NS, name).is_none() {
            self.api.put(&pod(name));
        }
        self.until_ready(name).await;
        let took = begun.elapsed();
        println!("{name}: Ready after {took:?}");
        assert!(took <= within, "{name} was Ready after {took:?}, not within {within:?}");
    }

    /// Removes everything, and asserts that nothing is left.
    pub async fn end(self) {
        self.world.remove_manifest("fixed.yaml");
        for pod in self.api.list::<Pod>() {
            if let Some(name) = pod.metadata.name.filter(|name| !name.ends_with("-node")) {
                self.api.delete::<Pod>(NS, &name, None);
            }
        }
        until("no pod at the API server", || self.api.list::<Pod>().is_empty()).await;
        self.node.until_empty().await;
        self.node.stop().await;
    }
}
