//! `POST /pods` and `DELETE /pods/{namespace}/{name}`: pods that callers submit and withdraw (row 1.8). PodSources decides, and
//! answers when the disk is safe.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, post};
use axum::{Extension, Router};
use bridge_io::{SharedPlace, SharedPlaces};
use bridge_serve::Connection;
use messages::pod_sources::{SUBMISSION_BYTES_MAX, SubmissionRefused, SubmitPod, WhyRefused, WithdrawPod};
use supervision::{AskError, AskPort};

use crate::access::Caller;
use crate::actor::NodeApi;
use crate::containers::plain;
use crate::routes::{json, unavailable};

/// At most so many submissions and withdrawals are answered at once, each with its manifest; half of them for one tenant.
const CHANGES_MAX: usize = 8;
/// A manifest has to arrive within this time: it holds a place.
const MANIFEST_WITHIN: Duration = Duration::from_secs(10);
/// How long a caller waits until the disk is safe.
const KEPT_WITHIN: Duration = Duration::from_secs(30);
/// After so many seconds a request that was refused for want of a place may be sent again.
const RETRY_SECONDS: &str = "1";
/// The types of content that manifests have; one without a type is read as well.
const TYPES: [&str; 5] =
    ["application/json", "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"];

/// How NodeApi has pods run that callers submit.
#[derive(Clone, Debug)]
pub struct Submission {
    submit: AskPort<NodeApi, SubmitPod>,
    withdraw: AskPort<NodeApi, WithdrawPod>,
    places: SharedPlaces,
}

impl Submission {
    /// Asks PodSources by these ports.
    pub fn new(submit: AskPort<NodeApi, SubmitPod>, withdraw: AskPort<NodeApi, WithdrawPod>) -> Self {
        Self { submit, withdraw, places: SharedPlaces::new(CHANGES_MAX) }
    }

    fn place(&self, caller: &Caller) -> Option<SharedPlace> {
        self.places.try_place(&caller.0.tenant())
    }
}

/// The routes by which pods are submitted and withdrawn.
pub(crate) fn submissions(submission: Submission) -> Router {
    Router::new()
        .route("/pods", post(submit))
        .route("/pods/", post(submit))
        .route("/pods/{namespace}/{name}", delete(withdraw))
        .layer(DefaultBodyLimit::max(SUBMISSION_BYTES_MAX))
        .with_state(submission)
}

/// Logs one audit event for each request that changes which pods the node runs.
fn audit(what: &str, caller: &Caller, connection: &Connection, pod: &str, status: StatusCode) {
    tracing::info!(
        action = what,
        user = caller.0.name,
        groups = caller.0.groups.join(","),
        peer = connection.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        pod,
        status = status.as_u16(),
        "Audit"
    );
}

