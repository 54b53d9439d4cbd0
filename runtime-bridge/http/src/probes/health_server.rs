//! A server of gRPC health checks, for tests to probe.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime as Tokio};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::grpc::wire::health_server::{Health, HealthServer as Service};
use super::grpc::wire::{HealthCheckRequest, HealthCheckResponse};

/// The server's answer about one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeHealth {
    /// SERVING.
    Serving,
    /// NOT_SERVING.
    NotServing,
    /// The server never answers.
    Silent,
    /// The server does not offer health checks at all.
    Unimplemented,
}

/// A server that answers about the services it was given, and NOT_FOUND about others; it stops when it is dropped.
#[derive(Debug)]
pub struct HealthServer {
    address: SocketAddr,
    said: Said,
    // `None` only while it is being dropped.
    tokio: Option<Tokio>,
}

#[derive(Clone, Debug, Default)]
struct Said {
    services: Arc<Mutex<BTreeMap<String, FakeHealth>>>,
    agents: Arc<Mutex<Vec<String>>>,
}

impl HealthServer {
    /// Listens on `address`, on a thread of its own; port 0 picks a free port.
    ///
    /// # Errors
    /// The operating system's error when the address cannot be listened on.
    pub fn start(address: SocketAddr) -> io::Result<Self> {
        Self::on(std::net::TcpListener::bind(address)?)
    }

    /// Serves the connections of this listener, on a thread of its own.
    ///
    /// # Errors
    /// The operating system's error when the thread cannot be started.
    pub fn on(listener: std::net::TcpListener) -> io::Result<Self> {
        let tokio = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("health-server")
            .enable_all()
            .build()?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _inside = tokio.enter();
            TcpListener::from_std(listener)?
        };
        let said = Said::default();
        let server = tonic::transport::Server::builder().add_service(Service::new(said.clone()));
        tokio.spawn(async move {
            if let Err(error) = server.serve_with_incoming(TcpListenerStream::new(listener)).await {
                tracing::error!(%error, "the health server ended");
            }
        });
        Ok(Self { address, said, tokio: Some(tokio) })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the answer about a service from now on.
    pub fn set(&self, service: &str, health: FakeHealth) {
        let mut services = self.said.services.lock().unwrap_or_else(PoisonError::into_inner);
        services.insert(service.to_owned(), health);
    }

    /// The user agents of the requests so far.
    #[must_use]
    pub fn agents(&self) -> Vec<String> {
        self.said.agents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
    }
}

#[tonic::async_trait]
impl Health for Said {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let agent = request.metadata().get("user-agent").and_then(|agent| agent.to_str().ok());
        self.agents.lock().unwrap_or_else(PoisonError::into_inner).push(agent.unwrap_or_default().to_owned());
        let service = request.into_inner().service;
        let health = self.services.lock().unwrap_or_else(PoisonError::into_inner).get(&service).copied();
        match health {
            Some(FakeHealth::Serving) => Ok(Response::new(HealthCheckResponse { status: 1 })),
            Some(FakeHealth::NotServing) => Ok(Response::new(HealthCheckResponse { status: 2 })),
            Some(FakeHealth::Silent) => std::future::pending().await,
            Some(FakeHealth::Unimplemented) => {
                Err(Status::unimplemented("unknown service grpc.health.v1.Health"))
            }
            None => Err(Status::not_found("unknown service")),
        }
    }
}
