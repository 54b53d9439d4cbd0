//! How a call to a driver fails, and what its caller may conclude from that.

use tonic::Code;

use crate::rpc::Rpc;

/// The kinds of failed calls: gRPC's codes, and two for calls that reached no driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub enum CsiErrorKind {
    /// No driver of this name is registered; nothing was asked.
    NotRegistered,
    /// The request lacks what every driver needs, or too many calls wait already; nothing was asked.
    Refused,
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

/// What a failed call leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The operation failed and is not in progress: what was made for it may be removed.
    Finished,
    /// The driver may have acted, or may still act: the volume counts as mounted in an unknown state, and is undone by the
    /// driver before its directories go.
    Uncertain,
    /// Nothing was asked of the driver: all is as it was before.
    NotBegun,
}

/// A call to a driver that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} of {driver}: {message}")]
pub struct CsiError {
    /// The driver's name.
    pub driver: String,
    /// The RPC that failed.
    pub operation: Rpc,
    /// What kind of failure it is.
    pub kind: CsiErrorKind,
    /// The driver's own words, or the client's where the driver never answered.
    pub message: String,
}

impl CsiError {
    /// Makes an error of a call.
    pub fn new(
        driver: impl Into<String>,
        operation: Rpc,
        kind: CsiErrorKind,
        message: impl Into<String>,
    ) -> Self {
        Self { driver: driver.into(), operation, kind, message: message.into() }
    }

    /// The error of a driver that is not registered, in upstream's words.
    pub fn not_registered(driver: &str, operation: Rpc) -> Self {
        let message = format!("driver name {driver} not found in the list of registered CSI drivers");
        Self::new(driver, operation, CsiErrorKind::NotRegistered, message)
    }

    /// The deadline that passed, in the wording of Go, which people and tools search for.
    pub fn deadline(driver: &str, operation: Rpc) -> Self {
        Self::new(driver, operation, CsiErrorKind::DeadlineExceeded, "context deadline exceeded")
    }

    /// What the failure leaves behind: upstream's rule.
    #[must_use]
    pub fn progress(&self) -> Progress {
        match self.kind {
            CsiErrorKind::NotRegistered => Progress::NotBegun,
            CsiErrorKind::Cancelled
            | CsiErrorKind::DeadlineExceeded
            | CsiErrorKind::Unavailable
            | CsiErrorKind::ResourceExhausted
            | CsiErrorKind::Aborted => Progress::Uncertain,
            _ => Progress::Finished,
        }
    }

    /// Whether the driver cannot make a volume that large, or knows no such volume: to try again is of no use
    /// (`NodeExpandVolume`).
    #[must_use]
    pub fn is_infeasible(&self) -> bool {
        matches!(self.kind, CsiErrorKind::InvalidArgument | CsiErrorKind::OutOfRange | CsiErrorKind::NotFound)
    }

    /// Whether the driver does not expand volumes that are in use (`NodeExpandVolume`).
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.kind == CsiErrorKind::FailedPrecondition
    }

    /// The error as the Go kubelet prints it, which people and tools search for in events.
    #[must_use]
    pub fn status_text(&self) -> String {
        match self.kind {
            CsiErrorKind::NotRegistered | CsiErrorKind::Refused => self.message.clone(),
            kind => format!("rpc error: code = {} desc = {}", code_name(kind), self.message),
        }
    }

    /// The value of the label `grpc_status_code` of upstream's metric.
    #[must_use]
    pub fn code_label(&self) -> String {
        match self.kind {
            CsiErrorKind::NotRegistered | CsiErrorKind::Refused => "unknown-non-grpc".to_owned(),
            kind => code_name(kind),
        }
    }

    pub(crate) fn from_status(driver: &str, operation: Rpc, status: &tonic::Status) -> Self {
        let mut message = status.message().to_owned();
        let mut source = std::error::Error::source(status);
        let kind = match kind_of(status.code()) {
            CsiErrorKind::DeadlineExceeded => CsiErrorKind::DeadlineExceeded,
            // A status that tonic made up because the connection broke under the call.
            _ if source.is_some() => CsiErrorKind::Unavailable,
            kind => kind,
        };
        while let Some(error) = source {
            let words = error.to_string();
            if !message.contains(&words) {
                message.push_str(": ");
                message.push_str(&words);
            }
            source = error.source();
        }
        Self::new(driver, operation, kind, message)
    }

    /// The status with which the served fake answers.
    #[cfg(feature = "fake")]
    pub(crate) fn to_status(&self) -> tonic::Status {
        tonic::Status::new(code_of(self.kind), self.message.clone())
    }
}

