//! Pods that callers submit and withdraw (row 1.8): the rights for it, and the answers. PodSources is scripted.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use messages::pod_sources::{
    SUBMISSION_BYTES_MAX, SubmissionRefused, SubmitPod, SubmittedPod, WhyRefused, WithdrawPod,
};
use node_api::Submission;
use supervision::AskPort;

use crate::server::{Options, Server, reviews};

const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n";
const YAML: &str = "Content-Type: application/yaml";

/// What PodSources was asked for.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Ports to a PodSources that takes the first pod, has the second one already, and gives this refusal to all others.
    fn submission(&self, refusal: WhyRefused) -> Submission {
        let refused =
            move || SubmissionRefused { why: refusal, message: "spec.containers: Required value".to_owned() };
        let (submits, withdraws) = (self.clone(), self.clone());
        let submit = AskPort::answering("PodSources", move |ask: SubmitPod| {
            submits.note(String::from_utf8_lossy(&ask.manifest).into_owned());
            let mut pod = Pod::default();
            pod.metadata.name = Some("web-n1".to_owned());
            pod.metadata.namespace = Some("default".to_owned());
            let pod = Arc::new(pod);
            Some(match submits.0.lock().unwrap().len() {
                1 => Ok(SubmittedPod { pod, is_new: true }),
                2 => Ok(SubmittedPod { pod, is_new: false }),
                _ => Err(refused()),
            })
        });
        let withdraw = AskPort::answering("PodSources", move |ask: WithdrawPod| {
            withdraws.note(format!("{}/{}", ask.namespace, ask.name));
            Some(if &*ask.name == "web" { Ok(()) } else { Err(refused()) })
        });
        Submission::new(submit, withdraw)
    }
}

fn length(body: &str) -> String {
    format!("Content-Length: {}", body.len())
}

#[tokio::test]
async fn a_pod_is_submitted_once_and_withdrawn() {
    let asked = Asked::default();
    let submission = Some(asked.submission(WhyRefused::Invalid));
    let server = Server::start(Options { always_allow: true, submission, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let body = length(MANIFEST);
    let post = async |headers: &[&str]| {
        let headers = [headers, &[body.as_str()]].concat();
        client.send("POST", "/pods", &headers, MANIFEST).await
    };
    let (status, body) = post(&[YAML]).await;
    assert_eq!(status, 201, "{body}");
    let pod: Pod = serde_json::from_str(&body).unwrap();
    assert_eq!(pod.metadata.name.as_deref(), Some("web-n1"));
    assert_eq!(post(&["Content-Type: text/yaml; charset=utf-8"]).await.0, 200, "it is there already");
    assert_eq!(post(&[]).await, (400, "spec.containers: Required value\n".to_owned()));
    assert_eq!(asked.take(), [MANIFEST; 3]);
    let (status, body) = post(&["Content-Type: application/x-www-form-urlencoded"]).await;
    assert_eq!(status, 415, "{body}");
    assert!(body.contains("application/yaml") && asked.take().is_empty(), "{body}");
    let (status, body) = client.ask("DELETE", "/pods/default/web", &[]).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"status\":\"Success\""), "{body}");
    assert_eq!(asked.take(), ["default/web"]);
    assert_eq!(client.get("/pods").await.0, 200, "the list is there as before");
    assert_eq!(client.ask("PUT", "/pods", &[]).await.0, 405);
    assert_eq!(client.get("/pods/default/web").await.0, 405);
}

