//! Pleg alone: the runtime is a fake, and the actors that Pleg tells are recorded.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::cell::{RefCell, RefMut};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_cri::fake::Fault;
use bridge_cri::wire::{ContainerConfig, ContainerMetadata, ImageSpec, PodSandboxConfig};
use bridge_cri::{CriErrorKind, ExitWatchError, ExitWatcher, Exited, Rpc};
use bridge_metrics::Registry;
use futures::StreamExt;
use futures::stream::BoxStream;
use messages::PodUid;
use messages::event_recorder::RecordEvent;
use messages::facts::{PodObserved, RuntimeObserved, SeenPod};
use messages::pleg::{GetHeldPods, GetRuntimePods, PodTouched, ResendObserved};
use messages::pod_set::PodSetUpdate;
use messages::runtime::ContainerState;
use pleg::{Pleg, PlegConfig, PlegDeps, PlegMetrics};
use pod_set::Followed;
use stage::{IMAGE, Neighbour, Stage, alone, ask, pod};
use supervision::Supervised;
use tokio::sync::mpsc;

const SECOND: Duration = Duration::from_secs(1);

/// An observer, and what it has heard.
struct Observer {
    mailbox: Neighbour<PodObserved>,
    followed: RefCell<Followed<SeenPod>>,
    changes: RefCell<Vec<SeenPod>>,
}

impl Observer {
    fn new(name: &'static str) -> Self {
        let followed = RefCell::default();
        Self { mailbox: Neighbour::new(name), followed, changes: RefCell::default() }
    }

    fn changes(&self) -> RefMut<'_, Vec<SeenPod>> {
        let mut changes = self.changes.borrow_mut();
        for message in self.mailbox.take() {
            let changed = self.followed.borrow_mut().hear(message.0).expect("nothing was lost");
            changes.extend(changed.into_iter().map(|(_, seen)| seen));
        }
        changes
    }

    /// How many changes of pods it has been told.
    fn count(&self) -> usize {
        self.changes().len()
    }

    fn last(&self) -> Option<SeenPod> {
        self.changes().last().cloned()
    }

    /// Whether the runtime holds nothing of the pod, as far as it has heard.
    fn has_lost(&self, pod: &PodUid) -> bool {
        drop(self.changes());
        let followed = self.followed.borrow();
        followed.now(pod).is_some_and(|seen| seen.state.is_absent())
    }
}

struct Neighbours {
    pool: Observer,
    status_manager: Observer,
    runtime: Neighbour<RuntimeObserved>,
    events: Neighbour<RecordEvent>,
}

