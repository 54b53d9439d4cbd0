//! The fake behind a Unix socket, for a kubelet in another process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime as Tokio};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::FakeRuntime;
use crate::client::MESSAGE_BYTES_MAX;
use crate::rpc::for_each_rpc;
use crate::runtime::Runtime;
use crate::wire::image_service_server::{ImageService, ImageServiceServer};
use crate::wire::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use crate::wire::*;

/// A fake that is served on a thread of its own, as if it were another process. Dropping it breaks every connection and
/// removes the socket; the fake keeps its state, as a runtime does that is killed and started again.
#[derive(Debug)]
pub struct Serving {
    path: PathBuf,
    // `None` only while it is being dropped.
    tokio: Option<Tokio>,
}

impl Serving {
    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the fake's socket was gone already");
        }
    }
}

/// Serves both services of the fake on a Unix socket; a socket left behind at `path` is replaced.
///
/// # Errors
/// The operating system's error when `path` cannot be listened on.
pub fn serve_fake(path: &Path, runtime: FakeRuntime) -> io::Result<Serving> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let tokio =
        Builder::new_multi_thread().worker_threads(1).thread_name("fake-runtime").enable_all().build()?;
    let listener = {
        let _inside = tokio.enter();
        UnixListener::bind(path)?
    };
    let served = Served { runtime: Arc::new(runtime) };
    let runtime = RuntimeServiceServer::new(served.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let image = ImageServiceServer::new(served)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let server = tonic::transport::Server::builder().add_service(runtime).add_service(image);
    tokio.spawn(async move {
        if let Err(error) = server.serve_with_incoming(UnixListenerStream::new(listener)).await {
            tracing::error!(%error, "the fake's server ended");
        }
    });
    Ok(Serving { path: path.to_owned(), tokio: Some(tokio) })
}

#[derive(Clone)]
struct Served {
    runtime: Arc<dyn Runtime>,
}

macro_rules! served_calls {
    (
        runtime { $($rkind:ident $rmethod:ident($rrequest:ident) -> $rresponse:ident = $rname:ident $rlabel:literal;)* }
        image { $($ikind:ident $imethod:ident($irequest:ident) -> $iresponse:ident = $iname:ident $ilabel:literal;)* }
    ) => {
        #[tonic::async_trait]
        impl RuntimeService for Served {
            type GetContainerEventsStream = BoxStream<'static, Result<ContainerEventResponse, Status>>;

            $(
                async fn $rmethod(&self, request: Request<$rrequest>) -> Result<Response<$rresponse>, Status> {
                    let answer = self.runtime.$rmethod(request.into_inner()).await;
                    answer.map(Response::new).map_err(|error| error.to_status())
                }
            )*

            async fn get_container_events(
                &self,
                request: Request<GetEventsRequest>,
            ) -> Result<Response<Self::GetContainerEventsStream>, Status> {
                let opened = self.runtime.get_container_events(request.into_inner()).await;
                let events = opened.map_err(|error| error.to_status())?;
                Ok(Response::new(events.map(|event| event.map_err(|error| error.to_status())).boxed()))
            }
        }

        #[tonic::async_trait]
        impl ImageService for Served {
            $(
                async fn $imethod(&self, request: Request<$irequest>) -> Result<Response<$iresponse>, Status> {
                    let answer = self.runtime.$imethod(request.into_inner()).await;
                    answer.map(Response::new).map_err(|error| error.to_status())
                }
            )*
        }
    };
}
for_each_rpc!(served_calls);
