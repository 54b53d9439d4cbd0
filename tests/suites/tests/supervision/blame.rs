//! G12: blame is never lost. Whatever runs on behalf of a pod runs under its name, and one cause in many pods is one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_io::{Lane, NotRun};
use messages::{PodUid, delivery};
use supervision::{Ctx, EventKind, Failure, Place, Policy, State, Subsystem, Supervised, Vitality, blame};
use testkit::{Sandbox, sandbox};
use tokio::time::Instant;

/// A loop over pods in a handler that names none.
#[derive(Clone, Debug)]
struct Each;
delivery!(Each => (): Command, Reject);

/// The same, but without leaving out quarantined pods.
#[derive(Clone, Debug)]
struct EachAnyhow;
delivery!(EachAnyhow => (): Command, Reject);

/// The same in a loop that has to come to its end.
#[derive(Clone, Debug)]
struct EachToTheEnd;
delivery!(EachToTheEnd => (): Command, Reject);

/// The same in one effect that names no pod.
#[derive(Clone, Debug)]
struct EachInEffect;
delivery!(EachInEffect => (): Command, Reject);

/// The same with each step on a thread that may block.
#[derive(Clone, Debug)]
struct EachOnThreads;
delivery!(EachOnThreads => (): Command, Reject);

/// An effect for each pod.
#[derive(Clone, Debug)]
struct EffectForEach;
delivery!(EffectForEach => (): Command, Reject);

/// A stream whose items name the pods.
#[derive(Clone, Debug)]
struct StreamOfEach;
delivery!(StreamOfEach => (): Command, Reject);

/// Messages of which the latest per key counts, about one pod by different names.
#[derive(Clone, Debug)]
struct Told(PodUid, &'static str);
delivery!(Told => (): Command, LatestPerKey, pod = |m| Some(&m.0), key = |m| messages::Key::Name(Arc::from(m.1)));

#[derive(Clone, Default)]
struct Outside {
    pods: Arc<Mutex<Vec<PodUid>>>,
    poisoned: Arc<Mutex<BTreeSet<PodUid>>>,
    /// Steps that were done to their end.
    done: Arc<Mutex<BTreeMap<PodUid, u32>>>,
    released: Arc<Mutex<Vec<PodUid>>>,
    told: Arc<Mutex<Vec<&'static str>>>,
    /// Whether every incarnation begins with its pods.
    from_the_start: bool,
}

impl Outside {
    fn of(pods: impl IntoIterator<Item = String>) -> Self {
        let outside = Self::default();
        *outside.pods.lock().unwrap() = pods.into_iter().map(|uid| PodUid::new(&uid)).collect();
        outside
    }

    fn poison(self, pods: &[&str]) -> Self {
        self.poisoned.lock().unwrap().extend(pods.iter().map(|uid| PodUid::new(uid)));
        self
    }

    fn pods(&self) -> Vec<PodUid> {
        self.pods.lock().unwrap().clone()
    }

    fn step(&self, uid: &PodUid) {
        let is_poison = self.poisoned.lock().unwrap().contains(uid);
        assert!(!is_poison, "poison");
        *self.done.lock().unwrap().entry(uid.clone()).or_default() += 1;
    }

    fn done(&self, uid: &str) -> u32 {
        self.done.lock().unwrap().get(&PodUid::new(uid)).copied().unwrap_or(0)
    }
}

struct Looper(Outside);

impl Looper {
    fn each(&mut self, ctx: &mut Ctx<Self>) {
        for uid in self.0.pods() {
            ctx.for_pod(&uid, |_| self.0.step(&uid));
        }
    }
}

impl Actor for Looper {
    type Context = Ctx<Self>;
}

impl Subsystem for Looper {
    const NAME: &'static str = "Looper";
    type Timer = ();

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        if self.0.from_the_start {
            self.each(ctx);
        }
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        self.0.released.lock().unwrap().push(pod.clone());
        let outside = self.0.clone();
        ctx.for_pod(pod, |_| outside.step(pod));
    }
}

