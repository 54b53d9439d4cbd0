//! ProbeManager alone: the test tells it which pods run; it probes fake servers and tells verdicts.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::time::Duration;

use bridge_http::probes::{FakeAnswer, FakeProber};
use bridge_io::clock::Clock;
use bridge_node::checkpoint::CheckpointStore;
use k8s_openapi::api::core::v1::{Container, NodeAddress};
use messages::event_recorder::RecordEvent;
use messages::facts::{NodeAddressesObserved, ProbeVerdict, Verdicts, WorkerState};
use messages::node_status::ResendNode;
use messages::pleg::ResendObserved;
use messages::pod_manager::ResendDesired;
use messages::pod_worker::ResendReports;
use messages::probe_manager::ResendVerdicts;
use messages::runtime::RuntimeContainer;
use pod_set::Followed;
use probe_manager::{Backends, ProbeLimits, ProbeManager, ProbeManagerDeps, ProbeMetrics};
use stage::{Neighbour, Stage, alone, desired, desired_of, observed, pod, reported, seen, told};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);
/// The address of the pod's server, which has a readiness probe every 10 s.
const SERVER: (&str, u16) = ("10.0.0.1", 8080);

struct Neighbours {
    prober: FakeProber,
    pool: Neighbour<ProbeVerdict>,
    status_manager: Neighbour<ProbeVerdict>,
    manager: Neighbour<ResendDesired>,
    pleg: Neighbour<ResendObserved>,
    reports: Neighbour<ResendReports>,
    node: Neighbour<ResendNode>,
    events: Neighbour<RecordEvent>,
}

impl Neighbours {
    /// Neighbours, and a server that answers with 200.
    fn new() -> Self {
        let prober = FakeProber::new();
        prober.set(SERVER.0, SERVER.1, FakeAnswer::status(200));
        Self {
            prober,
            pool: Neighbour::new("PodWorkerPool"),
            status_manager: Neighbour::new("StatusManager"),
            manager: Neighbour::new("PodManager"),
            pleg: Neighbour::new("Pleg"),
            reports: Neighbour::new("PodWorkerPool"),
            node: Neighbour::new("NodeStatus"),
            events: Neighbour::new("EventRecorder"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<ProbeManager> {
        stage.start(self.deps(stage), ProbeManager::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> ProbeManagerDeps {
        let fakes = &stage.fakes;
        ProbeManagerDeps {
            backends: Backends { exec: fakes.operations.clone(), prober: Arc::new(self.prober.clone()) },
            checkpoints: fakes.checkpoints.clone(),
            kubelet_started: fakes.clock.now(),
            clock: fakes.clock.clone(),
            node_ip: Arc::from("192.0.2.10"),
            limits: ProbeLimits::default(),
            metrics: ProbeMetrics::new(),
            verdicts: vec![self.pool.address(), self.status_manager.address()],
            events: self.events.address(),
            resend_desired: self.manager.address(),
            resend_observed: self.pleg.address(),
            resend_reports: self.reports.address(),
            node: Some(self.node.address()),
        }
    }

    fn probes(&self) -> u64 {
        self.prober.probes(SERVER.0, SERVER.1)
    }
}

fn tell_facts(actor: &Supervised<ProbeManager>) {
    actor.address().tell(desired(1)).unwrap();
    actor.address().tell(observed(&pod(0), 1)).unwrap();
}

/// The pod's readiness as a neighbour was last told.
fn ready(neighbour: &Neighbour<ProbeVerdict>) -> Option<bool> {
    let mut followed = Followed::default();
    neighbour.heard().into_iter().for_each(|told| drop(followed.take(told.0)));
    followed.get(&pod(0).pod_ref.uid)?.get("web")?.readiness
}

/// The pod's readiness in each change that a neighbour was told.
fn changes(neighbour: &Neighbour<ProbeVerdict>) -> Vec<Option<bool>> {
    let mut followed: Followed<Verdicts> = Followed::default();
    let heard = neighbour.heard().into_iter().flat_map(|told| {
        let changed = followed.take(told.0).expect("nothing was lost");
        changed.into_iter().map(|(uid, _)| followed.get(&uid)?.get("web")?.readiness).collect::<Vec<_>>()
    });
    heard.collect()
}

#[test]
fn a_pod_that_runs_is_probed_and_its_verdict_told() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let asked = || near.manager.count() == 1 && near.pleg.count() == 1 && near.reports.count() == 1;
        stage.until("all facts to be asked for", asked).await;
        tell_facts(&actor);
        stage.until("the pod to be ready", || ready(&near.pool) == Some(true)).await;
        assert_eq!(ready(&near.status_manager), Some(true), "every observer is told");
        let (probes, told) = (near.probes(), changes(&near.pool));
        stage.pass(60 * SECOND).await;
        assert!((5..=7).contains(&(near.probes() - probes)), "every 10 s");
        assert_eq!((changes(&near.pool), near.events.count()), (told, 0), "nothing new is nothing to tell");
    });
}

#[test]
fn a_pod_on_the_nodes_network_is_probed_at_the_nodes_present_address() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let mut on_the_node = (*pod(0)).clone();
        let mut object = (*on_the_node.pod).clone();
        object.spec.as_mut().expect("a spec").host_network = Some(true);
        on_the_node.pod = Arc::new(object);
        actor.address().tell(desired_of(&[Arc::new(on_the_node)])).unwrap();
        actor.address().tell(observed(&pod(0), 1)).unwrap();
        let probed = |address: &str| near.prober.probes(address, SERVER.1);
        stage.until("a probe at the first address", || probed("192.0.2.10") > 0).await;
        stage.until("the addresses to be asked for", || near.node.count() == 1).await;
        let address = NodeAddress { type_: "InternalIP".to_owned(), address: "192.0.2.77".to_owned() };
        actor.address().tell(NodeAddressesObserved(Arc::from([address]))).unwrap();
        stage.pass(SECOND).await;
        let before = probed("192.0.2.10");
        stage.until("a probe at the new address", || probed("192.0.2.77") > 1).await;
        assert_eq!((probed("192.0.2.10"), probed(SERVER.0)), (before, 0));
    });
}

