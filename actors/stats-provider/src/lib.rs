//! Duty: tells what node, pods and containers use: the summary, and the pages of metrics about usage. Figures are read only
//!   when they are asked for, in one pass for all that ask meanwhile, and kept for a second.
//! Receives: GetSummary, GetUsageMetrics.
//! Sends: GetRuntimePods, GetVolumeStats.
//! State (rebuilt from): nothing but the readings before, from which rates are made; without them rates are absent.
//! On crash: those that wait ask again; the first rates come with the second reading.
//! Never does: reads anything while no actor asks, or states a figure that it does not know.

mod actor;
mod cadvisor;
mod execute;
mod images;
mod rate;
mod resource;
mod select;
mod storage;
mod summary;
mod told;

pub use actor::{StatsConfig, StatsProvider, StatsProviderDeps};
pub use cadvisor::Machine;
pub use execute::Backends;