impl Handler<Each> for Looper {
    type Result = ();
    fn handle(&mut self, _: Each, ctx: &mut Ctx<Self>) {
        self.each(ctx);
    }
}

impl Handler<EachAnyhow> for Looper {
    type Result = ();
    fn handle(&mut self, _: EachAnyhow, _: &mut Ctx<Self>) {
        for uid in self.0.pods() {
            blame::for_pod(&uid, || self.0.step(&uid));
        }
    }
}

impl Handler<EachToTheEnd> for Looper {
    type Result = ();
    fn handle(&mut self, _: EachToTheEnd, _: &mut Ctx<Self>) {
        for uid in self.0.pods() {
            blame::step(&uid, || self.0.step(&uid));
        }
    }
}

impl Handler<EachInEffect> for Looper {
    type Result = ();
    fn handle(&mut self, _: EachInEffect, ctx: &mut Ctx<Self>) {
        let outside = self.0.clone();
        let work = async move {
            for uid in outside.pods() {
                let step = async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    outside.step(&uid);
                };
                blame::work_for_pod(&uid, step).await;
            }
        };
        ctx.effect("each", None, work, |_, (), _| ());
    }
}

/// The line of the panic in [`on_a_thread`].
const ON_A_THREAD: u32 = line!() + 4;

fn on_a_thread(is_poison: bool) -> Result<(), NotRun> {
    if is_poison {
        panic!("poison on a thread");
    }
    Ok(())
}

impl Handler<EachOnThreads> for Looper {
    type Result = ();
    fn handle(&mut self, _: EachOnThreads, ctx: &mut Ctx<Self>) {
        let outside = self.0.clone();
        let work = async move {
            let lane = Lane::new("Looper", tokio::runtime::Handle::current());
            for uid in outside.pods() {
                let is_poison = outside.poisoned.lock().unwrap().contains(&uid);
                let step = lane.run(move || on_a_thread(is_poison));
                blame::work_for_pod(&uid, step).await.expect("the runtime is there");
            }
        };
        ctx.effect("each", None, work, |_, (), _| ());
    }
}

impl Handler<EffectForEach> for Looper {
    type Result = ();
    fn handle(&mut self, _: EffectForEach, ctx: &mut Ctx<Self>) {
        for uid in self.0.pods() {
            let (outside, of) = (self.0.clone(), uid.clone());
            ctx.effect("one", Some(uid), async move { outside.step(&of) }, |_, (), _| ());
        }
    }
}

impl Handler<StreamOfEach> for Looper {
    type Result = ();
    fn handle(&mut self, _: StreamOfEach, ctx: &mut Ctx<Self>) {
        let each = |actor: &mut Self, uid: PodUid, ctx: &mut Ctx<Self>| {
            ctx.for_pod(&uid, |_| actor.0.step(&uid));
        };
        ctx.stream("pods", futures::stream::iter(self.0.pods()), each, |_, _| ());
    }
}

impl Handler<Told> for Looper {
    type Result = ();
    fn handle(&mut self, Told(_, what): Told, _: &mut Ctx<Self>) {
        self.0.told.lock().unwrap().push(what);
    }
}

fn start(world: &Sandbox, vitality: Vitality, outside: &Outside) -> Supervised<Looper> {
    world.expect_crashes();
    let seed = outside.clone();
    world.tree.seat(vitality).start(&Place::Here, move || Looper(seed.clone()))
}

/// Crashes with the pods that they are put down to.
async fn crashes(world: &Sandbox) -> Vec<Option<String>> {
    let events = world.events_of("Looper").await.into_iter();
    let pod = |what| match what {
        EventKind::Crashed(crash) => Some(crash.pod.map(|pod| pod.to_string())),
        _ => None,
    };
    events.filter_map(pod).collect()
}

fn bad(times: usize) -> Vec<Option<String>> {
    vec![Some("bad".to_owned()); times]
}

fn names(of: &[&str]) -> Vec<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

/// Sends the message often, whatever becomes of it.
async fn again<M: messages::Delivery>(world: &Sandbox, looper: &Supervised<Looper>, message: M, times: u32)
where
    Looper: Handler<M>,
{
    for _ in 0..times {
        looper.address::<M>().tell(message.clone()).unwrap();
        world.pass(Duration::from_millis(200)).await;
    }
}

