//! PURE: the series of a cgroup.

use std::sync::Arc;

use bridge_node::stats::usage::{
    CpuUse, DeviceIo, DiskCounts, Interface, MemoryUse, Pressure, ProcessUse, Space, Throttling, Traffic,
};
use messages::stats::FamilyKind;

use super::{More, Subject};
use crate::resource::{float, seconds};
use FamilyKind::{Counter, Gauge};

/// One family: its values for a cgroup, each with its labels besides the cgroup's own.
pub(crate) struct Row {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: FamilyKind,
    /// The values carry the time of the reading.
    pub(super) timed: bool,
    pub(super) values: fn(&Subject<'_>) -> Values,
}

type Values = Vec<(More, f64)>;

fn one(value: Option<f64>) -> Values {
    value.into_iter().map(|value| (Vec::new(), value)).collect()
}

fn cpu(subject: &Subject<'_>, figure: fn(&CpuUse) -> Option<u64>) -> Option<u64> {
    subject.group.cpu.as_ref().and_then(figure)
}

/// Figures of a quota, which only a cgroup with a quota has.
fn quota(subject: &Subject<'_>, figure: fn(&Throttling) -> u64) -> Option<u64> {
    let cpu = subject.group.cpu.as_ref().filter(|cpu| cpu.quota_us.is_some())?;
    Some(figure(&cpu.throttling))
}

fn memory(subject: &Subject<'_>, figure: fn(&MemoryUse) -> Option<u64>) -> Values {
    one(subject.group.memory.as_ref().and_then(figure).map(float))
}

fn processes(subject: &Subject<'_>, figure: fn(&ProcessUse) -> Option<u64>) -> Values {
    one(subject.group.processes.as_ref().and_then(figure).map(float))
}

fn pressure(pressure: Option<Pressure>, figure: fn(&Pressure) -> u64) -> Values {
    one(pressure.as_ref().map(|pressure| float(figure(pressure)) / 1e6))
}

fn device_name(subject: &Subject<'_>, io: &DeviceIo) -> Arc<str> {
    let numbers = format!("{}:{}", io.device.0, io.device.1);
    Arc::from(subject.devices.get(&numbers).unwrap_or(&numbers).as_str())
}

fn io(subject: &Subject<'_>, figure: fn(&DeviceIo) -> Option<&u64>) -> Values {
    let of = |io: &DeviceIo| Some((vec![("device", device_name(subject, io))], float(*figure(io)?)));
    subject.group.io.iter().filter_map(of).collect()
}

fn blkio(subject: &Subject<'_>) -> Values {
    let of = |io: &DeviceIo| {
        let device = device_name(subject, io);
        let number = |number: u32| -> Arc<str> { Arc::from(number.to_string()) };
        let (major, minor) = (number(io.device.0), number(io.device.1));
        let one = |(operation, bytes): (&String, &u64)| {
            let labels = vec![
                ("device", device.clone()),
                ("major", major.clone()),
                ("minor", minor.clone()),
                ("operation", Arc::from(operation.as_str())),
            ];
            (labels, float(*bytes))
        };
        io.bytes.iter().map(one).collect::<Values>()
    };
    subject.group.io.iter().flat_map(of).collect()
}

fn network(
    subject: &Subject<'_>,
    direction: fn(&Interface) -> &Traffic,
    figure: fn(&Traffic) -> u64,
) -> Values {
    let of = |interface: &Interface| {
        (vec![("interface", Arc::from(interface.name.as_str()))], float(figure(direction(interface))))
    };
    subject.network.iter().map(of).collect()
}

fn received(subject: &Subject<'_>, figure: fn(&Traffic) -> u64) -> Values {
    network(subject, |interface| &interface.received, figure)
}

fn sent(subject: &Subject<'_>, figure: fn(&Traffic) -> u64) -> Values {
    network(subject, |interface| &interface.sent, figure)
}

fn space(subject: &Subject<'_>, figure: fn(&Space) -> Option<u64>) -> Values {
    let of =
        |space: &&Space| Some((vec![("device", Arc::from(space.source.as_str()))], float(figure(space)?)));
    subject.spaces.iter().filter_map(of).collect()
}

/// A count of the block devices of the machine's file systems, which the kernel keeps for no cgroup.
fn disk(subject: &Subject<'_>, count: fn(&DiskCounts) -> f64) -> Values {
    let of = |space: &&Space| {
        Some((vec![("device", Arc::from(space.source.as_str()))], count(space.disk.as_ref()?)))
    };
    subject.spaces.iter().filter_map(of).collect()
}

/// A count of operations: of the cgroup, or of whole devices for a root of which the kernel counts none.
fn operations(subject: &Subject<'_>, operation: &str, count: fn(&DiskCounts) -> f64) -> Values {
    if subject.group.io.is_empty() {
        return disk(subject, count);
    }
    let of = |io: &DeviceIo| {
        Some((vec![("device", device_name(subject, io))], float(*io.operations.get(operation)?)))
    };
    subject.group.io.iter().filter_map(of).collect()
}

fn ms(count: u64) -> f64 {
    float(count) / 1e3
}

fn failures(subject: &Subject<'_>) -> Values {
    let Some(memory) = &subject.group.memory else { return Vec::new() };
    let kinds = [("pgfault", memory.page_faults), ("pgmajfault", memory.major_page_faults)];
    let scopes = ["container", "hierarchy"];
    let all = scopes.into_iter().flat_map(|scope| kinds.map(|(kind, count)| (scope, kind, count)));
    all.map(|(scope, kind, count)| {
        (vec![("failure_type", Arc::from(kind)), ("scope", Arc::from(scope))], float(count))
    })
    .collect()
}

/// A figure that only containers have.
fn of_container(subject: &Subject<'_>, figure: impl FnOnce(&Subject<'_>) -> Values) -> Values {
    if subject.container.is_empty() { Values::new() } else { figure(subject) }
}

