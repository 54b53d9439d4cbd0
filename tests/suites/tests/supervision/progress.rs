//! G13: an effect that does not end is reported and let go, and the actor recovers. And what a wake costs: a poll of what
//! woke, however much an actor waits for.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use messages::PodUid;
use prometheus::TextEncoder;
use prometheus::core::Collector;
use supervision::{Effect, EffectReport, EventKind, Policy, State, TreeCollector, Vitality};
use testkit::sandbox;

use crate::actors::{Count, Do, GetIncarnation, ask, start};

/// Never ready; tells when it was polled and when it was dropped.
#[derive(Clone, Default)]
struct Idle {
    polls: Arc<AtomicU64>,
    drops: Arc<AtomicU64>,
}

impl Future for Idle {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        Poll::Pending
    }
}

impl futures::Stream for Idle {
    type Item = ();

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<()>> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        Poll::Pending
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

fn effect(name: &'static str, pod: Option<&str>, age_ms: u64, within_ms: Option<u64>) -> EffectReport {
    let overdue = within_ms.is_some_and(|within_ms| age_ms >= within_ms);
    EffectReport { name, pod: pod.map(PodUid::new), age_ms, within_ms, overdue }
}

#[test]
fn g13_an_effect_that_never_ends_is_reported_and_the_actor_recovers() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, _) = start(world, Vitality::Degradable);
        let idle = Idle::default();
        let hung = idle.clone();
        let unmount = Do::this(move |ctx| {
            ctx.effect("unmount", Some(PodUid::new("a")), hung.clone(), |_, (), _| ());
        });
        counter.address::<Do>().tell(unmount).unwrap();
        world.pass(Duration::from_secs(299)).await;
        let report = world.report("Counter").await;
        assert_eq!(report.effects, [effect("unmount", Some("a"), 299_000, Some(300_000))]);
        assert_eq!((report.restarts, report.effects_overdue), (0, 0));
        assert_eq!(ask(&counter.asked(), Count).await, Ok(1), "it takes messages as ever");

        world.pass(Duration::from_secs(2)).await;
        let drops = idle.drops.load(Ordering::SeqCst);
        assert!(drops > 0, "the effect is gone");
        let report = world.report("Counter").await;
        assert_eq!(report.effects, [effect("unmount", Some("a"), 300_000, Some(300_000))]);
        assert_eq!((report.state, report.effects_overdue), (State::Running, 1));
        assert_eq!(ask(&counter.asked(), GetIncarnation).await, Ok(2));
        let events = world.events_of("Counter").await;
        let overdue =
            EventKind::EffectOverdue { effect: "unmount", pod: Some(PodUid::new("a")), seconds: 300 };
        assert!(events.contains(&overdue), "{events:#?}");
        let crash = report.last_crash.expect("it was restarted");
        assert_eq!((crash.handling.as_str(), crash.pod), ("unmount", Some(PodUid::new("a"))));
        assert_eq!(crash.reason, "overdue: it has not ended within 300s");
        let families = TreeCollector::new(world.tree.clone()).unwrap().collect();
        let text = TextEncoder::new().encode_to_string(&families).unwrap();
        assert!(text.contains("understudy_actor_overdue_effects_total{actor=\"Counter\"} 1\n"), "{text}");
    });
}

#[test]
fn g13_an_effect_says_how_long_it_may_last() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, _) = start(world, Vitality::Degradable);
        let begin = Do::this(|ctx| {
            ctx.effect(Effect::lasting("hook"), None, Idle::default(), |_, (), _| ());
            let hour = Duration::from_secs(3600);
            ctx.effect(Effect::within("remove", hour), None, Idle::default(), |_, (), _| ());
        });
        counter.address::<Do>().tell(begin).unwrap();
        world.pass(Duration::from_secs(3599)).await;
        let report = world.report("Counter").await;
        let remove = effect("remove", None, 3_599_000, Some(3_600_000));
        assert_eq!(report.effects, [effect("hook", None, 3_599_000, None), remove]);
        assert_eq!(ask(&counter.asked(), GetIncarnation).await, Ok(1));
        world.pass(Duration::from_secs(2)).await;
        assert_eq!(ask(&counter.asked(), GetIncarnation).await, Ok(2));
        let report = world.report("Counter").await;
        assert_eq!(
            report.effects,
            [effect("remove", None, 3_600_000, Some(3_600_000))],
            "all others ended with it"
        );
    });
}

