//! The cgroups of pods: how they are called, which there are, which processes are in them, and their removal.

mod detect;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod names;
mod sys;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use futures::future::BoxFuture;

pub use detect::CgroupVersion;
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeCgroups;
pub use messages::resources::QosClass;
pub use names::{CgroupDriver, CgroupNames};
pub use sys::SystemCgroups;

use crate::host::RuntimeGone;

/// Why a cgroup could not be named, looked at or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CgroupError {
    /// A name that would make another path than the one meant.
    #[error("{field} {value:?} cannot be part of a cgroup's name")]
    InvalidName {
        /// What it is.
        field: &'static str,
        /// The name.
        value: String,
    },
    /// Nothing of type cgroup or cgroup2 is mounted.
    #[error("no cgroup hierarchy is mounted")]
    NotMounted,
    /// Processes are left in a pod's cgroup, so that nothing of it was removed.
    #[error("cgroup of pod {uid} is not removed: processes {pids:?} are left in it")]
    ProcessesLeft {
        /// The pod's UID.
        uid: String,
        /// Their numbers, ascending.
        pids: Vec<u32>,
    },
    /// An operation of the file system failed.
    #[error("cannot {operation} {path}: {reason}", path = path.display())]
    Io {
        /// What was being done.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The I/O runtime has shut down.
    #[error(transparent)]
    RuntimeGone(#[from] RuntimeGone),
}

/// A pod's cgroup as found on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodCgroup {
    /// The pod's UID.
    pub uid: String,
    /// The class whose cgroup it lies in.
    pub qos: QosClass,
    /// Its name, as [`CgroupNames::pod`] gives it.
    pub name: String,
}

type Done<T> = BoxFuture<'static, Result<T, CgroupError>>;

/// The cgroups of pods in every hierarchy of this machine.
///
/// Every operation starts when it is called and runs to its end even when its future is dropped.
pub trait Cgroups: Send + Sync + std::fmt::Debug {
    /// Which version of cgroups this machine uses.
    fn version(&self) -> CgroupVersion;

    /// How cgroups are called here.
    fn names(&self) -> &CgroupNames;

    /// All cgroups of pods, sorted by UID; one that is left in a single hierarchy counts.
    fn list_pod_cgroups(&self) -> Done<Vec<PodCgroup>>;

    /// The processes in the pod's cgroup and in those below it, in any hierarchy and class, ascending. None when
    /// there is no such cgroup.
    fn pids(&self, uid: &str) -> Done<Vec<u32>>;

    /// Removes the pod's cgroup and those below it from every hierarchy and class. With processes left nothing is
    /// removed and the error names them. Done as well when there is none.
    fn remove_pod_cgroup(&self, uid: &str) -> Done<()>;
}
