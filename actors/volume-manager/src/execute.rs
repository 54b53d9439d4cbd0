//! Carries out plans through the bridge. Each step may be repeated, and a step that has begun runs to its end
//! there.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge_node::host::{OtherVolume, PodDirs, PodDirsError};
use bridge_node::mounts::{GroupChange, MountError, MountPoint, Mounts, TmpfsOptions, VolumeGroup};
use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::volume_manager::{PrepareSubpaths, Subpath, VolumeError};
use pod_rules::reasons::no_pod_directories;
use pod_rules::volume_plugins;
use supervision::blame;
use tokio::time::Instant;

use crate::objects::Objects;
use crate::others;
use crate::payload::ObjectVolume;
use crate::plan::{self, PlanInput, Step, VolumePlan};

/// The kernel's default mode of a tmpfs: every user may write, and may remove only its own files.
const TMPFS_MODE: u32 = 0o1777;

/// How long one volume, or one part of a volume, may take. What is not ready by then is told as its error and tried again
/// after its back-off; what has begun goes on in the bridge, and the next try waits for it there. Longer than what a volume
/// waits for, a call to the API server and a turn on a thread that may block.
const VOLUME_WITHIN: Duration = Duration::from_secs(120);

/// What mounting and unmounting goes through.
#[derive(Clone, Debug)]
pub struct Backends {
    /// The mounts and the directories of volumes.
    pub mounts: Arc<dyn Mounts>,
    /// The pods' own directories.
    pub pod_dirs: Arc<dyn PodDirs>,
    /// Memory that pods may have on this node, in bytes: no memory-backed volume is larger.
    pub allocatable_memory_bytes: u64,
    /// The source of the files of secrets, config maps, tokens and pod fields.
    pub objects: Objects,
}

/// The operation on one volume, for the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The volume's plugin.
    pub plugin: String,
    /// Whether it succeeded.
    pub ok: bool,
    /// How long it took.
    pub took: Duration,
}

/// The result of mounting a pod's volumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MountOutcome {
    /// Paths on the host of the volumes that are ready, by the volume's name.
    pub mounted: BTreeMap<String, String>,
    /// The plugins of the ready volumes.
    pub plugins: Vec<String>,
    /// The errors of the volumes that are not ready, each with the volume's name; an empty name stands for
    /// the pod's directory.
    pub errors: Vec<VolumeError>,
    /// The earlier errors of the volumes that were not tried because their delay is not over, by name.
    pub held: BTreeMap<String, VolumeError>,
    /// The errors of volumes of objects that are mounted from before and could not be refreshed.
    pub stale: Vec<VolumeError>,
    /// The operations on each volume, for the metrics.
    pub timed: Vec<Timed>,
}

fn failed(volume: &str) -> impl Fn(&dyn std::fmt::Display) -> VolumeError {
    let volume = volume.to_owned();
    move |error| VolumeError { volume: volume.clone(), message: error.to_string() }
}

/// Mounts every volume that a container of the pod uses, except those in `held`.
pub async fn mount(
    backends: Backends,
    uid: PodUid,
    pod: Arc<Pod>,
    held: BTreeMap<String, VolumeError>,
) -> MountOutcome {
    if let Some(of_pod) = held.get("") {
        let held = BTreeMap::from([(String::new(), of_pod.clone())]);
        return MountOutcome { held, ..MountOutcome::default() };
    }
    let broken = |error: &dyn std::fmt::Display| MountOutcome {
        errors: vec![failed("")(&no_pod_directories(error))],
        ..MountOutcome::default()
    };
    let pod_dir = match backends.pod_dirs.ensure_pod_dirs(uid.as_str()).await {
        Ok(pod_dir) => pod_dir,
        Err(error) => return broken(&error),
    };
    let mounts = match backends.mounts.list_below(&pod_dir).await {
        Ok(mounts) => mounts,
        Err(error) => return broken(&error),
    };
    let mut outcome = MountOutcome { held, ..MountOutcome::default() };
    for planned in plan::mount(&uid, &pod, node(&backends), &mounts) {
        match planned {
            Ok(volume) if outcome.held.contains_key(&volume.name) => {}
            Err(error) if outcome.held.contains_key(&error.volume) => {}
            Ok(volume) => mount_one(&backends, &pod, volume, &mut outcome).await,
            Err(error) => outcome.errors.push(error),
        }
    }
    outcome
}

fn node(backends: &Backends) -> PlanInput<'_> {
    PlanInput {
        layout: backends.pod_dirs.layout(),
        allocatable_memory_bytes: backends.allocatable_memory_bytes,
        in_cluster: backends.objects.in_cluster,
    }
}

