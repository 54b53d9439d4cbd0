//! The fake's own tests: scripted faults, on a paused clock. Its behaviour in common with a real server is tested in
//! `api_contract`.

use k8s_openapi::api::core::v1::Node;

use super::*;
use bridge_io::clock::FakeClock;

fn fake() -> (FakeApi, ApiClient) {
    let start = "2026-01-02T03:04:05Z".parse().unwrap();
    let fake = FakeApi::new(Arc::new(FakeClock::new(1, start)));
    let api = fake.client(&Io::current());
    (fake, api)
}

fn node(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node
}

#[tokio::test(start_paused = true)]
async fn faults_are_scripted_and_calls_are_counted() {
    let (fake, api) = fake();
    fake.fault(On::call(Verb::Create, "nodes"), 1, Fault::code(500));
    fake.fault(On::call(Verb::Create, "nodes"), 1, Fault::too_many(7));
    fake.fault(On::call(Verb::Create, "nodes"), 1, Fault::Unreachable);
    fake.fault(On::call(Verb::Create, "nodes"), 1, Fault::LostReply);
    let error = api.create(&node("n")).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (500, "InternalError"));
    // The client repeats the call when the server asks for it.
    let begun = tokio::time::Instant::now();
    let error = api.create(&node("n")).await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(7), "{:?}", begun.elapsed());
    assert!(error.is_unanswered() && error.message.contains("Connection refused"), "{error}");
    assert!(fake.get::<Node>(None, "n").is_none());
    let error = api.create(&node("n")).await.unwrap_err();
    assert!(error.is_unanswered() && error.message.contains("reset"), "{error}");
    assert!(fake.get::<Node>(None, "n").is_some(), "the reply was lost, not the call");
    assert!(api.create(&node("n")).await.unwrap_err().is_already_exists());
    assert_eq!(fake.count(Verb::Create, "nodes"), 5);
    assert_eq!(fake.log().len(), 5);
    assert_eq!(fake.log()[4].name.as_deref(), Some("n"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_meets_its_deadline_and_a_pause_ends() {
    let (fake, api) = fake();
    let begun = tokio::time::Instant::now();
    fake.fault(On::all(), 1, Fault::Hang);
    let error = api.get::<Node>(None, "n").await.unwrap_err();
    assert!(error.message.contains("no answer within 30 s"), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 30);
    fake.fault(On::all(), 1, Fault::Latency(Duration::from_secs(3)));
    let begun = tokio::time::Instant::now();
    assert!(api.get::<Node>(None, "n").await.unwrap_err().is_not_found());
    assert_eq!(begun.elapsed().as_secs(), 3);
    fake.set_paused(true);
    let (outcome, ()) = tokio::join!(api.create(&node("n")), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(fake.get::<Node>(None, "n").is_none());
        fake.set_paused(false);
    });
    assert_eq!(outcome.unwrap().metadata.creation_timestamp.unwrap().0.to_string(), "2026-01-02T03:04:43Z");
}

#[tokio::test(start_paused = true)]
async fn put_keeps_the_status_and_the_uid_that_a_test_gives() {
    let (fake, _) = fake();
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "web", "uid": "u-1"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running"}});
    let mut pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
    pod = fake.put(&pod);
    assert_eq!(pod.metadata.uid.as_deref(), Some("u-1"));
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(pod.spec.as_ref().unwrap().termination_grace_period_seconds, Some(30));
    pod.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    fake.put(&pod);
    let kept: k8s_openapi::api::core::v1::Pod = fake.get(Some("web"), "p").unwrap();
    assert_eq!(kept.metadata.labels, pod.metadata.labels);
    assert_eq!(kept.metadata.uid.as_deref(), Some("u-1"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_had_a_place_casts_no_doubt_on_the_server() {
    let (fake, api) = fake();
    let lane = api.lane(1);
    fake.fault(On::all(), 1, Fault::Hang);
    let begun = tokio::time::Instant::now();
    let waiting = async {
        while fake.attempts().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let error = lane.with_deadline(Duration::from_secs(5)).get::<Node>(None, "n").await.unwrap_err();
        assert!(error.message.contains("would exceed context deadline"), "{error}");
        assert_eq!((begun.elapsed().as_secs(), fake.redials()), (5, 0));
        assert_eq!(fake.attempts().values().sum::<u64>(), 1, "nor is the server asked how it is");
    };
    let (hung, ()) = tokio::join!(lane.get::<Node>(None, "n"), waiting);
    assert!(hung.unwrap_err().message.contains("no answer within 30 s"));
    assert!(fake.redials() > 0, "the server had that one");
}
