//! ObjectCache alone, between recorded askers and a fake API server.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_kube::Patch;
use bridge_kube::fake::{FakeApi, Fault, On, Verb};
use k8s_openapi::api::core::v1::{Node, Secret, SecretVolumeSource, Service, ServiceAccount, Volume};
use messages::facts::{DesiredPod, DesiredPodsChanged, NodeObserved};
use messages::node_status::ResendNode;
use messages::object_cache::{
    GetSecret, GetServiceAccount, GetServices, GetToken, ObjectError, PodObjectsChanged, Token,
};
use messages::pod_manager::ResendDesired;
use messages::supervision::Fault as ActorFault;
use object_cache::{ObjectCache, ObjectCacheDeps, Strategy};
use serde_json::json;
use stage::{Neighbour, Stage, alone, api_pod, ask, desired_of};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);

struct Neighbours {
    api: FakeApi,
    manager: Neighbour<ResendDesired>,
    node: Neighbour<ResendNode>,
    pool: Neighbour<PodObjectsChanged>,
    volumes: Neighbour<PodObjectsChanged>,
}

impl Neighbours {
    fn new(stage: &Stage<'_>) -> Self {
        let api = FakeApi::new(stage.fakes.clock.clone());
        let secret =
            json!({ "metadata": { "name": "key", "namespace": "default" }, "data": { "a": "Yg==" } });
        api.put::<Secret>(&serde_json::from_value(secret).unwrap());
        Self {
            api,
            manager: Neighbour::new("PodManager"),
            node: Neighbour::new("NodeStatus"),
            pool: Neighbour::new("PodWorkerPool"),
            volumes: Neighbour::new("VolumeManager"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<ObjectCache> {
        stage.start(self.deps(stage), ObjectCache::new)
    }

    fn start_with(&self, stage: &Stage<'_>, strategy: Strategy) -> Supervised<ObjectCache> {
        stage.start(ObjectCacheDeps { strategy, ..self.deps(stage) }, ObjectCache::new)
    }

    fn reads(&self) -> u64 {
        self.api.count(Verb::Get, "secrets")
    }

    fn deps(&self, stage: &Stage<'_>) -> ObjectCacheDeps {
        ObjectCacheDeps {
            api: Some(Arc::new(self.api.client(&Io::current()))),
            strategy: Strategy::Watch,
            clock: stage.fakes.clock.clone(),
            observers: vec![self.pool.address(), self.volumes.address()],
            resend_desired: self.manager.address(),
            resend_node: Some(self.node.address()),
        }
    }

    fn lists(&self) -> u64 {
        self.api.count(Verb::List, "secrets")
    }

    fn change(&self) {
        let patch = Patch::Merge(json!({ "data": { "a": "Yw==" } }));
        self.api.change::<Secret>(Some("default"), "key", None, &patch);
    }
}

/// A pod of the API server with the secret as a volume, desired.
fn desired() -> DesiredPodsChanged {
    let mut pod: DesiredPod = (*api_pod(0)).clone();
    let secret = SecretVolumeSource { secret_name: Some("key".to_owned()), ..SecretVolumeSource::default() };
    let volume = Volume { name: "key".to_owned(), secret: Some(secret), ..Volume::default() };
    Arc::make_mut(&mut pod.pod).spec.get_or_insert_default().volumes.get_or_insert_default().push(volume);
    desired_of(&[Arc::new(pod)])
}

async fn secret(actor: &Supervised<ObjectCache>) -> Result<Arc<Secret>, ObjectError> {
    let wanted = GetSecret { pod: stage::uid(0), namespace: Arc::from("default"), name: Arc::from("key") };
    ask(actor, wanted, 30 * SECOND).await.unwrap()
}

#[test]
fn a_secret_is_read_once_and_its_change_is_told() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        stage.until("the desired pods to be asked for", || near.manager.count() == 1).await;
        actor.address().tell(desired()).unwrap();
        let first = secret(&actor).await.unwrap();
        secret(&actor).await.unwrap();
        assert_eq!(near.lists(), 1, "the second asker is answered from what is known");
        near.pool.take();
        near.change();
        stage.until("the change to be told", || near.pool.count() > 0 && near.volumes.count() > 0).await;
        assert_eq!(near.pool.last().unwrap().uid, api_pod(0).pod_ref.uid);
        assert_ne!(secret(&actor).await.unwrap().data, first.data);
        assert_eq!(near.lists(), 1);
    });
}