/// Refreshes the files of the pod's volumes of objects. Only volumes that have shown files before are
/// touched, so that nothing is made for a pod whose volumes are undone or not mounted yet. Returns the errors
/// by volume.
pub async fn refresh(backends: Backends, uid: PodUid, pod: Arc<Pod>) -> Vec<VolumeError> {
    let mut errors = Vec::new();
    let Ok(pod_dir) = backends.pod_dirs.layout().pod(uid.as_str()) else { return errors };
    // Without the list of mounts a tmpfs could be mounted on top of the existing one.
    let Ok(mounts) = backends.mounts.list_below(&pod_dir).await else { return errors };
    for volume in plan::mount(&uid, &pod, node(&backends), &mounts).into_iter().flatten() {
        let Some(objects) = &volume.objects else { continue };
        if let Ok(true) = backends.mounts.is_projected(&volume.host_path).await
            && let Err(error) = in_time(show(&backends, &pod, &volume, objects)).await
        {
            errors.push(failed(&volume.name)(&error));
        }
    }
    errors
}

/// Why the files of a volume of objects could not be written.
#[derive(Debug, thiserror::Error)]
enum ShowError {
    /// The objects could not be fetched.
    #[error("{0}")]
    Objects(String),
    /// The files could not be written.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Something hangs: a file system, or a call to the server.
    #[error(transparent)]
    Late(#[from] Late),
}

/// A volume, or a part of one, has taken too long.
#[derive(Debug, thiserror::Error)]
#[error("timed out: it is not ready after {} s", VOLUME_WITHIN.as_secs())]
struct Late;

/// The outcome of work on one volume, or that it takes too long.
async fn in_time<T, E: From<Late>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    tokio::time::timeout(VOLUME_WITHIN, work).await.unwrap_or_else(|_| Err(Late.into()))
}

/// Writes the present objects into a volume. They are fetched first, so that without them nothing is touched.
async fn show(
    backends: &Backends,
    pod: &Pod,
    volume: &VolumePlan,
    objects: &ObjectVolume,
) -> Result<(), ShowError> {
    let projection =
        backends.objects.projection(objects, &volume.name, pod).await.map_err(ShowError::Objects)?;
    let mounts = backends.mounts.as_ref();
    let in_place = mounts.is_projected(&volume.host_path).await?
        && !volume.steps.iter().any(|step| matches!(step, Step::MountTmpfs { .. }));
    if !in_place {
        for step in &volume.steps {
            run(mounts, step).await?;
        }
    }
    if mounts.project(&volume.host_path, Arc::new(projection)).await? {
        tracing::debug!(pod = %PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default()), volume = volume.name, "A volume shows something new");
    }
    Ok(())
}

async fn mount_one(backends: &Backends, pod: &Pod, volume: VolumePlan, outcome: &mut MountOutcome) {
    let began = Instant::now();
    let done = match &volume.objects {
        Some(objects) => match in_time(show(backends, pod, &volume, objects)).await {
            Ok(()) => Ok(()),
            // A volume that was there stays as it was: no pod is held up by an object that has gone since.
            Err(error) => match in_time(is_projected(backends, &volume)).await {
                Ok(true) => {
                    outcome.stale.push(failed(&volume.name)(&error));
                    Ok(())
                }
                _ => Err(error),
            },
        },
        None => in_time(async { Ok(set_up(backends.mounts.as_ref(), &volume).await?) }).await,
    };
    let plugin = volume.plugin.to_owned();
    outcome.timed.push(Timed { plugin: plugin.clone(), ok: done.is_ok(), took: began.elapsed() });
    match done {
        Ok(()) => {
            outcome.mounted.insert(volume.name, volume.host_path.to_string_lossy().into_owned());
            outcome.plugins.push(plugin);
        }
        Err(error) => outcome.errors.push(failed(&volume.name)(&error)),
    }
}

async fn is_projected(backends: &Backends, volume: &VolumePlan) -> Result<bool, ShowError> {
    Ok(backends.mounts.is_projected(&volume.host_path).await?)
}

async fn set_up(mounts: &dyn Mounts, volume: &VolumePlan) -> Result<(), MountError> {
    if let Some(marker) = &volume.ready
        && mounts.is_ready(&volume.host_path, marker).await?
    {
        return Ok(());
    }
    for step in &volume.steps {
        run(mounts, step).await?;
    }
    Ok(())
}