#[test]
fn that_a_pod_ends_is_not_forgotten_before_it_is_known_what_the_runtime_holds() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let mut alive = (*pod(0)).clone();
        let mut object = (*alive.pod).clone();
        let container = &mut object.spec.as_mut().expect("a spec").containers[0];
        container.liveness_probe = container.readiness_probe.take();
        alive.pod = Arc::new(object);
        actor.address().tell(reported(&alive, WorkerState::Terminating, false)).unwrap();
        actor.address().tell(desired_of(&[])).unwrap();
        stage.pass(SECOND).await;
        // Its file is back before it has ended.
        actor.address().tell(desired_of(&[Arc::new(alive.clone())])).unwrap();
        actor.address().tell(observed(&alive, 1)).unwrap();
        stage.pass(60 * SECOND).await;
        assert_eq!(near.probes(), 0, "what is being stopped need not be alive");
        actor.address().tell(reported(&alive, WorkerState::Syncing, false)).unwrap();
        stage.until("a probe", || near.probes() > 0).await;
    });
}

#[test]
fn a_new_incarnation_knows_from_disk_who_was_ready() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the pod to be ready", || ready(&near.pool) == Some(true)).await;
        stage.until("the checkpoint", || stage.fakes.checkpoints.saves() > 0).await;
        stage.pass(SECOND).await;
        near.pool.take();
        near.prober.set(SERVER.0, SERVER.1, FakeAnswer::Hang);
        stage.crash::<ProbeManager>().await;
        let asked = || near.manager.count() == 2 && near.pleg.count() == 2 && near.reports.count() == 2;
        stage.until("all facts to be asked for", asked).await;
        tell_facts(&actor);
        stage.until("the verdict", || ready(&near.pool).is_some()).await;
        assert_eq!(changes(&near.pool), [Some(true)], "Ready does not flap, whatever the next probe says");
    });
}

#[test]
fn what_is_on_the_disk_is_read_again_until_it_is_known() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the pod to be ready", || ready(&near.pool) == Some(true)).await;
        stage.until("the checkpoint", || stage.fakes.checkpoints.saves() > 0).await;
        stage.pass(SECOND).await;
        near.pool.take();
        near.prober.set(SERVER.0, SERVER.1, FakeAnswer::Hang);
        stage.fakes.checkpoints.set_failing(true);
        stage.crash::<ProbeManager>().await;
        stage.until("all facts to be asked for", || near.manager.count() == 2).await;
        tell_facts(&actor);
        stage.pass(35 * SECOND).await;
        assert_eq!(ready(&near.pool), None, "what was told before holds");
        stage.fakes.checkpoints.set_failing(false);
        stage.until("the verdict", || ready(&near.pool).is_some()).await;
        assert_eq!(changes(&near.pool), [Some(true)], "Ready does not flap");
    });
}

