//! The refusals of the server in memory, in Kubernetes' own form.

use serde_json::{Value, json};

use super::resources::Resource;

/// A refusal: a `Status` object of failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub code: u16,
    pub reason: String,
    pub message: String,
    pub retry_after_s: Option<u64>,
}

impl Refusal {
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.to_owned(), message: message.into(), retry_after_s: None }
    }

    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", resource.qualified()))
    }

    pub fn unknown_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", resource.qualified()))
    }

    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let what = resource.qualified();
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {what} {name:?}: {why}"))
    }

    pub fn stale(resource: &Resource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub fn invalid(resource: &Resource, name: &str, why: &str) -> Self {
        let kind = resource.qualified_kind();
        Self::new(422, "Invalid", format!("{kind} {name:?} is invalid: {why}"))
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub fn too_old(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    pub fn page_too_old() -> Self {
        Self::new(
            410,
            "Expired",
            "The provided continue parameter is too old: the objects have changed since",
        )
    }

    /// The refusal as a `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(seconds) = self.retry_after_s {
            status["details"] = json!({ "retryAfterSeconds": seconds });
        }
        status
    }
}
