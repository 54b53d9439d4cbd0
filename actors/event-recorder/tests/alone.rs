//! EventRecorder alone: it keeps the events that it is told, and posts them to the API server.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_kube::fake::{FakeApi, Fault as ApiFault, On, Verb};
use event_recorder::{EventMetrics, EventRecorder, EventRecorderDeps, EventSink};
use k8s_openapi::api::core::v1::Event;
use messages::event_recorder::{EventObject, EventType, GetEvents, RecordEvent};
use messages::supervision::Fault;
use stage::{Stage, alone, ask, pod};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);

fn deps(stage: &Stage<'_>, api: &FakeApi) -> EventRecorderDeps {
    EventRecorderDeps {
        clock: stage.fakes.clock.clone(),
        post: Some(EventSink { api: Arc::new(api.client(&Io::current())), node: "node".to_owned() }),
        metrics: EventMetrics::new().unwrap(),
    }
}

fn start(stage: &Stage<'_>) -> (Supervised<EventRecorder>, FakeApi) {
    let api = FakeApi::new(stage.fakes.clock.clone());
    (stage.start(deps(stage, &api), EventRecorder::new), api)
}

fn record(actor: &Supervised<EventRecorder>, reason: &str) {
    let event = RecordEvent {
        object: EventObject::Pod { pod: pod(0).pod_ref.clone(), field_path: Arc::from("") },
        event_type: EventType::Warning,
        reason: Arc::from(reason),
        message: Arc::from("said"),
    };
    actor.address().tell(event).unwrap();
}

/// Reasons and counts of the events of EventRecorder.
async fn kept(actor: &Supervised<EventRecorder>) -> Vec<(String, u32)> {
    let events = ask(actor, GetEvents, SECOND).await.unwrap();
    events.into_iter().map(|event| (event.reason.to_string(), event.count)).collect()
}

/// Reasons and counts of the events of the API server.
fn posted(api: &FakeApi) -> Vec<(String, i32)> {
    let events = api.list::<Event>().into_iter();
    events.map(|event| (event.reason.unwrap_or_default(), event.count.unwrap_or_default())).collect()
}

#[test]
fn an_event_is_posted_once_and_counted_up() {
    alone(async |stage| {
        let (actor, api) = start(stage);
        record(&actor, "Failed");
        stage.until("the event to be posted", || posted(&api) == [("Failed".to_owned(), 1)]).await;
        record(&actor, "Failed");
        stage.until("the event to be counted up", || posted(&api) == [("Failed".to_owned(), 2)]).await;
        assert_eq!((api.count(Verb::Create, "events"), api.count(Verb::Patch, "events")), (1, 1));
        assert_eq!(kept(&actor).await, [("Failed".to_owned(), 2)]);
    });
}

#[test]
fn a_new_incarnation_begins_empty_and_repeats_nothing() {
    alone(async |stage| {
        let (actor, api) = start(stage);
        record(&actor, "Failed");
        stage.until("the event to be posted", || posted(&api).len() == 1).await;
        stage.crash::<EventRecorder>().await;
        stage.pass(60 * SECOND).await;
        assert_eq!(kept(&actor).await, [], "events are lost on purpose");
        assert_eq!(api.count(Verb::Create, "events"), 1, "what was posted is not posted again");
        record(&actor, "Failed");
        stage.until("another event", || posted(&api).len() == 2).await;
    });
}

#[test]
fn an_event_that_the_server_refuses_holds_up_no_other() {
    alone(async |stage| {
        let (actor, api) = start(stage);
        api.fault(On::call(Verb::Create, "events"), 1, ApiFault::code(422));
        record(&actor, "Refused");
        record(&actor, "Taken");
        stage.until("the other event", || posted(&api) == [("Taken".to_owned(), 1)]).await;
        stage.pass(60 * SECOND).await;
        assert_eq!(api.count(Verb::Create, "events"), 2, "a refusal is final");
        assert_eq!(kept(&actor).await.len(), 2, "here both are kept");
    });
}

#[test]
fn a_server_in_trouble_for_a_minute_gets_every_event_in_order() {
    alone(async |stage| {
        let (actor, api) = start(stage);
        api.fault(On::call(Verb::Create, "events"), 6, ApiFault::code(500));
        record(&actor, "First");
        record(&actor, "Second");
        stage.pass(SECOND).await;
        assert_eq!(posted(&api), []);
        assert_eq!(stage.observed::<EventRecorder>().await["unsent"], 2);
        assert_eq!(kept(&actor).await.len(), 2, "who asks is answered meanwhile");
        stage.until("both events", || posted(&api).len() == 2).await;
        let creates = api.log().into_iter().filter(|call| call.verb == Verb::Create);
        let tried: Vec<_> = creates.map(|call| call.body["reason"].as_str().unwrap().to_owned()).collect();
        assert_eq!(tried.iter().filter(|reason| *reason == "First").count(), 7);
        assert_eq!(tried.last().unwrap(), "Second", "after the first one");
    });
}

#[test]
fn a_pod_whose_events_panic_is_left_alone_and_no_other() {
    alone(async |stage| {
        let (actor, api) = start(stage);
        let bad = pod(0).pod_ref.uid.clone();
        stage.inject::<EventRecorder>(Fault::PoisonPod { pod: bad.clone(), times: 3 });
        while !stage.actor::<EventRecorder>().await.quarantined.contains_key(&bad) {
            record(&actor, "Bad");
            stage.pass(Duration::from_millis(500)).await;
        }
        let good = RecordEvent {
            object: EventObject::Pod { pod: pod(1).pod_ref.clone(), field_path: Arc::from("") },
            event_type: EventType::Normal,
            reason: Arc::from("Good"),
            message: Arc::from("of another pod"),
        };
        actor.address().tell(good).unwrap();
        record(&actor, "Held");
        stage.until("the other pod's event", || posted(&api) == [("Good".to_owned(), 1)]).await;
        stage.until("the end of the quarantine", || posted(&api).len() == 2).await;
        assert!(posted(&api).contains(&("Held".to_owned(), 1)), "the latest is kept for the pod");
        // A post that panics is its pod's, too.
        stage.inject::<EventRecorder>(Fault::PanicOn { message: "send".to_owned(), nth: 1 });
        record(&actor, "Later");
        stage.until_incarnation::<EventRecorder>(5).await;
        let crash = stage.actor::<EventRecorder>().await.last_crash.unwrap();
        assert_eq!((crash.handling.as_str(), crash.pod), ("send", Some(bad)));
    });
}
