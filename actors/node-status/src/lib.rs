//! Duty: NodeStatus registers the Node and keeps its status current; Lease shows every ten seconds that the node lives.
//! Receives: Status: RuntimeObserved, PressureObserved, OtherVolumesObserved, CsiDriversObserved, ResendNode,
//! SubsystemsReported, PostNotReady, NodeResourcesConfigured, NodeStatusConfigured. Lease: NodeObserved.
//! Sends: NodeObserved, NodeAddressesObserved, ResendObserved, ResendPressure, ResendConfiguration, ResendNode, RecordEvent (NodeReady,
//! NodeHasSufficientMemory, Rebooted, …); the Node, its status and the lease to the API server; the pods' addresses to
//! the runtime.
//! State (rebuilt from): the Node and the lease (API server), the runtime's health (Pleg resends), images (runtime),
//! addresses (machine and resolver), changed settings (ConfigManager is asked).
//! On crash: the Node stays as it was posted last until the runtime's health is known again; the lease is read again.
//! Never does: waits for another actor, touches other writers' fields of the Node, reports one pod's trouble as the
//! node's.

mod actor;
pub mod addresses;
pub mod cadence;
pub mod changes;
pub mod conditions;
mod config;
mod execute;
pub mod images;
mod lease;
mod metrics;
pub mod registration;
pub mod status;

pub use actor::{NodeStatus, NodeStatusDeps, Timer};
pub use config::NodeStatusConfig;
pub use lease::{Lease, LeaseConfig, LeaseDeps, LeaseTimer};
pub use metrics::NodeStatusMetrics;
