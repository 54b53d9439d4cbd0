//! Handlers that reach into containers: logs, run, exec, attach, port-forward (rows 21.4 to 21.6, 30.6).

use std::fmt::Display;
use std::future::Future;
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bridge_cri::wire::{
    AttachRequest, ContainerStatusRequest, ExecRequest, ExecSyncRequest, PortForwardRequest,
};
use bridge_cri::{Checkpointing, CriError, CriErrorKind, ExecSync, RuntimeReads, Streaming};
use bridge_io::Io;
use bridge_io::clock::Clock;
use bridge_node::host::LogFile;
use bridge_serve::{Channels, Connection, StallTimeout, StreamProxy, Target, Way};
use messages::PodUid;
use messages::facts::{DesiredPod, Source};
use messages::pleg::{GetRuntimePod, GetRuntimePods};
use messages::pod_manager::{GetPods, GetStaticOf};
use messages::runtime::{ContainerState, RuntimePod};
use messages::status_manager::GetPodStatus;
use supervision::AskPort;

use crate::access::{Caller, client};
use crate::actor::NodeApi;
use crate::logs::{LogSource, has_container, has_terminal, instance, log_options, send};
use crate::metrics::ApiMetrics;
use crate::places::{self, ContainerPlaces};
use crate::routes::{ASK_DEADLINE, unavailable};
use crate::sending::{Chunks, body_of};
use crate::streaming::{Streams, ports, query_pairs, refusal};

/// At most so many chunks of a log wait for a slow reader: there may be as many readers as requests.
const LOG_CHUNKS_MAX: usize = 1;
/// At most so many characters of a command are shown in the audit event.
const COMMAND_CHARS_MAX: usize = 1024;

/// How NodeApi finds pods' containers and reaches into them.
#[derive(Clone)]
pub struct Containers {
    /// Asks PodManager for the desired pods.
    pub pods: AskPort<NodeApi, GetPods>,
    /// Asks PodManager for the static pod that has a given mirror.
    pub static_of: AskPort<NodeApi, GetStaticOf>,
    /// Asks StatusManager for a pod's status.
    pub status: AskPort<NodeApi, GetPodStatus>,
    /// Asks Pleg for all pods of the runtime.
    pub runtime_pods: AskPort<NodeApi, GetRuntimePods>,
    /// Asks Pleg for one pod of the runtime.
    pub runtime_pod: AskPort<NodeApi, GetRuntimePod>,
    /// Reads the state of containers from the runtime.
    pub runtime: Arc<dyn RuntimeReads>,
    /// Runs commands in containers and waits for their end.
    pub exec: Arc<dyn ExecSync>,
    /// Writes containers to files.
    pub checkpointing: Arc<dyn Checkpointing>,
    /// Asks the runtime for the URLs of streams.
    pub streaming: Arc<dyn Streaming>,
    /// Joins callers' connections to streams of the runtime.
    pub proxy: Arc<dyn StreamProxy>,
    /// Reads log files, on the I/O runtime.
    pub io: Io,
    /// Wall time, from which `sinceSeconds` counts.
    pub clock: Arc<dyn Clock>,
    /// The feature gate PodLogsQuerySplitStreams.
    pub split_streams: bool,
    /// The feature gate ExtendWebSocketsToKubelet: WebSocket protocols that no runtime speaks are translated.
    pub websockets: bool,
    /// Counts the streams that are translated.
    pub metrics: ApiMetrics,
    /// The places of readers of logs and of commands, which clients share.
    pub places: ContainerPlaces,
}

/// The parts of a path: namespace, pod, then perhaps a UID, then the container.
pub type Parts = Path<Vec<String>>;

/// What a path names.
pub(crate) struct Named {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    uid: Option<String>,
    pub(crate) container: String,
}

impl Named {
    pub(crate) fn of(parts: Vec<String>) -> Self {
        let mut parts = parts.into_iter();
        let mut next = || parts.next().unwrap_or_default();
        let (namespace, pod, third, fourth) = (next(), next(), next(), next());
        match fourth.is_empty() {
            true => Self { namespace, pod, uid: None, container: third },
            false => Self { namespace, pod, uid: Some(third), container: fourth },
        }
    }

    /// The pod's name as upstream spells it in errors.
    pub(crate) fn full_name(&self) -> String {
        format!("{}_{}", self.pod, self.namespace)
    }
}

pub(crate) fn plain(status: StatusCode, text: impl Display) -> Response {
    (status, text.to_string()).into_response()
}

fn refused(error: &CriError) -> Response {
    let status = match error.kind {
        CriErrorKind::NotFound => StatusCode::NOT_FOUND,
        CriErrorKind::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut answer = plain(status, error.status_text());
    if status == StatusCode::TOO_MANY_REQUESTS {
        answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("60"));
    }
    answer
}

