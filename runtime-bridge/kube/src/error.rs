//! What an API server refuses, and what keeps it from answering or from being asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// The reason of a call that is one too many for the client itself.
const TOO_MANY: &str = "ClientRateLimited";

/// Why a call has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct ApiError {
    /// Verb and path, such as `PATCH /api/v1/nodes/n/status`.
    pub operation: String,
    /// The HTTP status code; 0 when there was no answer.
    pub code: u16,
    /// Kubernetes' machine-readable reason (`NotFound`, `Conflict`, `AlreadyExists`, …); empty when there is none.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When the server wants to be asked again at the earliest.
    pub retry_after: Option<Duration>,
}

/// Why the API server cannot be spoken to as the kubeconfig says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// A file cannot be used.
    #[error("{path}: {reason}", path = path.display())]
    File {
        /// The file, or the field that holds its contents.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The parts do not fit together for TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// No connection was made.
    #[error("cannot connect to {server}: {reason}")]
    Connection {
        /// Host and port.
        server: String,
        /// What the system or the other side said.
        reason: String,
    },
    /// The program of the kubeconfig's user does not say who we are.
    #[error("exec plugin {command}: {reason}")]
    Exec {
        /// The program.
        command: String,
        /// What it did.
        reason: String,
    },
    /// There is no valid certificate of ours.
    #[error("no valid client certificate: the cluster has not signed one yet, or the last one has expired")]
    NoCertificate,
    /// A field of the kubeconfig that is not supported.
    #[error("{0} is not supported")]
    Unsupported(String),
}

impl ConnectError {
    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), reason: reason.into() }
    }
}

/// An error with all that caused it.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// The part of a `Status` object that is read.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct StatusBody {
    pub code: u16,
    pub reason: String,
    pub message: String,
    pub details: Option<Details>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Details {
    retry_after_seconds: u32,
}

/// When the server wants to be asked again, by its answer's head.
pub(super) fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let seconds = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(bounded(seconds))
}

/// A server that asks for an hour does not stop a node for an hour.
fn bounded(seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(60))
}

impl ApiError {
    /// Nothing was answered, or nothing that could be read. Whether a write was done is not known.
    pub(super) fn unanswered(operation: String, message: impl Into<String>) -> Self {
        Self { operation, code: 0, reason: String::new(), message: message.into(), retry_after: None }
    }

    /// The call was not sent: by the client's own rate limit, its turn would have come after its deadline.
    pub(super) fn not_sent(operation: String, why: impl std::fmt::Display) -> Self {
        Self { reason: TOO_MANY.to_owned(), ..Self::unanswered(operation, why.to_string()) }
    }

    pub(super) fn of_status(
        operation: String,
        http_code: u16,
        retry_after: Option<Duration>,
        status: StatusBody,
    ) -> Self {
        let in_body = status.details.map_or(0, |details| u64::from(details.retry_after_seconds));
        let in_body = Some(in_body).filter(|seconds| *seconds > 0).map(bounded);
        let code = if http_code == 0 || http_code == 200 { status.code } else { http_code };
        let message =
            if status.message.is_empty() { format!("the server answered {code}") } else { status.message };
        Self { operation, code, reason: status.reason, message, retry_after: retry_after.or(in_body) }
    }

    /// It was not sent, since its turn would have come too late: to ask again at once is of no use.
    pub fn is_not_sent(&self) -> bool {
        self.code == 0 && self.reason == TOO_MANY
    }

    /// Nobody has answered.
    pub fn is_unanswered(&self) -> bool {
        self.code == 0
    }

    /// There is no such object.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// The object has another UID or resource version than was required.
    pub fn is_conflict(&self) -> bool {
        self.code == 409 && self.reason != "AlreadyExists"
    }

    /// An object of this name is there already.
    pub fn is_already_exists(&self) -> bool {
        self.code == 409 && self.reason == "AlreadyExists"
    }

    /// The caller may not do this.
    pub fn is_forbidden(&self) -> bool {
        self.code == 403
    }

    /// The caller is not known.
    pub fn is_unauthorized(&self) -> bool {
        self.code == 401
    }

    /// The resource version is too old: list anew.
    pub fn is_gone(&self) -> bool {
        self.code == 410
    }

    /// The object is not valid.
    pub fn is_invalid(&self) -> bool {
        self.code == 422
    }

    /// The same call may work later.
    pub fn is_transient(&self) -> bool {
        matches!(self.code, 0 | 408 | 429 | 500..=599)
    }
}
