//! Measures through the bridge, and asks GarbageCollector and ImageManager to reclaim disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::Stats as RuntimeStats;
use bridge_cri::wire::{
    ContainerStats, ContainerStatsFilter, FilesystemUsage, ImageFsInfoRequest, ListContainerStatsRequest,
};
use bridge_node::cgroups::CgroupReads;
use bridge_node::host::PodDirReads;
use bridge_node::stats::{
    DiskUsage, NodeStats, NodeUsage, PodDisk, PodPlaces, PodUsage, RuntimePlaces, Wanted,
};
use messages::facts::DesiredPod;
use messages::garbage_collector::RemoveDeadContainers;
use messages::image_manager::DeleteUnusedImages;
use pod_rules::labels::{CONTAINER_NAME, POD_UID};
use pod_spec::resources::QosClass;
use supervision::{AskPort, blame};

use crate::actor::EvictionManager;
use crate::file_systems::{FileSystems, Reclaims};
use crate::limits::Limits;
use crate::rank::Candidate;
use crate::signal::Resource;
use crate::usage::{ContainerUse, PodUse, local_volumes, plugin_of};

/// How long GarbageCollector or ImageManager may take to remove containers or images.
const RECLAIM_DEADLINE: Duration = Duration::from_secs(120);
/// How long the runtime may take to tell the size of one pod's writable layers.
const LAYERS_MAX: Duration = Duration::from_secs(10);

/// Measurements, and the actors that reclaim disk.
#[derive(Clone)]
pub struct Backends {
    /// Measures the node and pods' files.
    pub stats: Arc<dyn NodeStats>,
    /// The runtime's figures of containers and file systems.
    pub runtime: Arc<dyn RuntimeStats>,
    /// Where logs and volumes are.
    pub dirs: Arc<dyn PodDirReads>,
    /// Processes.
    pub cgroups: Arc<dyn CgroupReads>,
    /// GarbageCollector.
    pub containers: AskPort<EvictionManager, RemoveDeadContainers>,
    /// Asks ImageManager to delete unused images.
    pub images: AskPort<EvictionManager, DeleteUnusedImages>,
}

/// A measurement of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    pub(crate) usage: NodeUsage,
    /// The directories of the runtime's images and layers, once it has told them.
    pub(crate) places: Option<RuntimePlaces>,
}

/// Measures the node. The runtime is asked for its directories only until it has told them.
pub(crate) async fn measure(backends: Backends, known: Option<RuntimePlaces>) -> Measured {
    let mut problem = None;
    let places = match known {
        Some(places) => Some(places),
        None => match runtime_places(&*backends.runtime).await {
            Ok(places) => Some(places),
            Err(text) => {
                problem = Some(text);
                None
            }
        },
    };
    match backends.stats.node(places.clone().unwrap_or_default()).await {
        Ok(mut usage) => {
            usage.problems.extend(problem);
            Measured { usage, places }
        }
        // The kubelet is ending.
        Err(_gone) => Measured::default(),
    }
}

async fn runtime_places(runtime: &dyn RuntimeStats) -> Result<RuntimePlaces, String> {
    let told = runtime.image_fs_info(ImageFsInfoRequest {}).await.map_err(|error| error.to_string())?;
    let place = |file_systems: &[FilesystemUsage]| {
        let mount = file_systems.first()?.fs_id.as_ref()?.mountpoint.clone();
        (!mount.is_empty()).then(|| PathBuf::from(mount))
    };
    let images = place(&told.image_filesystems).ok_or("imageFs information is unavailable")?;
    let containers = place(&told.container_filesystems).unwrap_or_else(|| images.clone());
    Ok(RuntimePlaces { images: Some(images), containers: Some(containers) })
}

/// Has dead containers and unused images removed, and measures the node again.
pub(crate) async fn reclaim(
    backends: Backends,
    reclaims: Reclaims,
    known: Option<RuntimePlaces>,
) -> Measured {
    if reclaims.containers
        && let Err(error) = backends.containers.ask(RemoveDeadContainers, RECLAIM_DEADLINE).await
    {
        tracing::warn!(%error, "Dead containers may be left");
    }
    if reclaims.images {
        match backends.images.ask(DeleteUnusedImages, RECLAIM_DEADLINE).await {
            Ok(deleted) => tracing::info!(deleted, "Unused images have been deleted"),
            Err(error) => tracing::warn!(%error, "Unused images may be left"),
        }
    }
    measure(backends, known).await
}

