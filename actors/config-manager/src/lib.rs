//! Duty: has the kubelet's configuration read anew when its files change or the process is told to, and tells actors their
//!   settings that change while they run.
//! Receives: ReloadConfiguration, GetConfiguration, ResendConfiguration.
//! Sends: LogRotationConfigured, EvictionConfigured, ImagesConfigured, NodeResourcesConfigured, NodeStatusConfigured,
//!   RecordEvent (ConfigurationChanged, ConfigurationNeedsRestart, ConfigurationRefused).
//! State (rebuilt from): the configuration in force (beside the actor, with its source), the files (read anew).
//! On crash: the configuration in force stays, and actors are told it again; a change that was being read is read again.
//! Never does: puts a part of a configuration in force that is wrong elsewhere, or tells settings while those of the process'
//!   start hold, which each actor has.

mod actor;
mod configuration;
mod differences;
mod metrics;

pub use actor::{ConfigManager, ConfigManagerDeps, Timer};
pub use configuration::{Configuration, ConfigurationSource, Reading};
pub use differences::differences;
pub use metrics::ConfigMetrics;
