//! **Duty.** What pods need of the API server besides themselves: secrets, config maps, runtime classes, services and
//!   tokens, each read
//!   once for all who ask and kept current while a pod refers to it.
//! **Receives.** DesiredPodsChanged, GetSecret, GetConfigMap, GetRuntimeClass, GetToken, GetServices.
//! **Sends.** PodObjectsChanged, ResendDesired; lists, watches and token requests through the bridge.
//! **State (rebuilt from).** Objects (listed again when somebody asks), what refers to them (PodManager sends the desired
//!   pods again), tokens (requested again).
//! **On crash.** Watches end with the incarnation; whoever asks next has them opened again.
//! **Never does.** Watch what no pod refers to, keep a secret longer than its pods, show a token in a log.

mod actor;
mod references;
mod shelf;
mod tokens;

pub use actor::{ObjectCache, ObjectCacheDeps, Timer};
pub use shelf::{Kind, Name};
