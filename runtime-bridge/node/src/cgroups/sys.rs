//! Cgroups as plain files. The crate cgroups-rs 0.5 is used for freezing alone, which it does for both versions by the
//! cgroup's own path. It cannot list cgroups; with version 1 it ignores the additional hierarchy of version 2, in which
//! a pod's cgroup would stay for ever; with version 2 it removes a cgroup only when there is none below. Values have to
//! be compared before they are written, with an error that names file and value: the crate writes without reading, and
//! says only that a file could not be written. And it looks for the hierarchies in one fixed place, where no test can
//! put a tree that behaves like version 2.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cgroups_rs::fs::freezer::FreezerController;
use tokio::runtime::Handle;

use super::detect::Hierarchy;
use super::files::{Files, KernelFiles};
use super::systemd::Slices;
use super::units;
use super::values::PageSizes;
use super::{
    CgroupDriver, CgroupError, CgroupNames, CgroupReads, CgroupValues, CgroupVersion, Cgroups, Done, Ensured,
    PodCgroup, QosClass, detect,
};
use crate::mounts::mountinfo;
use crate::tenant_files;
use bridge_io::Lane;
use bridge_pace::{Backoff, panics};

/// The most cgroups below one pod that are walked.
const BELOW_POD_MAX: usize = 100_000;
/// The kernel answers "busy" for a moment after the last process has gone; removals are repeated this often.
const BUSY_ATTEMPTS: u32 = 6;
const BUSY_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(5), Duration::from_millis(160));

/// This machine's cgroups. Files are read on the blocking threads of the I/O runtime.
///
/// With the driver systemd, each cgroup is a slice: systemd is asked to make it, to set its limits and to stop it.
/// Parts that systemd does not manage are written as with the other driver: the bounds of huge pages, and directories
/// in hierarchies of version 1 that systemd leaves alone.
#[derive(Debug, Clone)]
pub struct SystemCgroups {
    tree: Arc<Tree>,
    lane: Lane,
    io: Handle,
    /// The slices of systemd; `None` with the driver cgroupfs.
    slices: Option<Arc<Slices>>,
}

#[derive(Debug)]
pub(super) struct Tree {
    pub(super) version: CgroupVersion,
    pub(super) names: CgroupNames,
    pub(super) hierarchies: Vec<Hierarchy>,
    pub(super) sizes: PageSizes,
    pub(super) files: Arc<dyn Files>,
    /// The kernel's directory of processes.
    pub(super) proc: PathBuf,
}

impl SystemCgroups {
    /// Finds the hierarchies that are mounted now.
    ///
    /// # Errors
    /// [`CgroupError::NotMounted`] without any, [`CgroupError::Io`] when the mounts cannot be listed.
    pub fn detect(names: CgroupNames, io: Handle) -> Result<Self, CgroupError> {
        let (version, hierarchies) = Self::mounted()?;
        let sizes = PageSizes { page: rustix::param::page_size() as u64, huge: huge_page_sizes() };
        let slices =
            (names.driver() == CgroupDriver::Systemd).then(|| Arc::new(Slices::of_this_machine(version)));
        Ok(Self { slices, ..Self::at(version, hierarchies, sizes, names, io) })
    }

    /// The version and the hierarchies that are mounted now.
    ///
    /// # Errors
    /// The same as [`SystemCgroups::detect`].
    pub(crate) fn mounted() -> Result<(CgroupVersion, Vec<Hierarchy>), CgroupError> {
        let mounts = mountinfo::read().map_err(failed("list the mounts of", Path::new("/sys/fs/cgroup")))?;
        detect::hierarchies(&mounts.all()).ok_or(CgroupError::NotMounted)
    }

    /// Uses these hierarchies, on a machine with pages of these sizes, without systemd.
    pub fn at(
        version: CgroupVersion,
        hierarchies: Vec<Hierarchy>,
        sizes: PageSizes,
        names: CgroupNames,
        io: Handle,
    ) -> Self {
        let (files, proc) = (Arc::new(KernelFiles), PathBuf::from("/proc"));
        Self {
            tree: Arc::new(Tree { version, names, hierarchies, sizes, files, proc }),
            lane: Lane::new("ResourceManager", io.clone()),
            io,
            slices: None,
        }
    }

    #[cfg(test)]
    pub(super) fn with_files(self, files: Arc<dyn Files>) -> Self {
        Self { tree: Arc::new(Tree { files, ..self.tree.copied() }), ..self }
    }

