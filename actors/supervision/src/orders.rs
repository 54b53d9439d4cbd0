//! Orders: what the tree tells an actor's driver, past the actor's mailbox.

use serde_json::Value;
use tokio::sync::oneshot;

/// An order in the control lane.
pub(crate) enum Order {
    /// End normally.
    Stop,
    /// Crash now, in the middle of any work, and restart; the reason goes into the crash's record.
    Kill(&'static str),
    /// Show that the actor's thread runs and that the actor takes messages.
    Ping,
    /// Send the observable state ([`Subsystem::observe`](crate::Subsystem::observe)).
    Observe(oneshot::Sender<Value>),
    /// Leave dormancy now.
    Revive,
    /// Carry out a fault that a test has ordered.
    #[cfg(feature = "faults")]
    Fault(messages::supervision::Fault),
}
