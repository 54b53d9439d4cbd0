//! The files of one cgroup, of either version.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::super::files::{self, Problem};
use super::parse;
use super::{CpuUse, GroupUse, MemoryUse, Pressure, ProcessUse, Throttling};
use crate::cgroups::{CgroupVersion, Hierarchy};
use crate::tenant_files;

const NS_PER_SECOND: u64 = 1_000_000_000;
/// The most cgroups below a container's that are looked through: it may make its own.
const CGROUPS_BELOW_MAX: usize = 64;

/// The cgroups of a machine.
#[derive(Clone, Copy, Debug)]
pub(in crate::stats) struct Groups<'a> {
    /// The machine's version.
    pub(in crate::stats) version: CgroupVersion,
    /// The mounted hierarchies.
    pub(in crate::stats) hierarchies: &'a [Hierarchy],
}

impl Groups<'_> {
    fn is_v2(&self) -> bool {
        self.version == CgroupVersion::V2
    }

    /// A cgroup's directory in the hierarchy with this controller.
    pub(in crate::stats) fn dir(&self, controller: &str, cgroup: &str) -> Option<PathBuf> {
        let has = |one: &&Hierarchy| self.is_v2() || one.has(controller);
        let hierarchy = self.hierarchies.iter().find(has)?;
        Some(hierarchy.path.join(cgroup.trim_start_matches('/')))
    }

    /// A cgroup's directory in the hierarchy by which it is found.
    pub(super) fn base(&self, cgroup: &str) -> Option<PathBuf> {
        self.dir("memory", cgroup).or_else(|| self.dir("cpuacct", cgroup))
    }

    /// The memory of a cgroup.
    pub(in crate::stats) fn memory(&self, cgroup: &str, details: bool) -> Result<MemoryUse, Problem> {
        let dir = self.dir("memory", cgroup).ok_or("no hierarchy of cgroups has memory")?;
        let is_root = cgroup.trim_start_matches('/').is_empty();
        if self.is_v2() { memory_v2(&dir, is_root, details) } else { memory_v1(&dir, details) }
    }

    fn cpu(&self, cgroup: &str, details: bool) -> Option<CpuUse> {
        if self.is_v2() {
            return cpu_v2(&self.dir("cpu", cgroup)?, details);
        }
        cpu_v1(&self.dir("cpuacct", cgroup)?, self.dir("cpu", cgroup).as_deref(), details)
    }

    /// Everything about a cgroup but its processes; `None` if it does not exist.
    pub(super) fn read(&self, cgroup: &str, at: Timestamp, details: bool) -> Option<GroupUse> {
        let base = self.base(cgroup)?;
        let made = fs::metadata(&base).ok()?;
        let mut found = GroupUse {
            name: if cgroup.is_empty() { "/".to_owned() } else { cgroup.to_owned() },
            at,
            created: created(&base, &made),
            cpu: self.cpu(cgroup, details),
            memory: self.memory(cgroup, details).ok(),
            ..GroupUse::default()
        };
        if self.is_v2() {
            found.io_pressure = pressure(&base.join("io.pressure"));
        }
        if details {
            found.io = self.io(cgroup);
        }
        // A cgroup that was removed meanwhile has nothing.
        (found.cpu.is_some() || found.memory.is_some()).then_some(found)
    }

    fn io(&self, cgroup: &str) -> Vec<super::DeviceIo> {
        let Some(dir) = self.dir("blkio", cgroup) else { return Vec::new() };
        if self.is_v2() {
            return parse::io_stat(&text(&dir.join("io.stat")).unwrap_or_default());
        }
        let of = |file: &str| text(&dir.join(file)).unwrap_or_default();
        parse::blkio(
            &of("blkio.throttle.io_service_bytes_recursive"),
            &of("blkio.throttle.io_serviced_recursive"),
        )
    }

    /// The IDs of the processes in the cgroup itself.
    pub(super) fn pids(&self, cgroup: &str) -> Option<Vec<u32>> {
        let text = text(&self.base(cgroup)?.join("cgroup.procs"))?;
        Some(parse::pids(&text).collect())
    }

    /// The IDs of a container's processes. With version 2 a runtime or an init system may have put all of them into cgroups below
    /// the container's own one.
    pub(super) fn pids_of_container(&self, cgroup: &str) -> Option<Vec<u32>> {
        let own = self.pids(cgroup)?;
        if !own.is_empty() || !self.is_v2() {
            return Some(own);
        }
        Some(pids_below(self.base(cgroup)?).unwrap_or_default())
    }

    /// How many processes these are, and with details how many tasks the cgroup has.
    pub(super) fn processes(&self, cgroup: &str, pids: &[u32], details: bool) -> ProcessUse {
        let mut found = ProcessUse { count: pids.len() as u64, ..ProcessUse::default() };
        if let Some(dir) = self.dir("pids", cgroup).filter(|_| details) {
            found.threads = number(&dir.join("pids.current"));
            found.threads_max = number(&dir.join("pids.max"));
        }
        found
    }
}

