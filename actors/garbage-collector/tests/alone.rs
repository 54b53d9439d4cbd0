//! GarbageCollector alone: it removes what no pod needs, by the facts that the test tells; the runtime and the disk are
//! fakes.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_cri::fake::Fault;
use bridge_cri::{CriErrorKind, PodRemoval, Reply, Rpc};
use futures::FutureExt;
use garbage_collector::{Backends, GarbageCollector, GarbageCollectorDeps, GcPolicy};
use messages::event_recorder::RecordEvent;
use messages::facts::{DesiredPod, PodObserved, SeenPod, WorkerReported, WorkerState};
use messages::garbage_collector::{CollectNow, RemoveDeadContainers};
use messages::pleg::{PodTouched, ResendObserved};
use messages::pod_manager::ResendDesired;
use messages::pod_set::{PodSetDigest, PodSetUpdate};
use messages::pod_worker::ResendReports;
use messages::runtime::{ContainerState, RuntimePod};
use stage::{
    Looks, Neighbour, Reports, Stage, alone, ask, desired, desired_so_far, pod, reported, seen, told,
};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);

struct Neighbours {
    manager: Neighbour<ResendDesired>,
    pleg: Neighbour<ResendObserved>,
    pool: Neighbour<ResendReports>,
    touched: Neighbour<PodTouched>,
    events: Neighbour<RecordEvent>,
    /// What Pleg and the pool tell, which have said all.
    looks: Looks,
    reports: Reports,
}

