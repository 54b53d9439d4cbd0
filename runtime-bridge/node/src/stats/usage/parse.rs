//! PURE: the texts of the kernel's files.

use std::collections::{BTreeMap, BTreeSet};

use super::super::files::pair;
use super::{DeviceIo, DiskCounts, Interface, Pressure, Processors, Stalled, Traffic};

/// The most devices of one cgroup that are taken in.
const DEVICES_MAX: usize = 256;
/// The operations on devices that version 1 counts; the last line of its files, a total of all devices, has none.
const OPERATIONS: [&str; 6] = ["Read", "Write", "Sync", "Async", "Discard", "Total"];
/// Interfaces that are no pod's or node's own way out, as upstream leaves them out.
const IGNORED_INTERFACES: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];

/// Lines of a key and a number each.
pub fn keyed(text: &str) -> BTreeMap<&str, u64> {
    text.lines().filter_map(pair).collect()
}

/// The IDs of `cgroup.procs`.
pub fn pids(text: &str) -> impl Iterator<Item = u32> {
    text.lines().filter_map(|line| line.trim().parse().ok())
}

/// A file of pressure: a line `some` and a line `full`.
pub fn pressure(text: &str) -> Option<Pressure> {
    let mut found = Pressure::default();
    let mut any = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let to = match words.next() {
            Some("some") => &mut found.some,
            Some("full") => &mut found.full,
            _ => continue,
        };
        *to = stalled(words)?;
        any = true;
    }
    any.then_some(found)
}

fn stalled<'a>(words: impl Iterator<Item = &'a str>) -> Option<Stalled> {
    let mut found = Stalled::default();
    for word in words {
        let (key, value) = word.split_once('=')?;
        match key {
            "avg10" => found.avg10 = percent(value)?,
            "avg60" => found.avg60 = percent(value)?,
            "avg300" => found.avg300 = percent(value)?,
            "total" => found.total_us = value.parse().ok()?,
            _ => {}
        }
    }
    Some(found)
}

fn percent(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn device(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The devices of version 1, from `blkio.throttle.io_service_bytes_recursive` and `…io_serviced_recursive`.
pub fn blkio(bytes: &str, operations: &str) -> Vec<DeviceIo> {
    let mut found: BTreeMap<(u32, u32), DeviceIo> = BTreeMap::new();
    for (text, is_bytes) in [(bytes, true), (operations, false)] {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(of), Some(operation), Some(value)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let (Some(of), Ok(value)) = (device(of), value.parse()) else { continue };
            let is_full = found.len() >= DEVICES_MAX && !found.contains_key(&of);
            if is_full || !OPERATIONS.contains(&operation) {
                continue;
            }
            let entry = found.entry(of).or_insert_with(|| DeviceIo { device: of, ..DeviceIo::default() });
            let to = if is_bytes { &mut entry.bytes } else { &mut entry.operations };
            to.insert(operation.to_owned(), value);
        }
    }
    found.into_values().collect()
}

/// The devices of version 2: `io.stat`.
pub fn io_stat(text: &str) -> Vec<DeviceIo> {
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let mut found = DeviceIo { device: device(words.next()?)?, ..DeviceIo::default() };
        for word in words {
            let Some((key, value)) = word.split_once('=') else { continue };
            let Ok(value) = value.parse() else { continue };
            let (to, operation) = match key {
                "rbytes" => (&mut found.bytes, "Read"),
                "wbytes" => (&mut found.bytes, "Write"),
                "rios" => (&mut found.operations, "Read"),
                "wios" => (&mut found.operations, "Write"),
                _ => continue,
            };
            to.insert(operation.to_owned(), value);
        }
        (!found.bytes.is_empty() || !found.operations.is_empty()).then_some(found)
    };
    // The last line of a device counts, as upstream.
    let by_device: BTreeMap<(u32, u32), DeviceIo> =
        text.lines().filter_map(one).take(DEVICES_MAX).map(|found| (found.device, found)).collect();
    by_device.into_values().collect()
}

