//! What supervision tells the other actors.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{PodUid, delivery};

/// A pod made a subsystem panic too often: the subsystem leaves the pod alone for a while. It names no pod to its mailbox,
/// since StatusManager has to hear of pods that it leaves alone itself.
#[derive(Clone, Debug, PartialEq)]
pub struct PodQuarantined {
    /// The pod's UID.
    pub uid: PodUid,
    /// The subsystem that panics on it.
    pub subsystem: Arc<str>,
    /// The last panic, with its place; absent when the quarantine is over.
    pub panic: Option<Arc<str>>,
}
delivery!(PodQuarantined => (): Command, LatestPerKey,
    key = |m| crate::Key::Name(Arc::from(format!("{}/{}", m.subsystem, m.uid))));

/// Something to go wrong on order, in builds that carry the fault lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, tag = "fault")]
pub enum Fault {
    /// Panic at once, outside any message.
    PanicNow,
    /// Panic while handling the nth (1 = the next) message of this name; effects and timers have names too.
    PanicOn {
        /// The message's name.
        message: String,
        /// Counted down by every such message.
        nth: u32,
    },
    /// Panic in the next `times` steps on behalf of this pod: messages, timers, effects' results, steps of loops.
    PoisonPod {
        /// The pod's UID.
        pod: PodUid,
        /// Counted down by every such step.
        times: u32,
    },
    /// Panic in the factory of the next `times` incarnations.
    PanicWhileStarting {
        /// How many starts fail.
        times: u32,
    },
    /// Take no message any more, without crashing.
    Stall,
    /// Lose the next `count` messages of this name.
    Drop {
        /// The message's name.
        message: String,
        /// How many.
        count: u32,
    },
    /// Handle the next `count` messages of this name later.
    Delay {
        /// The message's name.
        message: String,
        /// How many.
        count: u32,
        /// By how many milliseconds.
        ms: u64,
    },
    /// Handle the next `count` messages of this name twice.
    Duplicate {
        /// The message's name.
        message: String,
        /// How many.
        count: u32,
    },
    /// Make the mailbox this small.
    SqueezeMailbox {
        /// Messages that may wait.
        bound: usize,
    },
}
