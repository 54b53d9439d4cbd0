//! PURE: upstream's family about the logs of containers, from the summary. It is on the page `/metrics`, and its figures are read
//! when the page is asked for.

use bridge_metrics::{Described, Registry};
use messages::stats::{Family, FamilyKind, PodStats, Sample};
use prometheus::proto::MetricFamily;

use crate::usage::family;

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
    let mut samples = Vec::new();
    for pod in pods {
        let id = &pod.pod_ref;
        for container in &pod.containers {
            if let Some(used) = container.logs.as_ref().and_then(|logs| logs.used_bytes) {
                let values =
                    [&container.name, &id.namespace, &id.name, &id.uid].map(|value| value.as_str().into());
                let labels = LABELS.into_iter().zip(values).collect();
                samples.push(Sample { labels, value: float(used), at: None });
            }
        }
    }
    let made = Family { name: NAME, help: HELP.into(), kind: FamilyKind::Gauge, samples };
    (!made.samples.is_empty()).then(|| family(&made))
}

#[allow(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
pub(super) fn float(count: u64) -> f64 {
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
