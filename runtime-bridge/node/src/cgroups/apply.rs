//! Makes a cgroup and writes its values: in every hierarchy of version 1, or in the one of version 2, handing its
//! controllers down.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::detect::Hierarchy;
use super::sys::{Tree, below, gone};
use super::values::{Setting, version_1, version_2};
use super::{CgroupError, CgroupValues, CgroupVersion, Ensured};
use crate::tenant_files;

/// How often a cgroup is made again that another process removes while it is being made.
const ATTEMPTS: u32 = 4;
/// The controllers that a cgroup needs where the machine has them (upstream's list).
const NEEDED: [&str; 7] = ["cpu", "cpuacct", "cpuset", "hugetlb", "memory", "pids", "systemd"];

/// Why one attempt failed.
enum Failure {
    /// Another process removed the cgroup meanwhile.
    Vanished(CgroupError),
    For(CgroupError),
}

impl Failure {
    fn error(self) -> CgroupError {
        match self {
            Self::Vanished(error) | Self::For(error) => error,
        }
    }
}

fn failed(operation: &'static str, path: &Path, error: &io::Error) -> Failure {
    let known = CgroupError::Io { operation, path: path.to_owned(), reason: error.to_string() };
    if gone(error) { Failure::Vanished(known) } else { Failure::For(known) }
}

impl Tree {
    /// See [`Cgroups::ensure`](super::Cgroups::ensure).
    pub(super) fn ensure(&self, cgroup: &str, values: &CgroupValues) -> Result<Ensured, CgroupError> {
        self.persist(|| {
            let mut ensured = Ensured::default();
            for hierarchy in self.made_in() {
                self.make(hierarchy, cgroup, &mut ensured)?;
            }
            self.hold(cgroup, values, &mut ensured)?;
            Ok(ensured)
        })
    }

    /// See [`Cgroups::update`](super::Cgroups::update).
    pub(super) fn update(&self, cgroup: &str, values: &CgroupValues) -> Result<Ensured, CgroupError> {
        self.check(cgroup)?;
        let mut ensured = Ensured::default();
        self.hold(cgroup, values, &mut ensured).map_err(Failure::error)?;
        Ok(ensured)
    }

