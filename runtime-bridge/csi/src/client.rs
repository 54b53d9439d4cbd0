//! The client of a CSI driver, over its Unix socket.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::deadlines::Deadlines;
use crate::driver::{Connect, Driver, Reply};
use crate::error::CsiError;
use crate::rpc::{Rpc, for_each_rpc};
use crate::wire::identity_client::IdentityClient;
use crate::wire::node_client::NodeClient;
use crate::wire::*;
use bridge_io::Io;
use bridge_pace::panics;

/// The largest message in either direction, bytes.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Makes clients of drivers.
#[derive(Clone, Debug)]
pub struct CsiConnector {
    io: Io,
    deadlines: Deadlines,
}

impl CsiConnector {
    /// Clients whose connections live on `io`, with these deadlines.
    #[must_use]
    pub fn new(io: Io, deadlines: Deadlines) -> Self {
        Self { io, deadlines }
    }
}

impl Connect for CsiConnector {
    fn connect(&self, driver: &str, endpoint: &str) -> Arc<dyn Driver> {
        Arc::new(CsiClient::new(&self.io, driver, endpoint, self.deadlines))
    }
}

/// The client of a driver. Cheap to clone; clones share the connection.
///
/// A connection is made when it is needed, and again after it broke. VolumeManager's back-off bounds how often that is.
#[derive(Clone, Debug)]
pub struct CsiClient {
    io: Io,
    driver: Arc<str>,
    deadlines: Deadlines,
    identity: IdentityClient<Channel>,
    node: NodeClient<Channel>,
}

impl CsiClient {
    /// A client that connects with its first call. `endpoint` is the path of a socket, with or without `unix://`.
    #[must_use]
    pub fn new(io: &Io, driver: &str, endpoint: &str, deadlines: Deadlines) -> Self {
        let channel = channel(io, socket_path(endpoint));
        let identity = IdentityClient::new(channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let node = NodeClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Self { io: io.clone(), driver: Arc::from(driver), deadlines, identity, node }
    }

    /// Runs a call on the I/O runtime until its deadline, or until the returned future is dropped.
    fn call<T, F>(&self, rpc: Rpc, deadline: Duration, call: F) -> Reply<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>> + Send + 'static,
    {
        let (io, driver) = (self.io.clone(), Arc::clone(&self.driver));
        async move {
            // The answer travels over a channel of its own, so that there is one kind of task instead of one per kind
            // of answer.
            let (answer, answered) = oneshot::channel();
            let asked = Arc::clone(&driver);
            let task = io.spawn(async move {
                let started = Instant::now();
                let work = async move {
                    match tokio::time::timeout(deadline, call).await {
                        Ok(Ok(response)) => Ok(response.into_inner()),
                        // tonic watches the deadline too, and may be first to notice.
                        Ok(Err(status)) if started.elapsed() < deadline => {
                            Err(CsiError::from_status(&asked, rpc, &status))
                        }
                        _ => Err(CsiError::deadline(&asked, rpc)),
                    }
                };
                let outcome = panics::caught(work).await;
                // The caller may have dropped the receiving end.
                drop(answer.send(outcome));
            });
            let _ends_with_asker = AbortOnDropHandle::new(task);
            match answered.await {
                Ok(outcome) => panics::resumed(outcome),
                Err(_) => {
                    let ended = tonic::Status::unavailable("the call's task ended early");
                    Err(CsiError::from_status(&driver, rpc, &ended))
                }
            }
        }
        .boxed()
    }
}

/// A request that carries the deadline, so that the driver does not go on working after the caller stopped waiting.
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
    Err(tonic::Status::invalid_argument(words))
}

macro_rules! client_calls {
    ($($service:ident { $($kind:ident $method:ident($request:ident) -> $response:ident = $name:ident;)* })*) => {
        impl Driver for CsiClient {
            $($(
                fn $method(&self, message: $request) -> Reply<$response> {
                    let deadline = self.deadlines.of(Rpc::$name);
                    let mut client = self.$service.clone();
                    let call = async move {
                        fits(&message)?;
                        client.$method(request(message, deadline)).await
                    };
                    self.call(Rpc::$name, deadline, call)
                }
            )*)*
        }
    };
}
for_each_rpc!(client_calls);

/// The path of an endpoint: drivers tell a path, some with gRPC's scheme before it.
pub(crate) fn socket_path(endpoint: &str) -> PathBuf {
    let path = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"));
    PathBuf::from(path.unwrap_or(endpoint))
}

/// A connection to a Unix socket, made when it is needed.
pub(crate) fn channel(io: &Io, path: PathBuf) -> Channel {
    let path: Arc<std::path::Path> = Arc::from(path);
    io.enter(|| {
        // The authority is only a name: the connector alone decides where the connection goes.
        Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(
            move |_: Uri| {
                let path = Arc::clone(&path);
                async move {
                    let connected = UnixStream::connect(&path).await;
                    let named = |error: std::io::Error| {
                        std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                    };
                    connected.map(TokioIo::new).map_err(named)
                }
            },
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CsiErrorKind;
    use crate::error::Progress;

    #[test]
    fn endpoints_are_paths_with_or_without_a_scheme() {
        for endpoint in ["/run/a.sock", "unix:///run/a.sock", "unix:/run/a.sock"] {
            assert_eq!(socket_path(endpoint), PathBuf::from("/run/a.sock"), "{endpoint}");
        }
    }

    #[tokio::test]
    async fn a_driver_without_a_socket_is_unavailable_which_is_uncertain() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("absent.sock").display().to_string();
        let client = CsiClient::new(&Io::current(), "d", &path, Deadlines::default());
        let error = client.node_get_info(NodeGetInfoRequest {}).await.unwrap_err();
        assert_eq!((error.kind, error.progress()), (CsiErrorKind::Unavailable, Progress::Uncertain));
        assert!(error.message.contains("absent.sock"), "{error}");
    }

    #[tokio::test]
    async fn a_request_that_is_too_large_reaches_no_driver() {
        let client = CsiClient::new(&Io::current(), "d", "/absent", Deadlines::default());
        let secrets = [("key".to_owned(), "x".repeat(MESSAGE_BYTES_MAX + 1))].into();
        let stage = NodeStageVolumeRequest { secrets, ..Default::default() };
        let error = client.node_stage_volume(stage).await.unwrap_err();
        assert_eq!(error.kind, CsiErrorKind::InvalidArgument, "{error}");
    }

    async fn broken() -> Result<tonic::Response<NodeGetInfoResponse>, tonic::Status> {
        panics::note("there".to_owned());
        panic!("in the call")
    }

    #[tokio::test]
    async fn a_panic_of_a_call_goes_on_in_its_caller() {
        let client = CsiClient::new(&Io::current(), "d", "/absent", Deadlines::default());
        let call = client.call(Rpc::NodeGetInfo, Duration::from_secs(5), broken());
        let panic = panics::caught(call).await.unwrap_err();
        assert_eq!(panic.to_string(), "in the call at there");
    }
}