#[test]
fn a_pod_of_which_the_checkpoint_alone_cannot_be_read_is_not_told_as_gone() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the pod to be ready", || ready(&near.pool) == Some(true)).await;
        stage.until("the checkpoint", || stage.fakes.checkpoints.saves() > 0).await;
        stage.pass(SECOND).await;
        near.pool.take();
        near.prober.set(SERVER.0, SERVER.1, FakeAnswer::Hang);
        let uid = pod(0).pod_ref.uid.clone();
        let name = format!("probe-results/{uid}");
        stage.fakes.checkpoints.set_unreadable(&name, true);
        stage.crash::<ProbeManager>().await;
        stage.until("all facts to be asked for", || near.manager.count() == 2).await;
        tell_facts(&actor);
        stage.pass(35 * SECOND).await;
        let mut told: Followed<Verdicts> = Followed::default();
        near.pool.heard().into_iter().for_each(|one| drop(told.take(one.0)));
        assert!(told.is_complete());
        assert_eq!((told.get(&uid), told.is_removed(&uid)), (None, false), "what was told before holds");
        stage.fakes.checkpoints.set_unreadable(&name, false);
        stage.until("the verdict", || ready(&near.pool).is_some()).await;
        assert_eq!(ready(&near.pool), Some(true), "Ready does not flap");
    });
}

#[test]
fn a_checkpoint_of_which_the_disk_says_nothing_keeps_no_other_pod_from_being_probed() {
    alone(async |stage| {
        let near = Neighbours::new();
        for number in 0..40 {
            let name = format!("probe-results/other-{number}");
            stage.fakes.checkpoints.save(&name, &serde_json::json!({})).await.unwrap();
            stage.fakes.checkpoints.set_hanging(&name, true);
        }
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.pass(200 * SECOND).await;
        assert_eq!(ready(&near.pool), Some(true));
        stage.pass(400 * SECOND).await;
        assert_eq!(stage.actor::<ProbeManager>().await.incarnation, 1, "no deadline has passed");
    });
}

#[test]
fn a_neighbour_whose_mailbox_was_full_is_told_when_it_asks() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.status_manager.refuse();
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the pod to be ready", || ready(&near.pool) == Some(true)).await;
        near.status_manager.fall_silent();
        actor.address().tell(ResendVerdicts { receiver: "StatusManager" }).unwrap();
        stage.until("it to be told", || ready(&near.status_manager) == Some(true)).await;
    });
}

#[test]
fn a_server_that_fails_is_told_of_after_its_threshold() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the pod to be ready", || ready(&near.pool) == Some(true)).await;
        near.prober.set(SERVER.0, SERVER.1, FakeAnswer::status(500));
        let probes = near.probes();
        stage.until("the pod not to be ready", || ready(&near.pool) == Some(false)).await;
        assert_eq!(near.probes() - probes, 3, "the third failure counts");
        let reasons: Vec<_> = near.events.heard().iter().map(|event| event.reason.to_string()).collect();
        assert_eq!(reasons, ["Unhealthy"; 3]);
    });
}

#[test]
fn the_verdicts_of_a_pod_with_many_containers_are_told_together() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let mut many = (*pod(0)).clone();
        let containers = &mut Arc::make_mut(&mut many.pod).spec.as_mut().expect("a spec").containers;
        let named = |number| Container { name: format!("web-{number:03}"), ..containers[0].clone() };
        *containers = (0..300).map(named).collect();
        let mut looked = seen(&many, 1);
        let mut state = (*looked.state).clone();
        let named = |number| RuntimeContainer {
            id: format!("id-{number}").into(),
            name: format!("web-{number:03}").into(),
            ..state.containers[0].clone()
        };
        state.containers = (0..300).map(named).collect();
        looked.state = Arc::new(state);
        actor.address().tell(desired_of(&[Arc::new(many)])).unwrap();
        actor.address().tell(told([looked])).unwrap();
        let all_are = |wanted| {
            let mut followed = Followed::default();
            near.pool.heard().into_iter().for_each(|told| drop(followed.take(told.0)));
            followed.get(&pod(0).pod_ref.uid).is_some_and(|verdicts: &Verdicts| {
                verdicts.len() == 300 && verdicts.values().all(|verdict| verdict.readiness == Some(wanted))
            })
        };
        stage.pass(30 * SECOND).await;
        assert!(all_are(true));
        let (told, saves) = (near.pool.count(), stage.fakes.checkpoints.saves());
        near.prober.set(SERVER.0, SERVER.1, FakeAnswer::status(500));
        stage.pass(60 * SECOND).await;
        assert!(all_are(false));
        let (told, saves) = (near.pool.count() - told, stage.fakes.checkpoints.saves() - saves);
        assert!(told < 60 && saves < 60, "told {told} times, and written down {saves} times");
        assert!(stage.fakes.checkpoints.saves() > 0);
    });
}

#[test]
fn a_full_disk_changes_no_verdict_and_is_written_to_later() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.checkpoints.set_disk_full(true);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the pod to be ready", || ready(&near.pool) == Some(true)).await;
        stage.pass(30 * SECOND).await;
        assert_eq!(stage.fakes.checkpoints.saves(), 0);
        stage.fakes.checkpoints.set_disk_full(false);
        stage.until("the checkpoint", || stage.fakes.checkpoints.saves() > 0).await;
    });
}
