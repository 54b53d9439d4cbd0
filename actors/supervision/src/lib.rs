//! Supervision: the only crate that knows how actix starts, stops and fails.
//!
//! Every subsystem is an ordinary actix actor ([`actix::Actor`], [`actix::Handler`]) on the context [`Ctx`].
//! Its [`Tree`] seat owns the mailbox, the addresses and the restart history; an incarnation (the actor's
//! state, its actix context, its effects and timers) only borrows the seat. A panic ends the incarnation; the
//! factory makes the next one behind the same addresses, and messages in the mailbox go on waiting.
//!
//! ```text
//! Address<M> --post--> Mailbox (bounded, by rule of M) --pump--> ContextFut { actor, Ctx }
//! Tree --order--> control lane --------------------------> driver: catch_unwind, backoff, quarantine, stall
//! Watchdog thread --ping--> every driver; a thread that does not come back ends the process
//! ```

mod address;
mod ask;
pub mod blame;
mod cell;
mod context;
mod driver;
mod effects;
mod envelope;
mod events;
#[cfg(feature = "fake")]
pub mod fake;
mod faults;
#[cfg(feature = "faults")]
mod hangs;
mod held;
mod mailbox;
mod metrics;
mod orders;
mod panics;
mod pump;
pub mod quarantine;
mod reply;
mod report;
pub mod restart;
mod streams;
mod tree;
mod watchdog;
mod watched;

pub use address::{Address, AskError, Refused};
pub use ask::{AskPort, Asker, Outside};
pub use cell::{CountersReport, Crash, State, Vitality};
pub use context::{Ctx, EffectId, Subsystem};
pub use effects::{Effect, EffectReport};
pub use events::{EventKind, Failure, SupervisionEvent};
pub use metrics::TreeCollector;
pub use panics::{PanicReport, catch as contained};
pub use quarantine::QuarantinePolicy;
pub use reply::{Reply, ReplyLater, reply_later};
pub use report::{ActorReport, NoSuchActor, Snapshot};
pub use restart::RestartPolicy;
pub use tree::{Child, ChildSpec, Place, Policy, Seated, Supervised, Tree};
pub use watchdog::{Watchdog, WatchdogPolicy};
pub use watched::Answer;
