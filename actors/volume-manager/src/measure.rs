//! The figures of a pod's volumes (row 10.27): each kind says how its volumes are measured, and one that hangs keeps none of
//! the others' figures back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::volume_manager::{MountedVolumes, PodVolumeStats, VolumeStats, VolumeUsage};
use pod_rules::volumes::is_on_node_disk;
use tokio::time::Instant;

use crate::backends::Backends;
use crate::kinds::{Measured, few_at_once};
use crate::metrics::VolumeMetrics;
use crate::steps::in_time;
use crate::{kinds, plan, source};

/// How long the look at one volume may take. Longer than the bridge counts files for, so that its own error arrives.
const WITHIN: Duration = Duration::from_secs(40);

/// The volumes that could be measured, by name.
pub(crate) type Usages = BTreeMap<String, VolumeUsage>;

/// Measures a pod's volumes side by side. Those of kinds that are not measured, and those that fail, are left out.
pub(crate) async fn volumes(
    backends: Backends,
    uid: PodUid,
    volumes: Arc<MountedVolumes>,
    metrics: VolumeMetrics,
) -> Usages {
    let metrics = &metrics;
    let Ok(pod_dir) = backends.pod_dirs.layout().pod(uid.as_str()) else { return Usages::new() };
    let looks = volumes.host_paths.iter().filter_map(|(name, path)| {
        // What lies elsewhere on the node is not the pod's own and is not measured.
        let (plugin, _) = plan::volume_at(&pod_dir, Path::new(path))?;
        let look = kinds::of_plugin(&plugin)?.measure(&backends, Path::new(path))?;
        let look = async move {
            let began = Instant::now();
            let found = in_time(WITHIN, look).await;
            if let Ok(Measured { counted: Some(way), .. }) = &found {
                metrics.measured(way, began.elapsed());
            }
            (name, found)
        };
        Some(look.boxed())
    });
    let mut measured = Usages::new();
    for (name, found) in few_at_once(looks).await {
        match found {
            Ok(Measured { usage, .. }) => drop(measured.insert(name.clone(), usage)),
            Err(error) => tracing::debug!(%error, pod = %uid, volume = name, "A volume cannot be measured"),
        }
    }
    measured
}

/// PURE: the figures with what the pod spec says of each volume.
pub(crate) fn stats(pod: &Pod, mut measured: Usages, measured_at: Timestamp) -> PodVolumeStats {
    // A volume that no container uses is not mounted.
    let used: BTreeSet<String> = plan::used_names(pod).into_iter().collect();
    let all = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let known = all.filter(|volume| used.contains(&volume.name)).filter_map(|volume| {
        let (usage, on_node_disk) = (measured.remove(&volume.name), is_on_node_disk(volume));
        if usage.is_none() && !on_node_disk {
            return None;
        }
        let claim = source::claim_of(volume, pod).map(|claim| claim.name);
        let stats = VolumeStats { measured_at, claim, on_node_disk, usage };
        Some((volume.name.clone(), stats))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_name_the_claim_and_what_counts_to_the_pod() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"containers": [{"name": "c", "volumeMounts": [
                {"name": "disk", "mountPath": "/a"}, {"name": "memory", "mountPath": "/b"},
                {"name": "claimed", "mountPath": "/c"}, {"name": "own", "mountPath": "/d"},
                {"name": "unknown", "mountPath": "/e"}, {"name": "unmeasured", "mountPath": "/f"},
            ]}], "volumes": [
                {"name": "unused", "configMap": {"name": "x"}},
                {"name": "disk", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory"}},
                {"name": "claimed", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "own", "ephemeral": {}},
                {"name": "unknown", "configMap": {"name": "x"}},
                {"name": "unmeasured", "hostPath": {"path": "/x"}},
            ]},
        }))
        .expect("a pod");
        let usage = |used_bytes| VolumeUsage { used_bytes, ..VolumeUsage::default() };
        let measured: Usages = ["disk", "memory", "claimed", "own", "stranger"]
            .into_iter()
            .zip(1..)
            .map(|(name, used)| (name.to_owned(), usage(used)))
            .collect();
        let found = stats(&pod, measured, Timestamp::UNIX_EPOCH);
        let told = |name: &str| {
            let used = |stats: &VolumeStats| stats.usage.as_ref().map(|usage| usage.used_bytes);
            found.get(name).map(|stats| (stats.claim.as_deref(), stats.on_node_disk, used(stats)))
        };
        assert_eq!(told("disk"), Some((None, true, Some(1))));
        assert_eq!(told("memory"), Some((None, false, Some(2))));
        assert_eq!(told("claimed"), Some((Some("c"), false, Some(3))));
        assert_eq!(told("own"), Some((Some("p-own"), false, Some(4))));
        assert_eq!(told("unknown"), Some((None, true, None)), "of this the pod's sum lacks a part");
        assert_eq!((told("unmeasured"), told("stranger"), told("unused")), (None, None, None));
    }
}
