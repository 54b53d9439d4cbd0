//! The figures of a pod's volumes (row 10.27): one that hangs keeps none of the others' figures back.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge_node::mounts::VolumeFigures;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::volume_manager::{MountedVolumes, PodVolumeStats, VolumeStats, VolumeUsage};
use pod_rules::volume_plugins;
use pod_rules::volumes::is_on_node_disk;
use tokio::time::{Instant, timeout};

use crate::execute::Backends;
use crate::metrics::VolumeMetrics;
use crate::plan;

/// How long the look at one volume may take. Longer than the bridge counts files for, so that its own error arrives.
const WITHIN: Duration = Duration::from_secs(40);

/// The volumes that could be measured, by name.
pub(crate) type Usages = BTreeMap<String, VolumeUsage>;

/// Measures a pod's volumes side by side. Those that lie elsewhere on the node are not the pod's own and are left out, and so
/// are those that cannot be measured.
pub(crate) async fn volumes(
    backends: Backends,
    uid: PodUid,
    volumes: Arc<MountedVolumes>,
    metrics: VolumeMetrics,
) -> Usages {
    let metrics = &metrics;
    let Ok(pod_dir) = backends.pod_dirs.layout().pod(uid.as_str()) else { return Usages::new() };
    let own = volumes.host_paths.iter().filter(|(_, path)| {
        let at = plan::volume_at(&pod_dir, Path::new(path));
        at.is_some_and(|(plugin, _)| volume_plugins::ALL.contains(&plugin.as_str()))
    });
    let looks = own.map(|(name, path)| {
        let look = backends.mounts.measure(Path::new(path));
        async move {
            let began = Instant::now();
            let found = match timeout(WITHIN, look).await {
                Ok(Ok(figures)) => Ok(usage(figures)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("it takes longer than {} s", WITHIN.as_secs())),
            };
            if found.is_ok() {
                metrics.measured(began.elapsed());
            }
            (name, found)
        }
    });
    let mut measured = Usages::new();
    for (name, found) in join_all(looks).await {
        match found {
            Ok(usage) => drop(measured.insert(name.clone(), usage)),
            Err(error) => tracing::debug!(error, pod = %uid, volume = name, "A volume cannot be measured"),
        }
    }
    measured
}

fn usage(figures: VolumeFigures) -> VolumeUsage {
    VolumeUsage {
        available_bytes: figures.available_bytes,
        capacity_bytes: figures.capacity_bytes,
        used_bytes: figures.used_bytes,
        inodes: figures.inodes,
        inodes_free: figures.inodes_free,
        inodes_used: figures.inodes_used,
    }
}

/// PURE: the figures with what the pod spec says of each volume.
pub(crate) fn stats(pod: &Pod, mut measured: Usages, measured_at: Timestamp) -> PodVolumeStats {
    // A volume that no container uses is not mounted.
    let used = plan::used_names(pod);
    let all = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let known = all.filter(|volume| used.contains(&volume.name)).filter_map(|volume| {
        let (usage, on_node_disk) = (measured.remove(&volume.name), is_on_node_disk(volume));
        if usage.is_none() && !on_node_disk {
            return None;
        }
        let stats = VolumeStats { measured_at, on_node_disk, usage };
        Some((volume.name.clone(), stats))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_tell_what_counts_to_the_pod() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"containers": [{"name": "c", "volumeMounts": [
                {"name": "disk", "mountPath": "/a"}, {"name": "memory", "mountPath": "/b"},
                {"name": "unknown", "mountPath": "/c"}, {"name": "unmeasured", "mountPath": "/d"},
            ]}], "volumes": [
                {"name": "unused", "configMap": {"name": "x"}},
                {"name": "disk", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory"}},
                {"name": "unknown", "configMap": {"name": "x"}},
                {"name": "unmeasured", "hostPath": {"path": "/x"}},
            ]},
        }))
        .expect("a pod");
        let usage = |used_bytes| VolumeUsage { used_bytes, ..VolumeUsage::default() };
        let measured: Usages = ["disk", "memory", "stranger"]
            .into_iter()
            .zip(1..)
            .map(|(name, used)| (name.to_owned(), usage(used)))
            .collect();
        let found = stats(&pod, measured, Timestamp::UNIX_EPOCH);
        let told = |name: &str| {
            let used = |stats: &VolumeStats| stats.usage.as_ref().map(|usage| usage.used_bytes);
            found.get(name).map(|stats| (stats.on_node_disk, used(stats)))
        };
        assert_eq!(told("disk"), Some((true, Some(1))));
        assert_eq!(told("memory"), Some((false, Some(2))));
        assert_eq!(told("unknown"), Some((true, None)), "of this the pod's sum lacks a part");
        assert_eq!((told("unmeasured"), told("stranger"), told("unused")), (None, None, None));
    }
}
