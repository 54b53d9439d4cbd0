//! Plain files rather than the crate cgroups-rs 0.5: it lists no cgroups; with version 1 it does not know the hierarchy
//! of version 2 beside it, where a pod's cgroup would stay for ever; with version 2 it removes a cgroup only when none
//! is below it. It serves for values, which are not set here.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::{CgroupError, CgroupNames, CgroupVersion, Cgroups, Done, PodCgroup, QosClass, detect};
use crate::host::offload;
use crate::mounts::mountinfo;

/// Bytes of a `cgroup.procs`; the kernel has at most 4,194,304 processes with 8 bytes each.
const PROCS_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Cgroups below one pod that are walked.
const BELOW_POD_MAX: usize = 100_000;
/// The kernel says "busy" for a moment after the last process has gone.
const BUSY_ATTEMPTS: u32 = 6;
const BUSY_WAIT_FIRST: Duration = Duration::from_millis(5);

/// This machine's cgroups. Files are read on the blocking threads of the I/O runtime.
///
/// With the driver systemd it removes a slice's directories; the unit itself is systemd's to forget.
#[derive(Debug, Clone)]
pub struct SystemCgroups {
    version: CgroupVersion,
    tree: Arc<Tree>,
    io: Handle,
}

#[derive(Debug)]
struct Tree {
    names: CgroupNames,
    hierarchies: Vec<PathBuf>,
}

impl SystemCgroups {
    /// The hierarchies that are mounted now.
    ///
    /// # Errors
    /// [`CgroupError::NotMounted`] without any, [`CgroupError::Io`] when the mounts cannot be listed.
    pub fn detect(names: CgroupNames, io: Handle) -> Result<Self, CgroupError> {
        let mounts = mountinfo::read().map_err(failed("list the mounts of", Path::new("/sys/fs/cgroup")))?;
        let (version, hierarchies) = detect::hierarchies(&mounts).ok_or(CgroupError::NotMounted)?;
        Ok(Self::at(version, hierarchies, names, io))
    }

    /// Hierarchies that are mounted at these places.
    pub fn at(version: CgroupVersion, hierarchies: Vec<PathBuf>, names: CgroupNames, io: Handle) -> Self {
        Self { version, tree: Arc::new(Tree { names, hierarchies }), io }
    }

    #[cfg(test)]
    pub(super) fn tree_for_tests(&self) -> Vec<PathBuf> {
        self.tree.hierarchies.clone()
    }

    fn run<T: Send + 'static>(
        &self,
        uid: &str,
        work: impl FnOnce(&Tree, &str) -> Result<T, CgroupError> + Send + 'static,
    ) -> Done<T> {
        let (tree, uid) = (Arc::clone(&self.tree), uid.to_owned());
        offload(&self.io, move || work(&tree, &uid))
    }
}

impl Cgroups for SystemCgroups {
    fn version(&self) -> CgroupVersion {
        self.version
    }

    fn names(&self) -> &CgroupNames {
        &self.tree.names
    }

    fn list_pod_cgroups(&self) -> Done<Vec<PodCgroup>> {
        self.run("", |tree, _| tree.list())
    }

    fn pids(&self, uid: &str) -> Done<Vec<u32>> {
        self.run(uid, |tree, uid| tree.pids(&tree.with_those_below(uid)?))
    }

    fn remove_pod_cgroup(&self, uid: &str) -> Done<()> {
        self.run(uid, Tree::remove)
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    let path = path.to_path_buf();
    move |error| CgroupError::Io { operation, path, reason: error.to_string() }
}

impl Tree {
    fn list(&self) -> Result<Vec<PodCgroup>, CgroupError> {
        let mut found = BTreeSet::new();
        for qos in QosClass::ALL {
            let parent = self.names.qos(qos);
            for hierarchy in &self.hierarchies {
                for dir in children(&below(hierarchy, &parent))? {
                    let Some(file) = dir.file_name().and_then(|file| file.to_str()) else { continue };
                    if let Some(uid) = self.names.uid_of(qos, file) {
                        found.insert(PodCgroup { uid, qos, name: format!("{parent}/{file}") });
                    }
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// The pod's cgroups that exist, each before those below it.
    fn with_those_below(&self, uid: &str) -> Result<Vec<PathBuf>, CgroupError> {
        let mut all = Vec::new();
        for qos in QosClass::ALL {
            let name = self.names.pod(qos, uid)?;
            for hierarchy in &self.hierarchies {
                let pod = below(hierarchy, &name);
                if !pod.is_dir() {
                    continue;
                }
                let mut next = all.len();
                all.push(pod);
                while let Some(dir) = all.get(next) {
                    let more = children(dir)?;
                    if all.len() + more.len() > BELOW_POD_MAX {
                        return Err(failed("walk", dir)(io::Error::other("too many cgroups are below it")));
                    }
                    all.extend(more);
                    next += 1;
                }
            }
        }
        Ok(all)
    }

    fn pids(&self, dirs: &[PathBuf]) -> Result<Vec<u32>, CgroupError> {
        let mut pids = BTreeSet::new();
        for dir in dirs {
            pids.extend(pids_in(dir)?);
        }
        Ok(pids.into_iter().collect())
    }

    fn remove(&self, uid: &str) -> Result<(), CgroupError> {
        let dirs = self.with_those_below(uid)?;
        let mut wait = BUSY_WAIT_FIRST;
        for attempt in 1.. {
            let pids = self.pids(&dirs)?;
            if !pids.is_empty() {
                return Err(CgroupError::ProcessesLeft { uid: uid.to_owned(), pids });
            }
            match remove_backwards(&dirs) {
                Err((dir, error))
                    if error.kind() != io::ErrorKind::ResourceBusy || attempt == BUSY_ATTEMPTS =>
                {
                    return Err(failed("remove", &dir)(error));
                }
                Err(_) => std::thread::sleep(wait),
                Ok(()) => break,
            }
            wait *= 2;
        }
        Ok(())
    }
}

fn below(hierarchy: &Path, name: &str) -> PathBuf {
    hierarchy.join(name.trim_start_matches('/'))
}

/// Those below go before the one above them.
fn remove_backwards(dirs: &[PathBuf]) -> Result<(), (PathBuf, io::Error)> {
    for dir in dirs.iter().rev() {
        match fs::remove_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err((dir.clone(), error)),
            _ => {}
        }
    }
    Ok(())
}

fn children(dir: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if gone(&error) => return Ok(Vec::new()),
        entries => entries.map_err(failed("list", dir))?,
    };
    let mut dirs = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) if entry.file_type().is_ok_and(|kind| kind.is_dir()) => dirs.push(entry.path()),
            Ok(_) => {}
            Err(error) if gone(&error) => break,
            Err(error) => return Err(failed("list", dir)(error)),
        }
    }
    Ok(dirs)
}

fn pids_in(dir: &Path) -> Result<Vec<u32>, CgroupError> {
    let path = dir.join("cgroup.procs");
    let mut text = String::new();
    let read = fs::File::open(&path).and_then(|file| file.take(PROCS_BYTES_MAX).read_to_string(&mut text));
    match read {
        Err(error) if gone(&error) => return Ok(Vec::new()),
        // A threaded cgroup of version 2: its processes are told by the cgroup above.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()) => {
            return Ok(Vec::new());
        }
        read => read.map_err(failed("read", &path))?,
    };
    text.lines()
        .map(|line| {
            line.trim().parse().map_err(|_| failed("read", &path)(io::Error::other(format!("{line:?}"))))
        })
        .collect()
}

/// Removed meanwhile: of a cgroup's open file the kernel then says "no such device".
fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}