impl Neighbours {
    fn new() -> Self {
        Self {
            pool: Observer::new("PodWorkerPool"),
            status_manager: Observer::new("StatusManager"),
            runtime: Neighbour::new("StatusManager"),
            events: Neighbour::new("EventRecorder"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<Pleg> {
        stage.start(self.deps(stage), Pleg::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> PlegDeps {
        PlegDeps {
            config: PlegConfig::default(),
            runtime: stage.fakes.operations.clone(),
            exits: Arc::new(stage.fakes.runtime.exit_watcher()),
            dirs: stage.fakes.dirs.clone(),
            clock: stage.fakes.clock.clone(),
            observers: vec![self.pool.mailbox.address(), self.status_manager.mailbox.address()],
            runtime_observers: vec![self.runtime.address()],
            runtime_watchers: Vec::new(),
            events: self.events.address(),
            metrics: PlegMetrics::new().unwrap(),
        }
    }
}

/// How many pods Pleg says the runtime has; `None` before the first list.
async fn known(actor: &Supervised<Pleg>) -> Option<usize> {
    let pods = ask(actor, GetRuntimePods, SECOND).await.unwrap();
    pods.map(|pods| pods.len())
}

fn looks(stage: &Stage<'_>, rpc: Rpc) -> u64 {
    stage.fakes.runtime.counts().get(&rpc).copied().unwrap_or(0)
}

#[test]
fn what_the_runtime_holds_and_how_it_is_are_told_once() {
    alone(async |stage| {
        let ran = stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        let told = near.pool.last().unwrap();
        assert_eq!(told.state.pod.uid, pod(0).pod_ref.uid);
        assert_eq!((&*told.state.containers[0].id, told.touch), (ran.container.as_str(), 0));
        assert_eq!(near.status_manager.count(), 1, "every observer is told");
        assert!(near.runtime.last().is_some_and(|told| told.0.ready && &*told.0.name == "fake"));
        assert_eq!(known(&actor).await, Some(1));
        stage.pass(12 * SECOND).await;
        assert_eq!(near.pool.count(), 1, "a relist that finds nothing new tells nothing");
        assert!(looks(stage, Rpc::ListPodSandbox) >= 2, "there was another relist");
    });
}

#[test]
fn subscriptions_to_the_runtimes_events_are_counted() {
    alone(async |stage| {
        let near = Neighbours::new();
        let (deps, registry) = (near.deps(stage), Registry::new());
        deps.metrics.register(&registry).unwrap();
        stage.start(deps, Pleg::new);
        let subscribed = || {
            let families = registry.gather();
            let name = "kubelet_evented_pleg_connection_success_count";
            let family = families.iter().find(|family| family.name() == name).unwrap();
            family.get_metric()[0].get_counter().get_value()
        };
        stage.until("the events to be subscribed to", || subscribed() == 1.0).await;
    });
}

#[test]
fn a_touch_is_answered_by_a_look_that_began_after_it() {
    alone(async |stage| {
        stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        let uid = pod(0).pod_ref.uid.clone();
        actor.address().tell(PodTouched { uid: uid.clone(), token: 7 }).unwrap();
        stage.until("the look to be told", || near.pool.count() == 2).await;
        assert_eq!(near.pool.last().unwrap().touch, 7, "told although nothing has changed");
        // Pleg tells of a pod of which the runtime has nothing as well: its worker waits for that.
        let other = pod(1).pod_ref.uid.clone();
        actor.address().tell(PodTouched { uid: other.clone(), token: 1 }).unwrap();
        stage.until("its absence to be told", || near.pool.last().unwrap().state.pod.uid == other).await;
        assert!(near.pool.last().unwrap().state.is_absent());
    });
}

#[test]
fn a_new_incarnation_lists_again_and_invents_no_deaths() {
    alone(async |stage| {
        let ran = stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        let before = looks(stage, Rpc::ListPodSandbox);
        stage.crash::<Pleg>().await;
        stage.until("the runtime to be asked again", || looks(stage, Rpc::ListPodSandbox) > before).await;
        stage.pass(SECOND).await;
        assert_eq!(known(&actor).await, Some(1));
        assert_eq!((near.pool.count(), near.pool.has_lost(&pod(0).pod_ref.uid)), (1, false));
        // Exits are notified to the new incarnation, too: the test waits for less than a relist.
        stage.fakes.runtime.exit_container(&ran.container, 3, false);
        stage.pass(2 * SECOND).await;
        let told = near.pool.last().unwrap();
        assert_eq!(
            (told.state.containers[0].state, told.state.containers[0].exit_code),
            (ContainerState::Exited, 3)
        );
    });
}

#[test]
fn a_pod_that_leaves_while_pleg_is_down_is_told_as_absent() {
    alone(async |stage| {
        stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        // The new incarnation waits for its first list.
        stage.fakes.runtime.set_down(true);
        stage.crash::<Pleg>().await;
        stage.pass(SECOND).await;
        stage.fakes.runtime.wipe();
        let uid = pod(0).pod_ref.uid.clone();
        assert!(!near.pool.has_lost(&uid));
        stage.fakes.runtime.set_down(false);
        stage.until("its absence to be told", || near.pool.has_lost(&uid)).await;
        assert_eq!((near.pool.count(), known(&actor).await), (2, Some(0)));
        assert_eq!(near.pool.last().unwrap().state.pod, pod(0).pod_ref);
    });
}

#[test]
fn a_pod_that_cannot_be_looked_at_is_not_told_as_absent() {
    alone(async |stage| {
        for number in 0..3 {
            stage.fakes.run(&pod(number)).await;
        }
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pods to be told", || near.pool.count() == 3).await;
        stage.fakes.runtime.fault(Rpc::ContainerStatus, 1000, Fault::Hang);
        stage.crash::<Pleg>().await;
        stage.pass(60 * SECOND).await;
        let lost = |number: usize| near.pool.has_lost(&pod(number).pod_ref.uid);
        assert_eq!([lost(0), lost(1), lost(2)], [false; 3], "what was known of them holds");
        assert_eq!(known(&actor).await, Some(0));
        assert!(near.pool.has_lost(&pod(3).pod_ref.uid), "of others it is known that they are not there");
    });
}

#[test]
fn an_observer_whose_mailbox_is_full_is_told_when_it_has_room() {
    alone(async |stage| {
        stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        near.status_manager.mailbox.refuse();
        let actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        stage.pass(30 * SECOND).await;
        let tries = near.status_manager.mailbox.refused().len();
        assert!((4..=8).contains(&tries), "{tries} tries in half a minute: the waits grow");
        near.status_manager.mailbox.fall_silent();
        stage.pass(60 * SECOND).await;
        assert_eq!(near.status_manager.count(), 1);
        // One that has begun anew asks, and does not wait.
        let asks = ResendObserved { receiver: "StatusManager" };
        let before = near.status_manager.mailbox.heard().len();
        near.runtime.take();
        actor.address().tell(asks).unwrap();
        stage.until("it to be told", || near.status_manager.mailbox.heard().len() > before).await;
        let told = near.status_manager.mailbox.last().unwrap().0;
        assert!(matches!(told, PodSetUpdate::All(all) if all.pods.len() == 1 && all.digest.complete));
        assert_eq!(near.runtime.count(), 1, "the runtime's health is told again as well");
    });
}

#[test]
fn however_often_an_observer_asks_it_is_sent_everything_once_a_second() {
    alone(async |stage| {
        stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        stage.pass(2 * SECOND).await;
        let before = near.pool.mailbox.heard().len();
        for _ in 0..50 {
            actor.address().tell(ResendObserved { receiver: "PodWorkerPool" }).unwrap();
            stage.pass(SECOND / 10).await;
        }
        let told = near.pool.mailbox.heard().split_off(before);
        let all = told.iter().filter(|told| matches!(told.0, PodSetUpdate::All(_))).count();
        assert!((4..=6).contains(&all), "{all} in five seconds");
    });
}

#[test]
fn a_runtime_that_is_away_is_told_of_and_its_pods_are_not_gone() {
    alone(async |stage| {
        stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        stage.fakes.runtime.set_down(true);
        stage
            .until("the runtime to be told of", || near.runtime.last().is_some_and(|told| !told.0.ready))
            .await;
        let before = looks(stage, Rpc::ListPodSandbox);
        stage.pass(60 * SECOND).await;
        let tries = looks(stage, Rpc::ListPodSandbox) - before;
        assert!((5..40).contains(&tries), "{tries} lists in a minute: the waits grow, up to 5 s");
        assert_eq!(near.pool.count(), 1, "of pods nothing is known, so nothing is said");
        assert_eq!(known(&actor).await, Some(1));
        stage.fakes.runtime.set_down(false);
        stage
            .until("the runtime to be told of", || near.runtime.last().is_some_and(|told| told.0.ready))
            .await;
        assert_eq!(known(&actor).await, Some(1));
    });
}

#[test]
fn a_runtime_that_never_listed_holds_back_the_answer_of_what_it_holds() {
    alone(async |stage| {
        stage.fakes.runtime.set_down(true);
        let near = Neighbours::new();
        let actor = near.start(stage);
        let held = ask(&actor, GetHeldPods, 60 * SECOND);
        let held = tokio::spawn(held);
        stage.pass(10 * SECOND).await;
        assert!(!held.is_finished(), "no list, no answer");
        assert_eq!(known(&actor).await, None);
        stage.fakes.runtime.set_down(false);
        stage.until("the answer", || held.is_finished()).await;
        assert!(held.await.unwrap().unwrap().is_empty());
    });
}

#[test]
fn events_of_containers_that_are_nobody_s_bring_a_relist_a_second_at_most() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the first list", || looks(stage, Rpc::ListPodSandbox) > 0).await;
        assert_eq!(known(&actor).await, Some(0));
        stage.pass(2 * SECOND).await;
        let before = looks(stage, Rpc::ListPodSandbox);
        for number in 0..60 {
            stage.fakes.runtime.tell_of_stranger(&number.to_string());
            stage.pass(Duration::from_millis(50)).await;
        }
        let relists = looks(stage, Rpc::ListPodSandbox) - before;
        assert!((2..=4).contains(&relists), "{relists} in three seconds");
    });
}

/// Has the runtime tell of containers that are no pod's for so many seconds; returns how often it is listed meanwhile.
async fn strangers(stage: &Stage<'_>, seconds: u32) -> u64 {
    let before = looks(stage, Rpc::ListPodSandbox);
    for number in 0..20 * seconds {
        stage.fakes.runtime.tell_of_stranger(&number.to_string());
        stage.pass(SECOND / 20).await;
    }
    looks(stage, Rpc::ListPodSandbox) - before
}

#[test]
fn events_of_containers_that_are_nobody_s_wait_for_lists_that_fail_or_are_slow() {
    alone(async |stage| {
        let near = Neighbours::new();
        let _actor = near.start(stage);
        stage.until("the first list", || looks(stage, Rpc::ListPodSandbox) > 0).await;
        let runtime = &stage.fakes.runtime;
        runtime.fault(Rpc::ListPodSandbox, 1000, Fault::Error(CriErrorKind::Other, "broken".to_owned()));
        stage.pass(30 * SECOND).await;
        let failed = strangers(stage, 10).await;
        assert!((1..=3).contains(&failed), "{failed} lists in ten seconds, while the pause is 5 s");
        runtime.clear_faults();
        runtime.fault(Rpc::ListPodSandbox, 1000, Fault::Latency(3 * SECOND));
        stage.pass(10 * SECOND).await;
        let slow = strangers(stage, 40).await;
        assert!((9..=11).contains(&slow), "{slow} lists in 40 seconds, of 3 s each and a second apart");
        stage.pass(15 * SECOND).await;
        let before = looks(stage, Rpc::ListPodSandbox);
        stage.until("another list", || looks(stage, Rpc::ListPodSandbox) > before).await;
        runtime.tell_of_stranger("late");
        stage.pass(5 * SECOND).await;
        let more = looks(stage, Rpc::ListPodSandbox) - before;
        assert_eq!(more, 2, "the list under way may have begun before the container");
    });
}

/// Has the runtime run a pod of so many containers; returns their IDs.
async fn run_many(stage: &Stage<'_>, count: u32) -> Vec<String> {
    let (ran, uid) = (stage.fakes.run(&pod(0)).await, pod(0).pod_ref.uid.to_string());
    let (runtime, mut containers) = (&stage.fakes.operations, vec![ran.container]);
    for number in 1..count {
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: format!("web{number}"), attempt: 0 }),
            image: Some(ImageSpec { image: IMAGE.to_owned(), ..ImageSpec::default() }),
            labels: [("io.kubernetes.pod.uid".to_owned(), uid.clone())].into(),
            ..ContainerConfig::default()
        };
        let of = PodSandboxConfig::default();
        let made = runtime.ensure_container(&uid, &ran.sandbox, 0, config, of).await;
        let made = made.expect("the fake makes it").into_id();
        runtime.start_container(&uid, &made).await.expect("the fake starts it");
        containers.push(made);
    }
    containers
}