/// The IDs of the processes in the cgroups below a directory; `None` if one of them goes meanwhile.
fn pids_below(dir: PathBuf) -> Option<Vec<u32>> {
    let (mut found, mut waiting, mut left) = (Vec::new(), vec![dir], CGROUPS_BELOW_MAX);
    while let Some(dir) = waiting.pop() {
        for below in fs::read_dir(dir).ok()?.flatten() {
            if left == 0 || !below.file_type().is_ok_and(|it| it.is_dir()) {
                continue;
            }
            left -= 1;
            found.extend(parse::pids(&text(&below.path().join("cgroup.procs")).unwrap_or_default()));
            waiting.push(below.path());
        }
    }
    Some(found)
}

/// The directory's own time changes with each cgroup below it; a file that is never written keeps the time of its making.
fn created(dir: &Path, made: &fs::Metadata) -> Option<Timestamp> {
    let of = |metadata: &fs::Metadata| Timestamp::try_from(metadata.modified().ok()?).ok();
    let files = ["cgroup.clone_children", "cgroup.events"].map(|file| dir.join(file));
    let files = files.iter().filter_map(|file| of(&fs::metadata(file).ok()?));
    files.chain(of(made)).min()
}

fn text(path: &Path) -> Option<String> {
    tenant_files::kernel_text(path).ok()
}

/// The number in a file; `None` also for `max`.
fn number(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

fn limit(path: &Path) -> Option<u64> {
    files::limit(path).ok().flatten()
}

fn pressure(path: &Path) -> Option<Pressure> {
    parse::pressure(&text(path)?)
}

fn cpu_v1(acct: &Path, cpu: Option<&Path>, details: bool) -> Option<CpuUse> {
    let mut found = CpuUse { total_ns: number(&acct.join("cpuacct.usage"))?, ..CpuUse::default() };
    if !details {
        return Some(found);
    }
    let stat = text(&acct.join("cpuacct.stat")).unwrap_or_default();
    let stat = parse::keyed(&stat);
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let ns = |ticks_used: &u64| ticks_used.saturating_mul(NS_PER_SECOND / ticks);
    (found.user_ns, found.system_ns) = (stat.get("user").map(ns), stat.get("system").map(ns));
    if let Some(dir) = cpu {
        let stat = text(&dir.join("cpu.stat")).unwrap_or_default();
        let stat = parse::keyed(&stat);
        let of = |key: &str| stat.get(key).copied().unwrap_or(0);
        found.throttling = Throttling {
            periods: of("nr_periods"),
            throttled_periods: of("nr_throttled"),
            throttled_ns: of("throttled_time"),
            burst_periods: of("nr_bursts"),
            burst_ns: of("burst_time"),
        };
        found.shares = number(&dir.join("cpu.shares"));
        found.period_us = number(&dir.join("cpu.cfs_period_us"));
        // -1 is no number here, and no bound.
        found.quota_us = number(&dir.join("cpu.cfs_quota_us")).filter(|quota| *quota > 0);
    }
    Some(found)
}

fn cpu_v2(dir: &Path, details: bool) -> Option<CpuUse> {
    let stat = text(&dir.join("cpu.stat"))?;
    let stat = parse::keyed(&stat);
    let ns = |key: &str| stat.get(key).map(|us| us.saturating_mul(1000));
    let count = |key: &str| stat.get(key).copied().unwrap_or(0);
    let mut found = CpuUse {
        total_ns: ns("usage_usec")?,
        user_ns: ns("user_usec"),
        system_ns: ns("system_usec"),
        throttling: Throttling {
            periods: count("nr_periods"),
            throttled_periods: count("nr_throttled"),
            throttled_ns: ns("throttled_usec").unwrap_or(0),
            burst_periods: count("nr_bursts"),
            burst_ns: ns("burst_usec").unwrap_or(0),
        },
        pressure: pressure(&dir.join("cpu.pressure")),
        ..CpuUse::default()
    };
    if details {
        found.shares = number(&dir.join("cpu.weight")).and_then(parse::shares);
        let max = text(&dir.join("cpu.max")).unwrap_or_default();
        let mut words = max.split_whitespace();
        found.quota_us = words.next().and_then(|quota| quota.parse().ok());
        found.period_us = words.next().and_then(|period| period.parse().ok());
    }
    Some(found)
}

/// The figures of a file, which the kernel never leaves empty: an empty one is that of a cgroup that is going.
fn figures<'a>(file: &Path, text: &'a str) -> Result<BTreeMap<&'a str, u64>, Problem> {
    let found = parse::keyed(text);
    if found.is_empty() { Err(format!("{} has no figures", file.display())) } else { Ok(found) }
}