fn query_of(request: &Request) -> Vec<(String, String)> {
    query_pairs(request.uri().query().unwrap_or_default())
}

fn all(query: Vec<(String, String)>, name: &str) -> Vec<String> {
    query.into_iter().filter(|(key, _)| key == name).map(|(_, value)| value).collect()
}

/// Logs one audit event for each request that reaches into a container.
fn audit(what: &str, caller: &Caller, connection: &Connection, named: &Named, command: &[String]) {
    let command: String = command.join(" ").chars().take(COMMAND_CHARS_MAX).collect();
    tracing::info!(
        action = what,
        user = caller.0.name,
        groups = caller.0.groups.join(","),
        peer = connection.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        pod = named.full_name(),
        container = named.container,
        command,
        "Audit"
    );
}

impl Containers {
    pub(crate) async fn pod(&self, named: &Named) -> Result<Option<Arc<DesiredPod>>, Response> {
        let desired = self.pods.ask(GetPods, ASK_DEADLINE).await;
        let desired = desired.map_err(|error| unavailable(messages::pod_manager::RECEIVER, &error))?;
        let is = |pod: &&Arc<DesiredPod>| {
            *pod.pod_ref.namespace == *named.namespace && *pod.pod_ref.name == *named.pod
        };
        // A static pod and a pod of the API server may have the same name: without a UID the latter is meant, as at the
        // API server.
        let rank = |pod: &&Arc<DesiredPod>| {
            (named.uid.as_deref() == Some(pod.pod_ref.uid.as_str()), pod.source == Source::Api)
        };
        Ok(desired.pods.values().filter(is).max_by_key(rank).cloned())
    }

    /// The pod of this name, and of the UID that was asked for, if any.
    async fn existing(&self, named: &Named) -> Result<Arc<DesiredPod>, Response> {
        let pod = self.pod(named).await?;
        let pod = pod.ok_or_else(|| plain(StatusCode::NOT_FOUND, "pod does not exist"))?;
        if self.is_meant(&pod, named).await? {
            Ok(pod)
        } else {
            Err(plain(StatusCode::NOT_FOUND, "pod not found"))
        }
    }

    /// Whether the request names no UID, or the pod's own, or that of its mirror.
    async fn is_meant(&self, pod: &DesiredPod, named: &Named) -> Result<bool, Response> {
        let own = &pod.pod_ref.uid;
        let Some(uid) = named.uid.as_deref().filter(|uid| *uid != own.as_str()) else { return Ok(true) };
        if pod.source == Source::Api {
            return Ok(false);
        }
        let asked = self.static_of.ask(GetStaticOf { mirror: PodUid::new(uid) }, ASK_DEADLINE).await;
        let found = asked.map_err(|error| unavailable(messages::pod_manager::RECEIVER, &error))?;
        Ok(found.as_ref() == Some(own))
    }

    pub(crate) async fn held(&self, pod: &DesiredPod) -> Result<Option<Arc<RuntimePod>>, Response> {
        let asked = GetRuntimePod { uid: pod.pod_ref.uid.clone() };
        let held = self.runtime_pod.ask(asked, ASK_DEADLINE).await;
        held.map_err(|error| unavailable(messages::pleg::RECEIVER, &error))
    }

    /// The runtime's ID of the running container; `missing` is the answer when there is none.
    async fn running(&self, pod: &DesiredPod, named: &Named, missing: String) -> Result<String, Response> {
        let held = self.held(pod).await?;
        let running = held.iter().flat_map(|held| held.instances(&named.container));
        let running = running.into_iter().find(|one| one.state == ContainerState::Running);
        let id = running.map(|one| one.id.to_string());
        id.ok_or_else(|| plain(StatusCode::INTERNAL_SERVER_ERROR, missing))
    }

