//! Tokens of service accounts, reviews and certificate requests.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenReview};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::{Value, json};

use crate::objects::cases;
use crate::subject::{Case, Subject, json as value, object};

cases![
    an_account_gets_a_token_that_a_review_knows,
    a_token_is_bound_to_a_pod_that_is_there,
    a_token_has_a_shortest_life,
    an_unknown_token_is_nobodys,
    who_may_do_what_is_reviewed,
];

fn request(spec: Value) -> TokenRequest {
    serde_json::from_value(json!({ "spec": spec })).expect("a token request")
}

async fn token(subject: &Subject, account: &str, spec: Value) -> Result<TokenRequest, bridge_kube::ApiError> {
    let asked = request(spec);
    subject.api.create_subresource::<ServiceAccount, _>(subject.ns(), account, "token", &asked).await
}

async fn account(subject: &Subject) {
    let account: ServiceAccount = object(json!({"metadata": {"name": "sa", "namespace": subject.namespace}}));
    subject.api.create(&account).await.expect("made");
}

async fn an_account_gets_a_token_that_a_review_knows(subject: &Subject) {
    account(subject).await;
    let answer = token(subject, "sa", json!({"audiences": ["vault"], "expirationSeconds": 3600})).await;
    let status = answer.expect("a token").status.expect("a status");
    let given = status.token.expect("a token");
    assert!(given.split('.').count() == 3, "{given}");
    let review =
        |audiences: Value| object::<TokenReview>(json!({"spec": {"token": given, "audiences": audiences}}));
    let seen = value(&subject.api.create(&review(json!(["vault"]))).await.expect("a review"));
    assert_eq!(seen["status"]["authenticated"], true, "{seen}");
    let name = format!("system:serviceaccount:{}:sa", subject.namespace);
    assert_eq!(seen["status"]["user"]["username"], name.as_str());
    let groups = seen["status"]["user"]["groups"].as_array().expect("groups");
    assert!(groups.contains(&json!("system:serviceaccounts")), "{seen}");
    let seen = value(&subject.api.create(&review(json!(["elsewhere"]))).await.expect("a review"));
    assert_ne!(seen["status"]["authenticated"], true, "{seen}");
    let error = token(subject, "nobody", json!({"audiences": []})).await.expect_err("no account");
    assert!(error.is_not_found(), "{error:?}");
}

async fn a_token_is_bound_to_a_pod_that_is_there(subject: &Subject) {
    account(subject).await;
    let mut pod = subject.pod("p");
    pod.spec.as_mut().expect("a spec").service_account_name = Some("sa".to_owned());
    let mut made = subject.api.create(&pod).await;
    for _ in 0..600 {
        if !made.as_ref().is_err_and(bridge_kube::ApiError::is_forbidden) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        made = subject.api.create(&pod).await;
    }
    let uid = made.expect("made").metadata.uid.expect("a UID");
    let bound = |name: &str, uid: &str| json!({"audiences": [], "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}});
    token(subject, "sa", bound("p", &uid)).await.expect("a token");
    let error = token(subject, "sa", bound("q", &uid)).await.expect_err("no such pod");
    assert!(error.is_not_found() && error.message.contains(r#"pods "q" not found"#), "{error:?}");
    let other = "11111111-2222-3333-4444-555555555555";
    let error = token(subject, "sa", bound("p", other)).await.expect_err("another pod");
    assert!(error.is_conflict(), "{error:?}");
}

async fn a_token_has_a_shortest_life(subject: &Subject) {
    account(subject).await;
    let error =
        token(subject, "sa", json!({"audiences": [], "expirationSeconds": 10})).await.expect_err("short");
    assert!(error.is_invalid() && error.message.contains("less than 10 minutes"), "{error:?}");
}

async fn an_unknown_token_is_nobodys(subject: &Subject) {
    let review: TokenReview = object(json!({"spec": {"token": "abc"}}));
    let seen = value(&subject.api.create(&review).await.expect("a review"));
    assert_ne!(seen["status"]["authenticated"], true, "{seen}");
    assert!(!seen["status"]["error"].as_str().unwrap_or_default().is_empty(), "{seen}");
}

async fn who_may_do_what_is_reviewed(subject: &Subject) {
    let review = |user: &str, groups: Value| {
        object::<SubjectAccessReview>(json!({"spec": {"user": user, "groups": groups,
            "resourceAttributes": {"verb": "get", "version": "v1", "resource": "nodes", "subresource": "proxy"}}}))
    };
    let allowed = |review: SubjectAccessReview| async move {
        let seen = subject.api.create(&review).await.expect("a review");
        seen.status.expect("a status").allowed
    };
    assert!(!allowed(review("nobody", json!([]))).await);
    assert!(allowed(review("root", json!(["system:masters"]))).await);
    if let Some(fake) = &subject.fake {
        fake.allow("jane", "get", "nodes/proxy");
        assert!(allowed(review("jane", json!([]))).await);
    }
}
