//! G11: a poison pod is not the subsystem's failure.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use messages::PodUid;
use supervision::{AskError, EventKind, Policy, State, Supervised, Vitality};
use testkit::{Sandbox, sandbox};

use crate::actors::{Count, Counter, Do, GetPod, HangForEver, Outside, Poison, SetPodTimer, ask, start};

fn poison(uid: &str, panics: bool) -> Poison {
    Poison { uid: PodUid::new(uid), panics, place: 0 }
}

/// Crashes the counter on this pod so many times.
async fn crash_on(world: &Sandbox, counter: &Supervised<Counter>, outside: &Outside, uid: &str, times: u32) {
    for _ in 0..times {
        world.pass(Duration::from_millis(1)).await;
        let born = outside.born();
        counter.address::<Poison>().tell(poison(uid, true)).unwrap();
        world.until("the restart", || outside.born() == born + 1).await;
    }
}

#[test]
fn g11_the_third_panic_quarantines_the_pod_and_no_other() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = seen.clone();
        world.tree.observe(move |event| record.lock().unwrap().push(event.clone()));
        let (counter, outside) = start(world, Vitality::Vital);
        let (tell, get) = (counter.address::<Poison>(), counter.asked());
        crash_on(world, &counter, &outside, "bad", 2).await;
        assert!(world.report("Counter").await.quarantined.is_empty(), "two are borne");
        crash_on(world, &counter, &outside, "bad", 1).await;

        let report = world.report("Counter").await;
        let held = &report.quarantined[&PodUid::new("bad")];
        assert!(held.starts_with("poison at ") && held.contains("actors.rs:"), "{held}");
        tell.tell(poison("bad", true)).unwrap();
        tell.tell(poison("bad", false)).unwrap();
        tell.tell(poison("good", false)).unwrap();
        world.pass(Duration::from_secs(5)).await;
        assert_eq!(outside.poison_handled.load(Ordering::SeqCst), 1, "the other pod's alone");
        assert_eq!(ask(&get, GetPod(PodUid::new("bad"))).await, Err(AskError::Quarantined));
        assert!(ask(&get, GetPod(PodUid::new("good"))).await.is_ok());

        world.pass(Duration::from_secs(6)).await;
        assert_eq!(outside.poison_handled.load(Ordering::SeqCst), 2, "the newest of those held is handled");
        assert_eq!(outside.born(), 4);
        let report = world.report("Counter").await;
        assert!(report.quarantined.is_empty());
        assert_eq!(report.counters.replaced, 1, "the older one held is accounted for");
        assert!(ask(&get, GetPod(PodUid::new("bad"))).await.is_ok());

        let seen = seen.lock().unwrap().clone();
        let quarantined = seen.iter().filter_map(|event| match &event.what {
            EventKind::Quarantined { pod, panic, seconds } => {
                Some((event.actor.as_str(), pod.as_str(), panic.message.as_str(), *seconds))
            }
            _ => None,
        });
        assert_eq!(quarantined.collect::<Vec<_>>(), [("Counter", "bad", "poison", 10)]);
        let released = seen.iter().any(|event| event.what == EventKind::Released { pod: PodUid::new("bad") });
        assert!(released, "observers learn both ends");
    });
}

#[test]
fn g11_what_is_held_aside_makes_room_for_those_that_wait() {
    sandbox(Policy { mailbox_bound: 1, ..Policy::default() }, async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Vital);
        crash_on(world, &counter, &outside, "bad", 2).await;
        // The third panic comes while a message of the pod fills the mailbox and an ask waits for room.
        let (counts, poisons) = (counter.asked::<supervision::Outside, Count>(), counter.address::<Poison>());
        let (hands, handed) = std::sync::mpsc::channel();
        let begin = Do::this(move |ctx| {
            let (counts, poisons, hands) = (counts.clone(), poisons.clone(), hands.clone());
            ctx.effect("work", Some(PodUid::new("bad")), std::future::ready(()), move |_, (), _| {
                poisons.tell(poison("bad", false)).unwrap();
                let mut asks = Box::pin(async move { counts.ask(Count, Duration::from_secs(60)).await });
                assert!(asks.as_mut().now_or_never().is_none(), "there is no room");
                hands.send(asks).unwrap();
                panic!("poison")
            });
        });
        counter.address::<Do>().tell(begin).unwrap();
        world.until("the restart", || outside.born() == 4).await;
        let begun = tokio::time::Instant::now();
        assert_eq!(handed.recv().unwrap().await, Ok(1));
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(world.report("Counter").await.quarantined.contains_key(&PodUid::new("bad")));
        assert_eq!(outside.poison_handled.load(Ordering::SeqCst), 0, "it is held aside");
    });
}