fn memory_v1(dir: &Path, details: bool) -> Result<MemoryUse, Problem> {
    let usage = files::number(&dir.join("memory.usage_in_bytes"))?;
    let file = dir.join("memory.stat");
    let stat = files::text(&file)?;
    let stat = figures(&file, &stat)?;
    // With those of the cgroups below, where the kernel counts them together.
    let of = |key: &str| {
        let total = format!("total_{key}");
        stat.get(total.as_str()).or_else(|| stat.get(key)).copied()
    };
    let inactive_file = stat.get("total_inactive_file").copied().unwrap_or(0);
    let mut found = MemoryUse {
        usage,
        working_set: usage.saturating_sub(inactive_file),
        limit: limit(&dir.join("memory.limit_in_bytes")),
        rss: of("rss").unwrap_or(0),
        cache: of("cache").unwrap_or(0),
        mapped_file: of("mapped_file").unwrap_or(0),
        active_file: of("active_file").unwrap_or(0),
        inactive_file,
        // Those of the cgroup itself, as upstream.
        page_faults: stat.get("pgfault").copied().unwrap_or(0),
        major_page_faults: stat.get("pgmajfault").copied().unwrap_or(0),
        swap: of("swap"),
        swap_limit: limit(&dir.join("memory.memsw.limit_in_bytes")),
        ..MemoryUse::default()
    };
    if details {
        found.reservation = limit(&dir.join("memory.soft_limit_in_bytes"));
        found.max_usage = number(&dir.join("memory.max_usage_in_bytes"));
        found.failures = number(&dir.join("memory.failcnt"));
        found.kernel = number(&dir.join("memory.kmem.usage_in_bytes"));
        let oom = text(&dir.join("memory.oom_control")).unwrap_or_default();
        found.oom_kills = parse::keyed(&oom).get("oom_kill").copied();
    }
    Ok(found)
}

/// The root cgroup has no `memory.current`; there the usage is `anon` plus `file`, which is what version 1 counts.
fn memory_v2(dir: &Path, is_root: bool, details: bool) -> Result<MemoryUse, Problem> {
    let file = dir.join("memory.stat");
    let stat = files::text(&file)?;
    let stat = figures(&file, &stat)?;
    let of = |key: &str| stat.get(key).copied().unwrap_or(0);
    let usage = if is_root {
        let of = |key| stat.get(key).ok_or_else(|| format!("{} has no {key}", file.display()));
        of("anon")?.saturating_add(*of("file")?)
    } else {
        files::number(&dir.join("memory.current"))?
    };
    let mut found = MemoryUse {
        usage,
        working_set: usage.saturating_sub(of("inactive_file")),
        limit: limit(&dir.join("memory.max")),
        rss: of("anon"),
        cache: of("file"),
        mapped_file: of("file_mapped"),
        active_file: of("active_file"),
        inactive_file: of("inactive_file"),
        page_faults: of("pgfault"),
        major_page_faults: of("pgmajfault"),
        kernel: stat.get("kernel").copied(),
        swap: number(&dir.join("memory.swap.current")),
        swap_limit: limit(&dir.join("memory.swap.max")),
        pressure: pressure(&dir.join("memory.pressure")),
        ..MemoryUse::default()
    };
    if details {
        found.reservation = number(&dir.join("memory.min"));
        found.max_usage = number(&dir.join("memory.peak"));
        let events = text(&dir.join("memory.events")).unwrap_or_default();
        let events = parse::keyed(&events);
        (found.failures, found.oom_kills) = (events.get("max").copied(), events.get("oom_kill").copied());
    }
    Ok(found)
}
