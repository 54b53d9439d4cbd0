//! The cgroups of pods: how they are called, which there are, what they hold, which processes are in them, and their
//! removal.

mod apply;
mod detect;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod files;
#[cfg(test)]
mod kernel;
mod names;
mod sys;
mod systemd;
#[cfg(test)]
mod systemd_tests;
#[cfg(test)]
mod tests;
mod units;
mod values;

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;

pub use detect::{CgroupVersion, Hierarchy};
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeCgroups;
pub use names::{CgroupDriver, CgroupNames};
pub use pod_spec::resources::QosClass;
pub use sys::SystemCgroups;
pub use values::{CgroupValues, CpuLimit, HugePages, Limit, PageSizes, weight};

use bridge_io::NotRun;

/// Why a cgroup could not be named, made, looked at or removed.
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
    /// A cgroup that others make is not there, or not wholly.
    #[error(
        "cgroup {cgroup:?} has some missing paths: {}",
        paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Missing {
        /// Its name.
        cgroup: String,
        /// Where it is missing.
        paths: Vec<PathBuf>,
    },
    /// A cgroup of version 2 that others make has not all controllers that the machine has.
    #[error("cgroup {cgroup:?} has some missing controllers: {}", controllers.join(", "))]
    MissingControllers {
        /// Its name.
        cgroup: String,
        /// Those that were not handed down to it.
        controllers: Vec<String>,
    },
    /// The kernel refused a value.
    #[error("cannot write {value:?} to {path}: {reason}", path = path.display())]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
        /// What the system said.
        reason: String,
    },
    /// With the cgroup driver systemd: nobody answers who would make slices.
    #[error(
        "cannot reach systemd over D-Bus, which makes the cgroups with the cgroup driver systemd: {reason}"
    )]
    NoSystemd {
        /// What the bus or the socket said.
        reason: String,
    },
    /// systemd did not do what it was asked.
    #[error("systemd: cannot {operation} {unit}: {reason}")]
    Unit {
        /// What was asked.
        operation: &'static str,
        /// Of which unit.
        unit: String,
        /// What systemd answered.
        reason: String,
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
    /// The work was not done: too much of it waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
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

/// What it took to have a cgroup there with its values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ensured {
    /// It was not there, or not in every hierarchy.
    pub made: bool,
    /// The files that held something else before, with what was written: `/sys/fs/cgroup/…/cpu.shares=2`.
    pub written: Vec<String>,
    /// What this machine cannot hold since it lacks the controller or the file, for people. Nothing is told of what
    /// would not have bounded anything.
    pub not_held: Vec<String>,
}

type Done<T> = BoxFuture<'static, Result<T, CgroupError>>;

/// What the cgroups of pods tell; for EvictionManager, and as a part of [`Cgroups`]. It changes none:
///
/// ```compile_fail,E0599
/// # fn sample(cgroups: &dyn bridge_node::cgroups::CgroupReads) {
/// let _ = cgroups.kill("uid");
/// # }
/// ```
pub trait CgroupReads: Send + Sync + std::fmt::Debug {
    /// The processes in the pod's cgroup and in those below it, in any hierarchy and class, ascending. None when
    /// there is no such cgroup.
    fn pids(&self, uid: &str) -> Done<Vec<u32>>;
}

/// The cgroups of pods in every hierarchy of this machine; for ResourceManager.
///
/// Every operation belongs to whoever asked until it begins, and once begun runs to its end even when its future is
/// dropped. Those on one cgroup, and those on one pod, come one after another.
pub trait Cgroups: CgroupReads {
    /// Which version of cgroups this machine uses.
    fn version(&self) -> CgroupVersion;

    /// How cgroups are called here.
    fn names(&self) -> &CgroupNames;

    /// The same cgroups for another subsystem, with places of its own for calls that hang.
    fn for_owner(&self, owner: &'static str) -> Arc<dyn Cgroups>;

    /// Has a cgroup there in every hierarchy, with all above it, and has it hold these values; only what differs is
    /// written. One that is there already is taken over, whoever made it. A value that the kernel refuses is an error
    /// that names file and value, and does not keep the others from being written.
    fn ensure(&self, cgroup: &str, values: CgroupValues) -> Done<Ensured>;

    /// Has a cgroup that others make hold these values; [`CgroupError::Missing`] when it is not there.
    fn update(&self, cgroup: &str, values: CgroupValues) -> Done<Ensured>;

    /// Whether a cgroup is there in every hierarchy that counts, with its controllers; [`CgroupError::Missing`] or
    /// [`CgroupError::MissingControllers`] if not.
    fn check(&self, cgroup: &str) -> Done<()>;

    /// All cgroups of pods, sorted by UID; one that is left in a single hierarchy counts.
    fn list_pod_cgroups(&self) -> Done<Vec<PodCgroup>>;

    /// Sends SIGKILL to every process in the pod's cgroup and in those below it. How many there were.
    fn kill(&self, uid: &str) -> Done<usize>;

    /// Removes the pod's cgroup and those below it from every hierarchy and class. With processes left nothing is
    /// removed and the error names them. Done as well when there is none.
    fn remove_pod_cgroup(&self, uid: &str) -> Done<()>;
}
