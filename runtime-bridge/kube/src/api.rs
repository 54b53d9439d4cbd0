//! Calls to the API server, typed by the kind of object.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api_health::{ApiHealth, is_the_servers, is_well};
use super::connect::{ConnectSettings, Redial, dial};
use super::error::{ApiError, ConnectError, StatusBody, causes, retry_after};
use super::limits::{Bucket, RateLimit, Share, TooLate, Traffic};
use super::metrics::HostMetrics;
use super::object::{self, Object};
use super::request::escaped;
pub use super::request::{Delete, Patch, Select};
use bridge_io::Io;
#[cfg(any(test, feature = "fake"))]
use bridge_io::clock::Clock;
use bridge_io::clock::SystemClock;
use bridge_pace::panics;

/// The most bytes of an answer. A list that is longer is read in pages.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The most bytes of a refusal's body.
const REFUSAL_BYTES_MAX: usize = 1024 * 1024;
/// How often one call is sent again at the time that the server asks for.
const ASKED_AGAIN_MAX: u32 = 10;

/// The outcome of a call.
pub type Reply<T> = BoxFuture<'static, Result<T, ApiError>>;

/// The deadline of a call, and whether the call was sent: only a call that was sent tells something about the server
/// when its time is over.
struct Course {
    until: Instant,
    within: Duration,
    is_sent: AtomicBool,
}

/// The client of the API server, under one identity. Cheap to clone.
///
/// Every call runs on the I/O runtime, waits for its turn at the rate limit, and fails after its deadline.
#[derive(Clone)]
pub struct ApiClient {
    client: Client,
    io: Io,
    turns: Bucket,
    traffic: Traffic,
    /// The tenant that calls count against; `None` is the namespace of each.
    tenant: Option<Arc<str>>,
    /// What a call that begins now may take.
    deadline: Arc<dyn Fn() -> Duration + Send + Sync>,
    answer_bytes_max: usize,
    redial: Vec<Arc<dyn Redial>>,
    api_health: ApiHealth,
    /// Counts the calls; `None` for a client whose calls are not the kubelet's.
    metrics: Option<HostMetrics>,
}

impl Debug for ApiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiClient").field("deadline", &(self.deadline)()).finish_non_exhaustive()
    }
}

fn operation<B>(request: &Request<B>) -> String {
    format!("{} {}", request.method(), request.uri().path())
}

/// The method of an operation, with which its name begins.
fn verb(operation: &str) -> &str {
    operation.split(' ').next().unwrap_or_default()
}

/// `/api/v1/namespaces/<ns>/pods/<name>/<subresource>`, with the group and version of the object's type.
pub(super) fn path<K: Object>(
    namespace: Option<&str>,
    name: Option<&str>,
    subresource: Option<&str>,
) -> String {
    let mut path = K::url_path(&(), namespace);
    for part in [name, subresource].into_iter().flatten() {
        path.push('/');
        path.extend(escaped(part));
    }
    path
}

/// A request, ready to be sent.
type Made = Result<Request<Body>, ApiError>;

fn request(method: http::Method, path: &str, content: Option<&str>, body: Bytes) -> Made {
    let mut builder =
        Request::builder().method(method.clone()).uri(path).header(http::header::ACCEPT, "application/json");
    if let Some(content) = content {
        builder = builder.header(http::header::CONTENT_TYPE, content);
    }
    let made = builder.body(Body::from(body));
    made.map_err(|error| {
        ApiError::unanswered(format!("{method} {path}"), format!("no such request: {error}"))
    })
}

async fn refusal(operation: &str, answer: Response<Body>) -> ApiError {
    let code = answer.status().as_u16();
    let retry_after = retry_after(answer.headers());
    let body = Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect().await;
    let bytes = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let status = serde_json::from_slice::<StatusBody>(&bytes).unwrap_or_else(|_| StatusBody {
        message: String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).trim().to_owned(),
        ..StatusBody::default()
    });
    ApiError::of_status(operation.to_owned(), code, retry_after, status)
}

