//! G7: what happens above the restart limit.

use std::time::Duration;

use supervision::{AskError, EventKind, Policy, State, Supervised, Vitality};
use testkit::{Sandbox, sandbox};
use tokio::time::Instant;

use crate::actors::{Count, Counter, Outside, PanicHere, ask, start};

async fn crash_five_times(world: &Sandbox, counter: &Supervised<Counter>, outside: &Outside) {
    world.until("the first incarnation", || outside.born() > 0).await;
    let born = outside.born();
    for restart in 1..=5 {
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        world.until("the restart", || outside.born() == born + restart).await;
    }
}

async fn crash_six_times(world: &Sandbox, counter: &Supervised<Counter>, outside: &Outside) {
    crash_five_times(world, counter, outside).await;
    counter.address::<PanicHere>().tell(PanicHere).unwrap();
}

#[test]
fn g7_a_degradable_actor_goes_dormant_and_is_tried_every_five_minutes() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        crash_six_times(world, &counter, &outside).await;
        // An ask that waits behind the crash does not wait for minutes.
        let before = Instant::now();
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Err(AskError::Lost));
        assert!(before.elapsed() < Duration::from_secs(1));
        assert_eq!(world.report("Counter").await.state, State::Dormant);
        assert_eq!(world.events_of("Counter").await.last(), Some(&EventKind::Dormant { retry_seconds: 300 }));
        let mut failed = Box::pin(world.tree.failed());
        assert!(futures::poll!(&mut failed).is_pending(), "the node goes on without it");

        world.pass(Duration::from_secs(299)).await;
        assert_eq!(outside.born(), 6);
        world.pass(Duration::from_secs(2)).await;
        assert_eq!(outside.born(), 7, "tried again");
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Ok(1));
        let events = world.events_of("Counter").await;
        let down = events.iter().rev().find_map(|what| match what {
            EventKind::Restarted { down_ms } => Some(*down_ms),
            _ => None,
        });
        assert!(down.is_some_and(|ms| (300_000..301_000).contains(&ms)), "its time down is told: {down:?}");
        // With a clean history: five restarts are allowed again.
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        world.until("the restart", || outside.born() == 8).await;
    });
}

#[test]
fn g7_an_actor_that_is_revived_before_it_is_dormant_is_tried_with_what_came_since() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        crash_five_times(world, &counter, &outside).await;
        world.tree.revive("Counter").unwrap();
        world.pass(Duration::from_millis(1)).await;
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        let asked = counter.asked::<supervision::Outside, Count>();
        assert_eq!(asked.ask(Count, Duration::from_secs(60)).await, Ok(1), "it was kept");
        assert_eq!(outside.born(), 7);
        let events = world.events_of("Counter").await;
        assert!(!events.iter().any(|what| matches!(what, EventKind::Dormant { .. })), "{events:?}");
        crash_six_times(world, &counter, &outside).await;
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(world.report("Counter").await.state, State::Dormant, "once");
    });
}

#[test]
fn g7_a_dormant_actor_can_be_revived_and_stopped() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        crash_six_times(world, &counter, &outside).await;
        world.pass(Duration::from_secs(5)).await;
        assert_eq!(world.report("Counter").await.state, State::Dormant);
        world.tree.revive("Counter").unwrap();
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Ok(1), "awake at once");
        assert_eq!(world.report("Counter").await.state, State::Running);
    });
}

#[test]
fn g7_a_vital_actor_above_its_limit_fails_the_node_and_names_itself() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Vital);
        let mut failed = Box::pin(world.tree.failed());
        assert!(futures::poll!(&mut failed).is_pending());
        crash_six_times(world, &counter, &outside).await;
        let failure = failed.await;
        assert_eq!(failure.actor, "Counter");
        let expected = "above the restart limit; last crash while handling PanicHere: here at ";
        assert!(failure.reason.starts_with(expected), "{failure:?}");
        assert!(failure.reason.contains("actors.rs:"), "with the place: {failure:?}");
        assert_eq!(world.report("Counter").await.state, State::Failed);
        assert_eq!(outside.born(), 6);
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Err(AskError::Stopped));
        assert_eq!(world.tree.failed().await, failure, "whoever asks later learns it too");
    });
}