impl Neighbours {
    fn new() -> Self {
        Self {
            looks: Looks::complete(),
            reports: Reports::complete(),
            manager: Neighbour::new("PodManager"),
            pleg: Neighbour::new("Pleg"),
            pool: Neighbour::new("PodWorkerPool"),
            touched: Neighbour::new("Pleg"),
            events: Neighbour::new("EventRecorder"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<GarbageCollector> {
        stage.start(self.deps(stage), GarbageCollector::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> GarbageCollectorDeps {
        let fakes = &stage.fakes;
        GarbageCollectorDeps {
            backends: Backends { pods: fakes.operations.clone(), dirs: fakes.dirs.clone() },
            clock: fakes.clock.clone(),
            policy: GcPolicy::default(),
            manager: self.manager.address(),
            pleg: self.pleg.address(),
            pool: self.pool.address(),
            touched: self.touched.address(),
            events: self.events.address(),
        }
    }

    /// A pod of the runtime that has ended.
    async fn ended(&self, stage: &Stage<'_>, pod: &DesiredPod) -> PodObserved {
        let ran = stage.fakes.run(pod).await;
        stage.fakes.runtime.kill_sandbox(&ran.sandbox);
        let mut seen = seen(pod, 1);
        let state = Arc::make_mut(&mut seen.state);
        (state.sandboxes[0].id, state.sandboxes[0].ready) = (Arc::from(ran.sandbox), false);
        let container = &mut state.containers[0];
        (container.id, container.sandbox_id) = (Arc::from(ran.container), state.sandboxes[0].id.clone());
        (container.state, container.finished_at) = (ContainerState::Exited, container.started_at);
        drop(self.looks.at(seen));
        self.looks.all()
    }

    /// The worker's report that everything is released, since the pod was deleted.
    fn released(&self, pod: &DesiredPod) -> WorkerReported {
        drop(self.reports.of(pod, WorkerState::Terminated, true));
        self.reports.all()
    }
}

/// A runtime in which the removal of some pods' containers never ends; it notes how often each was begun.
struct Hangs {
    pods: Vec<String>,
    begun: Mutex<BTreeMap<String, u32>>,
    rest: Arc<dyn PodRemoval>,
}

impl Hangs {
    fn new(stage: &Stage<'_>, pods: &[Arc<DesiredPod>]) -> Arc<Self> {
        let pods = pods.iter().map(|pod| pod.pod_ref.uid.to_string()).collect();
        Arc::new(Self { pods, begun: Mutex::default(), rest: stage.fakes.operations.clone() })
    }

    fn start(self: &Arc<Self>, near: &Neighbours, stage: &Stage<'_>) -> Supervised<GarbageCollector> {
        let mut deps = near.deps(stage);
        deps.backends.pods = self.clone();
        stage.start(deps, GarbageCollector::new)
    }

    fn begun(&self) -> usize {
        self.begun.lock().unwrap().len()
    }
}

impl PodRemoval for Hangs {
    fn stop_pod_sandbox(&self, pod_uid: &str, sandbox_id: &str) -> Reply<()> {
        self.rest.stop_pod_sandbox(pod_uid, sandbox_id)
    }

    fn remove_pod_sandbox(&self, pod_uid: &str, sandbox_id: &str) -> Reply<()> {
        self.rest.remove_pod_sandbox(pod_uid, sandbox_id)
    }

    fn stop_container(&self, pod_uid: &str, container_id: &str, grace_s: i64) -> Reply<()> {
        self.rest.stop_container(pod_uid, container_id, grace_s)
    }

    fn remove_container(&self, pod_uid: &str, container_id: &str) -> Reply<()> {
        if !self.pods.iter().any(|pod| pod == pod_uid) {
            return self.rest.remove_container(pod_uid, container_id);
        }
        *self.begun.lock().unwrap().entry(pod_uid.to_owned()).or_default() += 1;
        std::future::pending().boxed()
    }
}

/// The directory of a pod's logs, which is there.
fn logs_of(stage: &Stage<'_>, pod: &DesiredPod) -> String {
    let logs = format!("/var/log/pods/default_{}_{}", pod.pod_ref.name, pod.pod_ref.uid);
    stage.fakes.disk.mkdir(&logs, 0o755);
    logs
}

fn is_empty(stage: &Stage<'_>) -> bool {
    stage.fakes.runtime.containers().is_empty() && stage.fakes.runtime.sandboxes().is_empty()
}

#[test]
fn a_deleted_pod_is_taken_away_once_the_desired_pods_are_known() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let seen = near.ended(stage, &pod(0)).await;
        stage.until("all facts to be asked for", || near.pool.count() == 1).await;
        assert_eq!((near.manager.count(), near.pleg.count()), (1, 1));
        actor.address().tell(seen).unwrap();
        actor.address().tell(near.released(&pod(0))).unwrap();
        stage.pass(70 * SECOND).await;
        assert!(!is_empty(stage), "before the desired pods are known everything may be needed");
        actor.address().tell(desired(1)).unwrap();
        actor.address().tell(near.released(&pod(0))).unwrap();
        stage.until("it to go", || is_empty(stage)).await;
        stage.until("Pleg to be told", || near.touched.count() == 1).await;
        assert_eq!((near.touched.last().unwrap().uid, near.events.count()), (pod(0).pod_ref.uid.clone(), 0));
    });
}

#[test]
fn a_new_incarnation_asks_for_all_facts_and_takes_nothing_before_them() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        actor.address().tell(desired(1)).unwrap();
        stage.pass(SECOND).await;
        stage.crash::<GarbageCollector>().await;
        stage.until("all facts to be asked for", || near.pool.count() == 2).await;
        assert_eq!((near.manager.count(), near.pleg.count()), (2, 2));
        let seen = near.ended(stage, &pod(0)).await;
        actor.address().tell(seen).unwrap();
        actor.address().tell(near.released(&pod(0))).unwrap();
        actor.address().tell(CollectNow).unwrap();
        stage.pass(130 * SECOND).await;
        assert!(!is_empty(stage), "what its predecessor knew does not count");
        actor.address().tell(desired(1)).unwrap();
        actor.address().tell(near.released(&pod(0))).unwrap();
        stage.until("it to go", || is_empty(stage)).await;
    });
}

#[test]
fn neighbours_whose_mailboxes_are_full_hold_up_no_collection() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.touched.refuse();
        near.events.refuse();
        near.manager.refuse();
        let actor = near.start(stage);
        actor.address().tell(near.ended(stage, &pod(0)).await).unwrap();
        actor.address().tell(desired(1)).unwrap();
        actor.address().tell(near.released(&pod(0))).unwrap();
        ask(&actor, RemoveDeadContainers, SECOND).await.unwrap();
        assert_eq!((near.manager.refused().len(), near.touched.refused().len()), (1, 1));
        assert!(stage.fakes.runtime.containers().is_empty());
    });
}

