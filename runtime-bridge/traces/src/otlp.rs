//! A collector behind a socket: OTLP by gRPC, without TLS, as the Go kubelet sends it.

use std::error::Error;
use std::io;
use std::time::Duration;

use bridge_io::Io;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::collector::{ExportError, TraceCollector};
use crate::endpoint::CollectorAddress;
use crate::wire::{ExportTraceServiceRequest, ExportTraceServiceResponse};

/// The call.
pub(crate) const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The largest answer and the longest list of its headers that are read, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// The most characters of the collector's words that are told on.
const WORDS_MAX: usize = 256;
/// A connection that has been silent for this long is pinged, also while no spans are sent …
const PING_AFTER: Duration = Duration::from_secs(30);
/// … and is closed without an answer after this time: the next spans dial anew.
const PING_DEADLINE: Duration = Duration::from_secs(15);
/// Among those that look names up.
const ASKER: &str = "traces";

/// A connection of either kind.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

type Dialled = TokioIo<Box<dyn Connection>>;

/// The collector at an address. It is dialled with the first spans, and again after a connection has ended.
#[derive(Clone, Debug)]
pub struct OtlpCollector {
    channel: Channel,
}

impl OtlpCollector {
    /// The collector at this address; its connection lives on the I/O runtime.
    ///
    /// # Errors
    /// The address cannot be named in a call.
    pub fn new(io: &Io, address: CollectorAddress) -> Result<Self, ExportError> {
        let named = Endpoint::from_shared(format!("http://{}", address.authority()));
        let endpoint = named.map_err(|error| ExportError::Refused(error.to_string()))?;
        let endpoint = endpoint
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .http2_keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_DEADLINE)
            .keep_alive_while_idle(true);
        let dialler = tower::service_fn(move |_: Uri| dial(address.clone()));
        Ok(Self { channel: io.enter(|| endpoint.connect_with_connector_lazy(dialler)) })
    }
}

impl TraceCollector for OtlpCollector {
    fn export(
        &self,
        request: ExportTraceServiceRequest,
    ) -> BoxFuture<'static, Result<ExportTraceServiceResponse, ExportError>> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        async move {
            grpc.ready().await.map_err(|error| ExportError::Away(words(&chain(&error))))?;
            let codec = ProstCodec::<ExportTraceServiceRequest, ExportTraceServiceResponse>::default();
            let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(EXPORT), codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| refused(&status))
        }
        .boxed()
    }
}

/// What a status says: whether the spans may be sent again is as the protocol has it. A connection that breaks is told as
/// unknown or internal.
fn refused(status: &Status) -> ExportError {
    let said = words(&format!("{:?}: {}", status.code(), chain(status)));
    match status.code() {
        Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => ExportError::Away(said),
        _ => ExportError::Refused(said),
    }
}

/// An error with its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut said = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push_str(": ");
        said.push_str(&error.to_string());
        cause = error.source();
    }
    said
}

/// The beginning of a text.
fn words(text: &str) -> String {
    text.chars().take(WORDS_MAX).collect()
}

fn dial(address: CollectorAddress) -> BoxFuture<'static, io::Result<Dialled>> {
    async move {
        let connection: Box<dyn Connection> = match address {
            CollectorAddress::Tcp { host, port } => {
                let stream = bridge_net::names::connect(ASKER, &host, port).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            CollectorAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
            CollectorAddress::Abstract(name) => {
                // A listener with a full backlog is an error at once, as a path's is: waiting would hold up the thread.
                Box::new(UnixStream::connect(format!("\0{name}")).await?)
            }
        };
        Ok(TokioIo::new(connection))
    }
    .boxed()
}
