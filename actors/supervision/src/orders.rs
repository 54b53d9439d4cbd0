//! Orders: what supervision says to an actor, past its mailbox.

use serde_json::Value;
use tokio::sync::oneshot;

/// An order in the control lane.
pub(crate) enum Order {
    /// End normally.
    Stop,
    /// Crash now, whatever it is doing, and restart.
    Kill(&'static str),
    /// Show that the actor takes messages.
    Ping,
    /// Tell the observable state.
    Observe(oneshot::Sender<Value>),
    /// Leave dormancy now.
    Revive,
    /// Do something wrong.
    #[cfg(feature = "faults")]
    Fault(messages::supervision::Fault),
}
