//! A tree of directories that behaves like the kernel's cgroups: a new cgroup has its files, a removed one takes them
//! along, and version 2 hands controllers down.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::detect::Hierarchy;
use super::files::Files;

/// The files of a new cgroup, by controller.
const FIRST: &[(&str, &str, &str)] = &[
    ("cpu", "cpu.shares", "1024"),
    ("cpu", "cpu.cfs_period_us", "100000"),
    ("cpu", "cpu.cfs_quota_us", "-1"),
    ("memory", "memory.limit_in_bytes", "9223372036854771712"),
    ("pids", "pids.max", "max"),
    ("cpuset", "cpuset.cpus", ""),
    ("cpuset", "cpuset.mems", ""),
    ("hugetlb", "hugetlb.2MB.limit_in_bytes", "9223372036852678656"),
];
const SECOND: &[(&str, &str, &str)] = &[
    ("cpu", "cpu.weight", "100"),
    ("cpu", "cpu.max", "max 100000"),
    ("memory", "memory.max", "max"),
    ("pids", "pids.max", "max"),
    ("cpuset", "cpuset.cpus", ""),
    ("hugetlb", "hugetlb.2MB.max", "max"),
    ("hugetlb", "hugetlb.2MB.rsvd.max", "max"),
];
const CORE: [&str; 3] = ["cgroup.procs", "cgroup.controllers", "cgroup.subtree_control"];

/// The tree; clones share the refusals and the record of writes.
#[derive(Debug, Clone, Default)]
pub(super) struct FakeKernel {
    hierarchies: Vec<Hierarchy>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Every write, as `file=text` without the tree's own directory.
    writes: Vec<String>,
    /// The error of writes to files of this name.
    refused: Vec<(String, Errno)>,
    /// How many of the next new cgroups vanish at once.
    vanish: u32,
}

impl FakeKernel {
    /// The hierarchies of version 1 below `dir`.
    pub(super) fn version_1(dir: &Path, controllers: &[&str]) -> Self {
        let hierarchy = |name: &&str| Hierarchy {
            path: dir.join(name),
            controllers: name.split(',').map(str::to_owned).collect(),
        };
        let kernel = Self { hierarchies: controllers.iter().map(hierarchy).collect(), seen: Arc::default() };
        for hierarchy in &kernel.hierarchies {
            fs::create_dir(&hierarchy.path).unwrap();
            for (file, text) in [("cgroup.procs", ""), ("cpuset.cpus", "0-3"), ("cpuset.mems", "0")] {
                fs::write(hierarchy.path.join(file), text).unwrap();
            }
        }
        kernel
    }

    /// The hierarchy of version 2 at `dir`.
    pub(super) fn version_2(dir: &Path, controllers: &str) -> Self {
        for (file, text) in CORE.into_iter().zip(["", controllers, ""]) {
            fs::write(dir.join(file), text).unwrap();
        }
        let unified = Hierarchy { path: dir.to_owned(), controllers: Vec::new() };
        Self { hierarchies: vec![unified], seen: Arc::default() }
    }

    pub(super) fn hierarchies(&self) -> Vec<Hierarchy> {
        self.hierarchies.clone()
    }