#[test]
fn a_new_incarnation_asks_for_the_pods_and_reads_what_is_asked_for() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        actor.address().tell(desired()).unwrap();
        secret(&actor).await.unwrap();
        let services = near.api.count(Verb::List, "services");
        stage.crash::<ObjectCache>().await;
        stage.until("the desired pods to be asked for", || near.manager.count() == 2).await;
        stage.until("the services to be read", || near.api.count(Verb::List, "services") > services).await;
        stage.pass(10 * SECOND).await;
        assert_eq!(near.lists(), 1, "no secret is read that nobody has asked for again");
        secret(&actor).await.unwrap();
        assert_eq!((near.lists(), near.api.watches()), (2, 2), "watches of its predecessor have ended");
    });
}

#[test]
fn a_service_account_is_read_whenever_it_is_asked_for() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        let account = async |name: &str| {
            let (pod, namespace) = (stage::uid(0), Arc::from("default"));
            let wanted = GetServiceAccount { pod, namespace, name: Arc::from(name) };
            ask(&actor, wanted, 30 * SECOND).await.unwrap()
        };
        assert!(account("robot").await.unwrap_err().not_found);
        let robot =
            json!({ "metadata": { "name": "robot", "namespace": "default", "annotations": { "a": "b" } } });
        near.api.put::<ServiceAccount>(&serde_json::from_value(robot).unwrap());
        let read = account("robot").await.unwrap();
        assert!(read.metadata.uid.is_some());
        assert_eq!(read.metadata.annotations.as_ref().unwrap()["a"], "b");
        let changed = Patch::Merge(json!({ "metadata": { "annotations": { "a": "c" } } }));
        near.api.change::<ServiceAccount>(Some("default"), "robot", None, &changed);
        assert_eq!(account("robot").await.unwrap().metadata.annotations.as_ref().unwrap()["a"], "c");
    });
}

#[test]
fn a_service_account_of_a_node_that_stands_alone_cannot_be_had() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let deps = ObjectCacheDeps { api: None, ..near.deps(stage) };
        let actor = stage.start(deps, ObjectCache::new);
        let (pod, namespace) = (stage::uid(0), Arc::from("default"));
        let wanted = GetServiceAccount { pod, namespace, name: Arc::from("robot") };
        let error = ask(&actor, wanted, 30 * SECOND).await.unwrap().unwrap_err();
        assert_eq!(error.message, "couldn't get service account default/robot, no kubeClient defined");
    });
}

#[test]
fn a_pod_has_a_number_of_tokens_and_no_more() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        actor.address().tell(desired()).unwrap();
        let token = async |number: usize, lifetime: i64| {
            let audience = Arc::from("audience");
            let pod = api_pod(number).pod_ref.clone();
            let account = Arc::from("default");
            let wanted = GetToken {
                pod,
                service_account: account,
                account_uid: Arc::default(),
                audience,
                expiration_seconds: Some(lifetime),
            };
            ask(&actor, wanted, 30 * SECOND).await.unwrap()
        };
        let is_refused = |answer: Result<Token, ObjectError>| {
            answer.err().is_some_and(|error| error.message.contains("a pod may have 256 tokens"))
        };
        for lifetime in 600..856 {
            assert!(!is_refused(token(0, lifetime).await));
        }
        assert!(is_refused(token(0, 1000).await));
        assert!(!is_refused(token(0, 600).await), "what it has stays");
        assert!(!is_refused(token(1, 1000).await), "another pod has its own");
    });
}