/// The part of an object's metadata that tells how new it is.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionBody {
    #[serde(default)]
    pub resource_version: Option<String>,
}

/// A decoded answer, of a type that only the caller knows.
type Decoded = Box<dyn Any + Send>;

/// Decodes an answer; the error says why it cannot be read.
type Decode = fn(&[u8]) -> Result<Decoded, String>;

fn decode<R: DeserializeOwned + Send + 'static>(bytes: &[u8]) -> Result<Decoded, String> {
    let answer = serde_json::from_slice::<R>(bytes).map_err(|error| error.to_string())?;
    Ok(Box::new(answer))
}

/// The same for an object, which comes through the same door as one that is listed or watched.
fn decode_object<K: Object>(bytes: &[u8]) -> Result<Decoded, String> {
    Ok(Box::new(object::decode::<K>(bytes)?))
}

/// The same for an object that the call has written.
fn decode_written<K: Object>(bytes: &[u8]) -> Result<Decoded, String> {
    Ok(Box::new(object::decode_written::<K>(bytes)?))
}

impl ApiClient {
    /// A client that sends through `client`. `deadline` is that of each call except watches.
    pub fn new(client: Client, io: Io, limit: RateLimit, deadline: Duration) -> Self {
        Self {
            client,
            io,
            turns: Bucket::new(limit, None),
            traffic: Traffic::Node,
            tenant: None,
            deadline: Arc::new(move || deadline),
            answer_bytes_max: ANSWER_BYTES_MAX,
            redial: Vec::new(),
            api_health: ApiHealth::new(Arc::new(SystemClock)),
            metrics: None,
        }
    }

    /// A client with connections of its own, which it can give up. Nothing is connected yet.
    ///
    /// # Errors
    /// A setting that cannot be used: the CA, or the identity as it is now.
    pub fn connected(
        settings: &ConnectSettings,
        io: &Io,
        limit: RateLimit,
        deadline: Duration,
    ) -> Result<Self, ConnectError> {
        let (client, redial) = dial(settings, io)?;
        Ok(Self { redial: vec![redial], ..Self::new(client, io.clone(), limit, deadline) })
    }

    /// The same client, with `redial` to give its connections up.
    #[cfg(any(test, feature = "fake"))]
    pub(super) fn redialing(mut self, redial: Arc<dyn Redial>) -> Self {
        self.redial.push(redial);
        self
    }

    /// The same client; its [`ApiClient::redial`] gives up the connections of `others` too.
    #[must_use]
    pub fn redialing_with(mut self, others: &[&Self]) -> Self {
        self.redial.extend(others.iter().flat_map(|other| other.redial.iter().cloned()));
        self
    }

    /// Gives up connections that may be dead, so that the next call opens a new one. Calls in flight and watches stay
    /// on theirs, unless the client was configured to close all.
    pub fn redial(&self) {
        self.redial.iter().for_each(|redial| redial.redial());
    }

    /// Asks the server's `/healthz`.
    pub fn healthz(&self) -> Reply<()> {
        let this = self.clone();
        self.on_io(async move {
            let made = || request(http::Method::GET, "/healthz", None, Bytes::new());
            let operation = "GET /healthz";
            let course = this.course();
            this.within(operation, &course, this.call(operation, &course, made)).await.map(|_| ())
        })
    }

    /// Shares with `other` the knowledge whether the server answers, since both speak to the same server.
    #[must_use]
    pub fn beside(self, other: &Self) -> Self {
        Self { api_health: other.api_health.clone(), ..self }
    }

    /// The same client, whose calls are counted.
    #[must_use]
    pub fn counted(self, metrics: HostMetrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// The same client, which takes answers of at most so many bytes.
    #[cfg(any(test, feature = "fake"))]
    #[must_use]
    pub fn taking(self, answer_bytes_max: usize) -> Self {
        Self { answer_bytes_max, ..self }
    }

    /// The same client, with random numbers from `clock` for the waits between attempts.
    #[cfg(any(test, feature = "fake"))]
    pub(super) fn by_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { api_health: ApiHealth::new(clock), ..self }
    }

