//! G1 to G3 and G9: a panic stops that actor alone, it comes back with fresh state behind the same
//! addresses, and only the message being handled is lost.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix::{Actor, Handler};
use messages::supervision::Fault;
use supervision::{
    Address, AskError, Ctx, EventKind, Place, Policy, RestartPolicy, Seated, State, Subsystem, Vitality,
};
use testkit::{Sandbox, sandbox};

use crate::actors::{
    Arm, Count, Counter, Finish, GetIncarnation, Latest, Log, Outside, PanicAfterEffect, PanicByTimer,
    PanicHere, PanicInEffect, PanicInStream, ask, start, start_sibling,
};

/// A policy under which no test here reaches the limit.
fn patient() -> Policy {
    Policy { restart: RestartPolicy { restarts_max: 100, ..RestartPolicy::default() }, ..Policy::default() }
}

#[test]
fn g1_a_panic_anywhere_restarts_that_actor_alone() {
    sandbox(patient(), async |world| {
        world.expect_crashes();
        let sibling = start_sibling(world).asked::<supervision::Outside, Count>();
        let (counter, outside) = start(world, Vitality::Degradable);
        let count = counter.asked::<supervision::Outside, Count>();
        assert_eq!(ask(&count, Count).await, Ok(1));

        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        assert_eq!(ask(&sibling, Count).await, Ok(1), "the sibling answers at once");
        world.until("the handler's panic", || outside.born() == 2).await;
        assert_eq!(ask(&count, Count).await, Ok(1), "fresh state, same address");

        counter.address::<PanicInEffect>().tell(PanicInEffect).unwrap();
        world.until("the effect's panic", || outside.born() == 3).await;
        counter.address::<PanicByTimer>().tell(PanicByTimer).unwrap();
        world.until("the timer's panic", || outside.born() == 4).await;
        counter.address::<PanicInStream>().tell(PanicInStream).unwrap();
        world.until("the stream's panic", || outside.born() == 5).await;
        counter.address::<PanicAfterEffect>().tell(PanicAfterEffect).unwrap();
        world.until("the panic of an effect's drop", || outside.born() == 6).await;
        world.tree.inject("Counter", Fault::PanicWhileStarting { times: 2 }).unwrap();
        world.tree.kill("Counter").unwrap();
        world.until("two panics while starting", || outside.born() == 7).await;

        assert_eq!(
            ask(&counter.asked::<supervision::Outside, GetIncarnation>(), GetIncarnation).await,
            Ok(9)
        );
        assert_eq!(outside.dropped.load(Ordering::SeqCst), 6, "dead incarnations are dropped");
        assert_eq!(ask(&sibling, Count).await, Ok(2), "the sibling kept its state all the time");
        assert_eq!(world.report("Sibling").await.restarts, 0);
    });
}

/// The times between crash and restart, in milliseconds.
async fn down_times(world: &Sandbox) -> Vec<u64> {
    let events = world.events_of("Counter").await.into_iter();
    events
        .filter_map(|what| if let EventKind::Restarted { down_ms } = what { Some(down_ms) } else { None })
        .collect()
}

#[test]
fn g2_backoff_doubles_and_the_sixth_crash_in_a_minute_is_above_the_limit() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        for restart in 1..=5 {
            counter.address::<PanicHere>().tell(PanicHere).unwrap();
            world.until("the restart", || outside.born() == restart + 1).await;
        }
        for (down, full) in down_times(world).await.into_iter().zip([100, 200, 400, 800, 1600]) {
            assert!((full * 8 / 10..=full + 1).contains(&down), "{down} ms, expected {full} less jitter");
        }
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(outside.born(), 6, "no sixth restart");
        assert_eq!(world.report("Counter").await.state, State::Dormant);
    });
}

#[test]
fn g2_a_minute_of_health_clears_the_history() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        for restart in 1..=12 {
            counter.address::<PanicHere>().tell(PanicHere).unwrap();
            world.until("the restart", || outside.born() == restart + 1).await;
            world.pass(Duration::from_secs(60)).await;
        }
        let down = down_times(world).await;
        assert_eq!(down.len(), 12);
        assert!(down.iter().all(|ms| (80..=101).contains(ms)), "always the first delay: {down:?}");
    });
}

#[test]
fn g2_all_four_figures_are_configuration() {
    let restart = RestartPolicy {
        backoff_initial: Duration::from_secs(1),
        backoff_max: Duration::from_secs(3),
        restarts_max: 3,
        window: Duration::from_secs(600),
        healthy_after: Duration::from_secs(1200),
    };
    sandbox(Policy { restart, ..Policy::default() }, async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        for restart in 1..=3 {
            counter.address::<PanicHere>().tell(PanicHere).unwrap();
            world.until("the restart", || outside.born() == restart + 1).await;
            world.pass(Duration::from_secs(100)).await;
        }
        for (down, full) in down_times(world).await.into_iter().zip([1000, 2000, 3000]) {
            assert!((full * 8 / 10..=full + 1).contains(&down), "{down} ms, expected {full} less jitter");
        }
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        world.pass(Duration::from_secs(10)).await;
        assert_eq!(world.report("Counter").await.state, State::Dormant, "the fourth is above the limit");
    });
}