/// Measures how much each pod uses of a resource, and what its eviction message needs.
pub(crate) async fn pods(
    backends: Backends,
    pods: Vec<Arc<DesiredPod>>,
    resource: Resource,
) -> Vec<Candidate> {
    let wanted = Wanted {
        memory: resource == Resource::Memory,
        disk: matches!(resource, Resource::EphemeralStorage | Resource::Inodes),
    };
    let places = pods.iter().map(|pod| places(pod, &*backends.dirs, true, |_| true)).collect();
    let on_node = backends.stats.pods(places, wanted).await.unwrap_or_default();
    let mut in_runtime = match resource {
        Resource::Pids => BTreeMap::new(),
        _ => container_uses(&*backends.runtime, None).await,
    };
    let mut candidates = Vec::new();
    for pod in pods {
        let uid = pod.pod_ref.uid.as_str();
        let containers = in_runtime.remove(uid);
        let is_cut = on_node.get(uid).is_some_and(|found| found.cut);
        let Some(mut usage) = blame::for_pod(&pod.pod_ref.uid, || pod_use(on_node.get(uid), containers))
        else {
            candidates.push(Candidate { pod, usage: None, is_cut });
            continue;
        };
        if usage.memory_bytes.is_none() {
            // A pod without a cgroup of its own uses what its containers use.
            let each = usage.containers.values().filter_map(|one| one.memory_bytes);
            usage.memory_bytes = each.reduce(u64::saturating_add);
        }
        if resource == Resource::Pids {
            usage.processes = backends.cgroups.pids(uid).await.map_or(0, |pids| pids.len() as u64);
        }
        candidates.push(Candidate { pod, usage: Some(usage), is_cut });
    }
    candidates
}

/// What a pod uses, by node and runtime; `None` if neither knows it.
fn pod_use(found: Option<&PodUsage>, containers: Option<BTreeMap<String, ContainerUse>>) -> Option<PodUse> {
    if found.is_none() && containers.is_none() {
        return None;
    }
    let mut usage = PodUse { containers: containers.unwrap_or_default(), ..PodUse::default() };
    if let Some(found) = found {
        usage.memory_bytes = found.memory_bytes;
        usage.volumes = found.volumes.clone();
        usage.own = found.own;
        for (name, logs) in &found.logs {
            usage.containers.entry(name.clone()).or_default().logs = Some(*logs);
        }
    }
    Some(usage)
}

/// The places of those containers' logs and volumes of a pod that are wanted: it may have thousands.
fn places(
    pod: &DesiredPod,
    dirs: &dyn PodDirReads,
    wants_logs: bool,
    wants_volume: impl Fn(&str) -> bool,
) -> PodPlaces {
    let (layout, id) = (dirs.layout(), &pod.pod_ref);
    let uid = id.uid.as_str();
    let spec = pod.pod.spec.iter();
    let names = spec.flat_map(|spec| {
        let regular = spec.containers.iter().map(|one| one.name.as_str());
        let init = spec.init_containers.iter().flatten().map(|one| one.name.as_str());
        regular.chain(init).chain(spec.ephemeral_containers.iter().flatten().map(|one| one.name.as_str()))
    });
    let logs = names.filter(|_| wants_logs).filter_map(|name| {
        Some((name.to_owned(), layout.container_log_dir(&id.namespace, &id.name, uid, name).ok()?))
    });
    let volumes = local_volumes(&pod.pod).filter(|volume| wants_volume(&volume.name)).filter_map(|volume| {
        let path = layout.pod_volume(uid, plugin_of(volume), &volume.name).ok()?;
        Some((volume.name.clone(), path))
    });
    PodPlaces {
        uid: uid.to_owned(),
        namespace: id.namespace.to_string(),
        qos: QosClass::of(&pod.pod),
        logs: logs.collect(),
        volumes: volumes.collect(),
    }
}

/// The counted files of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    pub(crate) usage: PodUse,
    /// Whether the count was cut off, so that there may be more files.
    pub(crate) cut: bool,
    /// Whether images and layers lie on the node's own disk; `None` while that is unknown.
    pub(crate) one_disk: Option<bool>,
}