    /// The writes since the last call, without those that hand controllers down.
    pub(super) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap().writes)
    }

    /// Refuses writes to files of this name from now on.
    pub(super) fn refuse(&self, file: &str, errno: Errno) {
        self.seen.lock().unwrap().refused.push((file.to_owned(), errno));
    }

    pub(super) fn refuse_nothing(&self) {
        self.seen.lock().unwrap().refused.clear();
    }

    /// Lets this many of the next new cgroups vanish as soon as they are made.
    pub(super) fn let_vanish(&self, cgroups: u32) {
        self.seen.lock().unwrap().vanish = cgroups;
    }

    fn of(&self, path: &Path) -> &Hierarchy {
        self.hierarchies.iter().find(|one| path.starts_with(&one.path)).expect("within the tree")
    }

    fn name(&self, path: &Path) -> String {
        let hierarchy = self.of(path);
        path.strip_prefix(&hierarchy.path).unwrap().display().to_string()
    }

    fn refused(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap().to_str().unwrap();
        let seen = self.seen.lock().unwrap();
        let refused = seen.refused.iter().find(|(file, _)| file == name);
        refused.map_or(Ok(()), |(_, errno)| Err((*errno).into()))
    }

    fn fill(&self, dir: &Path) -> io::Result<()> {
        let hierarchy = self.of(dir);
        let mut controllers: BTreeSet<String> = hierarchy.controllers.iter().cloned().collect();
        let mut files = FIRST;
        fs::write(dir.join("cgroup.procs"), "")?;
        if controllers.is_empty() {
            let handed = fs::read_to_string(dir.join("../cgroup.subtree_control"))?;
            controllers = handed.split_whitespace().map(str::to_owned).collect();
            files = SECOND;
            fs::write(dir.join("cgroup.controllers"), &handed)?;
            fs::write(dir.join("cgroup.subtree_control"), "")?;
        }
        for (_, file, text) in files.iter().filter(|(controller, ..)| controllers.contains(*controller)) {
            let path = dir.join(file);
            if !path.exists() {
                fs::write(path, text)?;
            }
        }
        Ok(())
    }

    /// Moves a process, which is in one cgroup of the hierarchy at most.
    fn put(&self, file: &Path, pid: &str) -> io::Result<()> {
        let mut dirs = vec![self.of(file).path.clone()];
        while let Some(dir) = dirs.pop() {
            let procs = dir.join("cgroup.procs");
            let text = fs::read_to_string(&procs)?;
            if text.lines().any(|line| line == pid) {
                let left: String =
                    text.lines().filter(|line| *line != pid).map(|line| format!("{line}\n")).collect();
                fs::write(procs, left)?;
            }
            let entries = fs::read_dir(dir)?.flatten().map(|entry| entry.path());
            dirs.extend(entries.filter(|path| path.is_dir()));
        }
        let there = fs::read_to_string(file)?;
        fs::write(file, format!("{there}{pid}\n"))
    }

    fn hand_down(&self, file: &Path, text: &str) -> io::Result<()> {
        let dir = file.parent().unwrap();
        let own = fs::read_to_string(dir.join("cgroup.controllers"))?;
        let own: BTreeSet<&str> = own.split_whitespace().collect();
        let mut handed: BTreeSet<String> =
            fs::read_to_string(file)?.split_whitespace().map(str::to_owned).collect();
        for word in text.split_whitespace() {
            let name = word.strip_prefix('+').ok_or(Errno::INVAL)?;
            if !own.contains(name) {
                return Err(Errno::NOENT.into());
            }
            handed.insert(name.to_owned());
        }
        fs::write(file, handed.into_iter().collect::<Vec<_>>().join(" "))?;
        let below: Vec<PathBuf> = fs::read_dir(dir)?.flatten().map(|entry| entry.path()).collect();
        for child in below.into_iter().filter(|path| path.is_dir()) {
            let text = fs::read_to_string(file)?;
            self.fill_late(&child, &text)?;
        }
        Ok(())
    }

    /// Adds the files of a controller that is handed to an existing cgroup.
    fn fill_late(&self, child: &Path, handed: &str) -> io::Result<()> {
        let kept = fs::read_to_string(child.join("cgroup.subtree_control"))?;
        self.fill(child)?;
        fs::write(child.join("cgroup.controllers"), handed)?;
        fs::write(child.join("cgroup.subtree_control"), kept)
    }
}

impl Files for FakeKernel {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.refused(dir)?;
        fs::create_dir(dir)?;
        self.fill(dir)?;
        let vanishes = {
            let mut seen = self.seen.lock().unwrap();
            let vanishes = seen.vanish > 0;
            seen.vanish = seen.vanish.saturating_sub(1);
            vanishes
        };
        if vanishes { self.remove_dir(dir) } else { Ok(()) }
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let entries: Vec<PathBuf> =
            fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        if entries.iter().any(|path| path.is_dir()) {
            return Err(Errno::BUSY.into());
        }
        entries.iter().try_for_each(fs::remove_file)?;
        fs::remove_dir(dir)
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        self.refused(file)?;
        if !file.exists() {
            return Err(Errno::NOENT.into());
        }
        if file.ends_with("cgroup.subtree_control") {
            return self.hand_down(file, text);
        }
        // Some files are in no hierarchy: those of processes.
        if !self.hierarchies.iter().any(|one| file.starts_with(&one.path)) {
            return fs::write(file, text);
        }
        self.seen.lock().unwrap().writes.push(format!("{}={text}", self.name(file)));
        if file.ends_with("cgroup.procs") { self.put(file, text) } else { fs::write(file, text) }
    }
}