#[test]
fn g2_the_same_seed_gives_the_same_jitter() {
    let downs = |seed| {
        sandbox(Policy { seed, ..Policy::default() }, async |world| {
            world.expect_crashes();
            let (counter, outside) = start(world, Vitality::Degradable);
            for restart in 1..=5 {
                counter.address::<PanicHere>().tell(PanicHere).unwrap();
                world.until("the restart", || outside.born() == restart + 1).await;
            }
            down_times(world).await
        })
    };
    assert_eq!(downs(1), downs(1));
    assert_ne!(downs(1), downs(2));
}

#[test]
fn g3_messages_waiting_survive_and_only_the_handled_one_is_lost() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        let log = counter.address::<Log>();
        log.tell(Log(1)).unwrap();
        let lost = counter.asked::<supervision::Outside, PanicHere>().ask(PanicHere, Duration::from_secs(5));
        let lost = tokio::task::spawn_local(lost);
        tokio::task::yield_now().await;
        log.tell(Log(2)).unwrap();
        let waiting = tokio::task::spawn_local(
            counter.asked::<supervision::Outside, Count>().ask(Count, Duration::from_secs(5)),
        );
        log.tell(Log(3)).unwrap();
        assert_eq!(lost.await.unwrap(), Err(AskError::Lost), "its asker learns it");
        assert_eq!(waiting.await.unwrap(), Ok(1), "an ask that waited is answered by the next incarnation");
        world.until("the rest", || outside.logged() == [1, 2, 3]).await;
        let counters = world.report("Counter").await.counters;
        assert_eq!((counters.dropped, counters.dead_letters), (0, 0));
    });
}

#[test]
fn g3_an_address_taken_before_the_start_and_its_clones_work_for_ever() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let outside = Outside::default();
        let seated: Seated<Counter> = world.tree.seat(Vitality::Degradable);
        let early = seated.asked::<supervision::Outside, GetIncarnation>();
        let seed = outside.clone();
        let counter = seated.start(&Place::Here, move || Counter::new(&seed));
        assert_eq!(ask(&early, GetIncarnation).await, Ok(1));
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        assert_eq!(ask(&early.clone(), GetIncarnation).await, Ok(2));
    });
}

#[test]
fn a_state_that_panics_while_it_is_dropped_does_not_abort_the_process() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        counter.address::<Arm>().tell(Arm).unwrap();
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, GetIncarnation>(), GetIncarnation).await,
            Ok(2)
        );
        assert_eq!(outside.dropped.load(Ordering::SeqCst), 1);
        // The same at a normal end.
        counter.address::<Arm>().tell(Arm).unwrap();
        counter.address::<Finish>().tell(Finish).unwrap();
        world.until("the end", || counter.has_ended()).await;
        assert_eq!(outside.dropped.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn stop_from_within_is_a_normal_end() {
    sandbox(Policy::default(), async |world| {
        let (counter, outside) = start(world, Vitality::Vital);
        counter.address::<Finish>().tell(Finish).unwrap();
        counter.address::<Log>().tell(Log(1)).unwrap();
        world.until("the end", || counter.has_ended()).await;
        assert_eq!(world.report("Counter").await.state, State::Stopped);
        assert_eq!(outside.born(), 1, "not restarted");
        assert!(outside.logged().is_empty(), "nothing is handled after the end");
        assert_eq!(world.report("Counter").await.counters.dropped, 1, "what waited is counted");
        assert_eq!(world.events_of("Counter").await.last(), Some(&EventKind::Stopped));
    });
}

/// An actor whose state is what its source last said.
struct Rebuilt {
    state: Option<u64>,
    resend: Address<Count>,
}

impl Actor for Rebuilt {
    type Context = Ctx<Self>;
}

impl Subsystem for Rebuilt {
    const NAME: &'static str = "Rebuilt";
    type Timer = ();

    fn on_start(&mut self, _: &mut Ctx<Self>) {
        let _resent_later = self.resend.tell(Count);
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!(self.state)
    }
}

impl Handler<Latest> for Rebuilt {
    type Result = ();
    fn handle(&mut self, latest: Latest, _: &mut Ctx<Self>) {
        self.state = Some(latest.1);
    }
}

#[test]
fn g9_every_incarnation_asks_for_its_state_again() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        // The source resends its fact to each actor that asks.
        let target: Arc<OnceLock<Address<Latest>>> = Arc::default();
        let to = target.clone();
        let resend = Address::sink("Source", move |_: Count| {
            to.get().expect("set before the actor runs").tell(Latest("fact", 7)).unwrap();
        });
        let seated: Seated<Rebuilt> = world.tree.seat(Vitality::Degradable);
        target.set(seated.address()).unwrap();
        seated.start(&Place::Here, move || Rebuilt { state: None, resend: resend.clone() });
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(world.report("Rebuilt").await.observed, 7);
        world.tree.kill("Rebuilt").unwrap();
        world.pass(Duration::from_secs(1)).await;
        let report = world.report("Rebuilt").await;
        assert_eq!((report.incarnation, report.observed), (2, serde_json::json!(7)));
    });
}
