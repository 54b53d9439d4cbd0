//! Reviews by a fake API server, on a paused clock.

use std::collections::BTreeMap;
use std::future::Future;

use k8s_openapi::api::core::v1::Node;
use tokio::task::JoinSet;

use super::*;
use bridge_io::Io;
use bridge_io::clock::FakeClock;
use bridge_kube::RateLimit;
use bridge_kube::fake::{FakeApi, Verb};

/// Reviews and the kubelet's own client, both at the same rate, at an API server that knows the user jane.
fn scene(limit: RateLimit, ttl: Duration) -> (FakeApi, ApiClient, ClusterReviews) {
    let fake = FakeApi::new(Arc::new(FakeClock::new(1, "2026-01-02T03:04:05Z".parse().expect("a time"))));
    fake.accept_token("of jane", "jane", &[]);
    fake.allow("jane", "get", "nodes/pods");
    let mut node = Node::default();
    node.metadata.name = Some("n1".to_owned());
    fake.put(&node);
    let client = || fake.limited_client(&Io::current(), limit, Duration::from_secs(30));
    let ttls = ReviewTtls { token: ttl, allowed: ttl, refused: ttl };
    let reviews = ClusterReviews::new(&client(), ttls, ReviewMetrics::new().expect("well-formed"));
    let own = client();
    (fake, own, reviews)
}

fn tokens_asked(fake: &FakeApi) -> u64 {
    fake.count(Verb::Create, "tokenreviews")
}

fn jane_gets_pods() -> NodeAccess {
    let user = Arc::new(User { name: "jane".to_owned(), ..User::default() });
    NodeAccess { user, verb: "get".to_owned(), node: "n1".to_owned(), subresource: "pods".to_owned() }
}

const SLOW: RateLimit = RateLimit { per_second: 10.0, burst: 2 };

async fn time_of<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let begun = Instant::now();
    let outcome = work.await;
    (begun.elapsed(), outcome)
}