    /// See [`Cgroups::check`](super::Cgroups::check).
    pub(super) fn check(&self, cgroup: &str) -> Result<(), CgroupError> {
        let counts = |hierarchy: &&Hierarchy| {
            self.version == CgroupVersion::V2 || NEEDED.iter().any(|name| hierarchy.has(name))
        };
        let dirs = self.made_in().filter(counts).map(|hierarchy| below(&hierarchy.path, cgroup));
        let missing: Vec<PathBuf> = dirs.filter(|dir| !dir.is_dir()).collect();
        if missing.is_empty() && self.version == CgroupVersion::V2 {
            return self.check_controllers(cgroup);
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(CgroupError::Missing { cgroup: cgroup.to_owned(), paths: missing })
    }

    /// Version 2: whether a cgroup has those controllers of the machine that upstream demands.
    fn check_controllers(&self, cgroup: &str) -> Result<(), CgroupError> {
        let mut missing = Vec::new();
        for hierarchy in self.made_in() {
            let of = |dir: &Path| words(&dir.join("cgroup.controllers")).unwrap_or_default();
            let here = of(&below(&hierarchy.path, cgroup));
            let machine = of(&hierarchy.path).into_iter().filter(|name| NEEDED.contains(&name.as_str()));
            missing.extend(machine.filter(|name| !here.contains(name)));
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(CgroupError::MissingControllers { cgroup: cgroup.to_owned(), controllers: missing })
    }

    fn persist<T>(&self, attempt: impl Fn() -> Result<T, Failure>) -> Result<T, CgroupError> {
        for _ in 1..ATTEMPTS {
            match attempt() {
                Err(Failure::Vanished(_)) => {}
                done => return done.map_err(Failure::error),
            }
        }
        attempt().map_err(Failure::error)
    }

    /// The hierarchies in which cgroups are made. The version 2 hierarchy of a hybrid machine controls nothing and
    /// belongs to the runtime.
    pub(super) fn made_in(&self) -> impl Iterator<Item = &Hierarchy> {
        let unified = self.version == CgroupVersion::V2;
        self.hierarchies.iter().filter(move |hierarchy| unified || !hierarchy.controllers.is_empty())
    }

    fn make(&self, hierarchy: &Hierarchy, cgroup: &str, ensured: &mut Ensured) -> Result<(), Failure> {
        let mut dir = hierarchy.path.clone();
        for part in cgroup.split('/').filter(|part| !part.is_empty()) {
            if self.version == CgroupVersion::V2 {
                self.hand_down(&dir, ensured);
            }
            dir.push(part);
            match self.files.make_dir(&dir) {
                Ok(()) => ensured.made = true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("make cgroup", &dir, &error)),
            }
            if hierarchy.has("cpuset") {
                self.inherit_cpuset(&dir)?;
            }
        }
        Ok(())
    }

    /// Version 2: hands all controllers of `dir` down to the cgroups below. A controller that cannot be handed down
    /// (`dir` has processes, or one of them is a realtime process) is reported; whether it is needed shows when a value
    /// is written.
    fn hand_down(&self, dir: &Path, ensured: &mut Ensured) {
        let file = dir.join("cgroup.subtree_control");
        let (Ok(own), Ok(handed)) = (words(&dir.join("cgroup.controllers")), words(&file)) else { return };
        let wanted: Vec<String> = own.difference(&handed).map(|name| format!("+{name}")).collect();
        if wanted.is_empty() || self.files.write(&file, &wanted.join(" ")).is_ok() {
            return;
        }
        for name in wanted {
            if let Err(error) = self.files.write(&file, &name) {
                ensured.not_held.push(format!("cannot write {name:?} to {}: {error}", file.display()));
            }
        }
    }

    /// Version 1: fills a new cpuset with its parent's values, since an empty one accepts no process.
    fn inherit_cpuset(&self, dir: &Path) -> Result<(), Failure> {
        for name in ["cpuset.cpus", "cpuset.mems"] {
            let file = dir.join(name);
            let read =
                |file: &Path| tenant_files::kernel_text(file).map_err(|error| failed("read", file, &error));
            if !read(&file)?.trim().is_empty() {
                continue;
            }
            let inherited = read(&dir.join("..").join(name))?;
            let inherited = inherited.trim();
            if inherited.is_empty() {
                continue;
            }
            self.files.write(&file, inherited).map_err(|error| not_written(&file, inherited, &error))?;
        }
        Ok(())
    }

    /// Writes the values that differ. Every value is tried; the first failure is returned.
    fn hold(&self, cgroup: &str, values: &CgroupValues, ensured: &mut Ensured) -> Result<(), Failure> {
        let unified = self.version == CgroupVersion::V2;
        let mut left = if unified { version_2(values, &self.sizes) } else { version_1(values, &self.sizes) };
        // One value may be in the way of another (a quota of a period), so refused ones are tried again after the rest.
        for last in [false, true] {
            let mut refused = Vec::new();
            let mut failure = None;
            for setting in left {
                let Some(dir) = self.dir_of(cgroup, &setting) else {
                    ensured.miss(&setting, "no hierarchy of the controller is mounted");
                    continue;
                };
                match self.hold_one(&dir, &setting, ensured) {
                    Err((_, Some(Errno::INVAL))) if !last => refused.push(setting),
                    Err((error, _)) => failure = failure.or(Some(error)),
                    Ok(()) => {}
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            left = refused;
        }
        Ok(())
    }

    fn dir_of(&self, cgroup: &str, setting: &Setting) -> Option<PathBuf> {
        let unified = self.version == CgroupVersion::V2;
        let mut all = self.made_in();
        let hierarchy = all.find(|hierarchy| unified || hierarchy.has(setting.controller))?;
        Some(below(&hierarchy.path, cgroup))
    }

    fn hold_one(
        &self,
        dir: &Path,
        setting: &Setting,
        ensured: &mut Ensured,
    ) -> Result<(), (Failure, Option<Errno>)> {
        let file = dir.join(&setting.file);
        match tenant_files::kernel_text(&file) {
            Ok(current) if setting.held_by(&current) => return Ok(()),
            // A file that cannot be read may still be writable, so the write is tried.
            Ok(_) => {}
            Err(error) if gone(&error) => {
                if !dir.is_dir() {
                    return Err((failed("find", dir, &error), None));
                }
                ensured.miss(setting, "the kernel has no such file");
                return Ok(());
            }
            Err(_) => {}
        }
        self.files
            .write(&file, &setting.text)
            .map_err(|error| (not_written(&file, &setting.text, &error), Errno::from_io_error(&error)))?;
        ensured.written.push(format!("{}={}", file.display(), setting.text));
        Ok(())
    }
}

impl Ensured {
    /// Reports a value that this machine cannot hold, unless the value bounds nothing. Huge pages without their
    /// controller are not reported, as upstream.
    fn miss(&mut self, setting: &Setting, why: &str) {
        if !setting.optional && setting.controller != "hugetlb" && !setting.is_unlimited() {
            self.not_held.push(format!("{}={}: {why}", setting.file, setting.text));
        }
    }
}

fn not_written(file: &Path, value: &str, error: &io::Error) -> Failure {
    let known =
        CgroupError::NotWritten { path: file.to_owned(), value: value.to_owned(), reason: error.to_string() };
    if gone(error) { Failure::Vanished(known) } else { Failure::For(known) }
}

fn words(file: &Path) -> io::Result<BTreeSet<String>> {
    Ok(tenant_files::kernel_text(file)?.split_whitespace().map(str::to_owned).collect())
}