fn limits(subject: &Subject<'_>) -> Values {
    let limit = subject.group.processes.and_then(|all| all.files_max);
    limit.map(|limit| (vec![("ulimit", Arc::from("max_open_files"))], float(limit))).into_iter().collect()
}

/// A row with the time of its reading.
const fn row(
    name: &'static str,
    kind: FamilyKind,
    help: &'static str,
    values: fn(&Subject<'_>) -> Values,
) -> Row {
    Row { name, help, kind, timed: true, values }
}

/// A row of what a cgroup is and not of what it does, which has no time.
const fn fixed(
    name: &'static str,
    kind: FamilyKind,
    help: &'static str,
    values: fn(&Subject<'_>) -> Values,
) -> Row {
    Row { name, help, kind, timed: false, values }
}

/// All families of cgroups, by name.
pub(crate) const ROWS: &[Row] = &[
    row(
        "container_blkio_device_usage_total",
        Counter,
        "Bytes read from and written to the device, by operation",
        blkio,
    ),
    row(
        "container_cpu_cfs_burst_periods_total",
        Counter,
        "Periods with a burst beyond the CPU quota",
        |it| one(quota(it, |quota| quota.burst_periods).map(float)),
    ),
    row(
        "container_cpu_cfs_burst_seconds_total",
        Counter,
        "CPU time beyond the CPU quota, in seconds",
        |it| one(quota(it, |quota| quota.burst_ns).map(seconds)),
    ),
    row("container_cpu_cfs_periods_total", Counter, "Periods of the CPU quota that have passed", |it| {
        one(quota(it, |quota| quota.periods).map(float))
    }),
    row(
        "container_cpu_cfs_throttled_periods_total",
        Counter,
        "Periods in which the CPU quota ran out",
        |it| one(quota(it, |quota| quota.throttled_periods).map(float)),
    ),
    row(
        "container_cpu_cfs_throttled_seconds_total",
        Counter,
        "Time that tasks waited for the next period of the CPU quota, in seconds",
        |it| one(quota(it, |quota| quota.throttled_ns).map(seconds)),
    ),
    row("container_cpu_system_seconds_total", Counter, "CPU time in the kernel, in seconds", |it| {
        one(cpu(it, |cpu| cpu.system_ns).map(seconds))
    }),
    row("container_cpu_usage_seconds_total", Counter, "CPU time, in seconds", |it| {
        cpu(it, |cpu| Some(cpu.total_ns))
            .map(|nanos| (vec![("cpu", Arc::from("total"))], seconds(nanos)))
            .into_iter()
            .collect()
    }),
    row("container_cpu_user_seconds_total", Counter, "CPU time in user mode, in seconds", |it| {
        one(cpu(it, |cpu| cpu.user_ns).map(seconds))
    }),
    row("container_file_descriptors", Gauge, "Open files", |it| processes(it, |all| all.files)),
    row("container_fs_inodes_free", Gauge, "Inodes left on the file system", |it| {
        space(it, |space| space.inodes_free)
    }),
    row("container_fs_inodes_total", Gauge, "Inodes of the file system", |it| {
        space(it, |space| space.inodes)
    }),
    row("container_fs_io_current", Gauge, "Reads and writes of the device that are under way", |it| {
        disk(it, |disk| float(disk.under_way))
    }),
    row(
        "container_fs_io_time_seconds_total",
        Counter,
        "Time in which the device was busy, in seconds",
        |it| disk(it, |disk| ms(disk.busy_ms)),
    ),
    row(
        "container_fs_io_time_weighted_seconds_total",
        Counter,
        "Time in which the device was busy, once for each operation under way, in seconds",
        |it| disk(it, |disk| ms(disk.weighted_ms)),
    ),
    row("container_fs_limit_bytes", Gauge, "Size of the file system, in bytes", |it| {
        space(it, |space| Some(space.capacity))
    }),
    row("container_fs_read_seconds_total", Counter, "Time that reads of the device took, in seconds", |it| {
        disk(it, |disk| ms(disk.read_ms))
    }),
    row("container_fs_reads_bytes_total", Counter, "Bytes read from the device", |it| {
        io(it, |io| io.bytes.get("Read"))
    }),
    row("container_fs_reads_merged_total", Counter, "Reads of the device merged with others", |it| {
        disk(it, |disk| float(disk.reads_merged))
    }),
    row("container_fs_reads_total", Counter, "Reads from the device", |it| {
        operations(it, "Read", |disk| float(disk.reads))
    }),
    row("container_fs_sector_reads_total", Counter, "Sectors read from the device", |it| {
        disk(it, |disk| float(disk.sectors_read))
    }),
    row("container_fs_sector_writes_total", Counter, "Sectors written to the device", |it| {
        disk(it, |disk| float(disk.sectors_written))
    }),
    row("container_fs_usage_bytes", Gauge, "Bytes in use on the file system", |it| {
        space(it, |space| Some(space.capacity.saturating_sub(space.free)))
    }),
    row(
        "container_fs_write_seconds_total",
        Counter,
        "Time that writes to the device took, in seconds",
        |it| disk(it, |disk| ms(disk.write_ms)),
    ),
    row("container_fs_writes_bytes_total", Counter, "Bytes written to the device", |it| {
        io(it, |io| io.bytes.get("Write"))
    }),
    row("container_fs_writes_merged_total", Counter, "Writes to the device merged with others", |it| {
        disk(it, |disk| float(disk.writes_merged))
    }),
    row("container_fs_writes_total", Counter, "Writes to the device", |it| {
        operations(it, "Write", |disk| float(disk.writes))
    }),
    row("container_last_seen", Gauge, "When the cgroup was last read, in seconds since the epoch", |it| {
        one(Some(it.group.at.as_duration().as_secs_f64().trunc()))
    }),
    row("container_memory_cache", Gauge, "Memory of files, in bytes", |it| {
        memory(it, |memory| Some(memory.cache))
    }),
    row("container_memory_failcnt", Counter, "How often the memory limit was hit", |it| {
        memory(it, |memory| memory.failures)
    }),
    row("container_memory_failures_total", Counter, "Page faults, by type", failures),
    row("container_memory_kernel_usage", Gauge, "Memory of the kernel, in bytes", |it| {
        memory(it, |memory| memory.kernel)
    }),
    row("container_memory_mapped_file", Gauge, "Memory of mapped files, in bytes", |it| {
        memory(it, |memory| Some(memory.mapped_file))
    }),
    row("container_memory_max_usage_bytes", Gauge, "The most memory in use so far, in bytes", |it| {
        memory(it, |memory| memory.max_usage)
    }),
    row("container_memory_rss", Gauge, "Anonymous memory, in bytes", |it| {
        memory(it, |memory| Some(memory.rss))
    }),
    row("container_memory_swap", Gauge, "Swap in use, in bytes", |it| memory(it, |memory| memory.swap)),
    row("container_memory_total_active_file_bytes", Gauge, "Memory of files in recent use, in bytes", |it| {
        memory(it, |memory| Some(memory.active_file))
    }),
    row(
        "container_memory_total_inactive_file_bytes",
        Gauge,
        "Memory of files that can be dropped, in bytes",
        |it| memory(it, |memory| Some(memory.inactive_file)),
    ),
    row("container_memory_usage_bytes", Gauge, "Memory in use, in bytes", |it| {
        memory(it, |memory| Some(memory.usage))
    }),
    row(
        "container_memory_working_set_bytes",
        Gauge,
        "Memory that cannot simply be dropped, in bytes",
        |it| memory(it, |memory| Some(memory.working_set)),
    ),
    row("container_network_receive_bytes_total", Counter, "Bytes received", |it| {
        received(it, |traffic| traffic.bytes)
    }),
    row(
        "container_network_receive_errors_total",
        Counter,
        "Packets that were not received for an error",
        |it| received(it, |traffic| traffic.errors),
    ),
    row(
        "container_network_receive_packets_dropped_total",
        Counter,
        "Packets that were dropped instead of received",
        |it| received(it, |traffic| traffic.dropped),
    ),
    row("container_network_receive_packets_total", Counter, "Packets received", |it| {
        received(it, |traffic| traffic.packets)
    }),
    row("container_network_transmit_bytes_total", Counter, "Bytes sent", |it| {
        sent(it, |traffic| traffic.bytes)
    }),
    row(
        "container_network_transmit_errors_total",
        Counter,
        "Packets that were not sent for an error",
        |it| sent(it, |traffic| traffic.errors),
    ),
    row(
        "container_network_transmit_packets_dropped_total",
        Counter,
        "Packets that were dropped instead of sent",
        |it| sent(it, |traffic| traffic.dropped),
    ),
    row("container_network_transmit_packets_total", Counter, "Packets sent", |it| {
        sent(it, |traffic| traffic.packets)
    }),
    // With version 2 the cgroups above count the same kills.
    row(
        "container_oom_events_total",
        Counter,
        "Processes of the container killed for want of memory",
        |it| of_container(it, |it| memory(it, |memory| memory.oom_kills)),
    ),
    row(
        "container_pressure_cpu_stalled_seconds_total",
        Counter,
        "Time that all tasks waited for CPU, in seconds",
        |it| pressure(it.group.cpu.and_then(|cpu| cpu.pressure), |all| all.full.total_us),
    ),
    row(
        "container_pressure_cpu_waiting_seconds_total",
        Counter,
        "Time that a task waited for CPU, in seconds",
        |it| pressure(it.group.cpu.and_then(|cpu| cpu.pressure), |all| all.some.total_us),
    ),
    row(
        "container_pressure_io_stalled_seconds_total",
        Counter,
        "Time that all tasks waited for input and output, in seconds",
        |it| pressure(it.group.io_pressure, |all| all.full.total_us),
    ),
    row(
        "container_pressure_io_waiting_seconds_total",
        Counter,
        "Time that a task waited for input and output, in seconds",
        |it| pressure(it.group.io_pressure, |all| all.some.total_us),
    ),
    row(
        "container_pressure_memory_stalled_seconds_total",
        Counter,
        "Time that all tasks waited for memory, in seconds",
        |it| pressure(it.group.memory.and_then(|memory| memory.pressure), |all| all.full.total_us),
    ),
    row(
        "container_pressure_memory_waiting_seconds_total",
        Counter,
        "Time that a task waited for memory, in seconds",
        |it| pressure(it.group.memory.and_then(|memory| memory.pressure), |all| all.some.total_us),
    ),
    row("container_processes", Gauge, "Processes", |it| processes(it, |all| Some(all.count))),
    row("container_sockets", Gauge, "Open sockets", |it| processes(it, |all| all.sockets)),
    fixed("container_spec_cpu_period", Gauge, "Length of a period of the CPU quota, in microseconds", |it| {
        one(cpu(it, |cpu| cpu.period_us).map(float))
    }),
    fixed("container_spec_cpu_quota", Gauge, "CPU time per period, in microseconds", |it| {
        one(cpu(it, |cpu| cpu.quota_us).map(float))
    }),
    fixed("container_spec_cpu_shares", Gauge, "Share of CPU", |it| one(cpu(it, |cpu| cpu.shares).map(float))),
    fixed("container_spec_memory_limit_bytes", Gauge, "Limit of memory, in bytes; 0 without a limit", |it| {
        one(it.group.memory.map(|_| float(it.limits.0.unwrap_or(0))))
    }),
    fixed(
        "container_spec_memory_reservation_limit_bytes",
        Gauge,
        "Memory that is kept back, in bytes; 0 if none is",
        |it| one(it.group.memory.map(|memory| float(memory.reservation.unwrap_or(0)))),
    ),
    fixed(
        "container_spec_memory_swap_limit_bytes",
        Gauge,
        "Limit of swap, in bytes; 0 without a limit",
        |it| one(it.group.memory.map(|_| float(it.limits.1.unwrap_or(0)))),
    ),
    fixed(
        "container_start_time_seconds",
        Gauge,
        "When the cgroup was made, in seconds since the epoch",
        |it| one(it.group.created.map(|at| at.as_duration().as_secs_f64().trunc())),
    ),
    row("container_threads", Gauge, "Tasks", |it| processes(it, |all| all.threads)),
    row("container_threads_max", Gauge, "The most tasks; 0 without a limit", |it| {
        processes(it, |all| all.threads.map(|_| all.threads_max.unwrap_or(0)))
    }),
    row("container_ulimits_soft", Gauge, "Soft limits of the container's first process", |it| {
        of_container(it, limits)
    }),
];
