//! Cgroups for processes that are no pod's: the kubelet's own one, and those of the system (row 14.10).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::sys::{Tree, below, failed, pids_in};
use super::{CgroupError, CgroupValues, CgroupVersion};

/// How often the processes of the root cgroup are listed at most, since new ones come while others are moved (upstream's number).
const GATHERINGS_MAX: usize = 11;

impl Tree {
    /// See [`Cgroups::hold_own`](super::Cgroups::hold_own).
    pub(super) fn hold_own(&self, cgroup: Option<&str>, oom_score_adj: i32) -> Result<bool, CgroupError> {
        let score = self.proc.join("self/oom_score_adj");
        let wanted = oom_score_adj.to_string();
        let is_set = fs::read_to_string(&score).is_ok_and(|text| text.trim() == wanted);
        if cgroup.is_none() && is_set {
            return Ok(false);
        }
        let namespace = |process: &str| {
            let link = self.proc.join(process).join("ns/pid");
            fs::read_link(&link).map_err(failed("read", &link))
        };
        if namespace("1")? != namespace("self")? {
            return Ok(false);
        }
        let moved = cgroup.map_or(Ok(false), |cgroup| self.put_own(cgroup));
        if !is_set {
            let written = self.files.write(&score, &wanted);
            written.map_err(|error| not_written(score, wanted, &error))?;
        }
        moved
    }

    /// See [`Cgroups::gather_system`](super::Cgroups::gather_system).
    pub(super) fn gather_system(&self, cgroup: &str) -> Result<usize, CgroupError> {
        let mut moved = 0;
        let mut refused = None;
        for gathering in 0..GATHERINGS_MAX {
            let left = self.system_processes()?;
            if left.is_empty() {
                return Ok(moved);
            }
            if gathering == 0 {
                self.ensure(cgroup, &CgroupValues::default())?;
            }
            refused = None;
            for pid in left {
                match self.put_everywhere(cgroup, pid) {
                    Ok(()) => moved += 1,
                    Err(error) => refused = Some(error),
                }
            }
        }
        refused.map_or(Ok(moved), Err)
    }

    /// Moves the kubelet's own process; returns whether it was elsewhere in any hierarchy.
    fn put_own(&self, cgroup: &str) -> Result<bool, CgroupError> {
        let pid = std::process::id();
        let mut wanted = Vec::new();
        for hierarchy in self.made_in() {
            let dir = below(&hierarchy.path, cgroup);
            if !pids_in(&dir)?.contains(&pid) {
                wanted.push(dir);
            }
        }
        if wanted.is_empty() {
            return Ok(false);
        }
        // Only then: a cgroup of systemd's, in which the kubelet is already, stays as systemd has made it.
        self.ensure(cgroup, &CgroupValues::default())?;
        wanted.iter().try_for_each(|dir| self.put(dir, pid))?;
        Ok(true)
    }

    fn put_everywhere(&self, cgroup: &str, pid: u32) -> Result<(), CgroupError> {
        self.made_in().try_for_each(|hierarchy| self.put(&below(&hierarchy.path, cgroup), pid))
    }

    fn put(&self, dir: &Path, pid: u32) -> Result<(), CgroupError> {
        let (path, value) = (dir.join("cgroup.procs"), pid.to_string());
        match self.files.write(&path, &value) {
            // The process has ended meanwhile.
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(()),
            written => written.map_err(|error| not_written(path, value, &error)),
        }
    }

    /// The processes of the root cgroup but for process 1, those of the kernel, and those of another namespace, which have the
    /// number 0 here.
    fn system_processes(&self) -> Result<Vec<u32>, CgroupError> {
        let unified = self.version == CgroupVersion::V2;
        let hierarchy = self.made_in().find(|hierarchy| unified || hierarchy.has("devices"));
        let hierarchy = hierarchy.or_else(|| self.made_in().next()).ok_or(CgroupError::NotMounted)?;
        let mut pids = pids_in(&hierarchy.path)?;
        pids.retain(|pid| *pid > 1 && !self.is_the_kernels(*pid));
        Ok(pids)
    }

    /// Whether a process is the kernel's: such a one has no program. Moved to a cgroup with limits, it would hold up others.
    fn is_the_kernels(&self, pid: u32) -> bool {
        let program = self.proc.join(pid.to_string()).join("exe");
        fs::read_link(program).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }
}

