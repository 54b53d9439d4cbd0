//! G6: a stalled actor is restarted, a blocked thread is reported and then ends the process. On real threads
//! with a real clock, since that is what the watchdog watches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_rt::{Arbiter, System};
use bridge_io::Io;
use messages::PodUid;
use messages::supervision::Fault;
use supervision::{
    EventKind, Failure, Place, Policy, Seated, State, Supervised, SupervisionEvent, Tree, Vitality, Watchdog,
    WatchdogPolicy,
};

use crate::actors::{Block, Count, Counter, Do, HangForEver, Outside, Sibling, ask};
use crate::family::{Parent, StartChild};

/// What a busy machine does not hold up a thread for, and an actor's message, whose sibling must not be taken to hang.
const STALLED_AFTER: Duration = Duration::from_secs(2);
const REPORTED_AFTER: Duration = Duration::from_secs(3);
const GIVEN_UP_AFTER: Duration = Duration::from_secs(6);

/// Threads, a tree on them, and what was seen of it.
struct Threads {
    tree: Tree,
    arbiters: Vec<Arbiter>,
    events: Arc<Mutex<Vec<SupervisionEvent>>>,
    feeds: Arc<AtomicU64>,
    gave_up: Arc<Mutex<Option<Failure>>>,
}

impl Threads {
    fn run<T>(test: impl AsyncFnOnce(&Self) -> T) -> T {
        Self::run_with(Policy { stall_after: STALLED_AFTER, ..Policy::default() }, test)
    }

    fn run_with<T>(policy: Policy, test: impl AsyncFnOnce(&Self) -> T) -> T {
        System::new().block_on(async {
            let tree = Tree::new(policy);
            let events = Arc::new(Mutex::new(Vec::new()));
            let record = events.clone();
            tree.observe(move |event| record.lock().unwrap().push(event.clone()));
            let threads = Self {
                tree,
                arbiters: vec![Arbiter::new(), Arbiter::new()],
                events,
                feeds: Arc::default(),
                gave_up: Arc::default(),
            };
            let result = test(&threads).await;
            threads.tree.stop_all();
            for arbiter in threads.arbiters {
                arbiter.stop();
                arbiter.join().unwrap();
            }
            result
        })
    }

    fn watch(&self, exit_after: Duration) -> Watchdog {
        let policy =
            WatchdogPolicy { beat: Duration::from_millis(50), report_after: REPORTED_AFTER, exit_after };
        let (feeds, gave_up) = (self.feeds.clone(), self.gave_up.clone());
        let feed = move || {
            feeds.fetch_add(1, Ordering::SeqCst);
        };
        let give_up = move |failure| *gave_up.lock().unwrap() = Some(failure);
        Watchdog::start(self.tree.clone(), policy, feed, give_up).unwrap()
    }

    fn counter(&self, arbiter: usize, vitality: Vitality) -> (Supervised<Counter>, Outside) {
        let outside = Outside::default();
        let seated: Seated<Counter> = self.tree.seat(vitality);
        let seed = outside.clone();
        (seated.start(&self.place(arbiter), move || Counter::new(&seed)), outside)
    }

    fn sibling(&self, arbiter: usize, vitality: Vitality) -> Supervised<Sibling> {
        self.tree.seat(vitality).start(&self.place(arbiter), Sibling::default)
    }

    fn place(&self, arbiter: usize) -> Place {
        Place::On(self.arbiters[arbiter].handle())
    }

    async fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let look = async {
            while !done(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), look).await;
        assert!(waited.is_ok(), "waited in vain for {what}; events: {:#?}", self.events.lock().unwrap());
    }

    fn saw(&self, mut what: impl FnMut(&SupervisionEvent) -> bool) -> bool {
        self.events.lock().unwrap().iter().any(&mut what)
    }
}

fn block() -> (Block, Sender<()>) {
    let (let_go, receiver) = channel();
    (Block(Arc::new(Mutex::new(receiver))), let_go)
}

fn stalled(event: &SupervisionEvent, actor: &str) -> bool {
    event.actor == actor
        && matches!(&event.what, EventKind::Crashed(crash) if crash.reason.starts_with("stalled: took no message"))
}