#[test]
fn a_pod_of_many_containers_rests_between_looks_that_only_events_ask_for() {
    alone(async |stage| {
        let containers = run_many(stage, 264).await;
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        let before = looks(stage, Rpc::ListPodSandbox);
        for container in &containers[..200] {
            assert!(stage.fakes.runtime.exit_container(container, 0, false));
            stage.pass(SECOND / 100).await;
        }
        let looked = looks(stage, Rpc::ListPodSandbox) - before;
        assert!((5..=14).contains(&looked), "{looked} looks in two seconds, 200 ms apart");
        for token in 1..=3 {
            let uid = pod(0).pod_ref.uid.clone();
            actor.address().tell(PodTouched { uid, token }).unwrap();
            stage.pass(SECOND / 20).await;
            assert_eq!(near.pool.last().unwrap().touch, token, "an actor that asks does not wait");
        }
        stage.pass(SECOND).await;
        let told = near.pool.last().unwrap();
        let running = told.state.containers.iter().filter(|one| one.state == ContainerState::Running);
        assert_eq!(running.count(), 64);
    });
}

/// Says of every process that it has ended.
#[derive(Default)]
struct AllDead(Mutex<Option<mpsc::Sender<Exited>>>);

impl ExitWatcher for AllDead {
    fn watch(&self, container_id: &str, pid: u32) -> Result<(), ExitWatchError> {
        let exited = Exited { container_id: container_id.to_owned(), pid };
        self.0.lock().unwrap().as_ref().expect("Pleg listens").try_send(exited).expect("Pleg keeps up");
        Ok(())
    }

