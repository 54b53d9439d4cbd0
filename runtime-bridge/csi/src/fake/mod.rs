//! CSI drivers and plugins in memory, on tokio's time alone: no sockets, no tasks while no call is under way.
//!
//! A [`FakeDriver`] keeps the contract of CSI: calls may be repeated, contradictions are refused, and what its caller may not
//! do is noted ([`FakeDriver::broken_rules`]). With [`DriverEffects`] of its own it mounts for real, and with [`serve_driver`] it
//! is a driver behind a socket. [`FakePlugins`] is the registry of sockets and the plugins behind them.

mod acts;
mod calls;
mod driver;
mod plugins;
mod serve;

pub use acts::{DriverEffects, Held, NoEffects, Published, Staged};
pub use calls::{Call, Fault};
pub use driver::FakeDriver;
pub use plugins::FakePlugins;
pub use serve::{Serving, ServingRegistration, serve_driver, serve_registration};
