//! Probes over the network (rows 7.3, 7.5): an HTTP GET, a TCP connection, and gRPC's health check, worded as the Go
//! kubelet words them. ProbeManager and, for hooks, PodWorker ask.

pub(crate) mod exchange;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod grpc;
#[cfg(any(test, feature = "fake"))]
mod health_server;
mod socket;
mod sys;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

#[cfg(any(test, feature = "fake"))]
pub use fake::{FakeAnswer, FakeProber};
#[cfg(any(test, feature = "fake"))]
pub use health_server::{FakeHealth, HealthServer};
pub use sys::NetProber;
pub(crate) use sys::location;

use bridge_io::NotRun;

/// The most bytes of a response's body that are read.
pub const BODY_BYTES_MAX: usize = 10 * 1024;
/// The header `User-Agent`, unless the probe sets one of its own.
pub const USER_AGENT: &str = "kube-probe/1.36";

/// The outcomes of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The server answers as the probe demands.
    Success,
    /// The server does not answer, or answers otherwise.
    Failure,
    /// The probe succeeded with a remark: the server redirects to another host, and the redirect is not followed.
    Warning,
    /// The probe could not be made.
    Unknown,
}

/// The report of one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// The outcome.
    pub outcome: ProbeOutcome,
    /// The text for people: the body of a success, else the reason.
    pub output: String,
}

/// A probe without a result; the caller may repeat it at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The response began, and its body could not be read.
    #[error("{0}")]
    Body(String),
    /// The work was not done: too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// A request without a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The reason, worded as Go's.
    #[error("{0}")]
    NoAnswer(String),
    /// The work was not done: too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// The scheme of an HTTP probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS; the certificate is not verified.
    Https,
}

/// An HTTP GET to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProbe {
    /// Whether to use TLS.
    pub scheme: Scheme,
    /// Name or address, without brackets; by default the pod's address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The path, with a query if there is one.
    pub path: String,
    /// Further headers, in their order; `Host`, `User-Agent` and `Accept` replace the default, the latter two also
    /// when empty, and are then not sent.
    pub headers: Vec<(String, String)>,
    /// The longest time from the first packet to the end of the body, redirects included.
    pub timeout: Duration,
    /// The pod whose share of name lookups the probe uses.
    pub asker: Arc<str>,
}

/// A TCP connection to open and close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpProbe {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The longest time until the connection is open.
    pub timeout: Duration,
    /// The pod whose share of name lookups the probe uses.
    pub asker: Arc<str>,
}

/// A health check of one service by grpc.health.v1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcProbe {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The service; empty for the server as a whole.
    pub service: String,
    /// The longest time from the first packet to the answer.
    pub timeout: Duration,
}

/// Makes probes. Dropping a future ends its probe.
pub trait Prober: Send + Sync + std::fmt::Debug {
    /// Makes a GET: a success for a status from 200 to 299; a warning for another status below 400 that remains after
    /// redirects to the same host (at most 10 requests in all); else a failure.
    fn http_get(&self, probe: HttpProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>>;

    /// Makes a GET for a lifecycle hook, for which any response counts; returns the final status. Redirects are
    /// followed as in [`http_get`](Self::http_get).
    ///
    /// # Errors
    /// [`RequestError`] when no response came.
    fn request(&self, request: HttpProbe) -> BoxFuture<'static, Result<u16, RequestError>>;

    /// Success when the connection opens, else a failure.
    fn tcp(&self, probe: TcpProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>>;

    /// A success when the server answers SERVING, else a failure. A connection that does not open is tried again until
    /// the timeout.
    fn grpc(&self, probe: GrpcProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>>;
}

impl ProbeReport {
    fn success(output: impl Into<String>) -> Self {
        Self { outcome: ProbeOutcome::Success, output: output.into() }
    }

    fn failure(output: String) -> Self {
        Self { outcome: ProbeOutcome::Failure, output }
    }

    /// The report on a final status and body.
    fn of_response(status: u16, body: String) -> Self {
        match status {
            200..=299 => Self { outcome: ProbeOutcome::Success, output: body },
            300..=399 => Self {
                outcome: ProbeOutcome::Warning,
                output: format!("Probe terminated redirects, Response body: {body}"),
            },
            // The body is left out, since it may hold text that does not belong in an event.
            _ => Self::failure(format!("HTTP probe failed with statuscode: {status}")),
        }
    }
}