#[test]
fn the_removal_of_all_waits_until_all_desired_pods_are_known_and_not_for_ever() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        actor.address().tell(near.ended(stage, &pod(0)).await).unwrap();
        actor.address().tell(desired_so_far(&[pod(0)])).unwrap();
        actor.address().tell(near.released(&pod(0))).unwrap();
        let begun = tokio::time::Instant::now();
        let remove = || ask(&actor, RemoveDeadContainers, 60 * SECOND);
        remove().await.unwrap();
        assert_eq!((begun.elapsed().as_secs(), is_empty(stage)), (30, false), "its patience ends");
        let known_later = async {
            stage.pass(20 * SECOND).await;
            assert!(!is_empty(stage), "another source may still want it");
            actor.address().tell(desired(1)).unwrap();
        };
        let (answer, ()) = futures::join!(remove(), known_later);
        answer.unwrap();
        assert_eq!((begun.elapsed().as_secs(), is_empty(stage)), (50, true));
    });
}

#[test]
fn logs_stay_until_pleg_and_the_pool_have_said_all() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let logs = logs_of(stage, &pod(1));
        let collected = async || {
            actor.address().tell(CollectNow).unwrap();
            stage.pass(SECOND).await;
            stage.fakes.disk.kind(&logs).is_none()
        };
        actor.address().tell(desired(1)).unwrap();
        actor.address().tell(near.reports.all()).unwrap();
        actor.address().tell(told([seen(&pod(0), 1)])).unwrap();
        assert!(!collected().await, "Pleg has yet to look at other pods");
        let looks = Looks::complete();
        drop(looks.at(seen(&pod(1), 1)));
        let removal = ask(&actor, RemoveDeadContainers, 60 * SECOND);
        let begun = tokio::time::Instant::now();
        let known_later = async {
            stage.pass(20 * SECOND).await;
            actor.address().tell(looks.all()).unwrap();
        };
        let (answer, ()) = futures::join!(removal, known_later);
        answer.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 20, "asks wait for it");
        assert!(!collected().await, "the runtime holds the pod");
        let gone = SeenPod { state: Arc::new(RuntimePod::absent(pod(1).pod_ref.clone())), touch: 2 };
        actor.address().tell(looks.at(gone)).unwrap();
        actor.address().tell(reported(&pod(0), WorkerState::Syncing, false)).unwrap();
        assert!(!collected().await, "the pool has yet to tell of other workers");
        actor.address().tell(Reports::complete().all()).unwrap();
        assert!(collected().await);
    });
}

#[test]
fn a_pod_manager_that_begins_anew_while_logs_are_listed_has_none_removed() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let logs = logs_of(stage, &pod(0));
        stage.fakes.disk.set_slow(Some(2 * SECOND));
        actor.address().tell(near.looks.all()).unwrap();
        actor.address().tell(near.reports.all()).unwrap();
        actor.address().tell(desired(1)).unwrap();
        actor.address().tell(CollectNow).unwrap();
        stage.pass(SECOND).await;
        actor.address().tell(desired_so_far(&[])).unwrap();
        stage.pass(20 * SECOND).await;
        assert!(stage.fakes.disk.kind(&logs).is_some(), "its source may have yet to be heard");
    });
}

#[test]
fn facts_that_could_not_be_asked_for_are_asked_for_at_the_next_digest() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.pleg.refuse();
        near.pool.refuse();
        let actor = near.start(stage);
        let refused = || near.pleg.refused().len() == 1 && near.pool.refused().len() == 1;
        stage.until("the requests", refused).await;
        near.pleg.fall_silent();
        near.pool.fall_silent();
        let digest = PodSetDigest::default();
        actor.address().tell(PodObserved(PodSetUpdate::Digest(digest))).unwrap();
        actor.address().tell(WorkerReported(PodSetUpdate::Digest(digest))).unwrap();
        stage.pass(10 * SECOND).await;
        assert_eq!((near.pleg.count(), near.pool.count()), (1, 1), "what is taken is not told again");
    });
}