    #[cfg(test)]
    pub(super) fn with_proc(self, proc: &Path) -> Self {
        Self { tree: Arc::new(Tree { proc: proc.to_owned(), ..self.tree.copied() }), ..self }
    }

    #[cfg(test)]
    pub(super) fn with_slices(self, slices: Slices) -> Self {
        Self { slices: Some(Arc::new(slices)), ..self }
    }

    #[cfg(test)]
    pub(super) fn tree_for_tests(&self) -> &Tree {
        &self.tree
    }

    /// What excludes all other work on a cgroup: of a pod its UID, by whatever name the cgroup is asked for, and otherwise the
    /// cgroup.
    fn key(&self, cgroup: &str) -> String {
        let names = &self.tree.names;
        let uid = |qos| {
            let (parent, file) = cgroup.rsplit_once('/')?;
            names.uid_of(qos, file).filter(|_| parent == names.qos(qos))
        };
        QosClass::ALL.into_iter().find_map(uid).unwrap_or_else(|| cgroup.to_owned())
    }

    /// One step that excludes all others with the same key.
    fn run<T: Send + 'static>(
        &self,
        key: String,
        of: &str,
        work: impl FnOnce(&Tree, &str) -> Result<T, CgroupError> + Send + 'static,
    ) -> Done<T> {
        let (tree, of) = (Arc::clone(&self.tree), of.to_owned());
        self.lane.run_alone(key, move || work(&tree, &of))
    }

    /// One of several steps: [`SystemCgroups::start`] has the key.
    fn step<T: Send + 'static>(
        &self,
        of: &str,
        work: impl FnOnce(&Tree, &str) -> Result<T, CgroupError> + Send + 'static,
    ) -> Done<T> {
        let (tree, of) = (Arc::clone(&self.tree), of.to_owned());
        self.lane.run(move || work(&tree, &of))
    }

    /// What has more than one step. It has the key over all of them, also between the steps and while systemd is asked. Until
    /// it has the key it ends with the future; then it runs to its end.
    fn start<T: Send + 'static>(
        &self,
        key: String,
        work: impl Future<Output = Result<T, CgroupError>> + Send + 'static,
    ) -> Done<T> {
        let (lane, io) = (self.lane.clone(), self.io.clone());
        Box::pin(async move {
            let turn = lane.turn(key).await?;
            let running = io.spawn(panics::caught(async move {
                let done = work.await;
                drop(turn);
                done
            }));
            bridge_io::joined(running).await
        })
    }
}

impl CgroupReads for SystemCgroups {
    fn pids(&self, uid: &str) -> Done<Vec<u32>> {
        self.run(uid.to_owned(), uid, |tree, uid| tree.pids(&tree.with_those_below(uid)?))
    }
}

impl Cgroups for SystemCgroups {
    fn version(&self) -> CgroupVersion {
        self.tree.version
    }

    fn names(&self) -> &CgroupNames {
        &self.tree.names
    }

    fn for_owner(&self, owner: &'static str) -> Arc<dyn Cgroups> {
        Arc::new(Self { lane: self.lane.beside(owner), ..self.clone() })
    }

    fn ensure(&self, cgroup: &str, values: CgroupValues) -> Done<Ensured> {
        let Some(slices) = self.slices.clone() else {
            return self.run(self.key(cgroup), cgroup, move |tree, cgroup| tree.ensure(cgroup, &values));
        };
        let (this, key, cgroup) = (self.clone(), self.key(cgroup), cgroup.to_owned());
        self.start(key, async move {
            let is_there = this.step(&cgroup, Tree::check).await.is_ok();
            slices.ensure(&cgroup, &values, is_there).await?;
            let kept = units::kept(&values).into_owned();
            let mut ensured = this.step(&cgroup, move |tree, cgroup| tree.ensure(cgroup, &kept)).await?;
            ensured.made |= !is_there;
            Ok(ensured)
        })
    }

    fn update(&self, cgroup: &str, values: CgroupValues) -> Done<Ensured> {
        let Some(slices) = self.slices.clone() else {
            return self.run(self.key(cgroup), cgroup, move |tree, cgroup| tree.update(cgroup, &values));
        };
        let (this, key, cgroup) = (self.clone(), self.key(cgroup), cgroup.to_owned());
        self.start(key, async move {
            this.step(&cgroup, Tree::check).await?;
            slices.update(&cgroup, &values).await?;
            let kept = units::kept(&values).into_owned();
            this.step(&cgroup, move |tree, cgroup| tree.update(cgroup, &kept)).await
        })
    }

