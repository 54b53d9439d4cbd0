//! Every kind of fault does what it says, once, and leaves nothing behind.

use std::sync::atomic::Ordering;
use std::time::Duration;

use messages::PodUid;
use messages::supervision::Fault;
use supervision::{AskError, EventKind, Policy, State, Supervised, Vitality};
use testkit::{Sandbox, sandbox};

use crate::actors::{
    AnswerLater, Count, Counter, GetIncarnation, Log, Outside, Poison, TickLater, ask, start,
};

fn log_fault(fault: impl FnOnce(String) -> Fault) -> Fault {
    fault("Log".to_owned())
}

/// A running counter with this fault ordered.
async fn with(world: &Sandbox, fault: Fault) -> (Supervised<Counter>, Outside) {
    let (counter, outside) = start(world, Vitality::Degradable);
    world.pass(Duration::from_millis(1)).await;
    world.tree.inject("Counter", fault).unwrap();
    world.pass(Duration::from_millis(1)).await;
    (counter, outside)
}

fn tell_logs(counter: &Supervised<Counter>, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        counter.address::<Log>().tell(Log(number)).unwrap();
    }
}

async fn crashes(world: &Sandbox) -> Vec<(String, String)> {
    let events = world.events_of("Counter").await.into_iter();
    events
        .filter_map(|what| match what {
            EventKind::Crashed(crash) => Some((crash.handling, crash.reason)),
            _ => None,
        })
        .collect()
}

#[test]
fn panic_now() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, _) = with(world, Fault::PanicNow).await;
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, GetIncarnation>(), GetIncarnation).await,
            Ok(2)
        );
        assert_eq!(crashes(world).await, [(String::new(), "fault: panic now".to_owned())]);
    });
}

#[test]
fn panic_on_the_nth_message() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = with(world, log_fault(|message| Fault::PanicOn { message, nth: 3 })).await;
        tell_logs(&counter, 1..=5);
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Ok(1));
        assert_eq!(outside.logged(), [1, 2, 4, 5], "the third one is lost, and nothing else");
        assert_eq!(crashes(world).await, [("Log".to_owned(), "fault: panic on Log".to_owned())]);
    });
}

#[test]
fn panic_on_effects_and_timers_by_their_names() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, _) = with(world, Fault::PanicOn { message: "answer".to_owned(), nth: 1 }).await;
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, AnswerLater>(), AnswerLater(10)).await,
            Err(AskError::Lost)
        );
        world.pass(Duration::from_secs(1)).await;
        world.tree.inject("Counter", Fault::PanicOn { message: "timer".to_owned(), nth: 1 }).unwrap();
        counter.address::<TickLater>().tell(TickLater(10)).unwrap();
        world.pass(Duration::from_secs(1)).await;
        let handling: Vec<_> = crashes(world).await.into_iter().map(|(handling, _)| handling).collect();
        assert_eq!(handling, ["answer", "timer"]);
    });
}

#[test]
fn panic_while_starting() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = with(world, Fault::PanicWhileStarting { times: 2 }).await;
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, Count>(), Count).await,
            Ok(1),
            "the running one goes on"
        );
        world.tree.kill("Counter").unwrap();
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, GetIncarnation>(), GetIncarnation).await,
            Ok(4)
        );
        assert_eq!(outside.born(), 2, "two incarnations did not get as far as their state");
        let handling: Vec<_> = crashes(world).await.into_iter().map(|(handling, _)| handling).collect();
        assert_eq!(handling[1..], ["starting", "starting"]);
    });
}

#[test]
fn stall() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = with(world, Fault::Stall).await;
        let count = counter.asked::<supervision::Outside, Count>();
        assert_eq!(count.ask(Count, Duration::from_secs(100)).await, Err(AskError::Deadline));
        assert_eq!(outside.born(), 1, "nobody pings in a sandbox");
        assert_eq!(world.report("Counter").await.state, State::Running);
        world.tree.kill("Counter").unwrap();
        assert!(ask(&count, Count).await.is_ok(), "the next incarnation is not stalled");
    });
}

#[test]
fn hang_effects_before_or_after_their_work() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let hang = |nth, done| Fault::Hang { effect: "answer".to_owned(), nth, done };
        let (counter, _) = with(world, hang(2, true)).await;
        let answer = counter.asked::<supervision::Outside, AnswerLater>();
        assert!(ask(&answer, AnswerLater(10)).await.is_ok(), "the second is to hang");
        let long = Duration::from_secs(400);
        assert_eq!(answer.ask(AnswerLater(10), long).await, Err(AskError::Lost), "at its deadline");
        world.pass(Duration::from_secs(1)).await;
        world.tree.inject("Counter", hang(1, false)).unwrap();
        assert_eq!(answer.ask(AnswerLater(10), long).await, Err(AskError::Lost));
        world.pass(Duration::from_secs(1)).await;
        assert!(ask(&answer, AnswerLater(10)).await.is_ok(), "once");
        assert_eq!(world.report("Counter").await.effects_overdue, 2);
    });
}

