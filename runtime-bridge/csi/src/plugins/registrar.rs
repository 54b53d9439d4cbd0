//! Questions to a plugin's registration socket.

use std::future::Future;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Channel, Endpoint, Uri};

use super::registrations::PluginFacts;
use crate::wire::registration::registration_client::RegistrationClient;
use crate::wire::registration::{InfoRequest, RegistrationStatus};
use bridge_io::Io;
use bridge_pace::panics;

/// How long a connection may take, a question and a notice: upstream's.
const DIAL_WITHIN: Duration = Duration::from_secs(10);
const INFO_WITHIN: Duration = Duration::from_secs(1);
const NOTIFY_WITHIN: Duration = Duration::from_secs(5);

/// The plugin behind a registration socket.
pub trait Registrar: Send + Sync + 'static {
    /// `GetInfo`.
    ///
    /// # Errors
    /// A message for people, within about 11 s.
    fn info(&self, socket: &str) -> BoxFuture<'static, Result<PluginFacts, String>>;

    /// `NotifyRegistrationStatus`: registered, or not and why.
    ///
    /// # Errors
    /// A message for people, within about 15 s.
    fn notify(&self, socket: &str, status: Result<(), String>) -> BoxFuture<'static, Result<(), String>>;
}

/// The client of registration sockets. Each call has a connection of its own, since there are few.
#[derive(Clone, Debug)]
pub struct RegistrarClient {
    io: Io,
}

impl RegistrarClient {
    /// Connections live on `io`.
    #[must_use]
    pub fn new(io: Io) -> Self {
        Self { io }
    }

    fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, String>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, String>> {
        let io = self.io.clone();
        async move {
            let task = AbortOnDropHandle::new(io.spawn(panics::caught(call)));
            match task.await {
                Ok(Ok(outcome)) => outcome,
                // It is this plugin's alone: the others' registrations go on, and this one is asked again.
                Ok(Err(panic)) => {
                    tracing::error!(%panic, "The call of a plugin has panicked");
                    Err(format!("the call has panicked: {panic}"))
                }
                Err(_) => Err("the call's task ended early".to_owned()),
            }
        }
        .boxed()
    }
}

async fn dial(socket: &str) -> Result<RegistrationClient<Channel>, String> {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(&path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let connecting = endpoint.connect_with_connector(connector);
    let failed = |why: String| {
        format!(
            "RegisterPlugin error -- dial failed at socket {socket}, err: failed to dial socket {socket}, err: {why}"
        )
    };
    match tokio::time::timeout(DIAL_WITHIN, connecting).await {
        Ok(Ok(channel)) => Ok(RegistrationClient::new(channel)),
        Ok(Err(error)) => Err(failed(words(&error))),
        Err(_) => Err(failed("context deadline exceeded".to_owned())),
    }
}

/// An error with its causes.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    words
}

/// A call's answer, or its error as Go prints it.
async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, String> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(format!("rpc error: code = {:?} desc = {}", status.code(), status.message())),
        Err(_) => Err("rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned()),
    }
}

impl Registrar for RegistrarClient {
    fn info(&self, socket: &str) -> BoxFuture<'static, Result<PluginFacts, String>> {
        let socket = socket.to_owned();
        self.run(async move {
            let mut client = dial(&socket).await?;
            let told = within(INFO_WITHIN, client.get_info(InfoRequest {})).await.map_err(|error| {
                format!(
                    "RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {socket}, err: {error}"
                )
            })?;
            Ok(PluginFacts {
                kind: told.r#type,
                name: told.name,
                endpoint: told.endpoint,
                versions: told.supported_versions,
            })
        })
    }

    fn notify(&self, socket: &str, status: Result<(), String>) -> BoxFuture<'static, Result<(), String>> {
        let socket = socket.to_owned();
        self.run(async move {
            let mut client = dial(&socket).await?;
            let plugin_registered = status.is_ok();
            let error = status.err().unwrap_or_default();
            let told = RegistrationStatus { plugin_registered, error };
            let outcome = within(NOTIFY_WITHIN, client.notify_registration_status(told)).await;
            outcome.map(drop).map_err(|error| {
                format!(
                    "RegisterPlugin error -- failed to send registration status at socket {socket}, err: {error}"
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_a_plugins_call_is_told_with_its_place() {
        let client = RegistrarClient::new(Io::current());
        let told = client.run::<()>(async { panic!("odd") }).await.unwrap_err();
        assert!(told.starts_with("the call has panicked: odd at "), "{told}");
    }
}
