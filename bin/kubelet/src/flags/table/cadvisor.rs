//! Flags of cAdvisor that upstream still accepts. This kubelet does not contain cAdvisor.

use super::super::FlagRow;
use super::super::kind::{Bool, Duration, Int64, Str};
use super::cadvisor_flag;

pub(super) const ROWS: &[FlagRow] = &[
    cadvisor_flag!("application-metrics-count-limit", Int64, "100", "Application metrics kept per container"),
    cadvisor_flag!("boot-id-file", Str, "/proc/sys/kernel/random/boot_id", "File with the boot ID"),
    cadvisor_flag!(
        "container-hints",
        Str,
        "/etc/cadvisor/container_hints.json",
        "File with hints on containers"
    ),
    cadvisor_flag!("containerd", Str, "/run/containerd/containerd.sock", "containerd's socket"),
    cadvisor_flag!("containerd-namespace", Str, "k8s.io", "containerd's namespace"),
    cadvisor_flag!("enable-load-reader", Bool, "false", "Read CPU load"),
    cadvisor_flag!("event-storage-age-limit", Str, "default=0", "Age of stored events, by kind"),
    cadvisor_flag!("event-storage-event-limit", Str, "default=0", "Number of stored events, by kind"),
    cadvisor_flag!("global-housekeeping-interval", Duration, "1m0s", "Time between two global housekeepings"),
    cadvisor_flag!("log-cadvisor-usage", Bool, "false", "Log the usage of cAdvisor itself"),
    cadvisor_flag!(
        "machine-id-file",
        Str,
        "/etc/machine-id,/var/lib/dbus/machine-id",
        "Files with the machine ID"
    ),
    cadvisor_flag!(
        "storage-driver-buffer-duration",
        Duration,
        "1m0s",
        "Time that writes to the storage driver are buffered"
    ),
    cadvisor_flag!("storage-driver-db", Str, "cadvisor", "Database of the storage driver"),
    cadvisor_flag!("storage-driver-host", Str, "localhost:8086", "Host of the storage driver"),
    cadvisor_flag!("storage-driver-password", Str, "root", "Password of the storage driver"),
    cadvisor_flag!("storage-driver-secure", Bool, "false", "Reach the storage driver over TLS"),
    cadvisor_flag!("storage-driver-table", Str, "stats", "Table of the storage driver"),
    cadvisor_flag!("storage-driver-user", Str, "root", "User of the storage driver"),
];