/// Counts the files of a pod that its limits are about, for at most `time_max`. The runtime is asked only if containers
/// have limits, and the node is measured only until it is known which disks it has.
pub(crate) async fn count(
    backends: Backends,
    pod: Arc<DesiredPod>,
    limits: Arc<Limits>,
    time_max: Duration,
    known: (Option<bool>, Option<RuntimePlaces>),
) -> Counted {
    let (mut one_disk, runtime) = known;
    let wants_volume = |name: &str| limits.wants_volume(name);
    let places = places(&pod, &*backends.dirs, limits.wants_containers(), wants_volume);
    // Without a result, any number of files may have been missed.
    let disk = backends.stats.disk(places, time_max).await;
    let disk = disk.unwrap_or_else(|_| PodDisk { cut: true, ..PodDisk::default() });
    let mut usage = PodUse { volumes: disk.volumes, own: disk.own, ..PodUse::default() };
    if limits.wants_containers() {
        let uid = pod.pod_ref.uid.as_str();
        let told = tokio::time::timeout(LAYERS_MAX, container_uses(&*backends.runtime, Some(uid))).await;
        usage.containers = told.ok().and_then(|mut all| all.remove(uid)).unwrap_or_default();
        if one_disk.is_none() {
            one_disk = FileSystems::is_one_disk(&measure(backends, runtime).await.usage);
        }
    }
    for (name, logs) in disk.logs {
        usage.containers.entry(name).or_default().logs = Some(logs);
    }
    Counted { usage, cut: disk.cut, one_disk }
}

/// The runtime's figures of every container, or of one pod's, by pod and name; of several instances those of the
/// newest.
async fn container_uses(
    runtime: &dyn RuntimeStats,
    of_pod: Option<&str>,
) -> BTreeMap<String, BTreeMap<String, ContainerUse>> {
    let filter = of_pod.map(|uid| ContainerStatsFilter {
        label_selector: [(POD_UID.to_owned(), uid.to_owned())].into(),
        ..ContainerStatsFilter::default()
    });
    let mut found: BTreeMap<String, BTreeMap<String, (u32, ContainerUse)>> = BTreeMap::new();
    let stats = match runtime.list_container_stats(ListContainerStatsRequest { filter }).await {
        Ok(answer) => answer.stats,
        Err(error) => {
            tracing::warn!(%error, "The runtime does not tell what containers use");
            Vec::new()
        }
    };
    for stats in stats {
        let Some(about) = &stats.attributes else { continue };
        let label = |name: &str| about.labels.get(name).cloned();
        let (Some(uid), Some(name)) = (label(POD_UID), label(CONTAINER_NAME)) else { continue };
        let attempt = about.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        let usage = container_use(&stats);
        let known = found.entry(uid).or_default().entry(name).or_insert((attempt, usage));
        if known.0 <= attempt {
            *known = (attempt, usage);
        }
    }
    let newest = |all: BTreeMap<String, (u32, ContainerUse)>| {
        all.into_iter().map(|(name, (_, usage))| (name, usage)).collect()
    };
    found.into_iter().map(|(uid, all)| (uid, newest(all))).collect()
}

fn container_use(stats: &ContainerStats) -> ContainerUse {
    let memory = stats.memory.as_ref().and_then(|memory| memory.working_set_bytes.as_ref());
    let layer = stats.writable_layer.as_ref().map(|layer| DiskUsage {
        bytes: layer.used_bytes.as_ref().map_or(0, |bytes| bytes.value),
        inodes: layer.inodes_used.as_ref().map_or(0, |inodes| inodes.value),
    });
    ContainerUse { memory_bytes: memory.map(|bytes| bytes.value), layer, logs: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_more_than_was_found_is_at_least_that() {
        let small = DiskUsage { bytes: 1, inodes: 1 };
        let whole = PodUsage { volumes: [("data".to_owned(), small)].into(), ..PodUsage::default() };
        let cut = PodUsage { cut: true, ..whole.clone() };
        assert_eq!(pod_use(Some(&whole), None).map(|usage| usage.volumes), Some(whole.volumes.clone()));
        assert_eq!(
            pod_use(Some(&cut), None).map(|usage| usage.volumes),
            Some(cut.volumes.clone()),
            "at least that"
        );
        assert_eq!(pod_use(None, None), None);
        assert!(pod_use(None, Some(BTreeMap::new())).is_some());
    }
}
