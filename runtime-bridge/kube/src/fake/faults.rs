//! The scripted faults, and the log of calls.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::call::{Call, Verb};

/// The most calls in the log; later ones are only counted.
const LOG_MAX: usize = 10_000;

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is refused with this code and reason, and changes nothing.
    Refused {
        /// The HTTP status code, such as 500.
        code: u16,
        /// Kubernetes' reason, such as `InternalError`.
        reason: String,
        /// `Retry-After`, in seconds.
        retry_after_s: Option<u64>,
    },
    /// The connection is refused; the call changes nothing.
    Unreachable,
    /// The call is carried out after this time.
    Latency(Duration),
    /// The call is never answered nor carried out.
    Hang,
    /// The call is carried out, and the connection breaks before the answer.
    LostReply,
}

impl Fault {
    /// A refusal with a code's usual reason.
    pub fn code(code: u16) -> Self {
        let reason = match code {
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "",
        };
        Self::Refused { code, reason: reason.to_owned(), retry_after_s: None }
    }

    /// A refusal with 429 and the time after which to ask again.
    pub fn too_many(retry_after_s: u64) -> Self {
        Self::Refused { code: 429, reason: "TooManyRequests".to_owned(), retry_after_s: Some(retry_after_s) }
    }
}

/// Which calls a fault is for; an absent field matches every call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct On {
    /// The verb.
    pub verb: Option<Verb>,
    /// The kind and subresource: `pods`, or `pods/status`.
    pub target: Option<String>,
    /// The object's name.
    pub name: Option<String>,
}

impl On {
    /// Calls of a verb on a kind, such as `patch` of `pods/status`.
    pub fn call(verb: Verb, target: &str) -> Self {
        Self { verb: Some(verb), target: Some(target.to_owned()), name: None }
    }

    /// Every call.
    pub fn all() -> Self {
        Self::default()
    }

    fn fits(&self, call: &Call) -> bool {
        self.verb.is_none_or(|verb| verb == call.verb)
            && self.target.as_ref().is_none_or(|target| *target == call.target())
            && self.name.as_ref().is_none_or(|name| Some(name) == call.name.as_ref())
    }
}

/// A call that the server received.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// The server's wall time.
    pub at: jiff::Timestamp,
    /// The verb.
    pub verb: Verb,
    /// The kind and subresource: `pods`, or `pods/status`.
    pub target: String,
    /// The namespace of the object or objects.
    pub namespace: Option<String>,
    /// The name of the object; for a created one, the name that was sent.
    pub name: Option<String>,
    /// The body; null if there was none.
    pub body: Value,
}

#[derive(Debug, Default)]
pub(super) struct Script {
    faults: Vec<(On, usize, Fault)>,
    /// The fault of every call without another fault, health checks included.
    always: Option<Fault>,
    log: VecDeque<Logged>,
    counts: BTreeMap<(Verb, String), u64>,
    attempts: BTreeMap<(Verb, String), u64>,
}

impl Script {
    pub fn add(&mut self, on: On, times: usize, fault: Fault) {
        self.faults.push((on, times, fault));
    }

    pub fn set_always(&mut self, fault: Option<Fault>) {
        self.always = fault;
    }

    pub fn clear(&mut self) {
        self.faults.clear();
        self.always = None;
    }

    /// Counts an attempt to call, whether or not the server can be reached.
    pub fn attempt(&mut self, verb: Verb, target: String) {
        *self.attempts.entry((verb, target)).or_default() += 1;
    }

    pub fn attempts(&self) -> BTreeMap<(Verb, String), u64> {
        self.attempts.clone()
    }

    /// Counts a health check, and returns its fault.
    pub fn arrive_health(&mut self, path: &str) -> Option<Fault> {
        *self.counts.entry((Verb::Get, path.to_owned())).or_default() += 1;
        self.always.clone()
    }

    /// Logs a call, and returns its fault: the oldest one that matches.
    pub fn arrive(&mut self, call: &Call, at: jiff::Timestamp) -> Option<Fault> {
        let (verb, target) = (call.verb, call.target());
        *self.counts.entry((verb, target.clone())).or_default() += 1;
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        let sent = call.body.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
        self.log.push_back(Logged {
            at,
            verb,
            target,
            namespace: call.namespace.clone(),
            name: call.name.clone().or(sent),
            body: call.body.clone(),
        });
        let found = self.faults.iter().position(|(on, times, _)| *times > 0 && on.fits(call));
        let Some(found) = found else { return self.always.clone() };
        let fault = self.faults[found].2.clone();
        self.faults[found].1 -= 1;
        if self.faults[found].1 == 0 {
            self.faults.remove(found);
        }
        Some(fault)
    }

    pub fn count(&self, verb: Verb, target: &str) -> u64 {
        self.counts.get(&(verb, target.to_owned())).copied().unwrap_or(0)
    }

    pub fn counts(&self) -> BTreeMap<(Verb, String), u64> {
        self.counts.clone()
    }

    pub fn log(&self) -> Vec<Logged> {
        self.log.iter().cloned().collect()
    }

    pub fn forget(&mut self) {
        self.log.clear();
        self.counts.clear();
        self.attempts.clear();
    }
}