    fn unwatch(&self, _: &str) {}

    fn exits(&self) -> BoxStream<'static, Exited> {
        let (sender, exits) = mpsc::channel(16);
        *self.0.lock().unwrap() = Some(sender);
        let next = |mut exits: mpsc::Receiver<Exited>| async move { Some((exits.recv().await?, exits)) };
        futures::stream::unfold(exits, next).boxed()
    }
}

#[test]
fn a_pod_whose_container_runs_without_a_process_is_looked_at_after_2_s_doubling_to_a_minute() {
    alone(async |stage| {
        let ran = stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        stage.start(PlegDeps { exits: Arc::new(AllDead::default()), ..near.deps(stage) }, Pleg::new);
        stage.pass(200 * SECOND).await;
        let calls = stage.fakes.runtime.calls();
        let asked = calls.iter().filter(|call| call.rpc == Rpc::ContainerStatus);
        let asked: Vec<Duration> = asked.map(|call| call.at).collect();
        let waits = asked.windows(2).map(|pair| (pair[1] - pair[0]).as_secs());
        assert_eq!(waits.filter(|wait| *wait > 1).collect::<Vec<_>>(), [2, 4, 8, 16, 32, 60, 60]);
        stage.fakes.runtime.exit_container(&ran.container, 3, false);
        stage.pass(SECOND).await;
        assert_eq!(
            near.pool.last().unwrap().state.containers[0].exit_code,
            3,
            "its event brings a look at once"
        );
    });
}

