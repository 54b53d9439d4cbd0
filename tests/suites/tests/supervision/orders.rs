//! G5: orders have a lane of their own that a full mailbox cannot block.

use std::time::Duration;

use actix::{Actor, Handler, MessageResult};
use messages::supervision::Fault;
use supervision::{
    AskError, Ctx, EventKind, Place, Policy, RestartPolicy, Seated, State, Subsystem, Supervised, Vitality,
};
use testkit::{Sandbox, sandbox};

use crate::actors::{AndAgain, Count, Counter, GetIncarnation, HangForEver, Log, Outside, ask, start};

/// A counter that waits for ever, behind a mailbox without room.
async fn hung_and_full(world: &Sandbox) -> (Supervised<Counter>, Outside) {
    let (counter, outside) = start(world, Vitality::Degradable);
    counter.address::<HangForEver>().tell(HangForEver).unwrap();
    world.pass(Duration::from_millis(1)).await;
    counter.address::<Count>().tell(Count).unwrap();
    assert_eq!(counter.address::<Count>().tell(Count).unwrap_err().why, AskError::Full);
    (counter, outside)
}

fn narrow() -> Policy {
    Policy { mailbox_bound: 1, ..Policy::default() }
}

#[test]
fn an_actor_that_waits_takes_no_message_not_even_of_the_same_turn() {
    sandbox(Policy::default(), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        counter.address::<HangForEver>().tell(HangForEver).unwrap();
        counter.address::<Log>().tell(Log(1)).unwrap();
        world.pass(Duration::from_secs(1)).await;
        assert!(outside.logged().is_empty());
        assert_eq!(world.report("Counter").await.mailbox_depth, 1);
    });
}

/// A subsystem whose state cannot be shown.
struct Shy(u64);

impl Actor for Shy {
    type Context = Ctx<Self>;
}

impl Subsystem for Shy {
    const NAME: &'static str = "Shy";
    type Timer = ();

    fn observe(&self) -> serde_json::Value {
        panic!("it is shy")
    }
}

impl Handler<Count> for Shy {
    type Result = MessageResult<Count>;

    fn handle(&mut self, _: Count, _: &mut Ctx<Self>) -> Self::Result {
        self.0 += 1;
        MessageResult(self.0)
    }
}

#[test]
fn an_actor_whose_state_cannot_be_shown_goes_on() {
    sandbox(Policy::default(), async |world| {
        let seated: Seated<Shy> = world.tree.seat(Vitality::Vital);
        let shy = seated.start(&Place::Here, || Shy(0));
        for asked in 1..=10 {
            let report = world.report("Shy").await;
            assert_eq!((report.state, report.restarts), (State::Running, 0));
            let shown = report.observed.to_string();
            assert!(shown.contains("it is shy at ") && shown.contains("orders.rs:"), "{shown}");
            assert_eq!(ask(&shy.asked(), Count).await, Ok(asked));
        }
    });
}

#[test]
fn g5_kill_passes_a_full_mailbox() {
    sandbox(narrow(), async |world| {
        world.expect_crashes();
        let (counter, outside) = hung_and_full(world).await;
        world.tree.kill("Counter").unwrap();
        world.until("the restart", || outside.born() == 2).await;
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, Count>(), Count).await,
            Ok(2),
            "the message that waited is kept"
        );
    });
}

#[test]
fn g5_stop_passes_a_full_mailbox() {
    sandbox(narrow(), async |world| {
        let (counter, _) = hung_and_full(world).await;
        counter.stop();
        world.until("the end", || counter.has_ended()).await;
        assert_eq!(world.report("Counter").await.counters.dropped, 1);
    });
}

#[test]
fn g5_a_fault_passes_a_full_mailbox() {
    sandbox(narrow(), async |world| {
        let (counter, _) = hung_and_full(world).await;
        world.tree.inject("Counter", Fault::SqueezeMailbox { bound: 3 }).unwrap();
        world.pass(Duration::from_millis(1)).await;
        counter.address::<Count>().tell(Count).unwrap();
        counter.address::<Count>().tell(Count).unwrap();
        assert_eq!(counter.address::<Count>().tell(Count).unwrap_err().why, AskError::Full);
    });
}

#[test]
fn g5_no_number_of_questions_keeps_a_stop_out() {
    sandbox(narrow(), async |world| {
        let (counter, _) = hung_and_full(world).await;
        // All are asked in one turn, before the actor's driver can take a single one.
        let mut snapshots: Vec<_> = (0..500).map(|_| Box::pin(world.tree.snapshot())).collect();
        for snapshot in &mut snapshots {
            let _some_are_refused = futures::poll!(snapshot);
        }
        counter.stop();
        world.until("the end", || counter.has_ended()).await;
    });
}

#[test]
fn g5_orders_pass_a_flood() {
    let restart = RestartPolicy { restarts_max: 100, ..RestartPolicy::default() };
    sandbox(Policy { restart, mailbox_bound: 64, ..Policy::default() }, async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        outside.again.set(counter.address()).unwrap();
        while counter.address::<AndAgain>().tell(AndAgain).is_ok() {}
        // With an actor that never rests the clock does not move by itself.
        world.turns_until("the start", || outside.born() == 1).await;
        let seen = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let record = seen.clone();
        world.tree.observe(move |event| {
            if matches!(event.what, EventKind::Crashed(_)) {
                record.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        let crashed = |times: u64| {
            let seen = seen.clone();
            move || seen.load(std::sync::atomic::Ordering::SeqCst) == times
        };
        world.tree.kill("Counter").unwrap();
        world.turns_until("the kill", crashed(1)).await;
        tokio::time::advance(Duration::from_millis(150)).await;
        world.turns_until("the restart", || outside.born() == 2).await;
        world.tree.inject("Counter", Fault::PanicNow).unwrap();
        world.turns_until("the fault", crashed(2)).await;
        tokio::time::advance(Duration::from_millis(250)).await;
        world.turns_until("the restart", || outside.born() == 3).await;
        counter.stop();
        world.turns_until("the end", || counter.has_ended()).await;
    });
}

#[test]
fn g5_a_stop_ends_an_actor_that_waits_for_its_restart() {
    let restart = RestartPolicy { backoff_initial: Duration::from_secs(10), ..RestartPolicy::default() };
    sandbox(Policy { restart, ..Policy::default() }, async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, GetIncarnation>(), GetIncarnation).await,
            Ok(1)
        );
        world.tree.kill("Counter").unwrap();
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(world.report("Counter").await.state, State::Restarting);
        counter.stop();
        world.pass(Duration::from_millis(1)).await;
        assert!(counter.has_ended());
        assert_eq!(outside.born(), 1);
    });
}

#[test]
fn orders_to_nobody_say_so() {
    sandbox(Policy::default(), async |world| {
        let error = world.tree.kill("Nobody").unwrap_err();
        assert_eq!(error.to_string(), "no actor \"Nobody\" in the supervision tree");
        assert!(world.tree.revive("Nobody").is_err());
        assert!(world.tree.inject("Nobody", Fault::PanicNow).is_err());
    });
}
