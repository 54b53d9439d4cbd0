//! How a call to the runtime fails, and what may be concluded from it.

use super::rpc::Rpc;

/// What kind of failure an answer, or the want of one, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CriErrorKind {
    /// No connection, or it broke. The runtime may have acted when the connection broke after the request was sent.
    Unavailable,
    /// No answer in time, or the call was cancelled on the way: the outcome is unknown.
    DeadlineExceeded,
    /// The runtime does not know the sandbox, container or image.
    NotFound,
    /// The runtime has such an object already.
    AlreadyExists,
    /// A limit of the runtime, or a message over 16 MiB.
    ResourceExhausted,
    /// The runtime does not have this RPC.
    Unimplemented,
    /// The runtime refuses the request as malformed.
    InvalidArgument,
    /// Anything else; the message is all there is.
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
    /// The runtime's own words, or ours where it never answered.
    pub message: String,
}

impl CriError {
    /// Makes an error of `operation`.
    pub fn new(operation: Rpc, kind: CriErrorKind, message: impl Into<String>) -> Self {
        Self { operation, kind, message: message.into() }
    }

    /// The object is gone: for stop and remove that is as good as done.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind == CriErrorKind::NotFound
    }

    /// The runtime lacks this RPC: fall back instead of retrying.
    #[must_use]
    pub fn is_unimplemented(&self) -> bool {
        self.kind == CriErrorKind::Unimplemented
    }

    /// The runtime may have acted: look before trying again.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self.kind, CriErrorKind::DeadlineExceeded | CriErrorKind::Unavailable)
    }

    /// The runtime holds the name of this attempt for another object: look, adopt it, else raise the attempt.
    ///
    /// Runtimes have no status code for it. containerd says `name "…" is reserved for "…"`, CRI-O `name is reserved`
    /// or `… is already in use by …`.
    #[must_use]
    pub fn is_name_reserved(&self) -> bool {
        const WORDS: [&str; 3] = ["is reserved for", "name is reserved", "is already in use by"];
        self.kind == CriErrorKind::AlreadyExists || WORDS.iter().any(|words| self.message.contains(words))
    }

    pub(crate) fn from_status(operation: Rpc, status: &tonic::Status) -> Self {
        use tonic::Code;
        let kind = match status.code() {
            Code::Unavailable => CriErrorKind::Unavailable,
            Code::DeadlineExceeded | Code::Cancelled => CriErrorKind::DeadlineExceeded,
            Code::NotFound => CriErrorKind::NotFound,
            Code::AlreadyExists => CriErrorKind::AlreadyExists,
            Code::ResourceExhausted => CriErrorKind::ResourceExhausted,
            Code::Unimplemented => CriErrorKind::Unimplemented,
            Code::InvalidArgument => CriErrorKind::InvalidArgument,
            // A status that no server sent: the connection broke under the call.
            _ if std::error::Error::source(status).is_some() => CriErrorKind::Unavailable,
            // gRPC in Go marks a deadline that passed on the far side of the runtime (in its shim) as Unknown.
            Code::Unknown if status.message().contains("context deadline exceeded") => {
                CriErrorKind::DeadlineExceeded
            }
            // containerd 1.6 wraps some of its own lookups so that only the words are left.
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
        Self { operation, kind, message }
    }

    /// The status with which a served fake answers.
    #[cfg(feature = "fake")]
    pub(crate) fn to_status(&self) -> tonic::Status {
        use tonic::Code;
        let code = match self.kind {
            CriErrorKind::Unavailable => Code::Unavailable,
            CriErrorKind::DeadlineExceeded => Code::DeadlineExceeded,
            CriErrorKind::NotFound => Code::NotFound,
            CriErrorKind::AlreadyExists => Code::AlreadyExists,
            CriErrorKind::ResourceExhausted => Code::ResourceExhausted,
            CriErrorKind::Unimplemented => Code::Unimplemented,
            CriErrorKind::InvalidArgument => Code::InvalidArgument,
            CriErrorKind::Other => Code::Unknown,
        };
        tonic::Status::new(code, self.message.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_the_kind_to_act_on() {
        let kind = |code, message: &str| {
            CriError::from_status(Rpc::StopContainer, &tonic::Status::new(code, message)).kind
        };
        use tonic::Code;
        assert_eq!(kind(Code::Unavailable, "x"), CriErrorKind::Unavailable);
        assert_eq!(kind(Code::Cancelled, "x"), CriErrorKind::DeadlineExceeded);
        assert_eq!(
            kind(Code::Unknown, "failed to create task: context deadline exceeded"),
            CriErrorKind::DeadlineExceeded
        );
        assert_eq!(kind(Code::Unknown, "container \"a\": not found"), CriErrorKind::NotFound);
        assert_eq!(kind(Code::Internal, "boom"), CriErrorKind::Other);
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