async fn run(mounts: &dyn Mounts, step: &Step) -> Result<(), MountError> {
    match step {
        Step::MakeEmptyDir { path } => mounts.make_empty_dir(path).await,
        Step::MountTmpfs { path, size_bytes } => {
            let options = TmpfsOptions { size_bytes: *size_bytes, mode: TMPFS_MODE };
            mounts.mount_tmpfs(path, options).await
        }
        Step::MountHugePages { path, page_bytes } => mounts.mount_huge_pages(path, *page_bytes).await,
        Step::SetGroup { path, gid } => {
            let group = VolumeGroup { gid: *gid, read_only: false, change: GroupChange::Always };
            mounts.set_group(path, group).await
        }
        Step::SetReady { marker } => mounts.set_ready(marker).await,
        Step::CheckHostPath { path, kind } => mounts.check_host_path(path, *kind).await,
    }
}

/// Which part of a pod's directory stays when nothing is mounted below it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryEnd {
    /// The whole directory is removed.
    Nothing,
    /// The files about how its containers ended stay: the pod is still listed, and a later kubelet reads
    /// them.
    Endings,
}

/// The result of undoing a pod's volumes.
#[derive(Debug)]
pub struct UnmountOutcome {
    /// An error names the volume that could not be unmounted; an empty name stands for the pod's directory.
    pub done: Result<(), VolumeError>,
    /// Whether one of the volumes belongs to another kubelet's plugin, so that nothing of the pod was
    /// touched.
    pub of_others: bool,
    /// The operations on each volume, for the metrics.
    pub timed: Vec<Timed>,
}

/// Undoes every mount below the pod's directory and removes the part of it that `leave` does not keep. If a
/// mount stays, or a volume belongs to another kubelet's plugin, nothing is removed.
pub async fn unmount(backends: Backends, uid: PodUid, leave: DirectoryEnd) -> UnmountOutcome {
    let mut timed = Vec::new();
    let of_others = match other_volumes(backends.clone(), Some(uid.clone())).await {
        Ok(found) => others::refusal(&found),
        Err(error) => return UnmountOutcome { done: Err(failed("")(&error)), of_others: false, timed },
    };
    if let Some(refusal) = of_others {
        return UnmountOutcome { done: Err(refusal), of_others: true, timed };
    }
    let mut done = unmount_all(&backends, &uid, &mut timed).await;
    if done.is_ok() {
        let removed = match leave {
            DirectoryEnd::Nothing => backends.pod_dirs.remove_pod_dir(uid.as_str()),
            DirectoryEnd::Endings => backends.pod_dirs.empty_pod_dir(uid.as_str()),
        };
        done = removed.await.map_err(|error| failed("")(&error));
    }
    UnmountOutcome { done, of_others: false, timed }
}

/// The volumes of other kubelets' plugins: of one pod, or of all pods of the node.
///
/// # Errors
/// The directories cannot be read.
pub async fn other_volumes(
    backends: Backends,
    uid: Option<PodUid>,
) -> Result<Vec<OtherVolume>, PodDirsError> {
    backends.pod_dirs.other_volumes(uid.as_ref().map(PodUid::as_str), volume_plugins::ALL).await
}

async fn unmount_all(backends: &Backends, uid: &PodUid, timed: &mut Vec<Timed>) -> Result<(), VolumeError> {
    let of_pod = failed("");
    let pod_dir = backends.pod_dirs.layout().pod(uid.as_str()).map_err(|error| of_pod(&error))?;
    let mounts = backends.mounts.list_below(&pod_dir).await.map_err(|error| of_pod(&error))?;
    for path in plan::unmount(&pod_dir, &mounts) {
        let began = Instant::now();
        let volume = plan::volume_at(&pod_dir, &path);
        let done = backends.mounts.unmount(&path).await;
        if let Some((plugin, _)) = &volume {
            timed.push(Timed { plugin: plugin.clone(), ok: done.is_ok(), took: began.elapsed() });
        }
        let name = volume.map(|(_, name)| name).or_else(|| plan::subpath_of(&pod_dir, &path));
        let name = name.unwrap_or_default();
        done.map_err(|error| failed(&name)(&error))?;
    }
    Ok(())
}

/// Makes the parts of a container's volumes ready. Returns the path of each on the host, by the index of its
/// mount.
///
/// # Errors
/// [`VolumeError`] with upstream's text, which says nothing about the node's files; the log has the cause.
pub async fn prepare_subpaths(
    backends: Backends,
    ask: PrepareSubpaths,
) -> Result<BTreeMap<usize, String>, VolumeError> {
    let mut ready = BTreeMap::new();
    for subpath in &ask.subpaths {
        let target = prepare_subpath(&backends, &ask, subpath).await?;
        ready.insert(subpath.index, target);
    }
    Ok(ready)
}

