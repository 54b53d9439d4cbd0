//! Probes over the network (FEATURES 7.3, 7.5): an HTTP GET, a TCP connection and gRPC's health checking, with the words
//! of Kubernetes' own kubelet.

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

/// Bytes of a response's body that are read.
pub const BODY_BYTES_MAX: usize = 10 * 1024;
/// Sent unless the probe sets a header `User-Agent` of its own.
pub const USER_AGENT: &str = "kube-probe/1.36";

/// How a probe is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// It answers as it should.
    Success,
    /// It does not.
    Failure,
    /// Success, with something to report: a redirect to another host, which is not followed.
    Warning,
    /// The probe could not be made.
    Unknown,
}

/// What came of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// How it is to be taken.
    pub outcome: ProbeOutcome,
    /// What to tell about it: of a success the body, else the reason.
    pub output: String,
}

/// A probe that gave no verdict; it may be tried again at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The response has begun, and its body could not be read.
    #[error("{0}")]
    Body(String),
    /// The work was not done: too much of it waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// A request that nobody answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Why, in Go's words.
    #[error("{0}")]
    NoAnswer(String),
    /// The work was not done: too much of it waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// The scheme of an HTTP probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain.
    Http,
    /// With TLS; the certificate is not verified.
    Https,
}

/// An HTTP GET to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProbe {
    /// Plain or TLS.
    pub scheme: Scheme,
    /// Name or address, without brackets; by default the pod's address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path, with a query if any.
    pub path: String,
    /// Further headers, in their order; `Host`, `User-Agent` and `Accept` replace the default, the latter two also
    /// when empty, and are then not sent.
    pub headers: Vec<(String, String)>,
    /// Most time from the first packet to the end of the body, redirects included.
    pub timeout: Duration,
    /// Whose share of name lookups it takes: its pod.
    pub asker: Arc<str>,
}

/// A TCP connection to open and close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpProbe {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Most time until it is open.
    pub timeout: Duration,
    /// Whose share of name lookups it takes: its pod.
    pub asker: Arc<str>,
}

/// grpc.health.v1's question about a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcProbe {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The service; empty for the server as a whole.
    pub service: String,
    /// Most time from the first packet to the answer.
    pub timeout: Duration,
}

/// Makes probes. Dropping a future ends its probe.
pub trait Prober: Send + Sync + std::fmt::Debug {
    /// Success for a status from 200 to 299, a warning for another below 400 that is left when redirects to the
    /// same host (at most 10 requests in all) have been followed, else a failure.
    fn http_get(&self, probe: HttpProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>>;

    /// A GET that any response answers, whatever its status; the final status. Redirects are followed as in
    /// [`http_get`](Self::http_get). Lifecycle hooks want to be heard, not judged.
    ///
    /// # Errors
    /// [`RequestError`] when no response came.
    fn request(&self, request: HttpProbe) -> BoxFuture<'static, Result<u16, RequestError>>;

    /// Success when the connection opens, else a failure.
    fn tcp(&self, probe: TcpProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>>;

    /// Success when the server says SERVING, else a failure. A connection that does not open is tried again until the
    /// timeout.
    fn grpc(&self, probe: GrpcProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>>;
}

impl ProbeReport {
    fn success(output: impl Into<String>) -> Self {
        Self { outcome: ProbeOutcome::Success, output: output.into() }
    }

    fn failure(output: String) -> Self {
        Self { outcome: ProbeOutcome::Failure, output }
    }

    /// The verdict on a final status and body.
    fn of_response(status: u16, body: String) -> Self {
        match status {
            200..=299 => Self { outcome: ProbeOutcome::Success, output: body },
            300..=399 => Self {
                outcome: ProbeOutcome::Warning,
                output: format!("Probe terminated redirects, Response body: {body}"),
            },
            // Without the body, which may hold what should not go into an event.
            _ => Self::failure(format!("HTTP probe failed with statuscode: {status}")),
        }
    }
}
