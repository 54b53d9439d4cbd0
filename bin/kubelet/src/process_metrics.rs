//! The metrics of the process itself: what it is, which node it serves, and what it uses.

use bridge_metrics::Registry;
use bridge_node::host::OwnUse;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGaugeVec, Opts};

use crate::KUBERNETES_VERSION;

/// Registers them.
///
/// # Errors
/// A metric of one of these names is registered already.
pub fn register(registry: &Registry, node: &str) -> prometheus::Result<()> {
    let name = Opts::new("kubelet_node_name", "[ALPHA] The name of the node, always 1.");
    let name = IntGaugeVec::new(name, &["node"])?;
    name.with_label_values(&[node]).set(1);
    registry.register(Box::new(name))?;
    registry.register(Box::new(build_info()?))?;
    registry.register(Box::new(ProcessCollector::new()?))
}

/// The version of Kubernetes that this kubelet takes the place of. What only a build of the Go kubelet has is empty.
fn build_info() -> prometheus::Result<IntGaugeVec> {
    let mut numbers = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = format!("{}/{architecture}", std::env::consts::OS);
    let labels = [
        ("build_date", ""),
        ("compiler", "rustc"),
        ("git_commit", ""),
        ("git_tree_state", ""),
        ("git_version", KUBERNETES_VERSION),
        ("go_version", ""),
        ("major", major),
        ("minor", minor),
        ("platform", platform.as_str()),
    ];
    let help =
        "[BETA] Always 1, labelled with the version of Kubernetes whose kubelet this one takes the place of.";
    let (names, values): (Vec<&str>, Vec<&str>) = labels.into_iter().unzip();
    let info = IntGaugeVec::new(Opts::new("kubernetes_build_info", help), &names)?;
    info.with_label_values(&values).set(1);
    Ok(info)
}

/// Reads what the process uses at each scrape.
struct ProcessCollector {
    descs: Vec<Desc>,
}

/// The gauges by name.
type GaugeOf = (&'static str, &'static str, fn(&OwnUse) -> Option<f64>);
const GAUGES: [GaugeOf; 6] = [
    ("process_max_fds", "The most files that may be open.", |own| own.files_max),
    ("process_open_fds", "Open files.", |own| own.files),
    ("process_resident_memory_bytes", "Memory that is present, in bytes.", |own| own.resident_bytes),
    ("process_start_time_seconds", "When the process began, in seconds since the epoch.", |own| {
        own.began_seconds
    }),
    ("process_virtual_memory_bytes", "Memory that is mapped, in bytes.", |own| own.virtual_bytes),
    ("process_virtual_memory_max_bytes", "The most memory that may be mapped, in bytes.", |own| {
        own.virtual_bytes_max
    }),
];
/// The counters by name.
const COUNTERS: [GaugeOf; 3] = [
    ("process_cpu_seconds_total", "CPU time of the process, in seconds.", |own| own.cpu_seconds),
    (
        "process_network_receive_bytes_total",
        "Bytes that the network namespace of the process has received.",
        |own| own.received_bytes,
    ),
    (
        "process_network_transmit_bytes_total",
        "Bytes that the network namespace of the process has sent.",
        |own| own.sent_bytes,
    ),
];

impl ProcessCollector {
    fn new() -> prometheus::Result<Self> {
        let desc = |(name, help, _): &GaugeOf| {
            Desc::new((*name).to_owned(), (*help).to_owned(), Vec::new(), Default::default())
        };
        let descs = GAUGES.iter().chain(&COUNTERS).map(desc).collect::<prometheus::Result<_>>()?;
        Ok(Self { descs })
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let own = OwnUse::read();
        let mut families = Vec::new();
        for (name, help, figure) in GAUGES {
            if let (Some(value), Ok(gauge)) = (figure(&own), Gauge::new(name, help)) {
                gauge.set(value);
                families.extend(gauge.collect());
            }
        }
        for (name, help, figure) in COUNTERS {
            if let (Some(value), Ok(counter)) = (figure(&own), Counter::new(name, help)) {
                counter.inc_by(value);
                families.extend(counter.collect());
            }
        }
        families
    }
}