#[test]
fn g12_a_step_of_a_loop_is_its_pods_and_leaves_it_out_when_it_is_quarantined() {
    sandbox(Policy::default(), async |world| {
        let outside = Outside::of(names(&["bad", "good"])).poison(&["bad"]);
        let looper = start(world, Vitality::Vital, &outside);
        again(world, &looper, Each, 10).await;
        assert_eq!(crashes(world).await, bad(3), "the third one quarantines it");
        assert_eq!((outside.done("bad"), outside.done("good")), (0, 7), "the others' steps go on without it");
        outside.poisoned.lock().unwrap().clear();
        world.pass(Duration::from_secs(10)).await;
        assert_eq!(*outside.released.lock().unwrap(), [PodUid::new("bad")], "the actor learns of the end");
        assert_eq!(outside.done("bad"), 1, "and does what was left out");
        assert_eq!(world.report("Looper").await.state, State::Running);
    });
}

#[test]
fn g11_a_loop_comes_to_its_end_past_a_pod_in_quarantine_that_panics() {
    sandbox(Policy::default(), async |world| {
        let outside = Outside::of(names(&["bad", "good"])).poison(&["bad"]);
        let looper = start(world, Vitality::Vital, &outside);
        again(world, &looper, EachToTheEnd, 30).await;
        assert_eq!(crashes(world).await, bad(3), "the third one quarantines it");
        assert_eq!((outside.done("bad"), outside.done("good")), (0, 27), "the others' steps go on");
        outside.poisoned.lock().unwrap().clear();
        again(world, &looper, EachToTheEnd, 1).await;
        assert_eq!(outside.done("bad"), 1, "it is no longer left out as soon as it does not panic");
        world.pass(Duration::from_secs(10)).await;
        outside.poisoned.lock().unwrap().extend([PodUid::new("bad")]);
        again(world, &looper, EachToTheEnd, 1).await;
        assert_eq!(crashes(world).await, bad(4), "after the quarantine a panic is one again");
        assert_eq!(world.report("Looper").await.state, State::Running);
    });
}

#[test]
fn g12_a_pod_in_the_middle_of_one_effect_is_blamed() {
    sandbox(Policy::default(), async |world| {
        let outside = Outside::of(names(&["first", "bad", "last"])).poison(&["bad"]);
        let looper = start(world, Vitality::Vital, &outside);
        again(world, &looper, EachInEffect, 2).await;
        assert_eq!(crashes(world).await, bad(2));
        assert_eq!((outside.done("first"), outside.done("last")), (2, 0));
    });
}