async fn prepare_subpath(
    backends: &Backends,
    ask: &PrepareSubpaths,
    subpath: &Subpath,
) -> Result<String, VolumeError> {
    let PrepareSubpaths { pod, container, .. } = ask;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        let volume = subpath.volume.clone();
        tracing::warn!(%error, %pod, container, volume, "A part of a volume could not be had");
        let message = format!("failed to {what} for volumeMount {volume:?} of container {container:?}");
        VolumeError { volume, message }
    };
    let (uid, volume) = (pod.uid.as_str(), Path::new(&subpath.volume_path));
    let layout = backends.pod_dirs.layout();
    let target = layout.pod_subpath(uid, &subpath.volume, container, subpath.index);
    let target = target.map_err(|error| failed("prepare subPath", &error))?;
    let path = Path::new(&subpath.path);
    let made: Result<_, ShowError> =
        in_time(async { Ok(backends.mounts.make_subpath(volume, path).await?) }).await;
    made.map_err(|error| failed("create subPath directory", &error))?;
    let bound: Result<_, ShowError> =
        in_time(async { Ok(backends.mounts.bind_subpath(volume, path, &target).await?) }).await;
    bound.map_err(|error| failed("prepare subPath", &error))?;
    Ok(target.to_string_lossy().into_owned())
}

/// The volumes that are mounted for a pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Paths on the host, by volume.
    pub host_paths: BTreeMap<String, String>,
    /// The plugin of each volume.
    pub plugins: Vec<String>,
}

/// The volumes that an earlier incarnation or kubelet has left mounted, by pod.
///
/// # Errors
/// [`VolumeError`] when the machine's mounts cannot be read.
pub async fn reconstruct(backends: Backends) -> Result<BTreeMap<PodUid, Found>, VolumeError> {
    let pods = backends.pod_dirs.layout().pods();
    let mounts = backends.mounts.list_below(&pods).await.map_err(|error| failed("")(&error))?;
    Ok(volumes_of(&pods, &mounts))
}

fn volumes_of(pods: &Path, mounts: &[MountPoint]) -> BTreeMap<PodUid, Found> {
    let mut found: BTreeMap<PodUid, Found> = BTreeMap::new();
    for mount in mounts {
        let uid = mount.path.strip_prefix(pods).ok().and_then(|below| below.iter().next());
        let Some(uid) = uid.and_then(|uid| uid.to_str()) else { continue };
        let _named = blame::name(&PodUid::new(uid));
        let pod_dir = pods.join(uid);
        let Some((plugin, name)) = plan::volume_at(&pod_dir, &mount.path) else { continue };
        let volumes = found.entry(PodUid::new(uid)).or_default();
        // A mount within a volume comes after the volume's own mount, which counts.
        if let Entry::Vacant(unknown) = volumes.host_paths.entry(name) {
            unknown.insert(mount.path.to_string_lossy().into_owned());
            volumes.plugins.push(plugin);
        }
    }
    found
}

/// The UIDs of all pods that have a directory.
///
/// # Errors
/// [`VolumeError`] when the directories cannot be listed.
pub async fn pods_on_disk(backends: &Backends) -> Result<BTreeSet<PodUid>, VolumeError> {
    let uids = backends.pod_dirs.list_pod_uids().await.map_err(|error| failed("")(&error))?;
    Ok(uids.iter().map(|uid| PodUid::new(uid)).collect())
}

/// All mounts of the machine.
///
/// # Errors
/// [`VolumeError`] when the mounts cannot be read.
pub async fn all_mounts(backends: &Backends) -> Result<Vec<MountPoint>, VolumeError> {
    backends.mounts.list_below(Path::new("/")).await.map_err(|error| failed("")(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_tells_whose_volume_it_is() {
        let mount = |path: &str| MountPoint {
            fs_options: Vec::new(),
            path: path.into(),
            root: "/".into(),
            fs_type: "tmpfs".to_owned(),
            source: "tmpfs".to_owned(),
            options: Vec::new(),
            device: (0, 1),
        };
        let mounts = [
            mount("/r/pods"),
            mount("/r/pods/u/volumes/kubernetes.io~empty-dir/a"),
            mount("/r/pods/u/volumes/kubernetes.io~empty-dir/a/within"),
            mount("/r/pods/u/volumes/kubernetes.io~csi/pv/mount"),
            mount("/r/pods/u/volume-subpaths/a/c/0"),
            mount("/other"),
        ];
        let found = volumes_of(Path::new("/r/pods"), &mounts);
        let path = "/r/pods/u/volumes/kubernetes.io~empty-dir/a".to_owned();
        let csi = "/r/pods/u/volumes/kubernetes.io~csi/pv/mount".to_owned();
        let expected = Found {
            host_paths: BTreeMap::from([("a".to_owned(), path), ("pv".to_owned(), csi)]),
            plugins: vec!["kubernetes.io/empty-dir".to_owned(), "kubernetes.io/csi".to_owned()],
        };
        assert_eq!(found, BTreeMap::from([(PodUid::new("u"), expected)]));
    }
}