#[test]
fn what_is_beyond_the_watches_is_read_again_when_it_is_asked_for() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        actor.address().tell(desired()).unwrap();
        for number in 0..256 {
            let name = Arc::from(format!("other-{number}"));
            let answer = ask(
                &actor,
                GetSecret { pod: stage::uid(0), namespace: Arc::from("default"), name },
                30 * SECOND,
            )
            .await;
            assert!(answer.unwrap().unwrap_err().not_found);
        }
        let watches = near.api.watches();
        let first = secret(&actor).await.unwrap();
        let reads = || near.api.count(Verb::Get, "secrets");
        assert_eq!((near.lists(), reads(), near.api.watches()), (256, 1, watches));
        // Another namespace has its share at once.
        let asked = GetSecret { pod: stage::uid(1), namespace: Arc::from("quiet"), name: Arc::from("key") };
        assert!(ask(&actor, asked, 30 * SECOND).await.unwrap().unwrap_err().not_found);
        stage.pass(SECOND).await;
        assert_eq!((near.lists(), reads(), near.api.watches()), (257, 1, watches));
        near.pool.take();
        near.change();
        stage.pass(40 * SECOND).await;
        assert_eq!((secret(&actor).await.unwrap().data.clone(), reads()), (first.data.clone(), 1));
        stage.pass(10 * SECOND).await;
        let second = secret(&actor).await.unwrap();
        assert_ne!(second.data, first.data);
        stage.until("the change to be told", || near.pool.count() == 1).await;
        // A server that is away leaves what was known, and its return shows the rest.
        near.api.set_down(true);
        stage.pass(50 * SECOND).await;
        assert_eq!(secret(&actor).await.unwrap().data, second.data);
        near.api.set_down(false);
        near.api.delete::<Secret>(Some("default"), "key", None);
        stage.pass(50 * SECOND).await;
        assert!(secret(&actor).await.unwrap_err().not_found);
    });
}

fn node_with_ttl(seconds: &str) -> NodeObserved {
    let annotations = json!({ "node.alpha.kubernetes.io/ttl": seconds });
    let node = json!({ "metadata": { "name": "node", "annotations": annotations } });
    NodeObserved(Some(Arc::new(serde_json::from_value::<Node>(node).unwrap())))
}

#[test]
fn under_cache_what_was_read_holds_for_the_nodes_time_and_nothing_is_watched() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start_with(stage, Strategy::Cache);
        stage.until("the Node to be asked for", || near.node.count() == 1).await;
        actor.address().tell(desired()).unwrap();
        stage.pass(SECOND).await;
        let first = secret(&actor).await.unwrap();
        near.change();
        stage.pass(50 * SECOND).await;
        assert_eq!((secret(&actor).await.unwrap().data.clone(), near.reads()), (first.data.clone(), 1));
        stage.pass(11 * SECOND).await;
        let second = secret(&actor).await.unwrap();
        assert_ne!(second.data, first.data);
        stage.until("the change to be told", || near.pool.count() > 0 && near.volumes.count() > 0).await;
        actor.address().tell(node_with_ttl("300")).unwrap();
        stage.pass(200 * SECOND).await;
        secret(&actor).await.unwrap();
        assert_eq!(near.reads(), 2);
        // A pod of which there is no word yet is not shown what another one was.
        assert!(secret_of(&actor, 1).await);
        assert_eq!((near.reads(), near.lists()), (3, 0), "no watch has begun");
        // What is known serves while the server is away.
        actor.address().tell(node_with_ttl("0")).unwrap();
        near.api.set_down(true);
        assert!(secret_of(&actor, 0).await);
    });
}

#[test]
fn under_get_each_ask_is_answered_by_the_server() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start_with(stage, Strategy::Get);
        actor.address().tell(desired()).unwrap();
        let first = secret(&actor).await.unwrap();
        near.change();
        assert_ne!(secret(&actor).await.unwrap().data, first.data);
        assert_eq!((near.reads(), near.lists(), near.node.count()), (2, 0, 0));
        // Many that ask for one object share reads.
        let (asked, before) = (|| secret_of(&actor, 0), near.reads());
        let (a, b, c) = tokio::join!(asked(), asked(), asked());
        assert!(a && b && c && near.reads() - before <= 2, "{}", near.reads() - before);
        // Nothing from before is shown, and the asker hears why.
        near.api.fault(On::call(Verb::Get, "secrets"), 1, Fault::code(403));
        let began = tokio::time::Instant::now();
        let error = secret(&actor).await.unwrap_err();
        assert!(!error.not_found && !error.message.contains("failed to sync"), "{error:?}");
        near.api.set_down(true);
        assert!(!secret_of(&actor, 0).await);
        assert!(began.elapsed() <= 10 * SECOND, "{:?}", began.elapsed());
        near.api.set_down(false);
        // One that never changes is read once.
        near.api.change::<Secret>(Some("default"), "key", None, &Patch::Merge(json!({ "immutable": true })));
        stage.pass(30 * SECOND).await;
        secret(&actor).await.unwrap();
        let before = near.reads();
        stage.pass(100 * SECOND).await;
        secret(&actor).await.unwrap();
        assert_eq!(near.reads(), before);
    });
}

