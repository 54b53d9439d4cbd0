//! The client of the container runtime, over its Unix socket.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Channel, Endpoint, Uri};

use super::brief::Brief;
use super::deadlines::{Bounded, Deadlines};
use super::error::{CriError, CriErrorKind};
use super::rpc::{Rpc, for_each_rpc};
use super::runtime::{ContainerEvents, Reply, Runtime};
use super::wire::image_service_client::ImageServiceClient;
use super::wire::runtime_service_client::RuntimeServiceClient;
use super::wire::*;
use bridge_io::{Io, told_by};
use bridge_pace::{Backoff, panics};

/// The largest message in either direction, bytes.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most bytes of an error of the runtime, which comes in headers: gRPC in Go has this bound. One that is longer counts as a
/// broken connection, and what became of the call is unknown.
const ERROR_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// The most events that wait for the reader of a stream.
const EVENTS_MAX: usize = 16;
/// The wait after the first failed connection; each further failure multiplies it.
const BACKOFF: Backoff = Backoff::growing(Duration::from_millis(100), Duration::from_secs(3), 160);

/// Where the runtime listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// `unix:///path` or an absolute path.
    pub runtime: String,
    /// The endpoint of the image service, where another socket serves it; same forms as `runtime`.
    pub image: Option<String>,
    /// How long each call may take.
    pub deadlines: Deadlines,
}

impl Endpoints {
    /// One endpoint for both services, with the default deadlines.
    pub fn new(runtime: impl Into<String>) -> Self {
        Self { runtime: runtime.into(), image: None, deadlines: Deadlines::default() }
    }
}

/// An endpoint that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CriClientError {
    /// Neither `unix:///path` nor an absolute path.
    #[error("container runtime endpoint {endpoint:?} is neither unix:///path nor an absolute path")]
    Endpoint {
        /// As given.
        endpoint: String,
    },
}

/// The client of the container runtime. Cheap to clone; clones share the connection.
///
/// Connections are made when they are needed, and again after they broke; after a failure the next attempt waits from
/// 100 ms up to 3 s, during which calls fail with `Unavailable` at once. Connections and calls live on the I/O runtime;
/// see [`Runtime`] for what happens to a call after the calling actor has gone.
#[derive(Clone, Debug)]
pub struct CriClient {
    io: Io,
    deadlines: Deadlines,
    runtime: RuntimeServiceClient<Channel>,
    image: ImageServiceClient<Channel>,
    brief: RuntimeServiceClient<Brief>,
}

impl CriClient {
    /// A client that connects with its first call.
    ///
    /// # Errors
    /// [`CriClientError::Endpoint`] when an endpoint is not a Unix socket's.
    pub fn new(io: &Io, endpoints: &Endpoints) -> Result<Self, CriClientError> {
        let runtime_path = socket_path(&endpoints.runtime)?;
        let runtime = channel(io, &runtime_path);
        let image = match &endpoints.image {
            Some(endpoint) if socket_path(endpoint)? != runtime_path => channel(io, &socket_path(endpoint)?),
            _ => runtime.clone(),
        };
        Ok(Self {
            io: io.clone(),
            deadlines: endpoints.deadlines,
            brief: RuntimeServiceClient::new(Brief(runtime.clone()))
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            runtime: RuntimeServiceClient::new(runtime)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            image: ImageServiceClient::new(image)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
        })
    }