#[test]
fn g6_an_actor_that_takes_no_message_is_killed_and_restarted() {
    Threads::run(async |threads| {
        let (counter, outside) = threads.counter(0, Vitality::Vital);
        let count = counter.asked::<supervision::Outside, Count>();
        let _watchdog = threads.watch(Duration::from_secs(60));
        assert_eq!(ask(&count, Count).await, Ok(1));
        counter.address::<HangForEver>().tell(HangForEver).unwrap();
        assert_eq!(ask(&count, Count).await, Ok(1), "answered by the second incarnation");
        assert!(threads.saw(|event| stalled(event, "Counter")));
        threads.tree.inject("Counter", Fault::Stall).unwrap();
        threads.until("the third incarnation", |_| outside.born() == 3).await;
        assert_eq!(ask(&count, Count).await, Ok(1));
        assert!(threads.gave_up.lock().unwrap().is_none());
    });
}

#[test]
fn g6_a_stalled_child_is_restarted_too() {
    Threads::run(async |threads| {
        let outside = Outside::default();
        let seed = outside.clone();
        let seated: Seated<Parent> = threads.tree.seat(Vitality::Degradable);
        let parent = seated.start(&threads.place(0), move || Parent::new(&seed));
        let uid = PodUid::new("a");
        assert_eq!(ask(&parent.asked::<supervision::Outside, StartChild>(), StartChild(uid)).await, Ok(1));
        let _watchdog = threads.watch(Duration::from_secs(60));
        threads.tree.inject("Counter/a", Fault::Stall).unwrap();
        threads.until("the child's restart", |_| outside.born() == 2).await;
        assert!(threads.saw(|event| stalled(event, "Counter/a")));
    });
}

#[test]
fn an_actor_whose_work_takes_long_leaves_turns_to_the_others() {
    Threads::run(async |threads| {
        let (counter, _) = threads.counter(0, Vitality::Degradable);
        let sibling = threads.sibling(0, Vitality::Degradable);
        let count = sibling.asked::<supervision::Outside, Count>();
        assert_eq!(ask(&count, Count).await, Ok(1));
        let ((first, begin), (last, end)) = (block(), block());
        counter.address::<Block>().tell(first).unwrap();
        for _ in 0..10 {
            // Longer than an actor goes on with further pieces.
            let piece = Do::this(|_| std::thread::sleep(Duration::from_millis(20)));
            counter.address::<Do>().tell(piece).unwrap();
        }
        counter.address::<Block>().tell(last).unwrap();
        let (answer, ()) = tokio::join!(ask(&count, Count), async { drop(begin) });
        assert_eq!(answer, Ok(2), "before all of the other's work is done, which has no end");
        drop(end);
    });
}

#[test]
fn g6_a_blocked_thread_is_reported_then_given_up_and_never_fed_meanwhile() {
    Threads::run(async |threads| {
        let (counter, _) = threads.counter(0, Vitality::Vital);
        let other = threads.sibling(1, Vitality::Degradable);
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Ok(1));
        let _watchdog = threads.watch(GIVEN_UP_AFTER);
        threads.until("feeding", |threads| threads.feeds.load(Ordering::SeqCst) > 3).await;
        let (block, let_go) = block();
        counter.address::<Block>().tell(block).unwrap();
        let blocked = |event: &SupervisionEvent| {
            event.actor == "Counter"
                && matches!(&event.what, EventKind::ThreadBlocked { handling, .. } if handling == "Block")
        };
        threads.until("the report", |threads| threads.saw(blocked)).await;
        let fed = threads.feeds.load(Ordering::SeqCst);
        assert_eq!(
            ask(&other.asked::<supervision::Outside, Count>(), Count).await,
            Ok(1),
            "other threads go on"
        );
        threads.until("the end", |threads| threads.gave_up.lock().unwrap().is_some()).await;
        assert_eq!(threads.feeds.load(Ordering::SeqCst), fed, "no food while a vital thread is blocked");
        let failure = threads.gave_up.lock().unwrap().clone().unwrap();
        assert_eq!(failure.actor, "Counter");
        assert!(failure.reason.contains("has not come back"), "{failure:?}");
        assert!(failure.reason.ends_with("handling Block"), "{failure:?}");
        assert_eq!(threads.tree.failed().await, failure, "the whole tree knows");
        drop(let_go);
    });
}

#[test]
fn g6_the_culprit_is_named_and_not_its_victims() {
    Threads::run(async |threads| {
        // Counter comes first by name and shares the thread with the culprit.
        let (counter, _) = threads.counter(0, Vitality::Vital);
        let culprit = threads.sibling(0, Vitality::Degradable);
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Ok(1));
        let _watchdog = threads.watch(GIVEN_UP_AFTER);
        let (block, let_go) = block();
        culprit.address::<Block>().tell(block).unwrap();
        threads.until("the end", |threads| threads.gave_up.lock().unwrap().is_some()).await;
        assert_eq!(threads.gave_up.lock().unwrap().clone().unwrap().actor, "Sibling");
        let report = |event: &SupervisionEvent| {
            event.actor == "Counter"
                && matches!(&event.what, EventKind::ThreadBlocked { handling, .. } if handling == "Block of Sibling")
        };
        assert!(threads.saw(report));
        drop(let_go);
    });
}

