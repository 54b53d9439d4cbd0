//! PURE: upstream's families about the volumes behind claims, from the summary. They are on the page `/metrics`, and their
//! figures are read when the page is asked for.

use std::collections::BTreeSet;

use bridge_metrics::{Described, Registry};
use messages::stats::{Family, FamilyKind, PodStats, PvcReference, Sample, VolumeStats};
use prometheus::proto::MetricFamily;

use super::logs::float;
use crate::usage::family;

/// In order.
const LABELS: [&str; 2] = ["namespace", "persistentvolumeclaim"];

/// A figure of a volume; `None` if it is not known.
type Figure = fn(&VolumeStats) -> Option<f64>;

/// The name, the help text and the figure of each family.
const FAMILIES: [(&str, &str, Figure); 7] = [
    ("kubelet_volume_stats_available_bytes", "[ALPHA] Number of available bytes in the volume", |volume| {
        volume.fs.available_bytes.map(float)
    }),
    ("kubelet_volume_stats_capacity_bytes", "[ALPHA] Capacity in bytes of the volume", |volume| {
        volume.fs.capacity_bytes.map(float)
    }),
    (
        "kubelet_volume_stats_health_status_abnormal",
        "[ALPHA] Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 \
         indicates volume is healthy",
        |volume| volume.volume_health_stats.as_ref().map(|health| if health.abnormal { 1.0 } else { 0.0 }),
    ),
    ("kubelet_volume_stats_inodes", "[ALPHA] Maximum number of inodes in the volume", |volume| {
        volume.fs.inodes.map(float)
    }),
    ("kubelet_volume_stats_inodes_free", "[ALPHA] Number of free inodes in the volume", |volume| {
        volume.fs.inodes_free.map(float)
    }),
    ("kubelet_volume_stats_inodes_used", "[ALPHA] Number of used inodes in the volume", |volume| {
        volume.fs.inodes_used.map(float)
    }),
    ("kubelet_volume_stats_used_bytes", "[ALPHA] Number of used bytes in the volume", |volume| {
        volume.fs.used_bytes.map(float)
    }),
];

/// Tells the registry of the families.
pub(crate) fn describe(registry: &Registry) {
    for (name, help, _) in FAMILIES {
        let labels = LABELS.map(str::to_owned).into();
        registry.describe(Described { name: name.to_owned(), kind: "gauge", labels, help: help.to_owned() });
    }
}

/// The families, by name; those without series are left out.
pub(crate) fn volumes_of_pods(pods: &[PodStats]) -> Vec<MetricFamily> {
    let claimed = claimed(pods);
    let made = |(name, help, figure): (&'static str, &'static str, Figure)| {
        let sample = |&(claim, volume): &(&PvcReference, &VolumeStats)| {
            let values = [&claim.namespace, &claim.name].map(|value| value.as_str().into());
            let labels = LABELS.into_iter().zip(values).collect();
            Some(Sample { labels, value: figure(volume)?, at: None })
        };
        let samples: Vec<Sample> = claimed.iter().filter_map(sample).collect();
        let made = Family { name, help: help.into(), kind: FamilyKind::Gauge, samples };
        (!made.samples.is_empty()).then(|| family(&made))
    };
    FAMILIES.into_iter().filter_map(made).collect()
}

/// The volumes behind claims; pods that share a claim have one volume.
fn claimed(pods: &[PodStats]) -> Vec<(&PvcReference, &VolumeStats)> {
    let mut seen = BTreeSet::new();
    let volumes = pods.iter().flat_map(|pod| &pod.volumes);
    let claimed = volumes.filter_map(|volume| Some((volume.pvc_ref.as_ref()?, volume)));
    claimed.filter(|(claim, _)| seen.insert((&claim.namespace, &claim.name))).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use messages::stats::{FsStats, PodReference, Time, VolumeHealthStats};

    use super::*;

    fn pod(name: &str, claim: Option<(&str, bool)>) -> PodStats {
        let fs = FsStats {
            time: Time(Timestamp::UNIX_EPOCH),
            available_bytes: Some(1),
            capacity_bytes: None,
            used_bytes: Some(9),
            inodes_free: None,
            inodes: None,
            inodes_used: None,
        };
        let volume = VolumeStats {
            fs,
            name: "v".to_owned(),
            pvc_ref: claim
                .map(|(name, _)| PvcReference { name: name.to_owned(), namespace: "ns".to_owned() }),
            volume_health_stats: claim.map(|(_, abnormal)| VolumeHealthStats { abnormal }),
        };
        PodStats {
            pod_ref: PodReference { name: name.to_owned(), namespace: "ns".to_owned(), uid: "u".to_owned() },
            start_time: None,
            containers: Vec::new(),
            cpu: None,
            memory: None,
            io: None,
            network: None,
            volumes: vec![volume],
            ephemeral_storage: None,
            process_stats: None,
            swap: None,
        }
    }

    #[test]
    fn a_claim_counts_once_and_other_volumes_do_not() {
        assert_eq!(volumes_of_pods(&[pod("c", None)]), []);
        let pods = [
            pod("a", Some(("data", true))),
            pod("b", Some(("data", true))),
            pod("c", None),
            pod("d", Some(("well", false))),
        ];
        let text = String::from_utf8(bridge_metrics::page(volumes_of_pods(&pods), "", "").body).unwrap();
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let of = |name, claim, value| {
            format!(
                "kubelet_volume_stats_{name}{{namespace=\"ns\",persistentvolumeclaim=\"{claim}\"}} {value}"
            )
        };
        let expected = [
            of("available_bytes", "data", 1),
            of("available_bytes", "well", 1),
            of("health_status_abnormal", "data", 1),
            of("health_status_abnormal", "well", 0),
            of("used_bytes", "data", 9),
            of("used_bytes", "well", 9),
        ];
        assert_eq!(series, expected);
    }
}
