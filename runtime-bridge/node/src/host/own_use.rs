//! What the kubelet's own process uses.

/// The length of a tick of the CPU time in `/proc`, which Linux fixes for programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// Figures of the kubelet's own process; one that the kernel does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnUse {
    /// CPU time so far.
    pub cpu_seconds: Option<f64>,
    /// When it began, in seconds since the epoch.
    pub began_seconds: Option<f64>,
    /// Open files.
    pub files: Option<f64>,
    /// The most files that may be open.
    pub files_max: Option<f64>,
    /// Memory that is mapped.
    pub virtual_bytes: Option<f64>,
    /// The most memory that may be mapped.
    pub virtual_bytes_max: Option<f64>,
    /// Memory that is present.
    pub resident_bytes: Option<f64>,
    /// Bytes that the network namespace has received.
    pub received_bytes: Option<f64>,
    /// Bytes that the network namespace has sent.
    pub sent_bytes: Option<f64>,
}

impl OwnUse {
    /// Reads the figures: a few small files that the kernel makes up, and that no disk delays.
    #[must_use]
    pub fn read() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let page = rustix::param::page_size();
        let files = std::fs::read_dir("/proc/self/fd").ok();
        Self {
            // The directory itself is open while it is read.
            files: files.map(|files| float(files.count().saturating_sub(1))),
            ..Self::of(
                &text("/proc/self/stat"),
                &text("/proc/stat"),
                &text("/proc/self/limits"),
                &text("/proc/self/net/netstat"),
                float(page),
            )
        }
    }

    /// PURE: the figures from the texts of these files.
    fn of(own: &str, machine: &str, limits: &str, net: &str, page_bytes: f64) -> Self {
        // The name of the command may have spaces, and stands in brackets.
        let fields: Vec<&str> =
            own.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| rest.split_ascii_whitespace().collect());
        // Counted from 1 in the manual, where the state behind the name is the third field.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let boot = machine.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
        let (received_bytes, sent_bytes) = (octets(net, "InOctets"), octets(net, "OutOctets"));
        Self {
            cpu_seconds: field(14).zip(field(15)).map(|(user, system)| (user + system) / TICKS_PER_SECOND),
            began_seconds: field(22).zip(boot).map(|(ticks, boot)| boot + ticks / TICKS_PER_SECOND),
            files: None,
            files_max: limit(limits, "Max open files"),
            virtual_bytes: field(23),
            virtual_bytes_max: limit(limits, "Max address space"),
            resident_bytes: field(24).map(|pages| pages * page_bytes),
            received_bytes,
            sent_bytes,
        }
    }
}

/// A soft limit; `unlimited` is the largest number of bytes, as upstream shows it.
fn limit(limits: &str, name: &str) -> Option<f64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match rest.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

/// A counter of the lines `IpExt`, of which the first has the names and the second the values.
fn octets(net: &str, name: &str) -> Option<f64> {
    let mut lines = net.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    pairs.find(|(known, _)| *known == name)?.1.parse().ok()
}

#[allow(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_the_kernels_texts() {
        let own = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 17 18 1000 2048 3 21";
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n\
                      Max address space  unlimited  unlimited  bytes\n";
        let net = "TcpExt: A\nTcpExt: 1\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 11 22\n";
        let found = OwnUse::of(own, "cpu 1\nbtime 1000\n", limits, net, 4096.0);
        let expected = OwnUse {
            cpu_seconds: Some(2.0),
            began_seconds: Some(1010.0),
            files: None,
            files_max: Some(1024.0),
            virtual_bytes: Some(2048.0),
            virtual_bytes_max: Some(u64::MAX as f64),
            resident_bytes: Some(12288.0),
            received_bytes: Some(11.0),
            sent_bytes: Some(22.0),
        };
        assert_eq!(found, expected);
        assert_eq!(OwnUse::of("", "", "", "", 1.0), OwnUse::default());
    }

    #[test]
    fn this_process_has_figures() {
        let own = OwnUse::read();
        let all = [own.began_seconds, own.files, own.files_max, own.virtual_bytes, own.resident_bytes];
        assert!(all.into_iter().all(|figure| figure.is_some_and(|figure| figure > 0.0)), "{own:?}");
    }
}
