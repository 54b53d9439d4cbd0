//! Undoes the volumes of pods, and devices that no pod uses any longer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_node::host::{OtherVolume, PodDirsError, Reported};
use futures::FutureExt;
use messages::PodUid;
use messages::volume_manager::VolumeError;
use tokio::time::Instant;

use crate::backends::Backends;
use crate::devices::Device;
use crate::execute::failed;
use crate::kinds::{self, FoundVolume, TornDown, VOLUME_WITHIN, VolumeKind, few_at_once};
use crate::metrics::{Operation, Timed};
use crate::others;
use crate::plan;
use crate::steps::{SetUpError, in_time};

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
    /// The devices that the pod has used: they may be idle now.
    pub devices: Vec<Device>,
    /// The operations on each volume, for the metrics.
    pub timed: Vec<Timed>,
}

/// Undoes every volume of the pod, each as its kind does, and every other mount below the pod's directory, and removes the part
/// of it that `leave` does not keep. If a mount stays, or a volume belongs to another kubelet's plugin, nothing is removed.
pub async fn unmount(backends: Backends, uid: PodUid, leave: DirectoryEnd) -> UnmountOutcome {
    let mut timed = Vec::new();
    let mut devices = Vec::new();
    let found = match found_volumes(backends.clone(), Some(uid.clone())).await {
        Ok(found) => found,
        Err(error) => {
            return UnmountOutcome { done: Err(failed("")(&error)), of_others: false, devices, timed };
        }
    };
    if let Some(refusal) = others::refusal(&found) {
        return UnmountOutcome { done: Err(refusal), of_others: true, devices, timed };
    }
    let of_pod = OfPod { backends: &backends, uid: &uid };
    let mut done = of_pod.undo(&found, &mut devices, &mut timed).await;
    if done.is_ok() {
        let removed = match leave {
            DirectoryEnd::Nothing => backends.pod_dirs.remove_pod_dir(uid.as_str()),
            DirectoryEnd::Endings => backends.pod_dirs.empty_pod_dir(uid.as_str()),
        };
        done = removed.await.map_err(|error| failed("")(&error));
    }
    UnmountOutcome { done, of_others: false, devices, timed }
}

/// The volumes that are found in directories: of one pod, or of all pods of the node and those that are staged for all pods.
///
/// # Errors
/// The directories cannot be read.
pub async fn found_volumes(
    backends: Backends,
    uid: Option<PodUid>,
) -> Result<Vec<OtherVolume>, PodDirsError> {
    backends.pod_dirs.other_volumes(uid.as_ref().map(PodUid::as_str), &[]).await
}

/// What became of a pod's mounts.
#[derive(Debug, Default)]
struct Unmounted {
    /// The first that could not be undone.
    error: Option<VolumeError>,
    /// A part of a volume is still mounted.
    keeps_parts: bool,
}

/// A pod whose volumes are undone.
struct OfPod<'a> {
    backends: &'a Backends,
    uid: &'a PodUid,
}

/// A volume that its kind undoes.
struct Own<'v> {
    uid: &'v PodUid,
    volume: &'v OtherVolume,
    kind: &'static dyn VolumeKind,
    dir: PathBuf,
}

