//! How a call to the runtime fails, and what its caller may conclude from that.

use pod_rules::errors::{WORDS_BYTES_MAX, cut};
use tonic::Code;

use super::rpc::Rpc;

/// The kinds of failed calls, as callers distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CriErrorKind {
    /// There is no connection, or it broke. The runtime may have acted if it broke after the request was sent.
    Unavailable,
    /// No answer came in time, or the call was cancelled on the way: the outcome is unknown.
    DeadlineExceeded,
    /// The runtime does not know the sandbox, container or image.
    NotFound,
    /// The runtime has such an object already.
    AlreadyExists,
    /// A limit of the runtime was reached, or a message was over 16 MiB.
    ResourceExhausted,
    /// The runtime does not have this RPC.
    Unimplemented,
    /// The runtime refuses the request as malformed.
    InvalidArgument,
    /// Any other failure; only the message tells which.
    Other,
}

/// A call to the runtime that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct CriError {
    /// The RPC that failed.
    pub operation: Rpc,
    /// What kind of failure it is.
    pub kind: CriErrorKind,
    /// The runtime's own words, or the client's where the runtime never answered.
    pub message: String,
    /// The gRPC status code as it arrived, which is finer than `kind`.
    code: Code,
}

impl CriError {
    /// Makes an error of `operation`.
    pub fn new(operation: Rpc, kind: CriErrorKind, message: impl Into<String>) -> Self {
        Self { operation, kind, message: message.into(), code: code_of(kind) }
    }

    /// The error as the Go kubelet prints a gRPC error, which people and tools search for in events and statuses. Where
    /// upstream shows the description alone, [`message`](Self::message) has it.
    #[must_use]
    pub fn status_text(&self) -> String {
        format!("rpc error: code = {} desc = {}", go_name(self.code), self.message)
    }

    /// The same as [`status_text`](Self::status_text) for a failed pull, where upstream leaves out the uninformative
    /// code `Unknown`.
    #[must_use]
    pub fn pull_text(&self) -> String {
        if self.code == Code::Unknown { self.message.clone() } else { self.status_text() }
    }

    /// Whether the object is gone: a stop or a removal counts as done then.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind == CriErrorKind::NotFound
    }

    /// Whether the answer, or what the runtime would need for it, was too large: asking for less may help.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.kind == CriErrorKind::ResourceExhausted
    }

    /// Whether the runtime lacks this RPC: the caller falls back instead of retrying.
    #[must_use]
    pub fn is_unimplemented(&self) -> bool {
        self.kind == CriErrorKind::Unimplemented
    }

    /// Whether the runtime may have acted: the caller looks before it tries again.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self.kind, CriErrorKind::DeadlineExceeded | CriErrorKind::Unavailable)
    }

    /// Whether the runtime holds the name of this attempt for another object: the caller looks and adopts that object,
    /// or else raises the attempt.
    ///
    /// Runtimes have no status code for this case. containerd says `name "…" is reserved for "…"`, CRI-O `name is
    /// reserved` or `… is already in use by …`.
    #[must_use]
    pub fn is_name_reserved(&self) -> bool {
        const WORDS: [&str; 3] = ["is reserved for", "name is reserved", "is already in use by"];
        self.kind == CriErrorKind::AlreadyExists || WORDS.iter().any(|words| self.message.contains(words))
    }

    pub(crate) fn from_status(operation: Rpc, status: &tonic::Status) -> Self {
        let kind = match status.code() {
            Code::Unavailable => CriErrorKind::Unavailable,
            Code::DeadlineExceeded | Code::Cancelled => CriErrorKind::DeadlineExceeded,
            Code::NotFound => CriErrorKind::NotFound,
            Code::AlreadyExists => CriErrorKind::AlreadyExists,
            // The client's own word for a message that is too long is OutOfRange.
            Code::ResourceExhausted | Code::OutOfRange => CriErrorKind::ResourceExhausted,
            Code::Unimplemented => CriErrorKind::Unimplemented,
            Code::InvalidArgument => CriErrorKind::InvalidArgument,
            // A status that tonic made up because the connection broke under the call.
            _ if std::error::Error::source(status).is_some() => CriErrorKind::Unavailable,
            // gRPC in Go marks a deadline that passed on the far side of the runtime (in its shim) as Unknown.
            Code::Unknown if status.message().contains("context deadline exceeded") => {
                CriErrorKind::DeadlineExceeded
            }
            // containerd 1.6 wraps some of its own lookups so that only their words are left.
            Code::Unknown if status.message().ends_with(": not found") => CriErrorKind::NotFound,
            _ => CriErrorKind::Other,
        };
        let mut message = status.message().to_owned();
        let mut source = std::error::Error::source(status);
        while let Some(error) = source {
            let words = error.to_string();
            if !message.contains(&words) {
                message.push_str(": ");
                message.push_str(&words);
            }
            source = error.source();
        }
        cut(&mut message, WORDS_BYTES_MAX);
        // What no server sent has a code that tonic made up.
        let code = if kind == CriErrorKind::Unavailable { Code::Unavailable } else { status.code() };
        Self { operation, kind, message, code }
    }

    /// The status with which the served fake answers.
    #[cfg(feature = "fake")]
    pub(crate) fn to_status(&self) -> tonic::Status {
        tonic::Status::new(self.code, self.message.clone())
    }
}