    async fn log_of(
        &self,
        named: &Named,
        query: &[(String, String)],
        client: &str,
        patience: &StallTimeout,
    ) -> Result<Response, Response> {
        let options = log_options(query, self.clock.now(), self.split_streams).map_err(|refused| {
            let (code, text) = refused.answer();
            plain(StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST), text)
        })?;
        let (pod, container) = (&named.pod, &named.container);
        let Some(desired) = self.pod(named).await? else {
            return Err(plain(StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist")));
        };
        if !has_container(&desired.pod, container) {
            let text = format!("container {container:?} not found in pod {pod:?}");
            return Err(plain(StatusCode::NOT_FOUND, text));
        }
        let place = self.places.log(client, &named.namespace, options.follow).await?;
        let asked = GetPodStatus { uid: desired.pod_ref.uid.clone(), made_anew: None };
        let status = self.status.ask(asked, ASK_DEADLINE).await;
        let status = status.map_err(|error| unavailable(messages::status_manager::RECEIVER, &error))?;
        // Until StatusManager has computed a status, the one that came with the pod from its source is used.
        let status = status.or_else(|| desired.pod.status.clone().map(Arc::new)).unwrap_or_default();
        let bad = |text: String| plain(StatusCode::BAD_REQUEST, text);
        let shown = instance(pod, &status, container, options.previous).map_err(bad)?;
        let id = shown.split_once("://").map_or(shown.as_str(), |(_, id)| id);
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let answer = self.runtime.container_status(request).await;
        let path = answer.ok().and_then(|answer| answer.status).map(|status| status.log_path);
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return Err(bad(format!("unable to retrieve container logs for {shown}")));
        };
        // Reading counts against the same client, too: a log may be long, or on a disk that is slow.
        let io = self.io.of_tenant(&places::of(client, &named.namespace));
        let file = LogFile::open(&io, FilePath::new(&path)).await;
        let file = file.map_err(|error| bad(format!("failed to open log file {path:?}: {error}")))?;
        let source = LogSource { file, container_id: id.to_owned(), runtime: self.runtime.clone() };
        // `send` ends when the body is dropped, which holds the only receiver of the chunks.
        let sending = |chunks: Chunks| async move {
            place.hold(send(source, options, chunks.clone()), &chunks).await;
        };
        let body = body_of(&self.io, LOG_CHUNKS_MAX, patience.streams(), sending);
        patience.streaming(true);
        Ok(([(header::CONTENT_TYPE, "text/plain")], body).into_response())
    }

    async fn run_in(
        &self,
        named: &Named,
        command: Vec<String>,
        client: &str,
        audit: impl FnOnce(&Named, &[String]),
    ) -> Result<Response, Response> {
        let pod = self.existing(named).await?;
        let _place = self.places.command(client, &named.namespace).await?;
        let missing = format!("container not found ({:?})", named.container);
        let container_id = self.running(&pod, named, missing).await?;
        audit(named, &command);
        let shown = command.join(" ");
        let request = ExecSyncRequest { container_id, cmd: command, timeout: 0 };
        let failed = |text: String| plain(StatusCode::INTERNAL_SERVER_ERROR, text);
        let done = self.exec.exec_sync(request).await.map_err(|error| failed(error.to_string()))?;
        if done.exit_code != 0 {
            let stderr = String::from_utf8_lossy(&done.stderr);
            return Err(failed(format!("command '{shown}' exited with {}: {stderr}", done.exit_code)));
        }
        let body = [done.stdout, done.stderr].concat();
        Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
    }

    async fn exec_target(
        &self,
        named: &Named,
        headers: &HeaderMap,
        query: Vec<(String, String)>,
    ) -> Result<(Target, Way), Response> {
        let streams = Streams::of(&query).map_err(|text| plain(StatusCode::BAD_REQUEST, text))?;
        let pod = self.existing(named).await?;
        let missing = format!("container not found ({:?})", named.container);
        let container_id = self.running(&pod, named, missing).await?;
        may_go_on(headers)?;
        let Streams { stdin, stdout, stderr, tty } = streams;
        let cmd = all(query, "command");
        let request = ExecRequest { container_id, cmd, tty, stdin, stdout, stderr };
        let target = target(self.streaming.exec(request).await.map(|answer| answer.url))?;
        Ok((target, self.way(headers, Channels { stdin, stdout, stderr, tty })))
    }

    async fn attach_target(
        &self,
        named: &Named,
        headers: &HeaderMap,
        query: &[(String, String)],
    ) -> Result<(Target, Way), Response> {
        let streams = Streams::of(query).map_err(|text| plain(StatusCode::BAD_REQUEST, text))?;
        let pod = self.existing(named).await?;
        let missing = format!("container {} not found in pod {}", named.container, named.full_name());
        let container_id = self.running(&pod, named, missing).await?;
        may_go_on(headers)?;
        // Whether a process has a terminal is decided when it starts.
        let tty = has_terminal(&pod.pod, &named.container);
        let Streams { stdin, stdout, stderr, .. } = streams;
        let stderr = stderr && !tty;
        let request = AttachRequest { container_id, stdin, tty, stdout, stderr };
        let target = target(self.streaming.attach(request).await.map(|answer| answer.url))?;
        Ok((target, self.way(headers, Channels { stdin, stdout, stderr, tty })))
    }

    fn way(&self, headers: &HeaderMap, channels: Channels) -> Way {
        if self.websockets { Way::of_channels(headers, channels) } else { Way::Through }
    }

    async fn forward_target(
        &self,
        named: &Named,
        headers: &HeaderMap,
        port: Vec<i32>,
    ) -> Result<Target, Response> {
        let pod = self.existing(named).await?;
        let held = self.held(&pod).await?;
        let sandbox = held.as_ref().and_then(|held| held.ready_sandbox());
        let Some(sandbox) = sandbox else {
            let text = format!("pod not found ({:?})", named.full_name());
            return Err(plain(StatusCode::INTERNAL_SERVER_ERROR, text));
        };
        may_go_on(headers)?;
        let request = PortForwardRequest { pod_sandbox_id: sandbox.id.to_string(), port };
        target(self.streaming.port_forward(request).await.map(|answer| answer.url))
    }
}