#[test]
fn g12_a_panic_on_another_thread_is_its_pods_and_has_its_place() {
    sandbox(Policy::default(), async |world| {
        let outside = Outside::of(names(&["first", "bad", "last"])).poison(&["bad"]);
        let looper = start(world, Vitality::Vital, &outside);
        for crash in 1..=2 {
            looper.address::<EachOnThreads>().tell(EachOnThreads).unwrap();
            while world.report("Looper").await.restarts < crash {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(crashes(world).await, bad(2));
        let last = world.report("Looper").await.last_crash.unwrap();
        let place = last.place.unwrap();
        assert!(place.contains(&format!("blame.rs:{ON_A_THREAD}:")), "{place}, not {ON_A_THREAD}");
    });
}

#[test]
fn g12_an_item_of_a_stream_is_its_pods() {
    sandbox(Policy::default(), async |world| {
        let outside = Outside::of(names(&["bad", "good"])).poison(&["bad"]);
        let looper = start(world, Vitality::Vital, &outside);
        again(world, &looper, StreamOfEach, 5).await;
        assert_eq!(crashes(world).await, bad(3));
        assert_eq!(outside.done("good"), 2, "a stream goes on beside a quarantined pod's items");
    });
}

#[test]
fn g12_effects_of_a_quarantined_pod_begin_when_it_is_let_in() {
    sandbox(Policy::default(), async |world| {
        let outside = Outside::of(names(&["bad", "good"])).poison(&["bad"]);
        let looper = start(world, Vitality::Vital, &outside);
        again(world, &looper, EffectForEach, 5).await;
        assert_eq!(crashes(world).await, bad(3));
        assert!(outside.done("good") >= 2);
        outside.poisoned.lock().unwrap().clear();
        world.pass(Duration::from_secs(10)).await;
        assert_eq!(outside.done("bad"), 3, "the two that waited, and what its release does");
    });
}

#[test]
fn g12_replicas_that_crash_at_one_place_are_one_cause() {
    sandbox(Policy::default(), async |world| {
        let pods: Vec<String> = (0..50).map(|pod| format!("replica-{pod}")).chain(names(&["good"])).collect();
        let outside = Outside { from_the_start: true, ..Outside::of(pods.clone()) };
        let bad: Vec<&str> = pods[..50].iter().map(String::as_str).collect();
        let outside = outside.poison(&bad);
        let began = Instant::now();
        let _looper = start(world, Vitality::Vital, &outside);
        world.until("the good pod's step", || outside.done("good") > 0).await;
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "every restart comes at once: {:?}",
            began.elapsed()
        );
        let report = world.report("Looper").await;
        assert_eq!((report.state, report.quarantined.len()), (State::Running, 50));
        assert!(report.pod_crashes >= 50 && report.pod_crashes == report.restarts, "{report:?}");
        world.pass(Duration::from_secs(3600)).await;
        assert_eq!(world.report("Looper").await.state, State::Running, "an hour later too");
    });
}

#[test]
fn g12_a_subsystem_that_does_not_get_past_a_quarantined_pod_is_above_its_limit() {
    sandbox(Policy::default(), async |world| {
        let outside = Outside::of(names(&["bad"])).poison(&["bad"]);
        let looper = start(world, Vitality::Degradable, &outside);
        again(world, &looper, EachAnyhow, 8).await;
        let report = world.report("Looper").await;
        assert_eq!(report.state, State::Running, "five crashes in spite of the quarantine are borne");
        assert_eq!(report.pod_crashes, 8, "each is counted");
        again(world, &looper, EachAnyhow, 1).await;
        assert_eq!(world.report("Looper").await.state, State::Dormant);
        let events = world.events_of("Looper").await;
        let lengths: Vec<u64> = events
            .iter()
            .filter_map(
                |what| if let EventKind::Quarantined { seconds, .. } = what { Some(*seconds) } else { None },
            )
            .collect();
        assert_eq!(lengths, [10, 20, 40, 80, 160, 300, 300], "and lengthens the quarantine");
        assert!(events.contains(&EventKind::Dormant { retry_seconds: 300 }), "others are told");
    });
}

#[test]
fn g12_a_vital_subsystem_that_does_not_get_past_a_pod_fails_and_names_the_pod() {
    sandbox(Policy::default(), async |world| {
        let outside = Outside::of(names(&["bad"])).poison(&["bad"]);
        let looper = start(world, Vitality::Vital, &outside);
        again(world, &looper, EachAnyhow, 9).await;
        let Failure { actor, reason } = world.tree.failed().await;
        assert_eq!(actor, "Looper");
        assert!(reason.contains("of pod bad"), "{reason}");
    });
}

#[test]
fn g14_facts_of_different_keys_wait_side_by_side_for_a_quarantined_pod() {
    sandbox(Policy::default(), async |world| {
        let outside = Outside::of(names(&["bad"])).poison(&["bad"]);
        let looper = start(world, Vitality::Vital, &outside);
        again(world, &looper, Each, 3).await;
        for what in ["Pleg", "VolumeManager", "Pleg"] {
            looper.address::<Told>().tell(Told(PodUid::new("bad"), what)).unwrap();
        }
        outside.poisoned.lock().unwrap().clear();
        world.pass(Duration::from_secs(11)).await;
        assert_eq!(*outside.told.lock().unwrap(), ["Pleg", "VolumeManager"], "the latest of each");
    });
}
