//! G10: every start, crash, restart and escalation is an event with what was being handled, the place and
//! the time down; the snapshot shows them as JSON, and metrics count them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use messages::PodUid;
use prometheus::{Encoder, Registry, TextEncoder};
use serde_json::{Value, json};
use supervision::{EventKind, Policy, TreeCollector, Vitality};
use testkit::sandbox;

use crate::actors::{Count, Log, PanicHere, PanicInEffect, Poison, ask, start, start_sibling};

#[test]
fn g10_a_crash_is_told_with_message_place_and_time_down() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        world.until("the restart", || outside.born() == 2).await;
        let events = world.events_of("Counter").await;
        let [
            EventKind::Started { incarnation: 1 },
            EventKind::Crashed(crash),
            EventKind::Restarted { down_ms },
            started,
        ] = &events[..]
        else {
            panic!("unexpected events: {events:#?}");
        };
        assert_eq!((crash.incarnation, crash.handling.as_str()), (1, "PanicHere"));
        assert_eq!((crash.reason.as_str(), &crash.pod), ("here", &None));
        let place = crash.place.as_deref().unwrap();
        assert!(place.contains("supervision/actors.rs:"), "{place}");
        assert!((80..=101).contains(down_ms));
        assert_eq!(started, &EventKind::Started { incarnation: 2 });

        counter.address::<PanicInEffect>().tell(PanicInEffect).unwrap();
        world.until("the restart", || outside.born() == 3).await;
        let crash = world.report("Counter").await.last_crash.unwrap();
        assert_eq!((crash.handling.as_str(), crash.reason.as_str()), ("broken effect", "in the effect"));
        assert!(crash.place.unwrap().contains("supervision/actors.rs:"), "the place in the effect");
        counter.address::<Poison>().tell(Poison { uid: PodUid::new("bad"), panics: true, place: 0 }).unwrap();
        world.until("the restart", || outside.born() == 4).await;
        assert_eq!(world.report("Counter").await.last_crash.unwrap().pod, Some(PodUid::new("bad")));
    });
}

/// The JSON without what differs from run to run.
fn settle(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        for (name, field) in fields.iter_mut() {
            if matches!(
                name.as_str(),
                "place" | "atMs" | "downMs" | "busySeconds" | "handlingP50Us" | "handlingP99Us"
            ) {
                *field = json!("…");
            } else {
                *field = settle(field.take());
            }
        }
    } else if let Value::Array(items) = &mut value {
        for item in items {
            *item = settle(item.take());
        }
    }
    value
}

#[test]
fn g10_the_snapshot_is_json_with_these_names() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (counter, outside) = start(world, Vitality::Degradable);
        let count = counter.asked::<supervision::Outside, Count>();
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        world.until("the restart", || outside.born() == 2).await;
        assert_eq!(ask(&count, Count).await, Ok(1));
        let snapshot = settle(serde_json::to_value(world.tree.snapshot().await).unwrap());
        let crash = json!({ "incarnation": 1, "handling": "PanicHere", "reason": "here", "place": "…" });
        assert_eq!(
            snapshot["actors"],
            json!([{
                "name": "Counter", "kind": "Counter", "vitality": "degradable", "state": "running",
                "incarnation": 2, "restarts": 1, "podCrashes": 0, "lastCrash": crash,
                "mailboxDepth": 0, "mailboxBound": 1024, "receives": ["Count", "PanicHere"],
                "handled": 3, "replaced": 0, "dropped": 0, "deadLetters": 0, "skippedQueries": 0,
                "busySeconds": "…", "handlingP50Us": "…", "handlingP99Us": "…",
                "effectsOverdue": 0, "observed": { "count": 1 },
            }])
        );
        assert_eq!(
            snapshot["events"],
            json!([
                { "actor": "Counter", "atMs": "…", "event": "started", "incarnation": 1 },
                { "actor": "Counter", "atMs": "…", "event": "crashed", "incarnation": 1,
                  "handling": "PanicHere", "reason": "here", "place": "…" },
                { "actor": "Counter", "atMs": "…", "event": "restarted", "downMs": "…" },
                { "actor": "Counter", "atMs": "…", "event": "started", "incarnation": 2 },
            ])
        );
        assert!(snapshot["uptimeMs"].is_u64());
    });
}

#[test]
fn g10_observers_see_everything_at_once_and_a_broken_one_harms_nobody() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = seen.clone();
        world.tree.observe(|_| panic!("a broken observer"));
        world.tree.observe(move |event| record.lock().unwrap().push(event.clone()));
        let (counter, outside) = start(world, Vitality::Degradable);
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        world.until("the restart", || outside.born() == 2).await;
        assert_eq!(ask(&counter.asked::<supervision::Outside, Count>(), Count).await, Ok(1));
        let kept = world.events().await;
        assert_eq!(*seen.lock().unwrap(), kept);
    });
}

#[test]
fn g10_the_record_of_events_is_bounded_and_keeps_the_newest() {
    let policy = Policy {
        restart: supervision::RestartPolicy {
            restarts_max: 10_000,
            backoff_max: Duration::from_millis(100),
            ..Default::default()
        },
        ..Policy::default()
    };
    sandbox(policy, async |world| {
        world.expect_crashes();
        let (_, outside) = start(world, Vitality::Degradable);
        for _ in 0..200 {
            world.pass(Duration::from_millis(1)).await;
            let born = outside.born();
            world.tree.kill("Counter").unwrap();
            world.until("the restart", || outside.born() == born + 1).await;
        }
        world.pass(Duration::from_millis(1)).await;
        let events = world.events().await;
        assert_eq!(events.len(), 256);
        assert_eq!(events.last().unwrap().what, EventKind::Started { incarnation: 201 });
    });
}

#[test]
fn g4_g10_metrics_count_drops_dead_letters_and_restarts() {
    sandbox(Policy { mailbox_bound: 2, ..Policy::default() }, async |world| {
        world.expect_crashes();
        let registry = Registry::new();
        registry.register(Box::new(TreeCollector::new(world.tree.clone()).unwrap())).unwrap();
        let (counter, outside) = start(world, Vitality::Degradable);
        start_sibling(world);
        for number in 0..5 {
            counter.address::<Log>().tell(Log(number)).unwrap();
        }
        assert!(counter.address::<PanicHere>().tell(PanicHere).is_err());
        world.pass(Duration::from_millis(1)).await;
        counter.address::<PanicHere>().tell(PanicHere).unwrap();
        world.until("the restart", || outside.born() == 2).await;
        world.pass(Duration::from_millis(1)).await;
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [
            "understudy_actor_dropped_total{actor=\"Counter\"} 3",
            "understudy_actor_dead_letters_total{actor=\"Counter\"} 1",
            "understudy_actor_restarts_total{actor=\"Counter\"} 1",
            "understudy_actor_restarts_total{actor=\"Sibling\"} 0",
            "understudy_actor_mailbox_bound{actor=\"Counter\"} 2",
            "understudy_actor_mailbox_depth{actor=\"Counter\"} 0",
            "understudy_actors{actor=\"Counter\",state=\"running\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
    });
}
