//! Disks that a network brings: of iSCSI targets (row 10.11) and of Fibre Channel (row 10.12). This module looks at them, runs
//! `iscsiadm` and removes disks; VolumeManager decides which.

mod exec;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod records;
mod sysfs;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_io::NotRun;
use futures::future::BoxFuture;

pub use exec::SystemDisks;
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeNetworkDisks;

use super::SecretContent;

/// The longest run of `iscsiadm`, after which it is killed: a login to a portal that does not answer takes the program two
/// minutes.
pub const ISCSIADM_WITHIN: Duration = Duration::from_secs(150);
/// The longest wait for a place among the programs that run.
pub const ISCSIADM_PLACE_WITHIN: Duration = Duration::from_secs(60);
/// The most bytes that the program may write to either stream.
pub const ISCSIADM_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// How long a host's look for new disks is waited for; it goes on by itself.
pub const SCAN_WITHIN: Duration = Duration::from_secs(30);
/// How long a disk's last writes are waited for before it is removed, and how long a map of multipath may take to go.
pub const FLUSH_WITHIN: Duration = Duration::from_secs(60);

/// A run of `iscsiadm`. Secrets are never among the arguments, which every process of the node may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiCall {
    /// The arguments.
    pub args: Vec<String>,
    /// Calls with the same word here run one after another.
    pub turn: String,
}

/// What the program said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiAnswer {
    /// Its exit status; 0 if all went well.
    pub code: i32,
    /// What it wrote to its standard output and its standard error.
    pub said: String,
}

impl IscsiAnswer {
    /// Whether all went well.
    pub fn is_fine(&self) -> bool {
        self.code == 0
    }
}

/// A record of `iscsiadm` with secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IscsiRecord {
    /// What a portal is asked for its targets with.
    Discovery {
        /// The portal, with its port.
        portal: String,
    },
    /// What a target is logged in to with.
    Node {
        /// The target's name.
        target: String,
        /// The portal, with its port.
        portal: String,
        /// The name of the initiator's interface.
        iface: String,
    },
}

/// Why nothing is known or done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisksError {
    /// A program is not there, could not be run, or had to be killed at its deadline.
    #[error("{why}")]
    NotEnded {
        /// The reason, for people.
        why: String,
    },
    /// A program wrote too much.
    #[error("it wrote more than {} bytes", ISCSIADM_OUTPUT_BYTES_MAX)]
    TooMuch,
    /// Others have kept all places.
    #[error("no turn within {} s: too many programs run for disks", ISCSIADM_PLACE_WITHIN.as_secs())]
    NoPlace,
    /// A program has failed; the text is upstream's.
    #[error("{why}")]
    Failed {
        /// The reason, for people.
        why: String,
    },
    /// The node uses the disk.
    #[error("disk {disk} is in use")]
    InUse {
        /// The kernel's name.
        disk: String,
    },
    /// The name is another disk's by now.
    #[error("{disk} is another disk by now")]
    Changed {
        /// The kernel's name.
        disk: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {operation} {path}: {reason}", path = path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
    /// Too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// A session of the node's initiator with a target, through one portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiSession {
    /// The number of its SCSI host.
    pub host: u32,
    /// The target's name.
    pub target: String,
    /// The name of the initiator's interface.
    pub iface: String,
    /// The name by which the node has logged in; empty without CHAP.
    pub username: String,
    /// Its portals, with their ports: the one that was asked for and the one that the target has led to.
    pub portals: BTreeSet<String>,
    /// The kernel's names of its disks, by their numbers.
    pub disks: BTreeMap<u32, String>,
}

/// Which directory of `/dev/disk` a link is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinksBy {
    /// By the way to the disk.
    Path,
    /// By the disk's own number.
    Id,
}

/// A link to a disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskLink {
    /// Its directory.
    pub by: LinksBy,
    /// Its name.
    pub name: String,
    /// The kernel's name of the disk.
    pub disk: String,
}

/// A part of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Major and minor number.
    pub number: (u32, u32),
    /// The devices that are made of it.
    pub holders: BTreeSet<String>,
}

/// A block device of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockDisk {
    /// The kernel's name, such as `sdb`.
    pub name: String,
    /// Major and minor number.
    pub number: (u32, u32),
    /// Its place among the SCSI devices, `host:channel:target:number`; empty if it is none.
    pub address: String,
    /// The number that the disk itself tells, by which several ways to it are known as one; empty if it tells none.
    pub wwid: String,
    /// The devices that are made of it, such as `dm-0`.
    pub holders: BTreeSet<String>,
    /// The devices that it is made of.
    pub slaves: BTreeSet<String>,
    /// The name in `/dev/mapper`; empty for a disk that is not made of others.
    pub mapper: String,
    /// Whether it joins several ways to one disk.
    pub is_multipath: bool,
    /// Its parts, by the kernel's names.
    pub parts: BTreeMap<String, Partition>,
}

/// What the node has of disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenDisks {
    /// The sessions with iSCSI targets.
    pub sessions: Vec<IscsiSession>,
    /// The links to disks.
    pub links: Vec<DiskLink>,
    /// The block devices, by the kernel's names.
    pub disks: BTreeMap<String, BlockDisk>,
    /// The SCSI hosts.
    pub hosts: BTreeSet<u32>,
    /// The devices that the node swaps to.
    pub swaps: BTreeSet<PathBuf>,
    /// The files and devices behind loop devices.
    pub loops: BTreeSet<PathBuf>,
}

/// An outcome in the future.
pub type DisksReply<T> = BoxFuture<'static, Result<T, DisksError>>;

/// The disks that a network brings, and what leads to them.
pub trait NetworkDisks: Send + Sync + fmt::Debug {
    /// The same for work of the pods of one namespace, which has half of the places for programs at most.
    fn for_namespace(&self, namespace: &str) -> Arc<dyn NetworkDisks>;

    /// Runs `iscsiadm`. A run that has begun goes on to its end, or to its deadline, if the future is dropped; the next one with
    /// the same turn waits until the program has died.
    ///
    /// # Errors
    /// Why there is no answer.
    fn iscsiadm(&self, call: IscsiCall) -> DisksReply<IscsiAnswer>;

    /// Writes secrets into a record of `iscsiadm` that is there, by the names of its settings.
    ///
    /// # Errors
    /// There is no such record, or it cannot be written; no error shows a secret.
    fn set_secrets(&self, record: IscsiRecord, secrets: Vec<(String, SecretContent)>) -> DisksReply<()>;

    /// What the node has of disks now.
    ///
    /// # Errors
    /// It cannot be read.
    fn look(&self) -> DisksReply<SeenDisks>;

    /// Has a SCSI host look for the disk of this number, or for all disks. Waits for that a bounded time.
    ///
    /// # Errors
    /// It cannot, or takes too long.
    fn scan(&self, host: u32, number: Option<u32>) -> DisksReply<()>;

    /// Whether neither a mount nor another device nor swap has the disk of this name, by the kernel's own word.
    ///
    /// # Errors
    /// It cannot be told.
    fn is_free(&self, disk: &str) -> DisksReply<bool>;

    /// Takes away a map that joins several ways to one disk; it fails while the map is in use.
    ///
    /// # Errors
    /// Upstream's text.
    fn flush_map(&self, map: &str) -> DisksReply<()>;

    /// Takes a disk from the node, unless the node uses it or the name is another disk's by now. Succeeds if it is gone.
    ///
    /// # Errors
    /// Why it stays.
    fn remove(&self, disk: BlockDisk) -> DisksReply<()>;
}
