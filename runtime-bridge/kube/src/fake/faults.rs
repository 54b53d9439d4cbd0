//! What goes wrong, by script, and what was asked.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::call::{Call, Verb};

/// Calls that the log holds at most; counts go on.
const LOG_MAX: usize = 10_000;

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Refused with this code and reason, without being done.
    Refused {
        /// The HTTP status code, such as 500.
        code: u16,
        /// Kubernetes' reason, such as `InternalError`.
        reason: String,
        /// `Retry-After`, in seconds.
        retry_after_s: Option<u64>,
    },
    /// The connection is refused; nothing is done.
    Unreachable,
    /// It is done after this time.
    Latency(Duration),
    /// It is never answered, nor done.
    Hang,
    /// It is done, and the connection breaks before the answer.
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

    /// 429 with the time after which to ask again.
    pub fn too_many(retry_after_s: u64) -> Self {
        Self::Refused { code: 429, reason: "TooManyRequests".to_owned(), retry_after_s: Some(retry_after_s) }
    }
}

/// Which calls a fault is for; what is absent matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct On {
    /// What is done.
    pub verb: Option<Verb>,
    /// `pods`, or `pods/status`.
    pub target: Option<String>,
    /// The object's name.
    pub name: Option<String>,
}

impl On {
    /// A verb on a kind, such as `patch` of `pods/status`.
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

/// A call that came in.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// The server's wall time.
    pub at: jiff::Timestamp,
    /// What was to be done.
    pub verb: Verb,
    /// `pods`, or `pods/status`.
    pub target: String,
    /// Of the object or objects.
    pub namespace: Option<String>,
    /// Of the object; of a created one, the name it was sent with.
    pub name: Option<String>,
    /// What was sent; null if nothing was.
    pub body: Value,
}

#[derive(Debug, Default)]
pub(super) struct Script {
    faults: Vec<(On, usize, Fault)>,
    /// What goes wrong with every call that no other fault is for, and with the questions how the server is.
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

    /// Somebody tries to call, whether the server can be reached or not.
    pub fn attempt(&mut self, verb: Verb, target: String) {
        *self.attempts.entry((verb, target)).or_default() += 1;
    }

    pub fn attempts(&self) -> BTreeMap<(Verb, String), u64> {
        self.attempts.clone()
    }

    /// Somebody asks how the server is.
    pub fn arrive_health(&mut self, path: &str) -> Option<Fault> {
        *self.counts.entry((Verb::Get, path.to_owned())).or_default() += 1;
        self.always.clone()
    }

    /// Writes a call down and says what goes wrong with it: the oldest fault that is for it.
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
