//! G4: mailboxes are exactly bounded, each type's rule holds at the bound, and nothing is lost silently.

use std::time::Duration;

use supervision::{AskError, Policy, Vitality};
use testkit::sandbox;
use tokio::time::Instant;

use crate::actors::{
    Again, AndAgain, AnswerLater, Count, GetIncarnation, HangForEver, Latest, Log, Only, ask, start,
    start_sibling,
};

fn bound(mailbox_bound: usize) -> Policy {
    Policy { mailbox_bound, ..Policy::default() }
}

#[test]
fn g4_reject_refuses_at_the_bound_and_gives_the_message_back() {
    sandbox(bound(2), async |world| {
        let (counter, _) = start(world, Vitality::Degradable);
        let (tell, get) = (counter.address::<GetIncarnation>(), counter.asked());
        tell.tell(GetIncarnation).unwrap();
        tell.tell(GetIncarnation).unwrap();
        let refused = tell.tell(GetIncarnation).unwrap_err();
        assert_eq!((refused.why, refused.message), (AskError::Full, GetIncarnation));
        assert_eq!(ask(&get, GetIncarnation).await, Err(AskError::Full), "an ask does not wait either");
        let report = world.report("Counter").await;
        assert_eq!((report.counters.dead_letters, report.counters.dropped), (2, 0));
        assert_eq!(report.mailbox_bound, 2);
        assert_eq!(ask(&get, GetIncarnation).await, Ok(1), "there is room again");
    });
}

#[test]
fn g4_wait_waits_for_room_until_the_deadline() {
    sandbox(bound(1), async |world| {
        let (counter, _) = start(world, Vitality::Degradable);
        let (tell, count) = (counter.address::<Count>(), counter.asked::<supervision::Outside, Count>());
        let asks: Vec<_> = (0..20).map(|_| tokio::task::spawn_local(ask_owned(&count))).collect();
        for (n, answer) in asks.into_iter().enumerate() {
            assert_eq!(answer.await.unwrap(), Ok(n as u64 + 1), "in the order of asking");
        }
        counter.address::<HangForEver>().tell(HangForEver).unwrap();
        world.pass(Duration::from_millis(1)).await;
        tell.tell(Count).unwrap();
        assert_eq!(tell.tell(Count).unwrap_err().why, AskError::Full, "a tell never waits");
        let before = Instant::now();
        assert_eq!(count.ask(Count, Duration::from_secs(3)).await, Err(AskError::Full));
        assert_eq!(before.elapsed().as_secs(), 3, "at the deadline, neither before nor after");
        let report = world.report("Counter").await;
        assert_eq!((report.mailbox_depth, report.counters.dead_letters), (1, 2));
    });
}

fn ask_owned(
    count: &supervision::AskPort<supervision::Outside, Count>,
) -> impl Future<Output = Result<u64, AskError>> + Send + 'static {
    count.ask(Count, Duration::from_secs(5))
}

#[test]
fn g4_the_latest_per_key_takes_the_place_of_the_older_one() {
    sandbox(bound(2), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        let latest = counter.address::<Latest>();
        for message in [Latest("a", 1), Latest("a", 2), Latest("b", 1), Latest("a", 3)] {
            latest.tell(message).unwrap();
        }
        let refused = latest.tell(Latest("c", 1)).unwrap_err();
        assert_eq!((refused.why, refused.message), (AskError::Full, Latest("c", 1)), "no room for a new key");
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(*outside.latest.lock().unwrap(), [Latest("a", 3), Latest("b", 1)]);
        let counters = world.report("Counter").await.counters;
        assert_eq!((counters.replaced, counters.dead_letters, counters.dropped), (2, 1, 0));
        // What has been handled is not replaced any more.
        latest.tell(Latest("a", 4)).unwrap();
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(outside.latest.lock().unwrap().last(), Some(&Latest("a", 4)));
    });
}