    /// The same client over the same connections, but with a queue of its own at the same rate, and with at most
    /// `at_once` calls in flight: its calls neither wait for the other calls nor delay them.
    #[must_use]
    pub fn lane(&self, at_once: usize) -> Self {
        Self { turns: self.turns.anew(at_once), ..self.clone() }
    }

    /// The same client in the line of this kind of traffic; without, calls are the node's own.
    #[must_use]
    pub fn carrying(&self, traffic: Traffic) -> Self {
        Self { traffic, ..self.clone() }
    }

    /// The same client, whose calls count against this tenant instead of their namespaces.
    #[must_use]
    pub fn on_behalf_of(&self, tenant: &str) -> Self {
        Self { tenant: Some(Arc::from(tenant)), ..self.clone() }
    }

    fn share(&self, path: &str) -> Share {
        let namespace = || path.split_once("/namespaces/").and_then(|(_, rest)| rest.split('/').next());
        let tenant = self.tenant.clone().unwrap_or_else(|| Arc::from(namespace().unwrap_or_default()));
        Share { traffic: self.traffic, tenant }
    }

    /// The same client with another deadline.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        self.with_deadline_by(move || deadline)
    }

    /// The same client; each call has the deadline that holds when it begins.
    #[must_use]
    pub fn with_deadline_by(&self, deadline: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { deadline: Arc::new(deadline), ..self.clone() }
    }

    /// Reads an object.
    pub fn get<K: Object>(&self, namespace: Option<&str>, name: &str) -> Reply<K> {
        let path = path::<K>(namespace, Some(name), None);
        self.decoded(http::Method::GET, path, None, None, decode_object::<K>)
    }

    /// Creates an object.
    pub fn create<K: Object>(&self, object: &K) -> Reply<K> {
        let namespace = object.meta().namespace.clone();
        let path = path::<K>(namespace.as_deref(), None, None);
        self.send_object(http::Method::POST, path, object, decode_written::<K>)
    }

    /// Replaces an object; its `resourceVersion`, if it has one, must be current.
    pub fn replace<K: Object>(&self, object: &K) -> Reply<K> {
        let meta = object.meta();
        let path = path::<K>(meta.namespace.as_deref(), Some(meta.name.as_deref().unwrap_or_default()), None);
        self.send_object(http::Method::PUT, path, object, decode_written::<K>)
    }

    /// Changes an object.
    pub fn patch<K: Object>(&self, namespace: Option<&str>, name: &str, patch: &Patch) -> Reply<K> {
        self.send_patch(path::<K>(namespace, Some(name), None), patch)
    }

    /// Changes the status of an object.
    pub fn patch_status<K: Object>(&self, namespace: Option<&str>, name: &str, patch: &Patch) -> Reply<K> {
        self.send_patch(path::<K>(namespace, Some(name), Some("status")), patch)
    }

    /// Deletes an object. The answer's body is ignored.
    pub fn delete<K: Object>(&self, namespace: Option<&str>, name: &str, how: &Delete) -> Reply<()> {
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(seconds) = how.grace_seconds {
            body["gracePeriodSeconds"] = seconds.into();
        }
        if let Some(uid) = &how.uid {
            body["preconditions"] = json!({ "uid": uid });
        }
        let path = path::<K>(namespace, Some(name), None);
        let sent = self.json::<Value>(http::Method::DELETE, path, Some("application/json"), Some(body));
        Box::pin(async move { sent.await.map(|_| ()) })
    }

    /// Posts an object to a subresource, such as `token` of a service account.
    pub fn create_subresource<K: Object, S: Serialize + DeserializeOwned + Send + 'static>(
        &self,
        namespace: Option<&str>,
        name: &str,
        subresource: &str,
        body: &S,
    ) -> Reply<S> {
        let path = path::<K>(namespace, Some(name), Some(subresource));
        self.send_object(http::Method::POST, path, body, decode::<S>)
    }

    /// Opens a watch: an answer with a body that continues.
    pub(super) fn open_watch<K: Object>(
        &self,
        select: &Select,
        version: &str,
        seconds: u64,
    ) -> Reply<Response<Body>> {
        let mut query =
            format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}");
        if let Some(fields) = &select.fields {
            query.push_str("&fieldSelector=");
            query.extend(escaped(fields));
        }
        let path = format!("{}?{query}", path::<K>(select.namespace.as_deref(), None, None));
        let this = self.clone();
        let request = request(http::Method::GET, &path, None, Bytes::new());
        self.on_io(async move {
            let request = request?;
            let operation = operation(&request);
            let course = this.course();
            let answer = this.within(&operation, &course, this.send(&operation, &course, request)).await?;
            if answer.status().is_success() { Ok(answer) } else { Err(refusal(&operation, answer).await) }
        })
    }

    fn send_object<T: Serialize, R: DeserializeOwned + Send + 'static>(
        &self,
        method: http::Method,
        path: String,
        body: &T,
        decode: Decode,
    ) -> Reply<R> {
        match serde_json::to_value(body) {
            Ok(value) => self.decoded(method, path, Some("application/json"), Some(value), decode),
            Err(error) => {
                let error =
                    ApiError::unanswered(format!("{method} {path}"), format!("cannot be written: {error}"));
                Box::pin(async move { Err(error) })
            }
        }
    }

    fn send_patch<K: Object>(&self, path: String, patch: &Patch) -> Reply<K> {
        let (content, value) = match patch {
            Patch::Strategic(value) => ("application/strategic-merge-patch+json", value),
            Patch::Merge(value) => ("application/merge-patch+json", value),
        };
        self.decoded(http::Method::PATCH, path, Some(content), Some(value.clone()), decode_written::<K>)
    }

    pub(super) fn json<R: DeserializeOwned + Send + 'static>(
        &self,
        method: http::Method,
        path: String,
        content: Option<&'static str>,
        body: Option<Value>,
    ) -> Reply<R> {
        self.decoded(method, path, content, body, decode::<R>)
    }

    /// Performs a call whose answer `decode` makes an `R`.
    fn decoded<R: Send + 'static>(
        &self,
        method: http::Method,
        path: String,
        content: Option<&'static str>,
        body: Option<Value>,
        decode: Decode,
    ) -> Reply<R> {
        let answer = self.answer(method, path, content, body, decode);
        Box::pin(async move {
            let decoded = answer.await?.downcast::<R>();
            Ok(*decoded.expect("it was decoded as that"))
        })
    }

    /// Performs a call for every type of answer, so that there is one kind of task instead of one per type.
    fn answer(
        &self,
        method: http::Method,
        path: String,
        content: Option<&'static str>,
        body: Option<Value>,
        decode: Decode,
    ) -> Reply<Decoded> {
        let this = self.clone();
        self.on_io(async move {
            let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
            let operation = format!("{method} {}", path.split('?').next().unwrap_or_default());
            let made = || request(method.clone(), &path, content, bytes.clone());
            let course = this.course();
            let bytes = this.within(&operation, &course, this.call(&operation, &course, made)).await?;
            decode(&bytes).map_err(|error| {
                ApiError::unanswered(operation, format!("the answer cannot be read: {error}"))
            })
        })
    }

    /// Sends a request, and sends it again at the time that the server asks for, as long as the deadline allows.
    async fn call(
        &self,
        operation: &str,
        course: &Course,
        request: impl Fn() -> Made,
    ) -> Result<Bytes, ApiError> {
        for _ in 0..ASKED_AGAIN_MAX {
            match self.call_once(operation, course, request()?).await {
                Err(error) if error.is_transient() && error.code != 0 => {
                    let asked = error.retry_after.filter(|wait| Instant::now() + *wait < course.until);
                    let Some(wait) = asked else { return Err(error) };
                    tracing::debug!(%error, wait_s = wait.as_secs(), "The API server wants to be asked again later");
                    tokio::time::sleep(wait).await;
                    self.count(|metrics| metrics.again(verb(operation), error.code));
                }
                outcome => return outcome,
            }
        }
        self.call_once(operation, course, request()?).await
    }

    async fn call_once(
        &self,
        operation: &str,
        course: &Course,
        request: Request<Body>,
    ) -> Result<Bytes, ApiError> {
        let answer = self.send(operation, course, request).await?;
        if answer.status().is_success() {
            let body = Limited::new(answer.into_body(), self.answer_bytes_max).collect().await;
            let body = body.map(http_body_util::Collected::to_bytes);
            if let Ok(body) = &body {
                self.count(|metrics| metrics.received(verb(operation), body.len()));
            }
            return body.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return ApiError::too_long(operation.to_owned(), self.answer_bytes_max);
                }
                self.doubt();
                ApiError::unanswered(operation.to_owned(), format!("the answer broke off: {error}"))
            });
        }
        Err(refusal(operation, answer).await)
    }

    /// Waits for a turn and a permit, both within the deadline, and sends a request.
    async fn send(
        &self,
        operation: &str,
        course: &Course,
        request: Request<Body>,
    ) -> Result<Response<Body>, ApiError> {
        course.is_sent.store(false, Ordering::Relaxed);
        let asked = Instant::now();
        let share = self.share(request.uri().path());
        let turn = self.turns.turn(&share, course.until).await;
        let _place = turn.map_err(|late| ApiError::not_sent(operation.to_owned(), late))?;
        let (began, bytes) = (Instant::now(), request.body().size_hint().exact().unwrap_or(0));
        self.count(|metrics| metrics.waited(verb(operation), began - asked));
        course.is_sent.store(true, Ordering::Relaxed);
        let answer = self.client.send(request).await;
        self.count(|metrics| {
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            metrics.answered(verb(operation), code, began.elapsed(), bytes);
        });
        match answer {
            Ok(answer) => {
                match is_well(answer.status()) {
                    true => self.api_health.answered(),
                    false => self.doubt(),
                }
                Ok(answer)
            }
            Err(error) => {
                if is_the_servers(&error) {
                    self.doubt();
                }
                Err(ApiError::unanswered(operation.to_owned(), causes(&error)))
            }
        }
    }

    fn count(&self, count: impl FnOnce(&HostMetrics)) {
        if let Some(metrics) = &self.metrics {
            count(metrics);
        }
    }

    /// Reports a sign that the server may not be well.
    pub(super) fn doubt(&self) {
        self.api_health.doubted(&self.client, &self.io, &self.redial);
    }

    fn course(&self) -> Course {
        let within = (self.deadline)();
        Course { until: Instant::now() + within, within, is_sent: AtomicBool::new(false) }
    }

    async fn within<T>(
        &self,
        operation: &str,
        course: &Course,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        tokio::time::timeout_at(course.until, work).await.unwrap_or_else(|_| {
            if !course.is_sent.load(Ordering::Relaxed) {
                // The call waited behind other calls of this client, which says nothing about the server.
                return Err(ApiError::not_sent(operation.to_owned(), TooLate));
            }
            self.doubt();
            // Only this connection may be dead, so other calls should not wait on it.
            self.redial();
            let message = format!("no answer within {} s", course.within.as_secs_f64());
            Err(ApiError::unanswered(operation.to_owned(), message))
        })
    }

    pub(super) fn on_io<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Reply<T> {
        let task = tokio_util::task::AbortOnDropHandle::new(self.io.spawn(panics::caught(work)));
        Box::pin(async move {
            let gone = |_| Err(ApiError::unanswered("call".to_owned(), "the I/O runtime has shut down"));
            task.await.map_or_else(gone, panics::resumed)
        })
    }

    pub(super) fn io(&self) -> &Io {
        &self.io
    }

    pub(super) fn api_health(&self) -> &ApiHealth {
        &self.api_health
    }
}
