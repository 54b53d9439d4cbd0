//! Duty: keeps the logs of running containers from growing without end: one that has reached its size is put aside, the
//!   runtime begins another one, and of those put aside some few are kept, compressed.
//! Receives: PodObserved.
//! Sends: ResendObserved.
//! State (rebuilt from): running containers (Pleg's next fact; a resend is asked for), the files themselves.
//! On crash: what was put aside stays so; a log that the runtime was not told to begin is found missing at the next look,
//!   and the runtime is told then.
//! Never does: touches the log of a container that does not run, or follows a link below the directory of logs.

mod actor;
mod execute;
mod plan;
mod queue;

pub use actor::{LogManager, LogManagerDeps, Timer};
pub use execute::Ways;
pub use plan::LogRotation;