fn not_written(path: PathBuf, value: String, error: &io::Error) -> CgroupError {
    CgroupError::NotWritten { path, value, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::runtime::Handle;

    use super::super::kernel::FakeKernel;
    use super::super::{CgroupDriver, CgroupNames, Cgroups, PageSizes, SystemCgroups};
    use super::*;

    /// A machine with cgroups and a `/proc` in a directory.
    struct Machine {
        dir: tempfile::TempDir,
        kernel: FakeKernel,
        cgroups: SystemCgroups,
    }

    impl Machine {
        fn new(version: CgroupVersion) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let tree = dir.path().join("cgroup");
            fs::create_dir(&tree).unwrap();
            let kernel = match version {
                CgroupVersion::V2 => FakeKernel::version_2(&tree, "cpu memory"),
                CgroupVersion::V1 | CgroupVersion::Hybrid => {
                    FakeKernel::version_1(&tree, &["cpu,cpuacct", "memory", "devices"])
                }
            };
            let proc = dir.path().join("proc");
            for process in ["1", "self"] {
                fs::create_dir_all(proc.join(process).join("ns")).unwrap();
                std::os::unix::fs::symlink("pid:[4026531836]", proc.join(process).join("ns/pid")).unwrap();
            }
            fs::write(proc.join("self/oom_score_adj"), "0\n").unwrap();
            // With the other driver, too, these cgroups are named by their whole paths and made as directories.
            let names = CgroupNames::new(CgroupDriver::Cgroupfs, "/").unwrap();
            let sizes = PageSizes { page: 4096, huge: Vec::new() };
            let cgroups = SystemCgroups::at(version, kernel.hierarchies(), sizes, names, Handle::current());
            let cgroups = cgroups.with_files(Arc::new(kernel.clone())).with_proc(&proc);
            Self { dir, kernel, cgroups }
        }

        /// Begins processes in the root cgroup; those of the kernel have no program.
        fn begin(&self, processes: &[(u32, bool)]) {
            for (pid, has_program) in processes {
                let of = self.dir.path().join("proc").join(pid.to_string());
                fs::create_dir_all(&of).unwrap();
                if *has_program {
                    std::os::unix::fs::symlink("/sbin/program", of.join("exe")).unwrap();
                }
            }
            let text: String = processes.iter().map(|(pid, _)| format!("{pid}\n")).collect();
            for hierarchy in self.kernel.hierarchies() {
                fs::write(hierarchy.path.join("cgroup.procs"), &text).unwrap();
            }
        }

        fn pids(&self, cgroup: &str) -> Vec<Vec<u32>> {
            let hierarchies = self.kernel.hierarchies();
            hierarchies.iter().map(|hierarchy| pids_in(&below(&hierarchy.path, cgroup)).unwrap()).collect()
        }

        fn score(&self) -> String {
            fs::read_to_string(self.dir.path().join("proc/self/oom_score_adj")).unwrap().trim().to_owned()
        }
    }

    #[tokio::test]
    async fn the_kubelet_is_moved_in_every_hierarchy_and_stays() {
        for (version, hierarchies) in [(CgroupVersion::V1, 3), (CgroupVersion::V2, 1)] {
            let machine = Machine::new(version);
            let own = std::process::id();
            assert_eq!(machine.cgroups.hold_own(Some("/system/kubelet"), -999).await, Ok(true));
            assert_eq!(machine.pids("/system/kubelet"), vec![vec![own]; hierarchies]);
            assert_eq!(machine.score(), "-999");
            machine.kernel.writes();
            assert_eq!(machine.cgroups.hold_own(Some("/system/kubelet"), -999).await, Ok(false));
            assert_eq!(machine.kernel.writes(), Vec::<String>::new());
        }
    }

    #[tokio::test]
    async fn a_cgroup_in_which_the_kubelet_is_already_stays_as_it_is() {
        let machine = Machine::new(CgroupVersion::V2);
        let tree = machine.dir.path().join("cgroup");
        fs::create_dir(tree.join("service")).unwrap();
        fs::write(tree.join("service/cgroup.procs"), std::process::id().to_string()).unwrap();
        assert_eq!(machine.cgroups.hold_own(Some("/service"), 0).await, Ok(false));
        assert_eq!(fs::read_to_string(tree.join("cgroup.subtree_control")).unwrap(), "");
        // Nothing is made for processes that are not there.
        assert_eq!(machine.cgroups.gather_system("/system").await, Ok(0));
        assert!(!tree.join("system").exists());
    }

    #[tokio::test]
    async fn without_a_cgroup_only_the_score_is_kept() {
        let machine = Machine::new(CgroupVersion::V2);
        assert_eq!(machine.cgroups.hold_own(None, -998).await, Ok(false));
        assert_eq!((machine.score().as_str(), machine.pids("/")), ("-998", vec![vec![]]));
    }

    #[tokio::test]
    async fn a_kubelet_in_a_container_stays_in_it() {
        let machine = Machine::new(CgroupVersion::V2);
        let link = machine.dir.path().join("proc/self/ns/pid");
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("pid:[4026532000]", &link).unwrap();
        assert_eq!(machine.cgroups.hold_own(Some("/kubelet"), -999).await, Ok(false));
        assert_eq!((machine.score().as_str(), machine.pids("/kubelet")), ("0", vec![vec![]]));
        fs::remove_file(&link).unwrap();
        let error = machine.cgroups.hold_own(Some("/kubelet"), -999).await.unwrap_err().to_string();
        assert!(error.contains("proc/self/ns/pid"), "{error}");
    }

    #[tokio::test]
    async fn processes_of_the_system_leave_the_root_and_those_of_the_kernel_stay() {
        for (version, hierarchies) in [(CgroupVersion::V1, 3), (CgroupVersion::V2, 1)] {
            let machine = Machine::new(version);
            machine.begin(&[(0, false), (1, true), (2, false), (40, true), (41, true)]);
            assert_eq!(machine.cgroups.gather_system("/system").await, Ok(2));
            assert_eq!(machine.pids("/system"), vec![vec![40, 41]; hierarchies]);
            assert_eq!(machine.pids("/"), vec![vec![0, 1, 2]; hierarchies]);
            assert_eq!(machine.cgroups.gather_system("/system").await, Ok(0));
        }
    }

    #[tokio::test]
    async fn a_process_that_may_not_be_moved_is_an_error_and_one_that_has_ended_is_none() {
        let machine = Machine::new(CgroupVersion::V2);
        machine.begin(&[(40, true)]);
        machine.kernel.refuse("cgroup.procs", Errno::BUSY);
        let error = machine.cgroups.gather_system("/system").await.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot write \"40\" to") && error.contains("system/cgroup.procs"),
            "{error}"
        );
        machine.kernel.refuse_nothing();
        machine.kernel.refuse("cgroup.procs", Errno::SRCH);
        machine.cgroups.gather_system("/system").await.unwrap();
    }
}
