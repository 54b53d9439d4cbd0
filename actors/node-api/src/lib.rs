//! Duty: answers over HTTP: health; on the read-only port pods and what they wait for, metrics, usage, events, the supervision
//!   tree and a page for browsers; over HTTPS, to callers that are authorised, these and what is in containers: logs, exec,
//!   attach, port-forward. Where that is switched on, callers submit pods there.
//! Receives: nothing but HTTP requests.
//! Sends: GetPods, GetStaticOf, GetPodStatuses, GetPodStatus, GetRuntimePods, GetRuntimePod, GetEvents,
//!   GetSummary, GetUsageMetrics, GetConfiguration, SubmitPod, WithdrawPod.
//! State (rebuilt from): none; every answer is asked for when a request comes.
//! On crash: the listeners close and open again with the next incarnation.
//! Never does: changes anything itself, but for the log's verbosity: what a caller runs in a container is the caller's, and
//!   submitted pods are PodSources'.

mod access;
mod actor;
mod bodies;
mod checkpoint;
mod containers;
mod health;
mod journal;
mod known;
mod log_query;
mod logs;
mod metrics;
mod node_page;
mod places;
mod pods;
mod pprof;
pub mod reading;
mod routes;
mod secured;
mod sending;
mod shared;
mod streaming;
mod submission;
mod system_logs;
mod under_way;
mod usage;
mod zpages;

pub use access::{Access, AccessConfig};
pub use actor::{NodeApi, NodeApiConfig, NodeApiDeps, Secured};
pub use containers::Containers;
pub use metrics::{ApiMetrics, Registries};
pub use places::ContainerPlaces;
pub use routes::{Answers, health_routes, read_only_routes};
pub use secured::{HttpsOffers, secured_routes};
pub use shared::SharedAnswers;
pub use submission::Submission;
pub use zpages::{LogLevel, ZPages};
