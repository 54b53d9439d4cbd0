//! The configuration in force, and where it comes from.

use std::sync::Arc;

use futures::future::BoxFuture;
use messages::eviction_manager::EvictionConfigured;
use messages::facts::NodeResourcesConfigured;
use messages::image_manager::ImagesConfigured;
use messages::log_manager::LogRotationConfigured;
use messages::node_status::NodeStatusConfigured;
use serde_json::Value;

/// A configuration that is in force: the fields of the process' start, but for those that change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// 1 for that of the start; the next number with each change of what is in force.
    pub generation: u64,
    /// All fields, as `/configz` shows them.
    pub shown: Arc<Value>,
    /// The fields whose new values wait for a restart of the process.
    pub waits: Vec<String>,
    /// LogManager's part.
    pub rotation: LogRotationConfigured,
    /// EvictionManager's part.
    pub eviction: EvictionConfigured,
    /// ImageManager's part.
    pub images: ImagesConfigured,
    /// The part of PodManager and NodeStatus.
    pub resources: NodeResourcesConfigured,
    /// NodeStatus' part.
    pub node_status: NodeStatusConfigured,
}

/// What comes of reading: the configuration that is in force then, or every reason for which that before stays in force, each
/// naming file or field, and value.
pub type Reading = BoxFuture<'static, Result<Arc<Configuration>, Vec<String>>>;

/// The process' command line and the files that it names.
pub trait ConfigurationSource: Send + Sync {
    /// The configuration in force.
    fn in_force(&self) -> Arc<Configuration>;

    /// Reads command line and files anew, by the same rules as at the start. What is right as a whole is in force from then on,
    /// and with it the log's verbosity.
    fn read(&self) -> Reading;
}