    /// Runs a call on the I/O runtime until `deadline`.
    fn call<T, F>(&self, rpc: Rpc, fate: AbandonedCall, deadline: Duration, call: F) -> Reply<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>> + Send + 'static,
    {
        let io = self.io.clone();
        async move {
            // The answer travels over a channel of its own, so that there is one kind of task instead of one per kind
            // of answer.
            let (answer, answered) = oneshot::channel();
            let task = io.spawn(async move {
                let started = Instant::now();
                let work = async move {
                    match tokio::time::timeout(deadline, call).await {
                        Ok(Ok(response)) => Ok(response.into_inner()),
                        // tonic watches the deadline too, and may be first to notice.
                        Ok(Err(status)) if started.elapsed() < deadline => {
                            Err(CriError::from_status(rpc, &status))
                        }
                        _ => {
                            // The wording of a deadline in Go, which people and tools search for.
                            Err(CriError::new(
                                rpc,
                                CriErrorKind::DeadlineExceeded,
                                "context deadline exceeded",
                            ))
                        }
                    }
                };
                let outcome = panics::caught(work).await;
                // The caller may have dropped the receiving end.
                drop(answer.send(outcome));
            });
            let _ended_with_asker = match fate {
                AbandonedCall::EndsWithAsker => Some(AbortOnDropHandle::new(task)),
                AbandonedCall::OutlivesAsker => None,
            };
            match answered.await {
                Ok(outcome) => panics::resumed(outcome),
                Err(_) => {
                    let message = "the call's task ended early".to_owned();
                    Err(CriError::new(rpc, CriErrorKind::Unavailable, message))
                }
            }
        }
        .boxed()
    }
}

/// Whether a call ends when its caller drops the future.
#[derive(Clone, Copy)]
enum AbandonedCall {
    EndsWithAsker,
    OutlivesAsker,
}

macro_rules! fate {
    (read) => {
        AbandonedCall::EndsWithAsker
    };
    (pull) => {
        AbandonedCall::EndsWithAsker
    };
    (mutate) => {
        AbandonedCall::OutlivesAsker
    };
}

/// A request that carries the deadline, so that the runtime does not go on working after the caller stopped waiting.
fn request<T>(message: T, deadline: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(deadline);
    request
}

/// Refuses a message that is too large: tonic would break the stream, which looks like a broken connection.
fn fits(message: &impl prost::Message) -> Result<(), tonic::Status> {
    let length = message.encoded_len();
    if length <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let words = format!("the request has {length} bytes, more than {MESSAGE_BYTES_MAX}");
    Err(tonic::Status::resource_exhausted(words))
}

macro_rules! client_calls {
    ($($service:ident { $($kind:ident $method:ident($request:ident) -> $response:ident = $name:ident $label:literal;)* })*) => {
        impl Runtime for CriClient {
            $($(
                fn $method(&self, message: $request) -> Reply<$response> {
                    let deadline = message.deadline(Rpc::$name, &self.deadlines);
                    let mut client = self.$service.clone();
                    let call = async move {
                        fits(&message)?;
                        client.$method(request(message, deadline)).await
                    };
                    self.call(Rpc::$name, fate!($kind), deadline, call)
                }
            )*)*

            fn exec_briefly(&self, message: ExecSyncRequest) -> Reply<ExecSyncResponse> {
                let deadline = message.deadline(Rpc::ExecSync, &self.deadlines);
                let mut client = self.brief.clone();
                let call = async move {
                    fits(&message)?;
                    client.exec_sync(request(message, deadline)).await
                };
                self.call(Rpc::ExecSync, AbandonedCall::EndsWithAsker, deadline, call)
            }

            fn get_container_events(&self, message: GetEventsRequest) -> Reply<ContainerEvents> {
                let rpc = Rpc::GetContainerEvents;
                let mut client = self.runtime.clone();
                let call = async move { client.get_container_events(message).await };
                let opened = self.call(rpc, AbandonedCall::EndsWithAsker, self.deadlines.of(rpc), call);
                let io = self.io.lane().io().clone();
                async move {
                    let events = opened.await?;
                    let (tell, told) = mpsc::channel(EVENTS_MAX);
                    Ok(told_by(&io, tell_events(events, tell), told))
                }
                .boxed()
            }
        }
    };
}
for_each_rpc!(client_calls);

