//! Duty: keeps the logs of running containers from growing without end: a log that has reached its size is renamed, the
//!   runtime begins a new one, and a few of the renamed files are kept, compressed.
//! Receives: PodObserved, LogRotationConfigured.
//! Sends: ResendObserved, ResendConfiguration.
//! State (rebuilt from): running containers (Pleg's next fact; a resend is asked for), the files themselves, changed settings
//!   (ConfigManager is asked).
//! On crash: renamed files stay; if the runtime was not told to begin a new log, the next look finds none and tells it.
//! Never does: touches the log of a container that does not run, or follows a link below the directory of logs.

mod actor;
mod execute;
mod plan;
mod queue;

pub use actor::{LogManager, LogManagerDeps, Timer};
pub use execute::Backends;
pub use messages::log_manager::LogRotation;
