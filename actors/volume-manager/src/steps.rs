//! The steps of which plans are made, and their way through the bridge. Each step may be repeated, and a step that has begun
//! runs to its end there.

use std::path::PathBuf;
use std::time::Duration;

use bridge_node::mounts::{
    GroupChange, HelperMount, HostPathType, MountError, Mounts, TmpfsOptions, VolumeGroup,
};

/// The kernel's default mode of a tmpfs: every user may write, and may remove only its own files.
const TMPFS_MODE: u32 = 0o1777;

/// One step. Repeating it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make the directory of an emptyDir, writable for every user.
    MakeEmptyDir {
        /// The directory.
        path: PathBuf,
    },
    /// Mount a tmpfs on a directory.
    MountTmpfs {
        /// The directory.
        path: PathBuf,
        /// Its size in bytes; `None` for the kernel's own limit. Never 0, which the kernel takes for no
        /// limit.
        size_bytes: Option<u64>,
    },
    /// Mount huge pages on a directory.
    MountHugePages {
        /// The directory.
        path: PathBuf,
        /// Bytes of one page.
        page_bytes: u64,
    },
    /// Give a directory to the pod's group.
    SetGroup {
        /// The directory.
        path: PathBuf,
        /// `spec.securityContext.fsGroup`.
        gid: u32,
        /// When the files are changed.
        change: GroupChange,
    },
    /// Make the directory on which a volume is mounted.
    MakeMountPoint {
        /// The directory.
        path: PathBuf,
    },
    /// Show a directory of the node at a mount point.
    BindDirectory {
        /// The directory of the node.
        source: PathBuf,
        /// The mount point.
        path: PathBuf,
        /// Whether the pod may only read.
        read_only: bool,
    },
    /// Have the program `mount` mount a file system of a server, or a directory with options that people wrote.
    MountByHelper {
        /// The mount point.
        path: PathBuf,
        /// What is mounted there, and how.
        mount: HelperMount,
    },
    /// Note that the steps before this one are done.
    SetReady {
        /// The plugin's directory for notes about the volume.
        marker: PathBuf,
    },
    /// Check that a path of the host is of the kind that the pod expects, or make it if the kind asks for
    /// that.
    CheckHostPath {
        /// The path.
        path: PathBuf,
        /// `type` of the hostPath volume.
        kind: HostPathType,
    },
}

/// The plan that makes one volume ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumePlan {
    /// The path on the host that containers mount.
    pub host_path: PathBuf,
    /// The directory of the note that all steps were done before: then none is repeated, because containers
    /// may have changed the volume since. Absent if the steps are needed in any case.
    pub ready: Option<PathBuf>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl VolumePlan {
    /// The steps make the path ready whenever they are done.
    pub fn of(host_path: PathBuf, steps: Vec<Step>) -> Self {
        Self { host_path, ready: None, steps }
    }
}

/// Why a volume is not ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetUpError {
    /// The volume cannot be had: an object that it needs is not there, or a plugin refuses.
    #[error("{0}")]
    Refused(String),
    /// The volume may not be used here or in this way.
    #[error("{why}")]
    Unfit {
        /// The operation that found it, as upstream's events name it.
        operation: &'static str,
        /// Upstream's text.
        why: String,
    },
    /// The device cannot be mounted for the node.
    #[error("{0}")]
    Device(String),
    /// The volume is not attached to the node, and its object says why.
    #[error("{0}")]
    Attach(String),
    /// The Node does not say that the volume is attached.
    #[error("{0}")]
    NotAttached(String),
    /// The Node does not say that the volume is attached, and the driver says that the node takes no more volumes.
    #[error("{0}")]
    Exhausted(String),
    /// The volume is mounted in another way than its pod needs it, and is unmounted first.
    #[error("{0}")]
    Waits(String),
    /// A step failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Something hangs: a file system, or a call to the server.
    #[error(transparent)]
    Late(#[from] Late),
}

impl SetUpError {
    /// The same failure of a volume that pods have as a block device: upstream has other names for its operations.
    pub fn of_block_device(self) -> Self {
        let operation = match &self {
            Self::NotAttached(_) | Self::Exhausted(_) | Self::Waits(_) | Self::Unfit { .. } => return self,
            Self::Device(_) => "MapVolume.SetUpDevice",
            Self::Attach(_) => "MapVolume.WaitForAttach",
            Self::Mount(_) => "MapVolume.MapBlockVolume",
            Self::Refused(_) | Self::Late(_) => "MapVolume.MapPodDevice",
        };
        Self::Unfit { operation, why: self.to_string() }
    }

    /// The operation that failed, as upstream's events name it; `None` where upstream records no event.
    pub fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Device(_) => Some("MountVolume.MountDevice"),
            Self::Attach(_) => Some("MountVolume.WaitForAttach"),
            Self::NotAttached(_) | Self::Exhausted(_) | Self::Waits(_) => None,
            Self::Unfit { operation, .. } => Some(*operation),
            Self::Refused(_) | Self::Mount(_) | Self::Late(_) => Some("MountVolume.SetUp"),
        }
    }
}

/// A volume, or a part of one, has taken too long.
#[derive(Debug, thiserror::Error)]
#[error("timed out: it is not ready after {} s", .0.as_secs())]
pub(crate) struct Late(pub Duration);

/// The outcome of work on one volume, or that it takes too long.
pub(crate) async fn in_time<T>(
    within: Duration,
    work: impl Future<Output = Result<T, SetUpError>>,
) -> Result<T, SetUpError> {
    tokio::time::timeout(within, work).await.unwrap_or_else(|_| Err(Late(within).into()))
}

/// Carries out a plan, unless it is noted that all its steps were done before.
pub(crate) async fn set_up(mounts: &dyn Mounts, plan: &VolumePlan) -> Result<(), MountError> {
    if let Some(marker) = &plan.ready
        && mounts.is_ready(&plan.host_path, marker).await?
    {
        return Ok(());
    }
    for step in &plan.steps {
        run(mounts, step).await?;
    }
    Ok(())
}

/// Carries out one step.
pub(crate) async fn run(mounts: &dyn Mounts, step: &Step) -> Result<(), MountError> {
    match step {
        Step::MakeEmptyDir { path } => mounts.make_empty_dir(path).await,
        Step::MountTmpfs { path, size_bytes } => {
            let options = TmpfsOptions { size_bytes: *size_bytes, mode: TMPFS_MODE };
            mounts.mount_tmpfs(path, options).await
        }
        Step::MountHugePages { path, page_bytes } => mounts.mount_huge_pages(path, *page_bytes).await,
        Step::SetGroup { path, gid, change } => {
            let group = VolumeGroup { gid: *gid, read_only: false, change: *change };
            mounts.set_group(path, group).await
        }
        Step::MakeMountPoint { path } => mounts.make_mount_point(path).await,
        Step::BindDirectory { source, path, read_only } => mounts.bind(source, path, *read_only).await,
        Step::MountByHelper { path, mount } => mounts.mount_by_helper(path, mount.clone()).await,
        Step::SetReady { marker } => mounts.set_ready(marker).await,
        Step::CheckHostPath { path, kind } => mounts.check_host_path(path, *kind).await,
    }
}