#[test]
fn g4_a_fact_of_which_there_is_only_one_always_has_room() {
    sandbox(bound(1), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        let (latest, only) = (counter.address::<Latest>(), counter.address::<Only>());
        latest.tell(Latest("a", 1)).unwrap();
        assert_eq!(latest.tell(Latest("b", 1)).unwrap_err().why, AskError::Full);
        for number in 1..=3 {
            only.tell(Only { number, highest: number }).unwrap();
        }
        assert_eq!(latest.tell(Latest("b", 1)).unwrap_err().why, AskError::Full, "it is no place for others");
        world.pass(Duration::from_millis(1)).await;
        latest.tell(Latest("b", 2)).unwrap();
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(*outside.latest.lock().unwrap(), [Latest("a", 1), Latest("b", 2)]);
        assert_eq!(*outside.only.lock().unwrap(), [Only { number: 3, highest: 3 }]);
    });
}

#[test]
fn g4_a_subsystems_request_always_has_room() {
    sandbox(bound(1), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        let (latest, again) = (counter.address::<Latest>(), counter.address::<Again>());
        latest.tell(Latest("a", 1)).unwrap();
        for receiver in ["One", "Other", "One"] {
            again.tell(Again(receiver)).unwrap();
        }
        assert_eq!(latest.tell(Latest("b", 1)).unwrap_err().why, AskError::Full, "it is no place for others");
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(*outside.latest.lock().unwrap(), [Latest("a", 1), Latest("One", 0), Latest("Other", 0)]);
    });
}

#[test]
fn g4_a_newer_message_takes_over_what_must_not_be_lost_with_the_older_one() {
    sandbox(bound(4), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        let only = counter.address::<Only>();
        for (number, highest) in [(1, 7), (2, 0), (3, 5)] {
            only.tell(Only { number, highest }).unwrap();
        }
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(*outside.only.lock().unwrap(), [Only { number: 3, highest: 7 }]);
    });
}

#[test]
fn g4_the_oldest_is_dropped_and_counted() {
    sandbox(bound(3), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        for number in 1..=5 {
            counter.address::<Log>().tell(Log(number)).unwrap();
        }
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, GetIncarnation>(), GetIncarnation).await,
            Err(AskError::Full)
        );
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(outside.logged(), [3, 4, 5]);
        // Nothing of the same name is there to make room.
        for _ in 0..3 {
            counter.address::<GetIncarnation>().tell(GetIncarnation).unwrap();
        }
        assert_eq!(counter.address::<Log>().tell(Log(6)).unwrap_err().why, AskError::Full);
        let counters = world.report("Counter").await.counters;
        assert_eq!((counters.dropped, counters.dead_letters), (2, 2));
    });
}

#[test]
fn g4_messages_of_all_rules_share_one_order_and_one_bound() {
    sandbox(bound(64), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        let (latest, log) = (counter.address::<Latest>(), counter.address::<Log>());
        // More replacements and drops than the bound, so that the holes they leave are closed on the way.
        for round in 0..1000 {
            log.tell(Log(round)).unwrap();
            latest.tell(Latest("a", round)).unwrap();
            latest.tell(Latest(if round % 2 == 0 { "b" } else { "c" }, round)).unwrap();
        }
        assert_eq!(world.report("Counter").await.mailbox_bound, 64);
        world.pass(Duration::from_millis(1)).await;
        let logged = outside.logged();
        assert_eq!(logged, (1000 - logged.len() as u64..1000).collect::<Vec<_>>(), "the newest, in order");
        assert_eq!(logged.len(), 61, "three of 64 places are the facts'");
        let latest = outside.latest.lock().unwrap().clone();
        assert_eq!(latest, [Latest("a", 999), Latest("b", 998), Latest("c", 999)]);
        let counters = world.report("Counter").await.counters;
        // And the start.
        assert_eq!(counters.handled + counters.dropped + counters.replaced, 3001, "all are accounted for");
    });
}

#[test]
fn g4_after_the_end_everything_is_a_dead_letter() {
    sandbox(Policy::default(), async |world| {
        let (counter, _) = start(world, Vitality::Degradable);
        let (log, count) = (counter.address::<Log>(), counter.asked());
        counter.stop();
        log.tell(Log(1)).unwrap();
        world.until("the end", || counter.has_ended()).await;
        assert_eq!(log.tell(Log(2)).unwrap_err().why, AskError::Stopped);
        assert_eq!(ask(&count, Count).await, Err(AskError::Stopped));
        let counters = world.report("Counter").await.counters;
        assert_eq!((counters.dropped, counters.dead_letters), (1, 2));
    });
}

