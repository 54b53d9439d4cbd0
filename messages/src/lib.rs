//! Every typed message of the kubelet, and the values that travel in them: pure data without behaviour.
//!
//! A file per receiving actor holds its commands and queries; [`facts`] holds the facts that several actors receive.
//! What a pod's spec means is computed in the crate `pod-spec`. Messages are level-triggered: losing or repeating a
//! message delays work and corrupts nothing. Snapshots travel as `Arc`. A message never carries an address, a channel
//! or a wire type.
//!
//! [`CATALOGUE`] lists the messages of every receiver; tests generate their fault matrices from it.

pub mod certificate_manager;
pub mod config_manager;
pub mod delivery;
pub mod event_recorder;
pub mod eviction_manager;
pub mod facts;
pub mod garbage_collector;
pub mod image_manager;
pub mod log_manager;
pub mod node_status;
pub mod object_cache;
pub mod pleg;
pub mod pod;
pub mod pod_manager;
pub mod pod_set;
pub mod pod_sources;
pub mod pod_worker;
pub mod probe_manager;
pub mod resource_manager;
pub mod runtime;
pub mod stats;
pub mod stats_provider;
pub mod status_manager;
pub mod supervision;
pub mod text;
pub mod volume_manager;

pub use delivery::{Delivery, Key, Kind, WhenFull};
pub use pod::{PodRef, PodUid};

/// The messages that each subsystem receives: the subsystem's name and its messages' names. A `receives!` of each file
/// declares its row; a test compares the rows with the running tree.
pub const CATALOGUE: &[(&str, &[&str])] = &[
    (pod_sources::RECEIVER, pod_sources::RECEIVES),
    (pod_manager::RECEIVER, pod_manager::RECEIVES),
    (pod_worker::RECEIVER, pod_worker::RECEIVES),
    (pod_worker::worker::RECEIVER, pod_worker::worker::RECEIVES),
    (pleg::RECEIVER, pleg::RECEIVES),
    (status_manager::RECEIVER, status_manager::RECEIVES),
    (probe_manager::RECEIVER, probe_manager::RECEIVES),
    (volume_manager::RECEIVER, volume_manager::RECEIVES),
    (image_manager::RECEIVER, image_manager::RECEIVES),
    (object_cache::RECEIVER, object_cache::RECEIVES),
    (resource_manager::RECEIVER, resource_manager::RECEIVES),
    (garbage_collector::RECEIVER, garbage_collector::RECEIVES),
    (log_manager::RECEIVER, log_manager::RECEIVES),
    (eviction_manager::RECEIVER, eviction_manager::RECEIVES),
    (event_recorder::RECEIVER, event_recorder::RECEIVES),
    (node_status::RECEIVER, node_status::RECEIVES),
    (node_status::lease::RECEIVER, node_status::lease::RECEIVES),
    (stats_provider::RECEIVER, stats_provider::RECEIVES),
    (certificate_manager::RECEIVER, certificate_manager::RECEIVES),
    (config_manager::RECEIVER, config_manager::RECEIVES),
];