#[test]
fn drop_messages() {
    sandbox(Policy::default(), async |world| {
        let (counter, outside) = with(world, log_fault(|message| Fault::Drop { message, count: 2 })).await;
        tell_logs(&counter, 1..=4);
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(outside.logged(), [3, 4]);
        assert_eq!(world.report("Counter").await.counters.dropped, 2);
    });
}

#[test]
fn delay_messages() {
    sandbox(Policy::default(), async |world| {
        let fault = log_fault(|message| Fault::Delay { message, count: 2, ms: 500 });
        let (counter, outside) = with(world, fault).await;
        tell_logs(&counter, 1..=1);
        world.pass(Duration::from_millis(400)).await;
        assert!(outside.logged().is_empty());
        world.pass(Duration::from_millis(200)).await;
        assert_eq!(outside.logged(), [1], "once: a delayed message does not use up the second delay");
        tell_logs(&counter, 2..=3);
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(outside.logged(), [1, 3], "later ones pass it");
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(outside.logged(), [1, 3, 2]);
    });
}

#[test]
fn hold_messages_back() {
    sandbox(Policy::default(), async |world| {
        let fault = log_fault(|message| Fault::Hold { message, count: 2, ms: 500 });
        let (counter, outside) = with(world, fault).await;
        tell_logs(&counter, 1..=2);
        world.pass(Duration::from_millis(400)).await;
        assert!(outside.logged().is_empty(), "none overtakes the first");
        world.pass(Duration::from_millis(200)).await;
        assert_eq!(outside.logged(), [1, 2], "that the second waited is not the second fault");
        tell_logs(&counter, 3..=3);
        world.pass(Duration::from_millis(400)).await;
        tell_logs(&counter, 4..=5);
        world.pass(Duration::from_millis(200)).await;
        assert_eq!(outside.logged(), [1, 2, 3, 4, 5], "the later ones wait no longer than the first");
        tell_logs(&counter, 6..=6);
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(outside.logged(), [1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn duplicate_messages() {
    sandbox(Policy::default(), async |world| {
        let fault = log_fault(|message| Fault::Duplicate { message, count: 2 });
        let (counter, outside) = with(world, fault).await;
        tell_logs(&counter, 1..=3);
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(outside.logged(), [1, 1, 2, 2, 3]);
    });
}

#[test]
fn duplicating_an_ask_answers_it_once() {
    sandbox(Policy::default(), async |world| {
        let fault = Fault::Duplicate { message: "Count".to_owned(), count: 1 };
        let (counter, _) = with(world, fault).await;
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Ok(1));
        assert_eq!(
            ask(&counter.asked::<supervision::Outside, Count>(), Count).await,
            Ok(3),
            "the duplicate counted between"
        );
    });
}

#[test]
fn squeeze_a_mailbox() {
    sandbox(Policy::default(), async |world| {
        let (counter, _) = with(world, Fault::SqueezeMailbox { bound: 2 }).await;
        let get = counter.address::<GetIncarnation>();
        get.tell(GetIncarnation).unwrap();
        get.tell(GetIncarnation).unwrap();
        assert_eq!(get.tell(GetIncarnation).unwrap_err().why, AskError::Full);
        assert_eq!(world.report("Counter").await.mailbox_bound, 2);
    });
}

#[test]
fn faults_read_as_data() {
    let script = r#"[{"fault":"panicNow"},{"fault":"panicOn","message":"Log","nth":3},
        {"fault":"panicWhileStarting","times":2},{"fault":"stall"},{"fault":"drop","message":"Log","count":1},
        {"fault":"delay","message":"Log","count":1,"ms":5},{"fault":"duplicate","message":"Log","count":1},
        {"fault":"squeezeMailbox","bound":2}]"#;
    let faults: Vec<Fault> = serde_json::from_str(script).unwrap();
    assert_eq!(faults.len(), 8);
    assert_eq!(faults[1], Fault::PanicOn { message: "Log".to_owned(), nth: 3 });
    assert!(
        serde_json::from_str::<Fault>(r#"{"fault":"drop","message":"Log","count":1,"x":3}"#).is_err(),
        "unknown fields are errors"
    );
}

#[test]
fn poison_a_pod() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = with(world, Fault::PoisonPod { pod: PodUid::new("bad"), times: 2 }).await;
        for uid in ["bad", "good", "bad", "bad"] {
            let poison = Poison { uid: PodUid::new(uid), panics: false, place: 0 };
            counter.address::<Poison>().tell(poison).unwrap();
            world.pass(Duration::from_millis(200)).await;
        }
        assert_eq!(
            outside.poison_handled.load(Ordering::SeqCst),
            2,
            "the other pod's, and the third of the pod"
        );
        let poisoned = ("Poison".to_owned(), "fault: poison pod bad".to_owned());
        assert_eq!(crashes(world).await, [poisoned.clone(), poisoned]);
    });
}