    fn check(&self, cgroup: &str) -> Done<()> {
        self.run(self.key(cgroup), cgroup, Tree::check)
    }

    fn hold_own(&self, cgroup: Option<&str>, oom_score_adj: i32) -> Done<bool> {
        let key = cgroup.map_or_else(|| "own process".to_owned(), |cgroup| self.key(cgroup));
        let cgroup = cgroup.map(str::to_owned);
        self.run(key, "", move |tree, _| tree.hold_own(cgroup.as_deref(), oom_score_adj))
    }

    fn gather_system(&self, cgroup: &str) -> Done<usize> {
        self.run(self.key(cgroup), cgroup, Tree::gather_system)
    }

    fn list_pod_cgroups(&self) -> Done<Vec<PodCgroup>> {
        self.step("", |tree, _| tree.list())
    }

    fn kill(&self, uid: &str) -> Done<usize> {
        self.run(uid.to_owned(), uid, |tree, uid| {
            let dirs = tree.with_those_below(uid)?;
            // A frozen cgroup makes no new processes while its processes are killed.
            let frozen = Frozen::of(&dirs);
            let pids = match tree.pids(&dirs) {
                Err(error @ CgroupError::Leased { .. }) => return tree.kill_unseen(&dirs).ok_or(error),
                pids => pids?,
            };
            for pid in pids.iter().filter_map(|pid| rustix::process::Pid::from_raw(i32::try_from(*pid).ok()?))
            {
                // A process that has ended meanwhile is no failure.
                let _ended = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            drop(frozen);
            Ok(pids.len())
        })
    }

    fn remove_pod_cgroup(&self, uid: &str) -> Done<()> {
        let key = uid.to_owned();
        let Some(slices) = self.slices.clone() else { return self.run(key, uid, Tree::remove) };
        let (this, uid) = (self.clone(), uid.to_owned());
        self.start(key, async move {
            for cgroup in this.step(&uid, Tree::without_processes).await? {
                slices.stop(&cgroup).await?;
            }
            // Those of hierarchies that systemd leaves alone.
            this.step(&uid, Tree::remove).await
        })
    }
}

/// Cgroups that are frozen until this is dropped, and the file of each. A cgroup that cannot be frozen keeps running.
struct Frozen(Vec<(FreezerController, PathBuf)>);

impl Frozen {
    /// Freezes the cgroups that have a file for it; freezing a cgroup stops those below it, too.
    fn of(dirs: &[PathBuf]) -> Self {
        let freezer = |dir: &PathBuf| {
            let unified = dir.join("cgroup.freeze").exists();
            let file = dir.join(if unified { "cgroup.freeze" } else { "freezer.state" });
            file.exists().then(|| (FreezerController::new(dir.clone(), dir.clone(), unified), file))
        };
        let freezers: Vec<_> = dirs.iter().filter_map(freezer).collect();
        for (freezer, file) in &freezers {
            // The crate's own open would wait for the lease of a container, which gets none while the file is open here.
            let _ = tenant_files::kernel_write(file).map(|_held| freezer.freeze());
        }
        Self(freezers)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for (freezer, file) in &self.0 {
            let thawed = match tenant_files::kernel_write(file) {
                Ok(_held) => freezer.thaw().map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = thawed {
                tracing::debug!(%error, "A cgroup is not thawed: it is gone, or a container holds a lease on its file");
            }
        }
    }
}

pub(super) fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    let path = path.to_path_buf();
    move |error| CgroupError::Io { operation, path, reason: error.to_string() }
}

impl Tree {
    #[cfg(test)]
    fn copied(&self) -> Self {
        let Self { version, names, hierarchies, sizes, files, proc } = self;
        Self {
            version: *version,
            names: names.clone(),
            hierarchies: hierarchies.clone(),
            sizes: sizes.clone(),
            files: Arc::clone(files),
            proc: proc.clone(),
        }
    }