#[tokio::test]
async fn each_refusal_has_its_status() {
    for (refusal, expected) in [
        (WhyRefused::Off, 405),
        (WhyRefused::Invalid, 400),
        (WhyRefused::Forbidden, 403),
        (WhyRefused::TooLarge, 413),
        (WhyRefused::Conflict, 409),
        (WhyRefused::NotFound, 404),
        (WhyRefused::Busy, 429),
        (WhyRefused::Full, 507),
        (WhyRefused::Failed, 500),
    ] {
        let submission = Some(Asked::default().submission(refusal));
        let server = Server::start(Options { always_allow: true, submission, ..Options::default() }).await;
        let client = server.client(Some(&server.admin));
        let answer = client.ask("DELETE", "/pods/default/other", &[]).await;
        assert_eq!(answer, (expected, "spec.containers: Required value\n".to_owned()), "{refusal:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read() {
    let asked = Asked::default();
    let submission = Some(asked.submission(WhyRefused::Invalid));
    let server = Server::start(Options { always_allow: true, submission, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let huge = client.ask("POST", "/pods", &[YAML, "Content-Length: 1000000000000"]).await;
    assert_eq!(huge, (413, format!("the manifest has more than {SUBMISSION_BYTES_MAX} bytes\n")));
    let largest = format!("{MANIFEST}{}", "#".repeat(SUBMISSION_BYTES_MAX - MANIFEST.len()));
    let answer = client.send("POST", "/pods", &[YAML, &length(&largest)], &largest).await;
    assert_eq!(answer.0, 201, "{}", answer.1);
    assert_eq!(asked.take(), [largest]);
}

#[tokio::test]
async fn reading_the_pods_is_no_right_to_submit_one() {
    let allowed = [
        ("admin", "get", "pods"),
        ("admin", "get", "proxy"),
        ("jane", "create", "pods"),
        ("jane", "delete", "proxy"),
    ];
    let asked = Asked::default();
    let submission = Some(asked.submission(WhyRefused::Invalid));
    let reviews = Some(reviews(&allowed));
    let server = Server::start(Options { reviews, submission, ..Options::default() }).await;
    let reader = server.client(Some(&server.admin));
    assert_eq!(reader.get("/pods").await.0, 200);
    let forbidden =
        |verb| format!("Forbidden (user=admin, verb={verb}, resource=nodes, subresource(s)=[pods proxy])\n");
    let body = length(MANIFEST);
    let headers = [YAML, body.as_str()];
    assert_eq!(reader.send("POST", "/pods", &headers, MANIFEST).await, (403, forbidden("create")));
    assert_eq!(reader.ask("DELETE", "/pods/default/web", &[]).await, (403, forbidden("delete")));
    assert_eq!(server.client(None).send("POST", "/pods", &headers, MANIFEST).await.0, 401);
    assert!(asked.take().is_empty());
    let (jane, token) = (server.client(None), "Authorization: Bearer token-jane");
    let headers = [YAML, body.as_str(), token];
    assert_eq!(jane.send("POST", "/pods", &headers, MANIFEST).await.0, 201);
    assert_eq!(jane.ask("DELETE", "/pods/default/web", &[token]).await.0, 200);
    assert_eq!(jane.ask("GET", "/pods", &[token]).await.0, 403, "submitting is no right to read");
    assert_eq!(asked.take(), [MANIFEST, "default/web"]);
}

#[tokio::test]
async fn pod_sources_is_told_for_whom_a_pod_counts() {
    let submit = AskPort::answering("PodSources", |ask: SubmitPod| {
        Some(Err(SubmissionRefused {
            why: WhyRefused::Full,
            message: format!("{} has too many", ask.tenant),
        }))
    });
    let withdraw = AskPort::answering("PodSources", |_: WithdrawPod| None);
    let reviews = Some(reviews(&[("jane", "create", "pods")]));
    let submission = Some(Submission::new(submit, withdraw));
    let server = Server::start(Options { reviews, submission, ..Options::default() }).await;
    let body = length(MANIFEST);
    let headers = [YAML, body.as_str(), "Authorization: Bearer token-jane"];
    let answer = server.client(None).send("POST", "/pods", &headers, MANIFEST).await;
    assert_eq!(answer, (507, "jane has too many\n".to_owned()));
}

#[tokio::test]
async fn while_submission_is_off_there_are_no_such_paths() {
    let server = Server::start(Options { always_allow: true, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    assert_eq!(client.send("POST", "/pods", &[YAML, &length(MANIFEST)], MANIFEST).await.0, 405);
    assert_eq!(client.ask("DELETE", "/pods/default/web", &[]).await.0, 404);
    assert_eq!(client.get("/pods").await.0, 200);
}

#[tokio::test]
async fn a_pod_sources_that_is_away_is_told() {
    let submit = AskPort::answering("PodSources", |_: SubmitPod| None);
    let withdraw = AskPort::answering("PodSources", |_: WithdrawPod| None);
    let submission = Some(Submission::new(submit, withdraw));
    let server = Server::start(Options { always_allow: true, submission, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let (status, body) = client.send("POST", "/pods", &[&length(MANIFEST)], MANIFEST).await;
    assert!(status == 503 && body.contains("PodSources"), "{status} {body}");
    assert_eq!(client.ask("DELETE", "/pods/default/web", &[]).await.0, 503);
}