/// Waits until every task has done what it can do without time passing.
async fn settled() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Starts this many requests with unknown tokens.
async fn flood(reviews: &ClusterReviews, requests: usize) -> JoinSet<Result<Option<User>, ReviewError>> {
    let mut flood = JoinSet::new();
    for n in 0..requests {
        flood.spawn(reviews.token(&format!("random {n}"), None));
    }
    settled().await;
    flood
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_random_tokens_delays_no_other_call() {
    let (fake, own, reviews) = scene(SLOW, Duration::from_secs(120));
    let flooding = flood(&reviews, 2000).await;
    assert_eq!(tokens_asked(&fake), 2, "the others wait");
    let (waited, node) = time_of(own.get::<Node>(None, "n1")).await;
    assert!(node.is_ok() && waited < Duration::from_millis(5), "{waited:?}");
    let (waited, allowed) = time_of(reviews.access(jane_gets_pods())).await;
    assert!(allowed == Ok(true) && waited < Duration::from_millis(5), "{waited:?}");
    // All of these callers hang up.
    drop(flooding);
    settled().await;
    let (waited, jane) = time_of(reviews.token("of jane", None)).await;
    assert_eq!(jane.unwrap().unwrap().name, "jane");
    assert!(waited <= Duration::from_millis(110), "they owe nothing: {waited:?}");
    assert_eq!(tokens_asked(&fake), 3, "nothing is asked for callers that are gone");
}

#[tokio::test(start_paused = true)]
async fn reviews_and_remembered_answers_are_counted() {
    let (_fake, _own, reviews) = scene(SLOW, Duration::from_secs(120));
    let registry = bridge_metrics::Registry::new();
    reviews.metrics.register(&registry).expect("distinct");
    for token in ["of jane", "of jane", "of nobody"] {
        reviews.token(token, None).await.expect("an answer");
    }
    assert_eq!(reviews.access(jane_gets_pods()).await, Ok(true));
    let page = String::from_utf8(bridge_metrics::page(registry.gather(), "", "").body).expect("text");
    for series in [
        "apiserver_delegated_authn_request_total{code=\"201\"} 2",
        "apiserver_delegated_authz_request_total{code=\"201\"} 1",
        "authentication_token_cache_request_total{status=\"hit\"} 1",
        "authentication_token_cache_request_total{status=\"miss\"} 2",
        "authentication_token_cache_fetch_total{status=\"ok\"} 2",
        "authentication_token_cache_active_fetch_count{status=\"in_flight\"} 0",
        "authentication_token_cache_active_fetch_count{status=\"blocked\"} 0",
    ] {
        assert!(page.lines().any(|line| line == series), "{series}: {page}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_that_would_come_too_late_fails_at_once() {
    let (fake, _own, reviews) = scene(SLOW, Duration::from_secs(120));
    let begun = Instant::now();
    let mut flooding = flood(&reviews, 500).await;
    // Only as many questions wait as have their turn within the deadline.
    let mut refused = 0;
    for _ in 0..400 {
        match flooding.join_next().await.unwrap().unwrap() {
            Err(error) if error.0.contains("would exceed context deadline") => refused += 1,
            answer => assert_eq!(answer, Ok(None)),
        }
    }
    assert_eq!(refused, 398, "the burst is answered");
    assert!(begun.elapsed() < Duration::from_millis(5), "{:?}", begun.elapsed());
    let late = flooding.join_all().await;
    let answered = late.iter().filter(|answer| **answer == Ok(None)).count();
    // Timers are not exact: the very last ones may have missed the deadline.
    assert!(late.len() == 100 && answered > 95, "{answered} of {}", late.len());
    assert_eq!(tokens_asked(&fake), 2 + answered as u64);
    assert!(begun.elapsed() < Duration::from_millis(10_100), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn equal_tokens_are_asked_for_once_and_those_of_nobody_remembered_for_a_short_time() {
    let (fake, _own, reviews) = scene(RateLimit { per_second: 0.0, burst: 0 }, Duration::from_secs(120));
    let same = (0..50).map(|_| reviews.token("of nobody", None));
    assert!(futures::future::join_all(same).await.into_iter().all(|answer| answer == Ok(None)));
    assert_eq!(reviews.token("of jane", None).await.unwrap().unwrap().name, "jane");
    assert_eq!(tokens_asked(&fake), 2);
    // More unknown tokens than are remembered do not push out known ones.
    for n in 0..ANSWERS_MAX + 10 {
        assert_eq!(reviews.token(&format!("random {n}"), None).await, Ok(None));
    }
    let asked = tokens_asked(&fake);
    assert_eq!(reviews.token("of jane", None).await.unwrap().unwrap().name, "jane");
    assert_eq!(reviews.token(&format!("random {ANSWERS_MAX}"), None).await, Ok(None));
    assert_eq!(tokens_asked(&fake), asked, "both are remembered");
    // The token may have been issued meanwhile.
    fake.accept_token("of nobody", "new", &[]);
    tokio::time::advance(UNKNOWN_TTL).await;
    assert_eq!(reviews.token("of nobody", None).await.unwrap().unwrap().name, "new");
}

#[tokio::test(start_paused = true)]
async fn no_more_are_asked_at_once_than_may_be() {
    let (fake, _own, reviews) = scene(RateLimit { per_second: 0.0, burst: 0 }, Duration::from_secs(120));
    fake.set_paused(true);
    let flooding = flood(&reviews, 500).await;
    let attempts: u64 = fake.attempts().values().sum();
    assert_eq!(attempts, AT_ONCE as u64);
    drop(flooding);
}

fn account(name: &str, token: usize) -> NodeAccess {
    let extra =
        BTreeMap::from([("authentication.kubernetes.io/credential-id".to_owned(), vec![token.to_string()])]);
    let user = User { name: format!("system:serviceaccount:crowd:{name}"), extra, ..User::default() };
    NodeAccess { user: Arc::new(user), ..jane_gets_pods() }
}

#[tokio::test(start_paused = true)]
async fn new_tokens_of_one_namespaces_accounts_hold_up_no_other_user_and_push_out_none() {
    let (fake, _own, reviews) = scene(SLOW, Duration::from_secs(3600));
    let mut flooding = JoinSet::new();
    for token in 0..500 {
        flooding.spawn(reviews.access(account(if token % 2 == 0 { "a" } else { "b" }, token)));
    }
    settled().await;
    let (waited, allowed) = time_of(reviews.access(jane_gets_pods())).await;
    assert!(allowed == Ok(true) && waited < Duration::from_millis(250), "{waited:?}");
    drop(flooding);
    let (fake, _own, reviews) = {
        drop(fake);
        scene(RateLimit { per_second: 0.0, burst: 0 }, Duration::from_secs(3600))
    };
    assert_eq!(reviews.access(jane_gets_pods()).await, Ok(true));
    for token in 0..ANSWERS_MAX + 10 {
        assert_eq!(reviews.access(account("a", token)).await, Ok(false));
    }
    let asked = fake.count(Verb::Create, "subjectaccessreviews");
    assert_eq!(reviews.access(jane_gets_pods()).await, Ok(true));
    assert_eq!(fake.count(Verb::Create, "subjectaccessreviews"), asked, "it is remembered");
}

#[tokio::test(start_paused = true)]
async fn a_peer_with_many_tokens_holds_up_no_other_peer() {
    let (_fake, _own, reviews) = scene(SLOW, Duration::from_secs(120));
    let friend = "10.0.0.1".parse().ok();
    let mut flooding = JoinSet::new();
    for token in 0..2000 {
        // A stranger of IPv6 has as many addresses as it likes.
        let stranger = if token % 2 == 0 { "10.0.0.9".to_owned() } else { format!("2001:db8::{token:x}") };
        flooding.spawn(reviews.token(&format!("random {token}"), stranger.parse().ok()));
    }
    settled().await;
    let (waited, jane) = time_of(reviews.token("of jane", friend)).await;
    assert_eq!(jane.unwrap().unwrap().name, "jane");
    assert!(waited < Duration::from_millis(350), "a turn of each of the three: {waited:?}");
}

#[test]
fn a_review_asks_for_the_node() {
    let user = User { name: "jane".into(), groups: vec!["g".into()], ..User::default() };
    let access = NodeAccess {
        user: Arc::new(user),
        verb: "get".into(),
        node: "n1".into(),
        subresource: "pods".into(),
    };
    assert_eq!(
        serde_json::to_value(review_of(&access)).unwrap()["spec"],
        serde_json::json!({
            "user": "jane", "groups": ["g"],
            "resourceAttributes": {
                "verb": "get", "version": "v1", "resource": "nodes", "subresource": "pods", "name": "n1"
            }
        })
    );
}
