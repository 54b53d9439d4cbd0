//! Duty: answers over HTTP: health, and on the read-only port pods, metrics, events and the supervision tree.
//! Receives: nothing but HTTP requests.
//! Sends: GetPods, GetPodStatuses, GetEvents.
//! State (rebuilt from): none; every answer is asked for when somebody asks.
//! On crash: the listeners close and open again with the next incarnation.
//! Never does: changes anything.

mod actor;
mod pods;
mod routes;
mod server;

pub use actor::{NodeApi, NodeApiConfig, NodeApiDeps};
pub use routes::{Answers, health_routes, read_only_routes};
