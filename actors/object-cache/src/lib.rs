//! Duty: what pods need of the API server besides themselves: secrets, config maps, runtime classes, services, service
//!   accounts and tokens, each read once for all actors that ask and kept current while a pod refers to it: by a watch while
//!   there are few, else by reading it again when an actor asks after a while or when others have taken its room; secrets and
//!   config maps without watches, if the configuration says so.
//! Receives: DesiredPodsChanged, NodeObserved, GetSecret, GetConfigMap, GetRuntimeClass, GetServiceAccount, GetToken,
//!   GetServices.
//! Sends: PodObjectsChanged, ResendDesired, ResendNode; lists, watches and token requests through the bridge.
//! State (rebuilt from): objects (listed again when an actor asks), the pods that refer to them (PodManager sends
//! the
//!   desired pods again), how long what was read holds (NodeStatus sends the Node again), tokens (requested again).
//! On crash: watches end with the incarnation; the next ask opens them again.
//! Never does: watches an object that no pod refers to, keeps a secret longer than its pods, shows a token in a
//! log.

mod actor;
mod object_store;
mod references;
mod room;
mod shares;
mod strategy;
mod tokens;

pub use actor::{ObjectCache, ObjectCacheDeps, Timer};
pub use object_store::Kind;
pub use room::Name;
pub use strategy::Strategy;
