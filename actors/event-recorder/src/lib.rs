//! Duty: keeps the events of the node: counts what repeats, combines what is similar, drops what floods, and tells
//!   the API server.
//! Receives: RecordEvent, RecordAnnotatedEvent, GetEvents.
//! Sends: nothing; every new event goes to the log, and all to the API server if there is one.
//! State (rebuilt from): the last events (nothing: they are lost on purpose).
//! On crash: starts empty, so an event that repeats is counted and logged from one again.
//! Never does: decides anything by an event, or lets an event hold up its sender.

mod actor;
mod correlate;
mod execute;
mod lru;
mod metrics;
mod post;
mod ring;

pub use actor::{EventRecorder, EventRecorderDeps, PostTo};
pub use correlate::{Correlator, EventKey, Verdict};
pub use metrics::EventMetrics;