/// Reads events where an event as long as a message costs no actor's time. The statuses of all containers of a pod, which the
/// runtime adds to each, are left out: an event is a cause to look, and not what is seen.
async fn tell_events(
    mut events: tonic::Streaming<ContainerEventResponse>,
    tell: mpsc::Sender<Result<ContainerEventResponse, CriError>>,
) {
    while let Some(event) = events.next().await {
        let event = event.map(|event| ContainerEventResponse { containers_statuses: Vec::new(), ..event });
        let event = event.map_err(|status| CriError::from_status(Rpc::GetContainerEvents, &status));
        if tell.send(event).await.is_err() {
            return;
        }
    }
}

fn socket_path(endpoint: &str) -> Result<PathBuf, CriClientError> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if path.starts_with('/') && path.len() > 1 {
        return Ok(PathBuf::from(path));
    }
    Err(CriClientError::Endpoint { endpoint: endpoint.to_owned() })
}

fn channel(io: &Io, path: &Path) -> Channel {
    let dialer = Dialer { path: Arc::from(path), pause: Arc::default() };
    io.enter(|| {
        // The authority is only a name: the dialer alone decides where the connection goes.
        Endpoint::from_static("http://localhost")
            .http2_max_header_list_size(ERROR_BYTES_MAX)
            .connect_with_connector_lazy(tower::service_fn(move |_: Uri| dialer.clone().dial()))
    })
}

/// Connects to the socket, not more often than the backoff allows.
#[derive(Clone)]
struct Dialer {
    path: Arc<Path>,
    pause: Arc<Mutex<Pause>>,
}

#[derive(Default)]
struct Pause {
    failures: u32,
    until: Option<(Instant, std::io::ErrorKind)>,
}

impl Dialer {
    fn dial(self) -> BoxFuture<'static, std::io::Result<TokioIo<UnixStream>>> {
        async move {
            if let Some(kind) = self.refused_for_now() {
                let left = format!("{}: {kind}; waiting before the next attempt", self.path.display());
                return Err(std::io::Error::new(kind, left));
            }
            let connected = UnixStream::connect(&self.path).await;
            let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
            match connected {
                Ok(stream) => {
                    *pause = Pause::default();
                    Ok(TokioIo::new(stream))
                }
                Err(error) => {
                    pause.failures = pause.failures.saturating_add(1);
                    let wait = BACKOFF.after(pause.failures);
                    pause.until = Some((Instant::now() + wait, error.kind()));
                    Err(std::io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
                }
            }
        }
        .boxed()
    }

    fn refused_for_now(&self) -> Option<std::io::ErrorKind> {
        let pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        pause.until.filter(|(until, _)| Instant::now() < *until).map(|(_, kind)| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_unix_sockets() {
        assert_eq!(socket_path("unix:///run/a.sock"), Ok(PathBuf::from("/run/a.sock")));
        assert_eq!(socket_path("/run/a.sock"), Ok(PathBuf::from("/run/a.sock")));
        for wrong in ["", "tcp://127.0.0.1:1", "run/a.sock", "unix://", "npipe:////./pipe/x"] {
            assert!(socket_path(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_missing_socket_is_unavailable_and_not_dialled_again_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("absent.sock");
        let client = CriClient::new(&Io::current(), &Endpoints::new(path.display().to_string())).unwrap();
        let first = client.version(VersionRequest::default()).await.unwrap_err();
        assert_eq!(first.kind, CriErrorKind::Unavailable, "{first}");
        let second = client.version(VersionRequest::default()).await.unwrap_err();
        assert!(second.outcome_unknown() && second.message.contains("waiting"), "{second}");
    }

    async fn broken() -> Result<tonic::Response<VersionResponse>, tonic::Status> {
        panics::note("there".to_owned());
        panic!("in the call")
    }

    #[tokio::test]
    async fn a_panic_of_a_call_goes_on_in_its_caller() {
        let client = CriClient::new(&Io::current(), &Endpoints::new("/absent")).unwrap();
        for fate in [AbandonedCall::EndsWithAsker, AbandonedCall::OutlivesAsker] {
            let call = client.call(Rpc::Version, fate, Duration::from_secs(5), broken());
            let panic = panics::caught(call).await.unwrap_err();
            assert_eq!(panic.to_string(), "in the call at there");
        }
    }
}
