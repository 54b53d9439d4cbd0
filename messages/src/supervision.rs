//! The messages that supervision sends to other actors, and the faults that tests order.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{PodUid, delivery};

/// Pods that are left alone: by subsystem and pod, the last panic and its place in the source.
pub type QuarantinedPods = BTreeMap<(Arc<str>, PodUid), Arc<str>>;

/// The pods that made a subsystem panic too often, all of them: the subsystem leaves them alone for a while. By subsystem and
/// pod, each with the last panic and its place in the source. `Delivery::pod` of this message is `None`, so that StatusManager
/// hears of pods that it has quarantined itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodsQuarantined(pub Arc<QuarantinedPods>);
delivery!(PodsQuarantined => (): Command, LatestPerKey);

/// A fault to inject into an actor, in builds with the feature `faults`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, tag = "fault")]
pub enum Fault {
    /// Panic at once, outside any message.
    PanicNow,
    /// Panic while handling the nth (1 = the next) message of this name; effects and timers have names too.
    PanicOn {
        /// The message's name.
        message: String,
        /// Counts the messages of this name down to the one that panics.
        nth: u32,
    },
    /// Panic in the next `times` steps on behalf of this pod: messages, timers, effects' results and steps of loops.
    PoisonPod {
        /// The pod's UID.
        pod: PodUid,
        /// How many steps panic.
        times: u32,
    },
    /// Panic in the factory of the actor's next `times` incarnations.
    PanicWhileStarting {
        /// How many starts fail.
        times: u32,
    },
    /// Take no more messages, without crashing.
    Stall,
    /// Let the nth effect of this name that begins never end; only effects with a deadline of at most ten minutes count.
    Hang {
        /// The effect's name.
        effect: String,
        /// Counts the effects of this name down to the one that hangs.
        nth: u32,
        /// Its work is done, and only the result does not come; otherwise the work does not begin.
        done: bool,
    },
    /// Lose the next `count` messages of this name.
    Drop {
        /// The message's name.
        message: String,
        /// How many.
        count: u32,
    },
    /// Handle the next `count` messages of this name later; others of the name overtake them.
    Delay {
        /// The message's name.
        message: String,
        /// How many.
        count: u32,
        /// By how many milliseconds.
        ms: u64,
    },
    /// Handle the next `count` messages of this name later, and those of the name that come meanwhile after them: what a
    /// mailbox, which keeps order, can let happen.
    Hold {
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
    /// Give the mailbox another bound.
    SqueezeMailbox {
        /// How many messages may wait.
        bound: usize,
    },
}