fn code_of(kind: CriErrorKind) -> Code {
    match kind {
        CriErrorKind::Unavailable => Code::Unavailable,
        CriErrorKind::DeadlineExceeded => Code::DeadlineExceeded,
        CriErrorKind::NotFound => Code::NotFound,
        CriErrorKind::AlreadyExists => Code::AlreadyExists,
        CriErrorKind::ResourceExhausted => Code::ResourceExhausted,
        CriErrorKind::Unimplemented => Code::Unimplemented,
        CriErrorKind::InvalidArgument => Code::InvalidArgument,
        CriErrorKind::Other => Code::Unknown,
    }
}

/// The name of a gRPC code in Go; two are spelled differently from tonic's.
fn go_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_upstream_prints_them() {
        let error = |code, message| CriError::from_status(Rpc::PullImage, &tonic::Status::new(code, message));
        for (code, text, pull) in [
            (Code::NotFound, "rpc error: code = NotFound desc = x", "rpc error: code = NotFound desc = x"),
            (Code::Internal, "rpc error: code = Internal desc = x", "rpc error: code = Internal desc = x"),
            (Code::Unknown, "rpc error: code = Unknown desc = x", "x"),
            (Code::Cancelled, "rpc error: code = Canceled desc = x", "rpc error: code = Canceled desc = x"),
        ] {
            assert_eq!((&*error(code, "x").status_text(), &*error(code, "x").pull_text()), (text, pull));
        }
        // The kind may be finer than the code, which stays the one that the runtime sent.
        let gone = error(Code::Unknown, "container \"a\": not found");
        assert_eq!(gone.kind, CriErrorKind::NotFound);
        assert_eq!(gone.status_text(), "rpc error: code = Unknown desc = container \"a\": not found");
        let ours = CriError::new(Rpc::Status, CriErrorKind::DeadlineExceeded, "context deadline exceeded");
        assert_eq!(ours.status_text(), "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
    }

    #[test]
    fn statuses_become_the_kind_to_act_on() {
        let kind = |code, message: &str| {
            CriError::from_status(Rpc::StopContainer, &tonic::Status::new(code, message)).kind
        };
        assert_eq!(kind(Code::Unavailable, "x"), CriErrorKind::Unavailable);
        assert_eq!(kind(Code::Cancelled, "x"), CriErrorKind::DeadlineExceeded);
        assert_eq!(
            kind(Code::Unknown, "failed to create task: context deadline exceeded"),
            CriErrorKind::DeadlineExceeded
        );
        assert_eq!(kind(Code::Unknown, "container \"a\": not found"), CriErrorKind::NotFound);
        assert_eq!(kind(Code::Internal, "boom"), CriErrorKind::Other);
        let too_large =
            "Error, decoded message length too large: found 20000000 bytes, the limit is: 16777216 bytes";
        assert_eq!(kind(Code::OutOfRange, too_large), CriErrorKind::ResourceExhausted);
    }

    #[test]
    fn the_runtimes_words_are_kept_up_to_a_bound() {
        let long = format!("{}: not found", "é".repeat(1 << 20));
        let error = CriError::from_status(Rpc::StartContainer, &tonic::Status::new(Code::Unknown, long));
        assert_eq!((error.kind, error.message.len()), (CriErrorKind::NotFound, WORDS_BYTES_MAX + 3));
    }

    #[test]
    fn reserved_names_of_containerd_and_crio_are_recognised() {
        let reserved = |message: &str| {
            CriError::new(Rpc::RunPodSandbox, CriErrorKind::Other, message).is_name_reserved()
        };
        assert!(reserved(
            "failed to reserve sandbox name \"a_b_c_0\": name \"a_b_c_0\" is reserved for \"12ab\""
        ));
        assert!(reserved("error reserving pod name k8s_a_b_c_0 for id 12ab: name is reserved"));
        assert!(!reserved("no space left on device"));
    }
}