/// The other pods panic at the place of the first one, so each is quarantined at once.
async fn quarantine(world: &Sandbox, counter: &Supervised<Counter>, outside: &Outside, pods: &[&str]) {
    for (number, pod) in pods.iter().enumerate() {
        crash_on(world, counter, outside, pod, if number == 0 { 3 } else { 1 }).await;
    }
    assert_eq!(world.report("Counter").await.quarantined.len(), pods.len());
}

#[test]
fn g4_what_is_held_for_quarantined_pods_is_bounded_and_more_is_refused() {
    sandbox(Policy { mailbox_bound: 2, ..Policy::default() }, async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Vital);
        quarantine(world, &counter, &outside, &["a", "b", "c"]).await;
        let tell = counter.address::<Poison>();
        tell.tell(poison("a", false)).unwrap();
        tell.tell(poison("b", false)).unwrap();
        let refused = tell.tell(poison("c", false)).expect_err("two are held");
        assert_eq!((refused.message.uid.as_str(), refused.why), ("c", AskError::Full));
        tell.tell(poison("a", false)).expect("it replaces what is held");
        let get = counter.asked::<supervision::Outside, GetPod>();
        assert_eq!(ask(&get, GetPod(PodUid::new("c"))).await, Err(AskError::Quarantined));
        tell.tell(poison("good", false)).unwrap();
        world.pass(Duration::from_millis(100)).await;
        assert_eq!(outside.poison_handled.load(Ordering::SeqCst), 1, "others have room");
        assert_eq!(world.report("Counter").await.counters.dead_letters, 2, "both refusals");
        world.pass(Duration::from_secs(120)).await;
        assert_eq!(outside.poison_handled.load(Ordering::SeqCst), 3);
        tell.tell(poison("c", false)).expect("there is room");
    });
}

#[test]
fn g4_what_waits_for_a_pod_when_it_is_quarantined_is_dropped_and_counted_without_room() {
    sandbox(Policy { mailbox_bound: 2, ..Policy::default() }, async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Vital);
        quarantine(world, &counter, &outside, &["a"]).await;
        let (poisons, gets) = (counter.address::<Poison>(), counter.address::<GetPod>());
        poisons.tell(poison("a", false)).unwrap();
        gets.tell(GetPod(PodUid::new("a"))).unwrap();
        poisons.tell(poison("b", true)).unwrap();
        gets.tell(GetPod(PodUid::new("b"))).unwrap();
        world.until("the restart", || outside.born() == 5).await;
        let report = world.report("Counter").await;
        assert_eq!((report.quarantined.len(), report.counters.dropped), (2, 1), "{report:?}");
    });
}

#[test]
fn g4_what_was_held_is_not_lost_to_a_full_mailbox() {
    sandbox(Policy { mailbox_bound: 1, ..Policy::default() }, async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        quarantine(world, &counter, &outside, &["a"]).await;
        let tell = counter.address::<Poison>();
        tell.tell(poison("a", false)).unwrap();
        counter.address::<HangForEver>().tell(HangForEver).unwrap();
        world.pass(Duration::from_secs(1)).await;
        tell.tell(poison("b", false)).unwrap();
        world.pass(Duration::from_secs(12)).await;
        let report = world.report("Counter").await;
        assert_eq!((report.quarantined.len(), report.mailbox_depth), (0, 2), "one more than its bound");
        assert!(tell.tell(poison("c", false)).is_err(), "which holds for what comes later");
        // A hung actor is killed: what the watchdog does on real threads.
        world.tree.kill("Counter").unwrap();
        world.until("the restart", || outside.born() == 5).await;
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(outside.poison_handled.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn g4_an_actor_with_too_many_effects_for_quarantined_pods_begins_anew() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Vital);
        quarantine(world, &counter, &outside, &["a"]).await;
        let begin = |times: u32| {
            Do::this(move |ctx| {
                for _ in 0..times {
                    ctx.effect("work", Some(PodUid::new("a")), std::future::ready(()), |_, (), _| ());
                }
            })
        };
        counter.address::<Do>().tell(begin(1024)).unwrap();
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(outside.born(), 4);
        counter.address::<Do>().tell(begin(1)).unwrap();
        world.until("the restart", || outside.born() == 5).await;
        let crash = world.report("Counter").await.last_crash.unwrap();
        assert_eq!(crash.pod, Some(PodUid::new("a")));
        assert_eq!(crash.reason, "1024 effects wait for the ends of quarantines");
    });
}