#[test]
fn g6_a_blocked_thread_without_anything_vital_does_not_stop_the_feeding() {
    Threads::run(async |threads| {
        let (counter, _) = threads.counter(0, Vitality::Degradable);
        let vital = threads.sibling(1, Vitality::Vital);
        assert_eq!(ask(&vital.asked::<supervision::Outside, Count>(), Count).await, Ok(1));
        let _watchdog = threads.watch(Duration::from_secs(60));
        let (block, let_go) = block();
        counter.address::<Block>().tell(block).unwrap();
        let blocked = |event: &SupervisionEvent| matches!(event.what, EventKind::ThreadBlocked { .. });
        threads.until("the report", |threads| threads.saw(blocked)).await;
        let fed = threads.feeds.load(Ordering::SeqCst);
        threads.until("more food", |threads| threads.feeds.load(Ordering::SeqCst) > fed + 2).await;
        drop(let_go);
        // It comes back, and nothing has happened to it.
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Ok(1));
        let snapshot = threads.tree.snapshot().await;
        assert!(snapshot.actors.iter().all(|actor| actor.state == State::Running && actor.restarts == 0));
    });
}

#[test]
fn g6_a_runtime_of_threads_is_pinged_like_an_actor() {
    let io = Io::start(1).unwrap();
    Threads::run(async |threads| {
        let handle = io.io();
        threads.tree.watch("IoRuntime", Vitality::Vital, move |answer| {
            drop(handle.spawn(async move { answer.give() }));
        });
        let _watchdog = threads.watch(GIVEN_UP_AFTER);
        threads.until("feeding", |threads| threads.feeds.load(Ordering::SeqCst) > 3).await;
        let report = threads.tree.snapshot().await.actors.remove(0);
        assert_eq!((report.name.as_str(), report.state), ("IoRuntime", State::Running));
        let (let_go, blocked) = channel::<()>();
        drop(io.io().spawn(async move { blocked.recv() }));
        let told = |event: &SupervisionEvent| {
            event.actor == "IoRuntime"
                && matches!(&event.what, EventKind::ThreadBlocked { handling, .. } if handling == "its tasks")
        };
        threads.until("the report", |threads| threads.saw(told)).await;
        let fed = threads.feeds.load(Ordering::SeqCst);
        threads.until("the end", |threads| threads.gave_up.lock().unwrap().is_some()).await;
        assert_eq!(threads.feeds.load(Ordering::SeqCst), fed, "no food while the runtime is blocked");
        assert_eq!(threads.gave_up.lock().unwrap().clone().unwrap().actor, "IoRuntime");
        drop(let_go);
    });
}

#[test]
fn actors_on_other_threads_stop_there_and_their_threads_come_home() {
    Threads::run(async |threads| {
        let (counter, outside) = threads.counter(1, Vitality::Degradable);
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Ok(1));
        threads.tree.stop_all();
        threads.until("the end", |_| counter.has_ended()).await;
        assert_eq!(outside.dropped.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn g4_asks_of_many_threads_all_pass_through_a_mailbox_of_one_place() {
    Threads::run_with(Policy { mailbox_bound: 1, ..Policy::default() }, async |threads| {
        let (counter, _) = threads.counter(0, Vitality::Degradable);
        let count = counter.asked::<supervision::Outside, Count>();
        // Each thread keeps several asks waiting for room; a wake that is lost is an ask that fails.
        let askers: Vec<_> = (0..4)
            .map(|_| {
                let count = count.clone();
                std::thread::spawn(move || {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                    runtime.block_on(async {
                        for _ in 0..100 {
                            let asks = (0..10).map(|_| count.ask(Count, Duration::from_secs(60)));
                            let answers = futures::future::join_all(asks).await;
                            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
                        }
                    });
                })
            })
            .collect();
        threads.until("all threads", |_| askers.iter().all(std::thread::JoinHandle::is_finished)).await;
        for asker in askers {
            asker.join().unwrap();
        }
        assert_eq!(ask(&count, Count).await, Ok(4001));
        let report = threads.tree.snapshot().await.actors.remove(0);
        assert_eq!((report.counters.dropped, report.counters.dead_letters), (0, 0));
    });
}
