//! The fake behind a socket, for a client in this process or another.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::{Builder, Runtime as Tokio};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Service;

use super::FakeCollector;
use crate::collector::{ExportError, TraceCollector};
use crate::otlp::EXPORT;
use crate::wire::{ExportTraceServiceRequest, ExportTraceServiceResponse};

/// A fake that is served on a thread of its own. Dropping it breaks every connection; the fake keeps what it has.
#[derive(Debug)]
pub struct ServingCollector {
    // `None` only while it is being dropped.
    tokio: Option<Tokio>,
}

impl ServingCollector {
    /// Serves the fake on a free port of the loopback address.
    ///
    /// # Errors
    /// The operating system's error when there is no port or no thread.
    pub fn on_a_port(fake: &FakeCollector) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        Ok((Self::on(listener, fake)?, address))
    }

    /// Serves the fake by this listener.
    ///
    /// # Errors
    /// The operating system's error when there is no thread.
    pub fn on(listener: TcpListener, fake: &FakeCollector) -> io::Result<Self> {
        let tokio = runtime()?;
        listener.set_nonblocking(true)?;
        let listener = {
            let _inside = tokio.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let server = tonic::transport::Server::builder().add_service(Served(fake.clone()));
        tokio.spawn(async move {
            if let Err(error) = server.serve_with_incoming(TcpListenerStream::new(listener)).await {
                tracing::error!(%error, "the fake's server ended");
            }
        });
        Ok(Self { tokio: Some(tokio) })
    }

    /// Serves the fake by a Unix socket.
    ///
    /// # Errors
    /// The operating system's error when the path cannot be listened on.
    pub fn at(path: &Path, fake: &FakeCollector) -> io::Result<Self> {
        let tokio = runtime()?;
        let listener = {
            let _inside = tokio.enter();
            tokio::net::UnixListener::bind(path)?
        };
        let server = tonic::transport::Server::builder().add_service(Served(fake.clone()));
        tokio.spawn(async move {
            if let Err(error) = server.serve_with_incoming(UnixListenerStream::new(listener)).await {
                tracing::error!(%error, "the fake's server ended");
            }
        });
        Ok(Self { tokio: Some(tokio) })
    }
}

impl Drop for ServingCollector {
    fn drop(&mut self) {
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
    }
}

fn runtime() -> io::Result<Tokio> {
    Builder::new_multi_thread().worker_threads(1).thread_name("fake-collector").enable_all().build()
}

/// The service.
#[derive(Clone)]
struct Served(FakeCollector);

impl NamedService for Served {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl Service<http::Request<Body>> for Served {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let fake = self.0.clone();
        async move {
            if request.uri().path() != EXPORT {
                return Ok(Status::unimplemented("there is no such call").into_http());
            }
            let codec = ProstCodec::<ExportTraceServiceResponse, ExportTraceServiceRequest>::default();
            Ok(Grpc::new(codec).unary(Export(fake), request).await)
        }
        .boxed()
    }
}

/// The call.
struct Export(FakeCollector);

impl UnaryService<ExportTraceServiceRequest> for Export {
    type Response = ExportTraceServiceResponse;
    type Future = BoxFuture<'static, Result<Response<ExportTraceServiceResponse>, Status>>;

    fn call(&mut self, request: Request<ExportTraceServiceRequest>) -> Self::Future {
        let answer = self.0.export(request.into_inner());
        answer.map(|answer| answer.map(Response::new).map_err(|error| status(&error))).boxed()
    }
}

fn status(error: &ExportError) -> Status {
    match error {
        ExportError::Away(said) => Status::unavailable(said.as_str()),
        ExportError::Refused(said) => Status::invalid_argument(said.as_str()),
    }
}
