//! CSI drivers and the registration of plugins.
//!
//! - [`Driver`] is the trait of a driver, one method per RPC; [`CsiClient`] speaks it over a Unix socket, and behind the
//!   feature `fake` the module `fake` keeps the same contract in memory.
//! - [`Drivers`] is all drivers for actors: mutating calls that outlive their asker and exclude each other as far as a volume
//!   demands. Each actor is handed only the small traits of [`ports`] that it needs.
//! - [`rules`] is what follows from objects, answers and files, without effects: paths, requests, `vol_data.json`, the
//!   CSINode, and the order of steps.
//! - [`plugins`] watches for plugins of all kinds and carries their registration; a subsystem follows its own kind.
//!
//! ```no_run
//! use std::sync::Arc;
//! use bridge_csi::rules::access::{Access, AccessMode};
//! use bridge_csi::rules::requests::{Staging, stage};
//! use bridge_csi::{Candidate, CsiConnector, CsiMetrics, Deadlines, Drivers};
//! use bridge_io::Io;
//!
//! # async fn sample(io: Io, candidate: Candidate) -> Result<(), Box<dyn std::error::Error>> {
//! let connector = CsiConnector::new(io.clone(), Deadlines::default());
//! let drivers = Drivers::new(Arc::new(connector), io, CsiMetrics::new()?);
//! let name = candidate.name.clone();
//! let node = drivers.register(candidate).await?;
//! assert!(!node.node_id.is_empty());
//!
//! let able = drivers.capabilities(&name).await?;
//! if able.stage_unstage {
//!     let access = Access::mount(AccessMode::ReadWriteOnce, "ext4");
//!     let staging = Staging { volume_id: "vol-1".into(), path: "/staging".into(), access, ..Staging::default() };
//!     drivers.stage(&name, stage(&staging, &able)).await?;
//! }
//! # Ok(())
//! # }
//! ```
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

mod client;
mod deadlines;
mod driver;
mod drivers;
mod error;
mod in_flight;
mod metrics;
pub mod plugins;
pub mod ports;
mod rpc;
pub mod rules;
pub mod wire;

#[cfg(feature = "fake")]
pub mod fake;

pub use client::{CsiClient, CsiConnector, MESSAGE_BYTES_MAX};
pub use deadlines::Deadlines;
pub use driver::{Connect, Driver, Reply};
pub use drivers::{Candidate, Drivers, RegisterError, Registered};
pub use error::{CsiError, CsiErrorKind, Progress};
pub use in_flight::{InFlight, Volume};
pub use metrics::CsiMetrics;
pub use ports::{DriverRegistry, NodeVolumes, VolumeFigures};
pub use rpc::Rpc;
pub use rules::csi_node::NodeInfo;
