//! The container runtime, over the Container Runtime Interface v1.
//!
//! - [`Runtime`] is the trait, one method per RPC; [`CriClient`] speaks it over a Unix socket, and behind the feature
//!   `fake` the module `fake` keeps the same contract in memory.
//! - [`Operations`] is the runtime for actors: mutating calls that outlive their asker, one at a time per sandbox and
//!   per container, and adoption of what an unanswered call did create. Each actor is handed only the small traits of
//!   [`ports`] that it needs.
//! - [`ExitWatcher`] reports the end of a container's process on runtimes without an event stream.
//!
//! ```no_run
//! use std::sync::Arc;
//! use bridge_io::Io;
//! use bridge_cri::wire::{ContainerConfig, ListContainersRequest, PodSandboxConfig};
//! use bridge_cri::{CriClient, CriMetrics, Endpoints, EnsureError, Operations};
//!
//! # async fn sample(io: Io, sandbox: PodSandboxConfig, container: ContainerConfig)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! let client = CriClient::new(&io, &Endpoints::new("unix:///run/containerd/containerd.sock"))?;
//! let operations = Operations::new(Arc::new(client), io, CriMetrics::new()?);
//!
//! // A new incarnation first waits for the calls that the last one left in flight.
//! operations.settled("uid-1").await;
//! // The attempt is raised only after lists have shown nothing usable.
//! let mut attempt = 0;
//! let sandbox_id = loop {
//!     let mut config = sandbox.clone();
//!     config.metadata.get_or_insert_default().attempt = attempt;
//!     match operations.ensure_sandbox("uid-1", attempt, config, String::new()).await {
//!         Ok(ensured) => break ensured.into_id(),
//!         Err(EnsureError::RaiseAttempt { .. }) if attempt < 3 => attempt += 1,
//!         Err(error) => return Err(error.into()), // the same attempt again, after a backoff
//!     }
//! };
//! let id = operations
//!     .ensure_container("uid-1", &sandbox_id, 0, container, sandbox.clone())
//!     .await?
//!     .into_id();
//! operations.start_container("uid-1", &id).await?;
//! let list = operations.list_containers(ListContainersRequest::default()).await?;
//! assert_eq!(list.containers.len(), 1);
//! operations.stop_container("uid-1", &id, 30).await?;
//! # Ok(())
//! # }
//! ```
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

mod brief;
mod client;
mod deadlines;
mod error;
mod exits;
mod in_flight;
mod listing;
mod metrics;
mod operations;
pub mod ports;
mod rpc;
mod runtime;
pub mod wire;

#[cfg(feature = "fake")]
pub mod fake;

pub use brief::OUTPUT_KEPT_MAX;
pub use client::{CriClient, CriClientError, Endpoints, MESSAGE_BYTES_MAX};
pub use deadlines::Deadlines;
pub use error::{CriError, CriErrorKind};
pub use exits::{ExitWatchError, ExitWatcher, Exited, PidfdWatcher, container_pid};
pub use in_flight::{InFlight, PullShare};
pub use listing::{Listed, Whose, list};
pub use metrics::CriMetrics;
pub use operations::{EnsureError, Ensured, KUBELET_API_VERSION, ListedImages, Operations};
pub use ports::{
    Checkpointing, ExecSync, ImageReads, Images, LogReopen, PodLifecycle, PodRemoval, RuntimeConfiguration,
    RuntimeReads, Stats, Streaming,
};
pub use rpc::Rpc;
pub use runtime::{ContainerEvents, Reply, Runtime};