#[test]
fn a_look_that_fails_is_repeated_until_its_touch_is_answered() {
    alone(async |stage| {
        let ran = stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        let failed = Fault::Error(CriErrorKind::Other, "no such file".to_owned());
        stage.fakes.runtime.fault(Rpc::ContainerStatus, 2, failed);
        stage.fakes.runtime.exit_container(&ran.container, 0, false);
        let uid = pod(0).pod_ref.uid.clone();
        actor.address().tell(PodTouched { uid, token: 1 }).unwrap();
        stage.until("the complaint", || near.events.count() == 1).await;
        assert_eq!((&*near.events.last().unwrap().reason, near.pool.count()), ("FailedSync", 1));
        stage.until("the answer", || near.pool.count() == 2).await;
        let told = near.pool.last().unwrap();
        assert_eq!((told.touch, told.state.containers[0].state), (1, ContainerState::Exited));
        assert_eq!(near.events.count(), 1, "two failures, one complaint");
    });
}

#[test]
fn a_container_of_which_the_runtime_has_too_much_to_tell_is_asked_for_less() {
    alone(async |stage| {
        let too_large = Fault::Error(CriErrorKind::ResourceExhausted, "message length too large".to_owned());
        stage.fakes.runtime.fault(Rpc::ContainerStatus, 1, too_large);
        stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        let _actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        assert_eq!(near.pool.last().unwrap().state.containers[0].state, ContainerState::Running);
        assert_eq!((near.events.count(), looks(stage, Rpc::ContainerStatus)), (0, 2));
    });
}

#[test]
fn an_answer_without_a_status_is_not_the_end_of_what_was_asked_for() {
    alone(async |stage| {
        let ran = stage.fakes.run(&pod(0)).await;
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pod to be told", || near.pool.count() == 1).await;
        stage.fakes.runtime.withhold_statuses(true);
        stage.fakes.runtime.exit_container(&ran.container, 0, false);
        let uid = pod(0).pod_ref.uid.clone();
        actor.address().tell(PodTouched { uid, token: 1 }).unwrap();
        stage.until("the complaint", || near.events.count() == 1).await;
        stage.pass(20 * SECOND).await;
        assert_eq!(near.pool.count(), 1, "it is what it was until the runtime tells of it");
        stage.fakes.runtime.withhold_statuses(false);
        stage.until("the answer", || near.pool.count() == 2).await;
        assert_eq!(near.pool.last().unwrap().state.containers[0].state, ContainerState::Exited);
    });
}

#[test]
fn a_runtime_that_is_away_is_asked_after_100_ms_doubling_to_5_s() {
    alone(async |stage| {
        stage.fakes.runtime.set_down(true);
        let near = Neighbours::new();
        let _actor = near.start(stage);
        let mut asked = Vec::new();
        while asked.len() < 9 {
            let before = looks(stage, Rpc::ListPodSandbox);
            stage.until("another list", || looks(stage, Rpc::ListPodSandbox) > before).await;
            asked.push(tokio::time::Instant::now());
        }
        let waits: Vec<u128> =
            asked.windows(2).map(|pair| (pair[1] - pair[0]).as_millis().next_multiple_of(100)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    });
}
