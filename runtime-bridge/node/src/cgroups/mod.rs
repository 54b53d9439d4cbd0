//! The cgroups of pods: their names, their values, the list of them, the processes in them, and their removal.
//! ResourceManager and EvictionManager use them.

mod apply;
mod detect;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod files;
#[cfg(test)]
mod kernel;
mod names;
mod own;
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

/// Why a cgroup could not be named, made, read or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CgroupError {
    /// A name that would lead to another path.
    #[error("{field} {value:?} cannot be part of a cgroup's name")]
    InvalidName {
        /// The kind of name, such as `pod UID`.
        field: &'static str,
        /// The name.
        value: String,
    },
    /// No file system of type cgroup or cgroup2 is mounted.
    #[error("no cgroup hierarchy is mounted")]
    NotMounted,
    /// A process holds a lease on a file of its cgroup.
    #[error("cannot read {path}: a process holds a lease on it", path = path.display())]
    Leased {
        /// The file.
        path: PathBuf,
    },
    /// Processes are left in a pod's cgroup, so nothing of it was removed.
    #[error("cgroup of pod {uid} is not removed: processes {pids:?} are left in it")]
    ProcessesLeft {
        /// The pod's UID.
        uid: String,
        /// The process IDs, ascending; none if they cannot be listed for a lease of one of them.
        pids: Vec<u32>,
    },
    /// A cgroup that others have to make does not exist in every hierarchy.
    #[error(
        "cgroup {cgroup:?} has some missing paths: {}",
        paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Missing {
        /// The cgroup's name.
        cgroup: String,
        /// The paths that are missing.
        paths: Vec<PathBuf>,
    },
    /// A cgroup of version 2 that others have to make lacks controllers that the machine has.
    #[error("cgroup {cgroup:?} has some missing controllers: {}", controllers.join(", "))]
    MissingControllers {
        /// The cgroup's name.
        cgroup: String,
        /// The controllers that were not handed down to it.
        controllers: Vec<String>,
    },
    /// The kernel refused a value.
    #[error("cannot write {value:?} to {path}: {reason}", path = path.display())]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
        /// The operating system's error.
        reason: String,
    },
    /// With the cgroup driver systemd: systemd cannot be reached.
    #[error(
        "cannot reach systemd over D-Bus, which makes the cgroups with the cgroup driver systemd: {reason}"
    )]
    NoSystemd {
        /// The error of the bus or the socket.
        reason: String,
    },
    /// systemd refused a request, or did not carry it out.
    #[error("systemd: cannot {operation} {unit}: {reason}")]
    Unit {
        /// The request.
        operation: &'static str,
        /// The unit's name.
        unit: String,
        /// systemd's answer.
        reason: String,
    },
    /// An operation of the file system failed.
    #[error("cannot {operation} {path}: {reason}", path = path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
    /// The work was not done: too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// A pod's cgroup that was found on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodCgroup {
    /// The pod's UID.
    pub uid: String,
    /// The class of the cgroup that contains it.
    pub qos: QosClass,
    /// The cgroup's name, as [`CgroupNames::pod`] gives it.
    pub name: String,
}

/// The changes that `ensure` or `update` made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ensured {
    /// The cgroup did not exist in every hierarchy before.
    pub made: bool,
    /// The files that were changed, with the written value: `/sys/fs/cgroup/…/cpu.shares=2`.
    pub written: Vec<String>,
    /// The values that this machine cannot hold, since it lacks the controller or the file; for people. Values that
    /// bound nothing are left out.
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
/// Every operation belongs to the actor that asked until it begins, and once begun runs to its end even when its future is
/// dropped. Those on one cgroup, and those on one pod, come one after another.
pub trait Cgroups: CgroupReads {
    /// Which version of cgroups this machine uses.
    fn version(&self) -> CgroupVersion;

    /// The names of cgroups with the configured driver.
    fn names(&self) -> &CgroupNames;

    /// The same cgroups for another subsystem, with a lane of its own, so that hanging calls of one do not stop the
    /// other.
    fn for_owner(&self, owner: &'static str) -> Arc<dyn Cgroups>;

    /// Makes a cgroup in every hierarchy, with all cgroups above it, and sets its values; only values that differ are
    /// written. An existing cgroup is used as it is. A value that the kernel refuses is an error that names file and
    /// value; the other values are written all the same.
    fn ensure(&self, cgroup: &str, values: CgroupValues) -> Done<Ensured>;

    /// Sets the values of a cgroup that others make; [`CgroupError::Missing`] when it does not exist.
    fn update(&self, cgroup: &str, values: CgroupValues) -> Done<Ensured>;

    /// Checks that a cgroup exists in every hierarchy that upstream demands, with its controllers;
    /// [`CgroupError::Missing`] or [`CgroupError::MissingControllers`] if not.
    fn check(&self, cgroup: &str) -> Done<()>;

    /// Moves the kubelet's own process into this cgroup (a [`CgroupNames::whole`] name), which is made where it is missing, and sets
    /// the process's OOM score adjustment, -1000 to 1000. Without a cgroup the process stays where it is. A kubelet in a PID
    /// namespace of its own, that is in a container, is left alone. Whether the process was elsewhere.
    fn hold_own(&self, cgroup: Option<&str>, oom_score_adj: i32) -> Done<bool>;

    /// Moves all processes of the root cgroup into this cgroup (a [`CgroupNames::whole`] name), which is made where it is missing;
    /// process 1 and those of the kernel stay. How many were moved; an error if one of them could not be, and the others are
    /// moved all the same.
    fn gather_system(&self, cgroup: &str) -> Done<usize>;

    /// All cgroups of pods, sorted by UID; a cgroup that is left in only one hierarchy counts, too.
    fn list_pod_cgroups(&self) -> Done<Vec<PodCgroup>>;

    /// Sends SIGKILL to every process in the pod's cgroup and in those below it. How many there were; at least one if they cannot be
    /// listed.
    fn kill(&self, uid: &str) -> Done<usize>;

    /// Removes the pod's cgroup and those below it from every hierarchy and class. If processes are left, nothing is
    /// removed and the error names them. Succeeds when there is no such cgroup.
    fn remove_pod_cgroup(&self, uid: &str) -> Done<()>;
}