impl OfPod<'_> {
    async fn undo(
        &self,
        found: &[OtherVolume],
        devices: &mut Vec<Device>,
        timed: &mut Vec<Timed>,
    ) -> Result<(), VolumeError> {
        let pod_dir = self.backends.pod_dirs.layout().pod(self.uid.as_str());
        let pod_dir = pod_dir.map_err(|error| failed("")(&error))?;
        let own: Vec<Own<'_>> = found.iter().filter_map(|volume| self.own(&pod_dir, volume)).collect();
        let kept: BTreeSet<&Path> = own.iter().map(|own| own.dir.as_path()).collect();
        let unmounted = self.unmount(&pod_dir, &kept, timed).await?;
        let mut done = unmounted.error.map_or(Ok(()), Err);
        if unmounted.keeps_parts {
            // A part of a volume that is still mounted keeps its file system, which no driver is asked to take away then.
            return done;
        }
        // A driver that hangs holds up no other volume.
        for (own, ended, took) in few_at_once(own.into_iter().map(|own| self.tear_down(own).boxed())).await {
            let plugin = match &own.volume.reported {
                Reported::As(name) => own.kind.label_of(name),
                Reported::Never | Reported::Unknown => own.kind.plugin().to_owned(),
            };
            let operation = if own.volume.is_block { Operation::Unmap } else { Operation::Unmount };
            timed.push(Timed { operation, plugin, ok: ended.is_ok(), took });
            match ended {
                Ok(TornDown { device }) => devices.extend(device),
                Err(error) if done.is_ok() => done = Err(failed(&own.volume.name)(&error)),
                Err(_) => {}
            }
        }
        done
    }

    fn own<'v>(&'v self, pod_dir: &Path, volume: &'v OtherVolume) -> Option<Own<'v>> {
        let kind = kinds::of_plugin(&volume.plugin)?;
        let volumes = if volume.is_block { "volumeDevices" } else { "volumes" };
        let dir = pod_dir.join(volumes).join(volume.plugin.replace('/', "~")).join(&volume.name);
        let own = Own { uid: self.uid, volume, kind, dir };
        let is_own = kind.tear_down(self.backends, &own.found()).is_some();
        is_own.then_some(own)
    }

    async fn tear_down<'v>(&self, own: Own<'v>) -> (Own<'v>, Result<TornDown, SetUpError>, Duration) {
        let began = Instant::now();
        let found = own.found();
        let ended = match own.kind.tear_down(self.backends, &found) {
            Some(work) => in_time(own.kind.within(), work).await,
            None => Ok(TornDown::default()),
        };
        let took = began.elapsed();
        (own, ended, took)
    }

    /// Undoes the mounts that are not below a directory of `kept`. One that stays keeps none of the others.
    async fn unmount(
        &self,
        pod_dir: &Path,
        kept: &BTreeSet<&Path>,
        timed: &mut Vec<Timed>,
    ) -> Result<Unmounted, VolumeError> {
        let mounts = self.backends.mounts.list_below(pod_dir).await.map_err(|error| failed("")(&error))?;
        let mut unmounted = Unmounted::default();
        for path in plan::unmount(pod_dir, &mounts) {
            if path.ancestors().any(|above| kept.contains(above)) {
                continue;
            }
            let began = Instant::now();
            let volume = plan::volume_at(pod_dir, &path);
            let done = self.backends.mounts.unmount(&path).await;
            if let Some((plugin, _)) = &volume {
                let (operation, took) = (Operation::Unmount, began.elapsed());
                timed.push(Timed { operation, plugin: plugin.clone(), ok: done.is_ok(), took });
            }
            let Err(error) = done else { continue };
            let part = plan::subpath_of(pod_dir, &path);
            unmounted.keeps_parts |= part.is_some();
            let name = volume.map(|(_, name)| name).or(part).unwrap_or_default();
            unmounted.error.get_or_insert_with(|| failed(&name)(&error));
        }
        Ok(unmounted)
    }
}

impl Own<'_> {
    fn found(&self) -> FoundVolume<'_> {
        FoundVolume { uid: self.uid, name: &self.volume.name, is_block: self.volume.is_block, dir: &self.dir }
    }
}

/// Takes a device from the node, unless a pod uses it.
///
/// # Errors
/// [`SetUpError`]: it is tried again after its back-off.
pub async fn release(backends: Backends, device: Device) -> Result<(), SetUpError> {
    let Some(kind) = kinds::of_device(&device) else { return Ok(()) };
    in_time(kind.within(), kind.release(&backends, &device)).await
}

/// The devices that no pod uses. Those of a kind that cannot tell are left out.
pub async fn idle_devices(backends: Backends) -> Vec<Device> {
    let mut idle = Vec::new();
    for kind in kinds::ALL {
        match in_time(VOLUME_WITHIN, kind.idle_devices(&backends)).await {
            Ok(found) => idle.extend(found),
            Err(error) => {
                tracing::warn!(%error, plugin = kind.plugin(), "Cannot tell which devices are idle")
            }
        }
    }
    idle
}