fn kind_of(code: Code) -> CsiErrorKind {
    match code {
        Code::Cancelled => CsiErrorKind::Cancelled,
        Code::InvalidArgument => CsiErrorKind::InvalidArgument,
        Code::DeadlineExceeded => CsiErrorKind::DeadlineExceeded,
        Code::NotFound => CsiErrorKind::NotFound,
        Code::AlreadyExists => CsiErrorKind::AlreadyExists,
        Code::PermissionDenied => CsiErrorKind::PermissionDenied,
        Code::ResourceExhausted => CsiErrorKind::ResourceExhausted,
        Code::FailedPrecondition => CsiErrorKind::FailedPrecondition,
        Code::Aborted => CsiErrorKind::Aborted,
        Code::OutOfRange => CsiErrorKind::OutOfRange,
        Code::Unimplemented => CsiErrorKind::Unimplemented,
        Code::Internal => CsiErrorKind::Internal,
        Code::Unavailable => CsiErrorKind::Unavailable,
        Code::DataLoss => CsiErrorKind::DataLoss,
        Code::Unauthenticated => CsiErrorKind::Unauthenticated,
        Code::Ok | Code::Unknown => CsiErrorKind::Unknown,
    }
}

#[cfg(feature = "fake")]
fn code_of(kind: CsiErrorKind) -> Code {
    let mut codes = (1..=16).map(Code::from_i32);
    codes.find(|code| kind_of(*code) == kind).unwrap_or(Code::Unknown)
}

/// The name of a code in Go, which spells one of them differently.
fn code_name(kind: CsiErrorKind) -> String {
    match kind {
        CsiErrorKind::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: Code, message: &str) -> CsiError {
        CsiError::from_status("d", Rpc::NodePublishVolume, &tonic::Status::new(code, message))
    }

    #[test]
    fn five_codes_leave_the_operation_uncertain() {
        let uncertain = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Unavailable,
            Code::ResourceExhausted,
            Code::Aborted,
        ];
        for code in (1..=16).map(Code::from_i32) {
            let expected = if uncertain.contains(&code) { Progress::Uncertain } else { Progress::Finished };
            assert_eq!(error(code, "x").progress(), expected, "{code:?}");
        }
        let absent = CsiError::not_registered("d", Rpc::NodePublishVolume);
        assert_eq!(absent.progress(), Progress::NotBegun);
    }

    #[test]
    fn errors_read_as_upstream_prints_them() {
        let texts = [Code::Internal, Code::Cancelled, Code::FailedPrecondition]
            .map(|code| error(code, "no disk").status_text());
        assert_eq!(
            texts,
            [
                "rpc error: code = Internal desc = no disk",
                "rpc error: code = Canceled desc = no disk",
                "rpc error: code = FailedPrecondition desc = no disk",
            ]
        );
        let absent = CsiError::not_registered("d.example", Rpc::NodePublishVolume);
        assert_eq!(
            absent.status_text(),
            "driver name d.example not found in the list of registered CSI drivers"
        );
        assert_eq!(absent.code_label(), "unknown-non-grpc");
    }

    #[test]
    fn what_an_expansion_may_conclude() {
        let infeasible = |code| error(code, "x").is_infeasible();
        assert!([Code::InvalidArgument, Code::OutOfRange, Code::NotFound].into_iter().all(infeasible));
        assert!(![Code::Internal, Code::FailedPrecondition, Code::Aborted].into_iter().any(infeasible));
        assert!(error(Code::FailedPrecondition, "x").is_in_use());
    }
}