#[test]
fn an_observer_whose_mailbox_is_full_holds_up_no_other() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.pool.refuse();
        let actor = near.start(stage);
        actor.address().tell(desired()).unwrap();
        secret(&actor).await.unwrap();
        near.volumes.take();
        near.change();
        stage.until("the other to be told", || near.volumes.count() == 1).await;
        assert!(!near.pool.refused().is_empty());
    });
}

#[test]
fn a_server_that_is_away_keeps_no_asker_waiting_longer_than_a_second() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.api.set_down(true);
        let actor = near.start(stage);
        let began = tokio::time::Instant::now();
        let error = secret(&actor).await.unwrap_err();
        assert!(!error.not_found && error.message.contains("failed to sync secret cache"), "{error:?}");
        assert!(began.elapsed() <= SECOND + SECOND / 10, "{:?}", began.elapsed());
        let services = ask(&actor, GetServices, 30 * SECOND).await.unwrap();
        assert!(services.is_err_and(|error| error.message.contains("services have not yet been read")));
        near.api.set_down(false);
        stage.pass(30 * SECOND).await;
        secret(&actor).await.unwrap();
    });
}

#[test]
fn a_server_that_answers_429_is_asked_again_when_it_said() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.api.fault(On::call(Verb::List, "secrets"), 1, Fault::too_many(30));
        let actor = near.start(stage);
        secret(&actor).await.unwrap_err();
        stage.pass(28 * SECOND).await;
        assert_eq!(near.lists(), 1, "no try before the server's time");
        stage.pass(10 * SECOND).await;
        assert_eq!(near.lists(), 2);
        secret(&actor).await.unwrap();
    });
}

#[test]
fn a_service_that_cannot_be_read_any_more_is_known_until_it_goes() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let put = |name: &str| {
            let service = json!({ "metadata": { "name": name, "namespace": "default" }, "spec": {} });
            near.api.put::<Service>(&serde_json::from_value(service).unwrap());
        };
        put("web");
        let actor = near.start(stage);
        let known = async |wanted: &[&str]| {
            let services = ask(&actor, GetServices, 30 * SECOND).await.unwrap().unwrap();
            let names: Vec<_> = services.iter().map(|service| service.metadata.name.as_deref()).collect();
            names == wanted.iter().map(|name| Some(*name)).collect::<Vec<_>>()
        };
        assert!(known(&["web"]).await);
        near.api.spoil::<Service>(Some("default"), "web", &json!({ "metadata": { "labels": { "n": 1 } } }));
        let lists = near.api.count(Verb::List, "services");
        near.api.expire_watches();
        put("other");
        stage.until("a new list", || near.api.count(Verb::List, "services") > lists).await;
        stage.pass(SECOND).await;
        assert!(known(&["other", "web"]).await);
        near.api.delete::<Service>(Some("default"), "web", None);
        stage.pass(SECOND).await;
        assert!(known(&["other"]).await);
    });
}

async fn secret_of(actor: &Supervised<ObjectCache>, pod: usize) -> bool {
    let wanted = GetSecret { pod: stage::uid(pod), namespace: Arc::from("default"), name: Arc::from("key") };
    ask(actor, wanted, 30 * SECOND).await.is_ok_and(|answer| answer.is_ok())
}

#[test]
fn a_panic_about_an_object_counts_against_the_pod_that_asked_for_it() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        let poison = |times| stage.inject::<ObjectCache>(ActorFault::PoisonPod { pod: stage::uid(0), times });
        let culprit = async || {
            let crash = stage.actor::<ObjectCache>().await.last_crash.unwrap();
            (crash.handling, crash.pod)
        };
        // News of a watch.
        assert!(secret_of(&actor, 0).await);
        poison(1);
        near.change();
        stage.until_incarnation::<ObjectCache>(2).await;
        assert_eq!(culprit().await, ("follow a secret".to_owned(), Some(stage::uid(0))));
        // The ask itself, until the pod is left alone.
        poison(2);
        while !stage.actor::<ObjectCache>().await.quarantined.contains_key(&stage::uid(0)) {
            secret_of(&actor, 0).await;
        }
        assert_eq!(culprit().await, ("GetSecret".to_owned(), Some(stage::uid(0))));
        assert!(secret_of(&actor, 1).await, "others get it");
        assert!(!secret_of(&actor, 0).await);
        stage.pass(15 * SECOND).await;
        assert!(secret_of(&actor, 0).await, "and so does the pod after its quarantine");
    });
}