#[expect(clippy::result_large_err, reason = "a refusal is the answer itself, made once for a request")]
fn target(url: Result<String, CriError>) -> Result<Target, Response> {
    let url = url.map_err(|error| refused(&error))?;
    Target::of(&url).map_err(|text| plain(StatusCode::INTERNAL_SERVER_ERROR, text))
}

/// Refuses a request that cannot be passed on to the runtime, whatever its target.
#[expect(clippy::result_large_err, reason = "a refusal is the answer itself, made once for a request")]
fn may_go_on(headers: &HeaderMap) -> Result<(), Response> {
    refusal(headers).map_or(Ok(()), Err)
}

pub(crate) fn either(answer: Result<Response, Response>) -> Response {
    answer.unwrap_or_else(|refusal| refusal)
}

/// Joins the caller to a stream of the runtime, and logs an audit event.
async fn joined(
    containers: &Containers,
    request: Request,
    what: &str,
    found: impl Future<Output = Result<(Target, Way), Response>>,
    audit: impl FnOnce(),
) -> Response {
    let Some(connection) = request.extensions().get::<Connection>().cloned() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    match found.await {
        Ok((target, way)) => {
            audit();
            if way != Way::Through {
                containers.metrics.websocket(what);
            }
            containers.proxy.proxied(connection, request, target, way).await
        }
        Err(refusal) => refusal,
    }
}

/// `/containerLogs`.
pub async fn logs(
    State(containers): State<Containers>,
    Extension(connection): Extension<Connection>,
    Path(parts): Parts,
    request: Request,
) -> Response {
    let (query, client) = (query_of(&request), client(request.extensions()));
    either(containers.log_of(&Named::of(parts), &query, &client, &connection.patience).await)
}

/// `/run`.
pub async fn run(
    State(containers): State<Containers>,
    Extension(caller): Extension<Caller>,
    Extension(connection): Extension<Connection>,
    Path(parts): Parts,
    request: Request,
) -> Response {
    let command = all(query_of(&request), "cmd").into_iter().next().unwrap_or_default();
    let command = command.split(' ').map(str::to_owned).collect();
    let audit = |named: &Named, command: &[String]| audit("run", &caller, &connection, named, command);
    let client = client(request.extensions());
    either(containers.run_in(&Named::of(parts), command, &client, audit).await)
}

/// `/exec`.
pub async fn exec(
    State(containers): State<Containers>,
    Extension(caller): Extension<Caller>,
    Extension(connection): Extension<Connection>,
    Path(parts): Parts,
    request: Request,
) -> Response {
    let (named, query) = (Named::of(parts), query_of(&request));
    let command = all(query.clone(), "command");
    let audit = || audit("exec", &caller, &connection, &named, &command);
    let headers = request.headers().clone();
    joined(&containers, request, "exec", containers.exec_target(&named, &headers, query), audit).await
}

/// `/attach`.
pub async fn attach(
    State(containers): State<Containers>,
    Extension(caller): Extension<Caller>,
    Extension(connection): Extension<Connection>,
    Path(parts): Parts,
    request: Request,
) -> Response {
    let (named, query) = (Named::of(parts), query_of(&request));
    let audit = || audit("attach", &caller, &connection, &named, &[]);
    let headers = request.headers().clone();
    joined(&containers, request, "attach", containers.attach_target(&named, &headers, &query), audit).await
}

/// `/portForward`.
pub async fn port_forward(
    State(containers): State<Containers>,
    Extension(caller): Extension<Caller>,
    Extension(connection): Extension<Connection>,
    Path(parts): Parts,
    request: Request,
) -> Response {
    let mut parts = parts.into_iter();
    let mut next = || parts.next().unwrap_or_default();
    let (namespace, pod) = (next(), next());
    let uid = Some(next()).filter(|uid| !uid.is_empty());
    let named = Named { namespace, pod, uid, container: String::new() };
    let headers = request.headers().clone();
    let way = if containers.websockets { Way::of_ports(&headers) } else { Way::Through };
    let port = match ports(&headers, &query_of(&request)) {
        // Such a request names its ports in its streams.
        _ if way == Way::Inside => Vec::new(),
        Ok(port) => port,
        Err(text) => return plain(StatusCode::BAD_REQUEST, text),
    };
    let audit = || audit("portForward", &caller, &connection, &named, &[]);
    let found = async { Ok((containers.forward_target(&named, &headers, port).await?, way)) };
    joined(&containers, request, "portforward", found, audit).await
}