#[test]
fn a_runtime_that_fails_is_told_of_and_asked_again_a_minute_later() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        actor.address().tell(near.ended(stage, &pod(0)).await).unwrap();
        actor.address().tell(desired(1)).unwrap();
        actor.address().tell(near.released(&pod(0))).unwrap();
        let failed = Fault::Error(CriErrorKind::Other, "device is busy".to_owned());
        stage.fakes.runtime.fault(Rpc::RemoveContainer, 1, failed);
        actor.address().tell(CollectNow).unwrap();
        stage.until("the event", || near.events.count() == 1).await;
        let event = near.events.last().unwrap();
        assert_eq!(&*event.reason, "ContainerGCFailed");
        assert!(event.message.contains("device is busy"), "{}", event.message);
        assert_eq!((stage.fakes.runtime.sandboxes().len(), near.touched.count()), (1, 0), "it is not empty");
        stage.until("it to go", || is_empty(stage)).await;
        assert_eq!(near.events.count(), 1);
    });
}

/// Tells of a pod that has ended and was deleted.
async fn tell_gone(
    stage: &Stage<'_>,
    near: &Neighbours,
    actor: &Supervised<GarbageCollector>,
    pod: &DesiredPod,
) {
    actor.address().tell(near.ended(stage, pod).await).unwrap();
    actor.address().tell(near.released(pod)).unwrap();
}

#[test]
fn a_removal_that_hangs_holds_up_its_own_pod_alone() {
    alone(async |stage| {
        let near = Neighbours::new();
        let hangs = Hangs::new(stage, &[pod(0)]);
        let actor = hangs.start(&near, stage);
        actor.address().tell(desired(10)).unwrap();
        tell_gone(stage, &near, &actor, &pod(0)).await;
        tell_gone(stage, &near, &actor, &pod(1)).await;
        let left = |pods: usize| {
            stage.fakes.runtime.containers().len() == pods && stage.fakes.runtime.sandboxes().len() == pods
        };
        actor.address().tell(CollectNow).unwrap();
        stage.until("the other to go", || left(1)).await;
        assert_eq!(hangs.begun(), 1);
        for number in 2..8 {
            tell_gone(stage, &near, &actor, &pod(number)).await;
            stage.pass(61 * SECOND).await;
            assert!(left(1), "pod {number} goes in the next collection");
        }
        let told: Vec<_> = near.events.take().into_iter().map(|event| event.message.to_string()).collect();
        let late = format!("garbage of pod {}: not removed within 150s", pod(0).pod_ref.uid);
        assert_eq!(told, [late.clone(), late], "once for each time");
        assert_eq!(hangs.begun.lock().unwrap().values().collect::<Vec<_>>(), [&3]);
        // What hangs is not waited for, either.
        tell_gone(stage, &near, &actor, &pod(8)).await;
        ask(&actor, RemoveDeadContainers, 31 * SECOND).await.unwrap();
        assert!(left(1));
    });
}

#[test]
fn removals_that_hang_leave_half_of_the_places_to_other_namespaces() {
    alone(async |stage| {
        let near = Neighbours::new();
        let crowd: Vec<_> = (0..30).map(pod).collect();
        let hangs = Hangs::new(stage, &crowd);
        let actor = hangs.start(&near, stage);
        actor.address().tell(desired(50)).unwrap();
        for one in &crowd {
            tell_gone(stage, &near, &actor, one).await;
        }
        actor.address().tell(CollectNow).unwrap();
        stage.until("the crowd to begin", || hangs.begun() == 4).await;
        for number in 40..50 {
            let mut quiet = (*pod(number)).clone();
            quiet.pod_ref.namespace = Arc::from("quiet");
            tell_gone(stage, &near, &actor, &quiet).await;
        }
        actor.address().tell(CollectNow).unwrap();
        stage.pass(SECOND).await;
        assert_eq!((stage.fakes.runtime.containers().len(), hangs.begun()), (30, 4));
        stage.pass(160 * SECOND).await;
        assert_eq!(hangs.begun(), 8, "others of the crowd have their turn");
    });
}
