//! The kubelet's configuration: `KubeletConfiguration` of `kubelet.config.k8s.io/v1beta1`, and Understudy's own kind.
//!
//! Every field is one row of a [`section`](section::Section); [`load`](crate::load) puts defaults, file, drop-ins and
//! flags together, [`validation`] checks the result, [`effects`] lists the effect of each field.

pub mod cgroups;
pub(crate) mod document;
pub mod duration;
pub mod effects;
pub mod error;
pub mod eviction;
pub mod gates;
pub mod images;
pub mod live;
pub mod logging;
pub(crate) mod merge;
pub mod node;
pub mod pods;
pub mod quantity;
pub mod resources;
pub mod section;
pub mod server;
pub mod sources;
pub mod understudy;
pub mod validation;
mod value;

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

pub use self::duration::GoDuration;
pub use self::effects::Effect;
pub use self::error::{ConfigError, FieldError, SettingError};
pub use self::gates::FeatureGates;
pub use self::quantity::Quantity;
pub use self::understudy::UnderstudyConfiguration;

use self::section::{FieldRow, Section, refuse_leftovers, section};

/// The group and version of [`KubeletConfiguration`].
pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// The kind of [`KubeletConfiguration`].
pub const KIND: &str = "KubeletConfiguration";

section! {
    /// Fields about the process as a whole.
    pub struct ProcessConfiguration {
        /// Feature gates set in the file or by flag; [`gates`] decides what they mean.
        "featureGates" feature_gates: BTreeMap<String, bool> = Value(BTreeMap::new()), Used;
        /// The log.
        "logging" logging: logging::LoggingConfiguration =
            Value(logging::LoggingConfiguration::default()), Used;
    }
}

/// The kubelet's configuration; in a file all groups share one object.
///
/// `Default` gives the defaults of a configuration file, not the legacy ones of a kubelet without a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KubeletConfiguration {
    /// Feature gates and logging.
    pub process: ProcessConfiguration,
    /// Static pods and sync periods.
    pub sources: sources::SourceConfiguration,
    /// HTTP servers.
    pub server: server::ServerConfiguration,
    /// Runtime and images.
    pub images: images::ImageConfiguration,
    /// Settings of all pods.
    pub pods: pods::PodConfiguration,
    /// Node status, lease, events, API client.
    pub node: node::NodeConfiguration,
    /// Node-pressure eviction.
    pub eviction: eviction::EvictionConfiguration,
    /// Cgroups and node allocatable.
    pub cgroups: cgroups::CgroupConfiguration,
    /// CPU, memory and topology managers.
    pub resources: resources::ResourceConfiguration,
}

/// Runs one expression for each group of fields.
macro_rules! each_group {
    ($call:ident) => {
        $call!(process, sources, server, images, pods, node, eviction, cgroups, resources)
    };
}

impl KubeletConfiguration {
    /// Decodes an object without its `kind` and `apiVersion`. Absent fields get their defaults. Every unknown or
    /// wrongly typed field is added to `errors`; the result must then not be used.
    pub fn from_object(mut object: Map<String, Json>, errors: &mut Vec<FieldError>) -> Self {
        let set = |name: &str| object.get(name).is_some_and(|json| !json.is_null() && json != "0s");
        // Setting only the update frequency sets both, as in releases without the report frequency.
        let report_follows_update = set("nodeStatusUpdateFrequency") && !set("nodeStatusReportFrequency");
        let mut config = Self::default();
        macro_rules! take {
            ($($group:ident),*) => {
                $( config.$group = Section::take(&mut object, "", errors); )*
            };
        }
        each_group!(take);
        refuse_leftovers(object, "", errors);
        if report_follows_update {
            config.node.node_status_report_frequency = config.node.node_status_update_frequency;
        }
        config.pods.pod_pids_limit = config.pods.pod_pids_limit.max(-1);
        config
    }

    /// The fields as `/configz` shows them, without `kind` and `apiVersion`.
    pub fn to_object(&self) -> Map<String, Json> {
        let mut object = Map::new();
        macro_rules! put {
            ($($group:ident),*) => {
                $( self.$group.put(&mut object); )*
            };
        }
        each_group!(put);
        object
    }

    /// The whole document as `/configz` shows it, with the headers of `staticPodURL` masked.
    pub fn to_json(&self) -> Json {
        let mut shown = self.clone();
        for values in shown.sources.static_pod_url_header.values_mut() {
            *values = vec!["<masked>".to_owned()];
        }
        let mut object = shown.to_object();
        object.insert("kind".to_owned(), Json::from(KIND));
        object.insert("apiVersion".to_owned(), Json::from(API_VERSION));
        Json::Object(object)
    }

    /// Every top-level field with its effect.
    pub fn rows() -> impl Iterator<Item = &'static FieldRow> {
        [
            ProcessConfiguration::ROWS,
            sources::SourceConfiguration::ROWS,
            server::ServerConfiguration::ROWS,
            images::ImageConfiguration::ROWS,
            pods::PodConfiguration::ROWS,
            node::NodeConfiguration::ROWS,
            eviction::EvictionConfiguration::ROWS,
            cgroups::CgroupConfiguration::ROWS,
            resources::ResourceConfiguration::ROWS,
        ]
        .into_iter()
        .flatten()
    }

    /// The defaults of a kubelet without a configuration file: an open server, as before such files existed.
    pub fn legacy() -> Self {
        let mut config = Self::default();
        config.server.authentication.anonymous.enabled = true;
        config.server.authentication.webhook.enabled = false;
        config.server.authorization.mode = "AlwaysAllow".to_owned();
        config.server.read_only_port = 10255;
        config
    }

    /// Sets the defaults that depend on a feature gate.
    pub fn apply_gated_defaults(&mut self, gates: &FeatureGates) {
        let period = &mut self.pods.crash_loop_back_off.max_container_restart_period;
        if gates.enabled("KubeletCrashLoopBackOffMax") && period.is_none() {
            *period = Some(pods::MAX_CONTAINER_RESTART_PERIOD);
        }
        let policy = &mut self.images.image_pull_credentials_verification_policy;
        if gates.enabled("KubeletEnsureSecretPulledImages") && policy.is_empty() {
            *policy = "NeverVerifyPreloadedImages".to_owned();
        }
    }
}

#[cfg(test)]
mod tests;
