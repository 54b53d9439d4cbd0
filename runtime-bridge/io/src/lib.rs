//! The base of the bridge: the I/O runtime on which every effect runs, its lanes for blocking work, and the clock.
//!
//! The bridge's crates return futures and streams; they never send a message. Everything that touches a socket, a child
//! process or a blocking call lives on the runtime behind [`Io`], never on an actor's thread.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

pub mod clock;
pub mod compute;
mod keys;
mod lasting;
mod offload;
mod runtime;
mod shared_task;
mod shares;
pub mod watch;

pub use keys::{Keys, Turn};
pub use lasting::{lasting, told_by};
pub use offload::{LANE_THREADS_MAX, Lane, NotRun, at_low_priority, joined};
pub use runtime::{Io, IoRuntime};
pub use shared_task::SharedTask;
pub use shares::{SharedPlace, SharedPlaces};