/// The first interfaces of `/proc/<pid>/net/dev`; `None` if a line has another form, since no figure can be trusted then.
pub fn interfaces(text: &str, max: usize) -> Option<Vec<Interface>> {
    let mut found = Vec::new();
    for line in text.lines().skip(2) {
        if found.len() >= max {
            break;
        }
        // A large count may follow the colon without a space.
        let (name, counts) = line.split_once(':')?;
        let name = name.trim();
        let counts: Vec<u64> = counts.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let &[rx_bytes, rx_packets, rx_errors, rx_dropped, _, _, _, _, bytes, packets, errors, dropped, ..] =
            counts.as_slice()
        else {
            return None;
        };
        let lower = name.to_lowercase();
        if IGNORED_INTERFACES.iter().any(|prefix| lower.starts_with(prefix)) {
            continue;
        }
        found.push(Interface {
            name: name.to_owned(),
            received: Traffic {
                bytes: rx_bytes,
                packets: rx_packets,
                errors: rx_errors,
                dropped: rx_dropped,
            },
            sent: Traffic { bytes, packets, errors, dropped },
        });
    }
    Some(found)
}

/// Names of block devices by their numbers, from `/proc/partitions`.
pub fn partitions(text: &str) -> BTreeMap<String, String> {
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, minor): (u32, u32) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let name = words.nth(1)?;
        Some((format!("{major}:{minor}"), format!("/dev/{name}")))
    };
    text.lines().filter_map(one).take(4096).collect()
}

/// What a block device of these numbers has done, from `/proc/diskstats`.
pub fn disk(text: &str, device: (u32, u32)) -> Option<DiskCounts> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let numbers = (words.next()?.parse::<u32>().ok()?, words.next()?.parse::<u32>().ok()?);
        if numbers != device {
            return None;
        }
        let counts: Vec<u64> = words.skip(1).map_while(|word| word.parse().ok()).collect();
        let &[
            reads,
            reads_merged,
            sectors_read,
            read_ms,
            writes,
            writes_merged,
            sectors_written,
            write_ms,
            under_way,
            busy_ms,
            weighted_ms,
            ..,
        ] = counts.as_slice()
        else {
            return None;
        };
        Some(DiskCounts {
            reads,
            reads_merged,
            sectors_read,
            read_ms,
            writes,
            writes_merged,
            sectors_written,
            write_ms,
            under_way,
            busy_ms,
            weighted_ms,
        })
    })
}

/// CPUs, cores and sockets, from `/proc/cpuinfo`. A machine that names neither cores nor sockets has one socket, and a core
/// for each CPU.
pub fn processors(text: &str) -> Option<Processors> {
    let (mut logical, mut socket) = (0, 0_u64);
    let (mut sockets, mut cores) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim().parse::<u64>();
        match key.trim() {
            "processor" => logical += 1,
            "physical id" => {
                socket = value.unwrap_or(0);
                sockets.insert(socket);
            }
            "core id" => drop(cores.insert((socket, value.unwrap_or(0)))),
            _ => {}
        }
    }
    let or = |count: usize, other: u64| if count == 0 { other } else { count as u64 };
    (logical > 0).then(|| Processors {
        logical,
        cores: or(cores.len(), logical),
        sockets: or(sockets.len(), 1),
    })
}

/// The second of the epoch in which the machine was started, from `/proc/stat`.
pub fn boot_second(text: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

/// The weight of version 2 as shares of version 1, as upstream shows it.
pub fn shares(weight: u64) -> Option<u64> {
    (1..=10_000).contains(&weight).then(|| 2 + (weight - 1) * 262_142 / 9999)
}

/// The soft limit of open files, from `/proc/<pid>/limits`; `None` without a bound.
pub fn files_max(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The cgroup of a process for accounting, from its `/proc/<pid>/cgroup`: that of the one hierarchy of version 2, or that in
/// which the process has both CPU and memory counted. systemd's own name for it is the same one where systemd counts them.
pub fn cgroup_of(text: &str, is_v2: bool) -> Option<String> {
    let mut by_controller = BTreeMap::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        for controller in controllers.split(',') {
            by_controller.insert(controller, path);
        }
    }
    let path = if is_v2 {
        by_controller.get("")?
    } else {
        let cpu = by_controller.get("cpu")?;
        (by_controller.get("memory") == Some(cpu)).then_some(cpu)?
    };
    Some((*path).to_owned())
}