#[test]
fn g4_an_ask_that_waits_for_room_learns_of_the_end() {
    sandbox(bound(1), async |world| {
        let (counter, _) = start(world, Vitality::Degradable);
        let count = counter.asked::<supervision::Outside, Count>();
        counter.address::<HangForEver>().tell(HangForEver).unwrap();
        world.pass(Duration::from_millis(1)).await;
        let waits = tokio::task::spawn_local(ask_owned(&count));
        let wants_room = tokio::task::spawn_local(ask_owned(&count));
        world.pass(Duration::from_millis(1)).await;
        let before = Instant::now();
        counter.stop();
        assert_eq!(waits.await.unwrap(), Err(AskError::Lost));
        assert_eq!(wants_room.await.unwrap(), Err(AskError::Stopped));
        assert!(before.elapsed() < Duration::from_millis(10), "at once, not at the deadline");
    });
}

#[test]
fn a_query_nobody_waits_for_is_skipped_and_counted_and_a_command_is_handled() {
    sandbox(Policy::default(), async |world| {
        let (counter, outside) = start(world, Vitality::Degradable);
        let gone = |answer| async move {
            let mut answer: std::pin::Pin<Box<dyn Future<Output = Result<u64, AskError>>>> = answer;
            assert!(futures::poll!(&mut answer).is_pending());
        };
        gone(Box::pin(
            counter
                .asked::<supervision::Outside, GetIncarnation>()
                .ask(GetIncarnation, Duration::from_secs(1)),
        ))
        .await;
        gone(Box::pin(counter.asked::<supervision::Outside, Count>().ask(Count, Duration::from_secs(1))))
            .await;
        counter.address::<GetIncarnation>().tell(GetIncarnation).unwrap();
        world.pass(Duration::from_secs(2)).await;
        let report = world.report("Counter").await;
        assert_eq!(report.counters.skipped_queries, 1, "a tell has no asker that could go");
        assert_eq!(report.observed["count"], 1, "the command was handled");
        assert_eq!(outside.born(), 1);
    });
}

#[test]
fn an_ask_ends_at_its_deadline() {
    sandbox(Policy::default(), async |world| {
        let (counter, _) = start(world, Vitality::Degradable);
        let later = counter.asked::<supervision::Outside, AnswerLater>();
        let before = Instant::now();
        assert_eq!(
            later.ask(AnswerLater(60_000), Duration::from_secs(2)).await,
            Err(AskError::Deadline),
            "handled, not answered"
        );
        assert_eq!(before.elapsed().as_secs(), 2);
        assert_eq!(later.ask(AnswerLater(50), Duration::from_secs(2)).await, Ok(1));
    });
}

#[test]
fn a_flooded_actor_does_not_starve_its_siblings() {
    sandbox(Policy { mailbox_bound: 100_000, ..Policy::default() }, async |world| {
        let sibling = start_sibling(world).asked::<supervision::Outside, Count>();
        let (counter, outside) = start(world, Vitality::Degradable);
        for number in 0..100_000 {
            counter.address::<Log>().tell(Log(number)).unwrap();
        }
        // From a task of the same thread, as actors are.
        let asks = tokio::task::spawn_local(async move {
            for round in 1..=5 {
                assert_eq!(ask(&sibling, Count).await, Ok(round));
            }
        });
        asks.await.unwrap();
        let handled = outside.logged().len();
        assert!(handled < 10_000, "five answers took {handled} of the flood's 100,000 messages");
    });
}

#[test]
fn an_actor_that_never_rests_does_not_starve_its_siblings() {
    sandbox(Policy::default(), async |world| {
        let sibling = start_sibling(world).asked::<supervision::Outside, Count>();
        let (counter, outside) = start(world, Vitality::Degradable);
        outside.again.set(counter.address()).unwrap();
        counter.address::<AndAgain>().tell(AndAgain).unwrap();
        for round in 1..=100 {
            assert_eq!(ask(&sibling, Count).await, Ok(round));
        }
        counter.stop();
        world.turns_until("the end", || counter.has_ended()).await;
    });
}
