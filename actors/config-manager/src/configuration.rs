//! The configuration in force, and where it comes from.

use std::sync::Arc;

use futures::future::BoxFuture;
use messages::eviction_manager::EvictionSettings;
use messages::image_manager::ImageRules;
use messages::log_manager::LogRotation;
use messages::node_status::StatusPeriods;
use pod_spec::resources::NodeResources;
use serde_json::Value;

/// A configuration: the fields of the process' start, but for those that change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// 1 for that of the start; the next number with each change of what is in force.
    pub generation: u64,
    /// All fields, as `/configz` shows them.
    pub shown: Arc<Value>,
    /// The fields whose new values wait for a restart of the process.
    pub waits: Vec<String>,
    /// LogManager's part.
    pub rotation: LogRotation,
    /// EvictionManager's part.
    pub eviction: Arc<EvictionSettings>,
    /// ImageManager's part.
    pub images: ImageRules,
    /// The part of PodManager, PodWorkerPool, VolumeManager and NodeStatus.
    pub resources: Arc<NodeResources>,
    /// NodeStatus' part.
    pub node_status: StatusPeriods,
}

/// What comes of reading: the configuration to put in force, or every reason for which that before stays in force, each naming
/// file or field, and value.
pub type Reading = BoxFuture<'static, Result<Arc<Configuration>, Vec<String>>>;

/// The process' command line and the files that it names.
pub trait ConfigurationSource: Send + Sync {
    /// The configuration in force.
    fn in_force(&self) -> Arc<Configuration>;

    /// Reads command line and files anew, by the same rules as at the start. Nothing is in force by that: an incarnation may end
    /// before it hears of its reading.
    fn read(&self) -> Reading;

    /// What was read is in force from now on, and with it the log's verbosity.
    fn put_in_force(&self, configuration: Arc<Configuration>);
}