#[test]
fn g13_an_effect_that_is_always_overdue_does_not_exhaust_its_subsystem() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, _) = start(world, Vitality::Vital);
        for incarnation in 1..20 {
            let hang = Do::this(|ctx| {
                ctx.effect("look", None, Idle::default(), |_, (), _| ());
            });
            counter.address::<Do>().tell(hang).unwrap();
            assert_eq!(ask(&counter.asked(), GetIncarnation).await, Ok(incarnation));
            world.pass(Duration::from_secs(301)).await;
        }
        let report = world.report("Counter").await;
        assert_eq!((report.state, report.effects_overdue, report.effects.len()), (State::Running, 19, 8));
    });
}

#[test]
fn g13_effects_of_several_pods_that_wait_too_long_are_no_fault_of_these_pods() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, _) = start(world, Vitality::Degradable);
        for pod in ["a", "b", "c", "d"] {
            let hang = Do::this(move |ctx| {
                let look = Effect::within("look", Duration::from_secs(60));
                ctx.effect(look, Some(PodUid::new(pod)), Idle::default(), |_, (), _| ());
            });
            counter.address::<Do>().tell(hang).unwrap();
            world.pass(Duration::from_secs(61)).await;
        }
        let report = world.report("Counter").await;
        assert_eq!((report.state, report.effects_overdue), (State::Running, 4));
        assert!(report.quarantined.is_empty(), "{:?}", report.quarantined);
    });
}

#[test]
fn g13_a_pod_whose_effects_are_always_overdue_is_quarantined_and_the_actor_goes_on() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, _) = start(world, Vitality::Degradable);
        for incarnation in 1..=3 {
            let hang = Do::this(|ctx| {
                ctx.effect("look", Some(PodUid::new("a")), Idle::default(), |_, (), _| ());
            });
            counter.address::<Do>().tell(hang).unwrap();
            assert_eq!(ask(&counter.asked(), GetIncarnation).await, Ok(incarnation));
            assert!(world.report("Counter").await.quarantined.is_empty());
            world.pass(Duration::from_secs(301)).await;
        }
        let quarantined = world.report("Counter").await.quarantined;
        assert_eq!(quarantined.keys().collect::<Vec<_>>(), [&PodUid::new("a")], "the third in a row");
    });
}

#[test]
fn an_effect_that_ended_or_was_cancelled_is_shown_no_longer() {
    sandbox(Policy::default(), async |world| {
        let (counter, _) = start(world, Vitality::Degradable);
        let begin = Do::this(|ctx| {
            ctx.effect("quick", None, std::future::ready(()), |_, (), _| ());
            let id = ctx.effect("cancelled", None, Idle::default(), |_, (), _| ());
            ctx.cancel_effect(id);
        });
        counter.address::<Do>().tell(begin).unwrap();
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(world.report("Counter").await.effects, []);
    });
}

/// How often a thousand things that the actor waits for were polled while it handled a hundred messages and a hundred
/// items of another stream.
fn polls_for_others(
    wait: impl Fn(&mut supervision::Ctx<crate::actors::Counter>, Idle) + Send + Sync + 'static,
) -> u64 {
    sandbox(Policy::default(), async |world| {
        let (counter, _) = start(world, Vitality::Degradable);
        let (idle, items_seen) = (Idle::default(), Arc::new(AtomicU64::new(0)));
        let count_item = items_seen.clone();
        let (seen, (tell, told)) = (idle.clone(), futures::channel::mpsc::unbounded::<()>());
        let told = std::sync::Mutex::new(Some(told));
        let begin = Do::this(move |ctx| {
            for _ in 0..1000 {
                wait(ctx, idle.clone());
            }
            let items = told.lock().unwrap().take().expect("begun once");
            let count_item = count_item.clone();
            ctx.stream(
                "items",
                items,
                move |_, (), _| {
                    count_item.fetch_add(1, Ordering::SeqCst);
                },
                |_, _| (),
            );
        });
        counter.address::<Do>().tell(begin).unwrap();
        world.pass(Duration::from_millis(1)).await;
        let before = seen.polls.load(Ordering::SeqCst);
        assert_eq!(before, 1000, "each once, when it began");
        for count in 1..=100 {
            assert_eq!(ask(&counter.asked(), Count).await, Ok(count));
            tell.unbounded_send(()).unwrap();
            world.pass(Duration::from_millis(1)).await;
        }
        assert_eq!(items_seen.load(Ordering::SeqCst), 100);
        seen.polls.load(Ordering::SeqCst) - before
    })
}

#[test]
fn a_wake_polls_no_stream_but_those_that_woke() {
    let polls = polls_for_others(|ctx, idle| {
        ctx.stream("idle", idle, |_, (), _| (), |_, _| ());
    });
    assert_eq!(polls, 0);
}

#[test]
fn a_wake_polls_no_effect_but_those_that_woke() {
    let polls = polls_for_others(|ctx, idle| {
        ctx.effect("idle", None, idle, |_, (), _| ());
    });
    assert_eq!(polls, 0);
}