    fn list(&self) -> Result<Vec<PodCgroup>, CgroupError> {
        let mut found = BTreeSet::new();
        for qos in QosClass::ALL {
            let parent = self.names.qos(qos);
            for hierarchy in &self.hierarchies {
                for dir in children(&below(&hierarchy.path, &parent))? {
                    let Some(file) = dir.file_name().and_then(|file| file.to_str()) else { continue };
                    if let Some(uid) = self.names.uid_of(qos, file) {
                        found.insert(PodCgroup { uid, qos, name: format!("{parent}/{file}") });
                    }
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// The pod's existing cgroups, each before those below it.
    fn with_those_below(&self, uid: &str) -> Result<Vec<PathBuf>, CgroupError> {
        let mut all = Vec::new();
        for qos in QosClass::ALL {
            let name = self.names.pod(qos, uid)?;
            for hierarchy in &self.hierarchies {
                let pod = below(&hierarchy.path, &name);
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

    /// An error if a process is left in these cgroups of a pod, such as one that holds a lease on the list of them.
    fn none_is_left(&self, uid: &str, dirs: &[PathBuf]) -> Result<(), CgroupError> {
        let pids = match self.pids(dirs) {
            Err(CgroupError::Leased { .. }) => Vec::new(),
            Ok(pids) if pids.is_empty() => return Ok(()),
            pids => pids?,
        };
        Err(CgroupError::ProcessesLeft { uid: uid.to_owned(), pids })
    }

    /// Has the kernel kill all processes of these cgroups, where it can (version 2, since Linux 5.14): a container may hold a lease on
    /// the list of its processes, again and again, but not on a file of the pod's cgroup, which it does not see. How many cgroups
    /// were killed so; `None` if none was.
    fn kill_unseen(&self, dirs: &[PathBuf]) -> Option<usize> {
        let killed =
            dirs.iter().filter(|dir| self.files.write(&dir.join("cgroup.kill"), "1").is_ok()).count();
        (killed > 0).then_some(killed)
    }

    /// The names of the pod's existing cgroups; an error if any of them has processes.
    fn without_processes(&self, uid: &str) -> Result<Vec<String>, CgroupError> {
        self.none_is_left(uid, &self.with_those_below(uid)?)?;
        let mut found = Vec::new();
        for qos in QosClass::ALL {
            let name = self.names.pod(qos, uid)?;
            if self.hierarchies.iter().any(|hierarchy| below(&hierarchy.path, &name).is_dir()) {
                found.push(name);
            }
        }
        Ok(found)
    }

    fn remove(&self, uid: &str) -> Result<(), CgroupError> {
        let dirs = self.with_those_below(uid)?;
        for attempt in 1.. {
            self.none_is_left(uid, &dirs)?;
            match self.remove_backwards(&dirs) {
                Err((dir, error))
                    if error.kind() != io::ErrorKind::ResourceBusy || attempt == BUSY_ATTEMPTS =>
                {
                    return Err(failed("remove", &dir)(error));
                }
                Err(_) => std::thread::sleep(BUSY_BACKOFF.after(attempt)),
                Ok(()) => break,
            }
        }
        Ok(())
    }

    /// Removes cgroups in reverse, so that those below go first.
    fn remove_backwards(&self, dirs: &[PathBuf]) -> Result<(), (PathBuf, io::Error)> {
        for dir in dirs.iter().rev() {
            match self.files.remove_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err((dir.clone(), error)),
                _ => {}
            }
        }
        Ok(())
    }
}

pub(super) fn below(hierarchy: &Path, name: &str) -> PathBuf {
    hierarchy.join(name.trim_start_matches('/'))
}

/// The sizes of huge pages in bytes, from directories like `hugepages-2048kB`.
fn huge_page_sizes() -> Vec<u64> {
    let dirs = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok();
    let sizes: BTreeSet<u64> = dirs.filter_map(|dir| Some(size(dir.file_name().to_str()?)? * 1024)).collect();
    sizes.into_iter().collect()
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

pub(super) fn pids_in(dir: &Path) -> Result<Vec<u32>, CgroupError> {
    let path = dir.join("cgroup.procs");
    let text = match tenant_files::kernel_text(&path) {
        Err(error) if gone(&error) => return Ok(Vec::new()),
        Err(error) if tenant_files::is_leased(&error) => return Err(CgroupError::Leased { path }),
        // A threaded cgroup of version 2: the cgroup above lists its processes.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()) => {
            return Ok(Vec::new());
        }
        text => text.map_err(failed("read", &path))?,
    };
    text.lines()
        .map(|line| {
            line.trim().parse().map_err(|_| failed("read", &path)(io::Error::other(format!("{line:?}"))))
        })
        .collect()
}

/// Whether a cgroup was removed meanwhile: the kernel answers "no such device" for an open file of a removed cgroup.
pub(super) fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}
