//! Why a call to the API server fails: refusals of the server, missing answers, and calls that could not be sent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// The reason of a call that the client's own rate limit kept back.
const TOO_MANY: &str = "ClientRateLimited";
/// The reason of a call whose answer has more bytes than the client takes.
const TOO_LONG: &str = "AnswerTooLong";

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct ApiError {
    /// Verb and path, such as `PATCH /api/v1/nodes/n/status`.
    pub operation: String,
    /// The HTTP status code; 0 when there was no answer.
    pub code: u16,
    /// Kubernetes' machine-readable reason (`NotFound`, `Conflict`, `AlreadyExists`, …); empty when there is none.
    pub reason: String,
    /// The message, for people.
    pub message: String,
    /// The time after which the server wants to be asked again.
    pub retry_after: Option<Duration>,
}

/// Why no connection to the API server can be made as the kubeconfig says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// A file cannot be used.
    #[error("{path}: {reason}", path = path.display())]
    File {
        /// The file, or the field that holds its contents.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Key, certificate and CA do not fit together for TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// The connection could not be opened.
    #[error("cannot connect to {server}: {reason}")]
    Connection {
        /// Host and port.
        server: String,
        /// The error of the operating system or the other side.
        reason: String,
    },
    /// The program of the kubeconfig's user yields no credentials.
    #[error("exec plugin {command}: {reason}")]
    Exec {
        /// The program.
        command: String,
        /// The reason.
        reason: String,
    },
    /// The kubelet has no valid certificate.
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

/// An error's text with all its causes.
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

/// So much of a refusal's message is kept.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

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

/// The header `Retry-After` of an answer.
pub(super) fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let seconds = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(bounded(seconds))
}

/// Bounds a server's `Retry-After`, so that an hour does not stop a node for an hour.
fn bounded(seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(60))
}

impl ApiError {
    /// A call without an answer, or with one that cannot be read. Whether a write took effect is not known.
    pub(super) fn unanswered(operation: String, message: impl Into<String>) -> Self {
        Self { operation, code: 0, reason: String::new(), message: message.into(), retry_after: None }
    }

    /// A call that was not sent: at the client's own rate limit its turn would have come after its deadline.
    pub(super) fn not_sent(operation: String, why: impl std::fmt::Display) -> Self {
        Self { reason: TOO_MANY.to_owned(), ..Self::unanswered(operation, why.to_string()) }
    }

    /// A call whose answer has more bytes than the client takes.
    pub(super) fn too_long(operation: String, bytes_max: usize) -> Self {
        let message = format!("the answer is longer than {bytes_max} bytes");
        Self { reason: TOO_LONG.to_owned(), ..Self::unanswered(operation, message) }
    }

    /// Whether it is one of those.
    pub(super) fn is_too_long(&self) -> bool {
        self.code == 0 && self.reason == TOO_LONG
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
        let mut message = status.message;
        if message.is_empty() {
            message = format!("the server answered {code}");
        }
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        Self { operation, code, reason: status.reason, message, retry_after: retry_after.or(in_body) }
    }

    /// Whether the call was not sent, since its turn would have come too late: repeating it at once is of no use.
    pub fn is_not_sent(&self) -> bool {
        self.code == 0 && self.reason == TOO_MANY
    }

    /// Whether there was no answer.
    pub fn is_unanswered(&self) -> bool {
        self.code == 0
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Whether the object has another UID or resource version than the call required.
    pub fn is_conflict(&self) -> bool {
        self.code == 409 && self.reason != "AlreadyExists"
    }

    /// Whether an object of this name exists already.
    pub fn is_already_exists(&self) -> bool {
        self.code == 409 && self.reason == "AlreadyExists"
    }

    /// Whether the caller is not allowed to do this.
    pub fn is_forbidden(&self) -> bool {
        self.code == 403
    }

    /// Whether the server does not accept the caller's identity.
    pub fn is_unauthorized(&self) -> bool {
        self.code == 401
    }

    /// Whether the resource version is too old: the caller has to list anew.
    pub fn is_gone(&self) -> bool {
        self.code == 410
    }

    /// Whether the object is not valid.
    pub fn is_invalid(&self) -> bool {
        self.code == 422
    }

    /// Whether the server, or etcd behind it, does not take an object of this size: a smaller one may succeed.
    pub fn is_too_large(&self) -> bool {
        let etcd = ["etcdserver: request is too large", "trying to send message larger than max"];
        self.code == 413 || (self.code == 500 && etcd.iter().any(|words| self.message.contains(words)))
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self.code, 0 | 408 | 429 | 500..=599)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_refusal_the_beginning_is_kept() {
        let status = StatusBody { message: format!("x{}", "é".repeat(1 << 19)), ..StatusBody::default() };
        let error = ApiError::of_status("GET /".to_owned(), 500, None, status);
        assert_eq!(error.message.len(), MESSAGE_BYTES_MAX - 1, "whole letters");
    }
}
