//! PURE: upstream's family about the logs of containers, from the summary. It is on the page `/metrics`, and its figures are read
//! when the page is asked for.

use bridge_metrics::{Described, Registry};
use messages::stats::PodStats;
use prometheus::proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType};

const NAME: &str = "kubelet_container_log_filesystem_used_bytes";
const HELP: &str = "[ALPHA] Bytes of the container's logs on the file system.";
/// In order.
const LABELS: [&str; 4] = ["container", "namespace", "pod", "uid"];

/// Tells the registry of the family.
pub(crate) fn describe(registry: &Registry) {
    let labels = LABELS.map(str::to_owned).into();
    registry.describe(Described { name: NAME.to_owned(), kind: "gauge", labels, help: HELP.to_owned() });
}

/// The family; `None` without series.
pub(crate) fn logs_of_pods(pods: &[PodStats]) -> Option<MetricFamily> {
    let mut series = Vec::new();
    for pod in pods {
        let id = &pod.pod_ref;
        for container in &pod.containers {
            if let Some(used) = container.logs.as_ref().and_then(|logs| logs.used_bytes) {
                series.push(metric([&container.name, &id.namespace, &id.name, &id.uid], float(used)));
            }
        }
    }
    let mut made = MetricFamily::default();
    made.set_name(NAME.to_owned());
    made.set_help(HELP.to_owned());
    made.set_field_type(MetricType::GAUGE);
    made.set_metric(series);
    (!made.get_metric().is_empty()).then_some(made)
}

fn metric(values: [&String; 4], value: f64) -> Metric {
    let labels = LABELS.iter().zip(values).map(|(&name, value)| {
        let mut label = LabelPair::default();
        label.set_name(name.to_owned());
        label.set_value(value.clone());
        label
    });
    let mut made = Metric::default();
    made.set_label(labels.collect());
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    made.set_gauge(gauge);
    made
}

#[allow(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use messages::stats::{ContainerStats, FsStats, PodReference, Time};

    use super::*;

    #[test]
    fn each_container_has_its_logs() {
        let logs = |used_bytes| FsStats {
            time: Time(Timestamp::UNIX_EPOCH),
            available_bytes: None,
            capacity_bytes: None,
            used_bytes,
            inodes_free: None,
            inodes: None,
            inodes_used: None,
        };
        let container = |name: &str, used| ContainerStats {
            name: name.to_owned(),
            start_time: None,
            cpu: None,
            memory: None,
            io: None,
            rootfs: None,
            logs: Some(logs(used)),
            swap: None,
        };
        let pod = PodStats {
            pod_ref: PodReference { name: "p".to_owned(), namespace: "ns".to_owned(), uid: "u".to_owned() },
            start_time: None,
            containers: vec![container("c", Some(7)), container("unknown", None)],
            cpu: None,
            memory: None,
            io: None,
            network: None,
            volumes: Vec::new(),
            ephemeral_storage: None,
            process_stats: None,
            swap: None,
        };
        assert_eq!(logs_of_pods(&[]), None);
        let family = logs_of_pods(&[pod]).unwrap();
        let text = String::from_utf8(bridge_metrics::page([family], "", "").body).unwrap();
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            series,
            [
                "kubelet_container_log_filesystem_used_bytes{container=\"c\",namespace=\"ns\",pod=\"p\",uid=\"u\"} 7"
            ]
        );
    }
}
