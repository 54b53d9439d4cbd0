//! Duty: keeps the events of the node: counts equal events, combines similar ones, drops floods, and posts events to
//!   the API server.
//! Receives: RecordEvent, RecordAnnotatedEvent, GetEvents.
//! Sends: nothing; every new event goes to the log, and all events to the API server if there is one.
//! State (rebuilt from): the last events (not rebuilt: they are lost on purpose).
//! On crash: starts empty, so an event that repeats is counted and logged from one again.
//! Never does: decides anything by an event, or makes the sender of an event wait.

mod actor;
mod correlate;
mod execute;
mod lru;
mod metrics;
mod post;
mod ring;

pub use actor::{EventRecorder, EventRecorderDeps, EventSink};
pub use correlate::{Correlation, Correlator, EventKey};
pub use metrics::EventMetrics;
