//! CPU and memory of processes, from the kernel.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

/// CPU time that a process has used since its start, user and system. The kernel rounds down to 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// CPU of all its threads, ended ones too, in seconds.
    pub own_s: f64,
    /// Its children that have ended and were waited for, in seconds.
    pub children_s: f64,
}

impl Cpu {
    /// Of the process; `None` once it is gone.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name is in parentheses and may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        // utime, stime, cutime and cstime are fields 14 to 17 of proc(5); the first here is field 3.
        let seconds = |field: usize| Some(fields.get(field - 3)?.parse::<u64>().ok()? as f64 / per_second);
        Some(Self { own_s: seconds(14)? + seconds(15)?, children_s: seconds(16)? + seconds(17)? })
    }

    /// CPU of the process and its children.
    pub fn all_s(self) -> f64 {
        self.own_s + self.children_s
    }

    /// CPU used since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self { own_s: self.own_s - earlier.own_s, children_s: self.children_s - earlier.children_s }
    }
}

/// Memory of a process, in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// Resident, shared pages counted whole.
    pub rss_mib: f64,
    /// The most that was ever resident.
    pub peak_mib: f64,
    /// Resident, shared pages counted by their share.
    pub pss_mib: f64,
}

impl Memory {
    /// Of the process; `None` once it is gone.
    pub fn of(pid: u32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? / 1024.0)
        };
        Some(Self {
            rss_mib: field(&status, "VmRSS")?,
            peak_mib: field(&status, "VmHWM")?,
            pss_mib: field(&rollup, "Pss")?,
        })
    }
}

/// The runtime's shims: the processes that were told its socket.
pub fn shims(socket: &Path) -> Vec<u32> {
    let socket = socket.as_os_str().as_encoded_bytes();
    let ttrpc = [socket, b".ttrpc"].concat();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.split(|byte| *byte == 0).any(|word| word == socket || word == ttrpc)
        })
        .collect()
}

/// CPU time of the runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RuntimeCpu {
    /// containerd itself, and the plugins and shims' starters that it waited for.
    pub containerd: Cpu,
    /// The shims that live, and the runcs that they waited for. What a shim used is lost with it.
    pub shims: Cpu,
}

impl RuntimeCpu {
    /// The CPU time so far.
    pub fn of(containerd: u32, socket: &Path) -> Self {
        let shims = shims(socket).into_iter().filter_map(Cpu::of).fold(Cpu::default(), |sum, cpu| Cpu {
            own_s: sum.own_s + cpu.own_s,
            children_s: sum.children_s + cpu.children_s,
        });
        Self { containerd: Cpu::of(containerd).unwrap_or_default(), shims }
    }

    /// CPU used since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self { containerd: self.containerd.since(earlier.containerd), shims: self.shims.since(earlier.shims) }
    }
}

/// CPU seconds that the whole machine has been busy with, guests and interrupts included.
pub fn machine_busy_s() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq: all but idle and iowait.
    let busy: u64 =
        fields.iter().take(7).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, n)| n).sum();
    Some(busy as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The average number of tasks that ran or wanted to in the last minute, by which the figures can be judged.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|minute| minute.parse().ok()).unwrap_or(f64::NAN)
}

/// How long something took, in seconds.
pub fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