async fn submit(
    State(submission): State<Submission>,
    Extension(caller): Extension<Caller>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Response {
    let (pod, answer) = match submission.place(&caller) {
        Some(_place) => submitted(&submission, caller.0.tenant(), request).await,
        None => (String::new(), too_many("too many submissions of pods are under way\n")),
    };
    audit("submit", &caller, &connection, &pod, answer.status());
    answer
}

/// The pod's name as far as it is known, and the answer.
async fn submitted(submission: &Submission, tenant: Arc<str>, request: Request) -> (String, Response) {
    let refused = |answer: Response| (String::new(), answer);
    if let Some(wrong) = wrong_type(request.headers()) {
        let text = format!("content type {wrong:?}: use one of {}\n", TYPES.join(", "));
        return refused(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let too_large = || {
        let text = format!("the manifest has more than {SUBMISSION_BYTES_MAX} bytes\n");
        plain(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    // A body that says so of itself is not waited for.
    if request.body().size_hint().lower() > SUBMISSION_BYTES_MAX as u64 {
        return refused(too_large());
    }
    let manifest = match tokio::time::timeout(MANIFEST_WITHIN, Bytes::from_request(request, &())).await {
        Ok(Ok(manifest)) => manifest,
        Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return refused(too_large());
        }
        Ok(Err(rejection)) => return refused(plain(rejection.status(), rejection.body_text())),
        Err(_) => {
            let text = format!("the manifest has not arrived within {MANIFEST_WITHIN:?}\n");
            return refused(plain(StatusCode::REQUEST_TIMEOUT, text));
        }
    };
    let ask = SubmitPod { manifest: Arc::from(&manifest[..]), tenant };
    drop(manifest);
    match submission.submit.ask(ask, KEPT_WITHIN).await {
        Ok(Ok(submitted)) => {
            let metadata = &submitted.pod.metadata;
            let text = |part: &Option<String>| part.clone().unwrap_or_default();
            let name = format!("{}/{}", text(&metadata.namespace), text(&metadata.name));
            let status = if submitted.is_new { StatusCode::CREATED } else { StatusCode::OK };
            let mut answer = json(&*submitted.pod);
            // A pod that cannot be encoded has told so.
            if answer.status() == StatusCode::OK {
                *answer.status_mut() = status;
            }
            (name, answer)
        }
        Ok(Err(refusal)) => refused(refusal_of(&refusal)),
        Err(error) => refused(unheard(&error)),
    }
}

async fn withdraw(
    State(submission): State<Submission>,
    Extension(caller): Extension<Caller>,
    Extension(connection): Extension<Connection>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let pod = format!("{namespace}/{name}");
    let answer = match submission.place(&caller) {
        Some(_place) => {
            let ask = WithdrawPod { namespace: Arc::from(namespace), name: Arc::from(name.as_str()) };
            match submission.withdraw.ask(ask, KEPT_WITHIN).await {
                Ok(Ok(())) => json(&serde_json::json!({
                    "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success",
                    "details": {"name": name, "kind": "pods"},
                })),
                Ok(Err(refusal)) => refusal_of(&refusal),
                Err(error) => unheard(&error),
            }
        }
        None => too_many("too many submissions of pods are under way\n"),
    };
    audit("withdraw", &caller, &connection, &pod, answer.status());
    answer
}

/// The type of content, if it is none of a manifest.
fn wrong_type(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(header::CONTENT_TYPE)?;
    let text = String::from_utf8_lossy(given.as_bytes()).into_owned();
    let kind = text.split(';').next().unwrap_or_default().trim();
    let is_known = TYPES.iter().any(|known| known.eq_ignore_ascii_case(kind));
    (!is_known).then_some(text)
}

fn too_many(text: &str) -> Response {
    (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, RETRY_SECONDS)], text.to_owned()).into_response()
}

fn refusal_of(refusal: &SubmissionRefused) -> Response {
    let text = format!("{}\n", refusal.message);
    let status = match refusal.why {
        WhyRefused::Busy => return too_many(&text),
        WhyRefused::Off => StatusCode::METHOD_NOT_ALLOWED,
        WhyRefused::Invalid => StatusCode::BAD_REQUEST,
        WhyRefused::Forbidden => StatusCode::FORBIDDEN,
        WhyRefused::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        WhyRefused::Conflict => StatusCode::CONFLICT,
        WhyRefused::NotFound => StatusCode::NOT_FOUND,
        WhyRefused::Full => StatusCode::INSUFFICIENT_STORAGE,
        WhyRefused::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    };
    plain(status, text)
}

/// PodSources has not answered. Whether it has done what was asked for is not known.
fn unheard(error: &AskError) -> Response {
    unavailable(messages::pod_sources::RECEIVER, error)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn manifests_are_json_or_yaml_or_of_no_type() {
        let wrong = |kind: &'static str| {
            wrong_type(&HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]))
        };
        for kind in ["application/json", "Application/YAML; charset=utf-8", "text/x-yaml ;v=1"] {
            assert_eq!(wrong(kind), None, "{kind}");
        }
        assert_eq!(wrong_type(&HeaderMap::new()), None);
        for kind in ["application/x-www-form-urlencoded", "application/vnd.kubernetes.protobuf", "yaml", ""] {
            assert_eq!(wrong(kind), Some(kind.to_owned()));
        }
    }
}