#[test]
fn g11_a_poison_pod_never_takes_the_subsystem_above_its_limit() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Vital);
        // The pod's messages are resent for an hour.
        for _ in 0..720 {
            counter.address::<Poison>().tell(poison("bad", true)).unwrap();
            world.pass(Duration::from_secs(5)).await;
            assert_ne!(world.report("Counter").await.state, State::Failed);
        }
        let born = outside.born();
        assert!((10..30).contains(&born), "{born} incarnations: quarantines grow up to five minutes");
        let events = world.events_of("Counter").await.into_iter();
        let lengths: Vec<_> = events
            .filter_map(
                |what| if let EventKind::Quarantined { seconds, .. } = what { Some(seconds) } else { None },
            )
            .collect();
        assert_eq!(lengths[..6], [10, 20, 40, 80, 160, 300]);
        assert!(lengths[6..].iter().all(|seconds| *seconds == 300), "{lengths:?}");
        assert!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await.is_ok());
    });
}

#[test]
fn g11_more_than_three_causes_are_the_subsystems_failure() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, _outside) = start(world, Vitality::Vital);
        let crash = async |pod: &str, place: u8| {
            let uid = PodUid::new(pod);
            counter.address::<Poison>().tell(Poison { uid, panics: true, place }).unwrap();
            world.pass(Duration::from_secs(6)).await;
        };
        for (pod, place) in [("a", 0), ("b", 1), ("c", 2), ("d", 0), ("e", 1), ("f", 2)] {
            crash(pod, place).await;
        }
        assert_eq!(world.report("Counter").await.state, State::Running, "six pods, but three causes");
        let mut failed = Box::pin(world.tree.failed());
        for pod in ["g", "h", "i", "j", "k", "l"] {
            assert!(futures::poll!(&mut failed).is_pending());
            crash(pod, 3).await;
        }
        assert_eq!(failed.await.actor, "Counter");
    });
}

#[test]
fn g11_what_waits_for_the_pod_is_held_and_asks_learn_at_once() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        crash_on(world, &counter, &outside, "bad", 2).await;
        counter.address::<Poison>().tell(poison("bad", true)).unwrap();
        let get = counter
            .asked::<supervision::Outside, GetPod>()
            .ask(GetPod(PodUid::new("bad")), Duration::from_secs(5));
        let mut get = Box::pin(get);
        assert!(futures::poll!(&mut get).is_pending(), "it waits behind the third crash");
        assert_eq!(get.await, Err(AskError::Lost));
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(world.report("Counter").await.counters.dropped, 1, "and the drop is counted");
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Ok(1));
    });
}

#[test]
fn g11_stopping_a_subsystem_with_a_quarantined_pod_counts_what_it_held() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        crash_on(world, &counter, &outside, "bad", 3).await;
        counter.address::<Poison>().tell(poison("bad", false)).unwrap();
        counter.stop();
        world.until("the end", || counter.has_ended()).await;
        assert_eq!(world.report("Counter").await.counters.dropped, 1);
    });
}

#[test]
fn g11_a_quarantined_pods_timers_wait_too() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Vital);
        crash_on(world, &counter, &outside, "bad", 3).await;
        counter.address::<SetPodTimer>().tell(SetPodTimer).unwrap();
        world.pass(Duration::from_secs(5)).await;
        assert_eq!(outside.pod_timers.load(Ordering::SeqCst), 0, "left alone");
        world.pass(Duration::from_secs(10)).await;
        assert_eq!(outside.pod_timers.load(Ordering::SeqCst), 1, "late, and once");
    });
}
