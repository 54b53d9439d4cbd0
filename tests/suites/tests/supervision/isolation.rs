//! G8: work of an earlier incarnation cannot touch a later one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use supervision::{AskError, Policy, Vitality};
use testkit::sandbox;

use crate::actors::{AnswerLater, Count, GetIncarnation, StreamsThatCancel, TickLater, ask, start};

#[test]
fn g8_effects_and_their_late_replies_end_with_their_incarnation() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        let late = counter
            .asked::<supervision::Outside, AnswerLater>()
            .ask(AnswerLater(2000), Duration::from_secs(60));
        let late = tokio::task::spawn_local(late);
        world.pass(Duration::from_millis(1)).await;
        world.tree.kill("Counter").unwrap();
        assert_eq!(late.await.unwrap(), Err(AskError::Lost), "the asker learns it with the crash");
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, GetIncarnation>(), GetIncarnation).await,
            Ok(2)
        );
        world.pass(Duration::from_secs(10)).await;
        assert_eq!(outside.late.load(Ordering::SeqCst), 0, "its continuation never ran");
        assert_eq!(ask(&counter.asked::<supervision::Outside, AnswerLater>(), AnswerLater(10)).await, Ok(2));
        assert_eq!(outside.late.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn g8_timers_and_streams_end_with_their_incarnation() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        counter.address::<TickLater>().tell(TickLater(10)).unwrap();
        world.pass(Duration::from_millis(20)).await;
        assert_eq!(outside.ticks.load(Ordering::SeqCst), 2, "one by the timer, one by the stream");
        counter.address::<TickLater>().tell(TickLater(2000)).unwrap();
        world.pass(Duration::from_millis(1)).await;
        world.tree.kill("Counter").unwrap();
        world.pass(Duration::from_secs(10)).await;
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, GetIncarnation>(), GetIncarnation).await,
            Ok(2)
        );
        assert_eq!(outside.ticks.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn g8_an_actor_that_ends_takes_its_work_with_it() {
    sandbox(Policy::default(), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        counter.address::<TickLater>().tell(TickLater(1000)).unwrap();
        counter.address::<AnswerLater>().tell(AnswerLater(1000)).unwrap();
        world.pass(Duration::from_millis(1)).await;
        counter.stop();
        world.pass(Duration::from_secs(10)).await;
        assert_eq!(outside.ticks.load(Ordering::SeqCst) + outside.late.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_stream_cancelled_from_its_own_item_yields_nothing_more() {
    sandbox(Policy::default(), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        counter.address::<StreamsThatCancel>().tell(StreamsThatCancel).unwrap();
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(outside.ticks.load(Ordering::SeqCst), 1, "the other stream is cancelled as well");
    });
}

#[test]
fn polling_a_quiet_stream_is_not_counted_as_work() {
    sandbox(Policy::default(), async |world| {
        let (counter, _) = start(world, Vitality::Degradable);
        counter.address::<TickLater>().tell(TickLater(60_000)).unwrap();
        for _ in 0..10 {
            assert!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await.is_ok());
        }
        // The start, the message that set the timer, ten counts.
        assert_eq!(world.report("Counter").await.counters.handled, 12);
    });
}

#[test]
fn g8_a_timer_may_be_further_away_than_any_clock_reaches() {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    sandbox(Policy::default(), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        counter.address::<TickLater>().tell(TickLater(u64::MAX)).unwrap();
        world.pass(YEAR).await;
        assert_eq!(outside.ticks.load(Ordering::SeqCst), 0);
        // The timer is moved; three and a half years are beyond the reach of the queue, too.
        let ms = u64::try_from(YEAR.as_millis() * 7 / 2).unwrap();
        counter.address::<TickLater>().tell(TickLater(ms)).unwrap();
        world.pass(YEAR * 3).await;
        assert_eq!(outside.ticks.load(Ordering::SeqCst), 0, "not when the queue has it for the first time");
        world.pass(YEAR).await;
        assert!(outside.ticks.load(Ordering::SeqCst) >= 1);
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, GetIncarnation>(), GetIncarnation).await,
            Ok(1)
        );
    });
}
