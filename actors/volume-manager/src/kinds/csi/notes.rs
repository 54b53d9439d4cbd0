//! What the disk and the mounts tell of volumes of drivers: notes beside each mount, the Go kubelet's as well as ours.

use std::path::Path;

use bridge_csi::rules::vol_data::VolData;
use bridge_csi::rules::{paths, says};
use bridge_node::host::{OtherVolume, Reported};
use pod_rules::volume_plugins;

use super::device::Device;
use super::paths as paths_of;
use crate::backends::Backends;
use crate::steps::SetUpError;

/// The note beside a mount; `None` if there is none.
///
/// # Errors
/// [`SetUpError`]: it cannot be read.
pub(super) async fn beside(backends: &Backends, mount: &Path) -> Result<Option<VolData>, SetUpError> {
    read(backends, &paths::notes_of(mount)).await
}

/// A note; `None` if there is none.
///
/// # Errors
/// [`SetUpError`]: it cannot be read.
pub(super) async fn read(backends: &Backends, note: &Path) -> Result<Option<VolData>, SetUpError> {
    let Some(text) = backends.mounts.read_note(note).await? else { return Ok(None) };
    let read = VolData::read(text.as_bytes());
    read.map(Some).map_err(|error| {
        let text = format!("failed to load volume data file [{}]: {error}", note.display());
        SetUpError::Refused(says(&text))
    })
}

/// What a note tells of the step that it was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// There is no note: the step was not begun.
    Nothing,
    /// The driver may have been asked: it has not said that it is done, or the note is torn.
    Doubt,
    /// The driver has said that it is done, or the note is one of a Go kubelet, which does not tell.
    Done,
}

/// What a note tells; one that is torn is written anew by the step.
///
/// # Errors
/// [`SetUpError`]: the disk cannot be read.
pub(super) async fn told(backends: &Backends, note: &Path) -> Result<Told, SetUpError> {
    let Some(text) = backends.mounts.read_note(note).await? else { return Ok(Told::Nothing) };
    Ok(match VolData::read(text.as_bytes()) {
        Ok(data) if !data.is_unfinished() => Told::Done,
        _ => Told::Doubt,
    })
}

/// Writes a note.
///
/// # Errors
/// [`SetUpError`]: it cannot be written.
pub(super) async fn write(backends: &Backends, note: &Path, data: &VolData) -> Result<(), SetUpError> {
    Ok(backends.mounts.write_note(note, &data.text()).await?)
}

/// Removes what a mount was made with.
///
/// # Errors
/// [`SetUpError`]: it cannot be removed, most often because something is mounted there.
pub(super) async fn forget(backends: &Backends, mount: &Path) -> Result<(), SetUpError> {
    Ok(backends.mounts.forget(mount, &paths::notes_of(mount)).await?)
}

/// All volumes of drivers that are noted on the node: staged, or published to pods.
///
/// # Errors
/// [`SetUpError`]: the directories cannot be read.
pub(super) async fn all(backends: &Backends) -> Result<Vec<OtherVolume>, SetUpError> {
    let found = backends.pod_dirs.other_volumes(None, &[]).await;
    let found = found.map_err(|error| SetUpError::Refused(error.to_string()))?;
    Ok(found.into_iter().filter(|volume| volume.plugin == volume_plugins::CSI).collect())
}

/// The pods, with what is found of the volume in their directories, to which a volume is noted as published.
pub(super) fn pods_of<'a>(
    noted: &'a [OtherVolume],
    unique_name: &'a str,
) -> impl Iterator<Item = (&'a str, &'a OtherVolume)> {
    let of_volume = noted
        .iter()
        .filter(move |volume| matches!(&volume.reported, Reported::As(name) if name == unique_name));
    of_volume.filter_map(|volume| Some((volume.pod.as_deref()?, volume)))
}

/// Whether a volume is mounted for a pod: then it has been staged.
///
/// # Errors
/// [`SetUpError`]: the disk or the mounts cannot be read.
pub(super) async fn is_shown_to_a_pod(backends: &Backends, unique_name: &str) -> Result<bool, SetUpError> {
    let noted = all(backends).await?;
    let paths = paths_of(backends.node());
    for (uid, volume) in pods_of(&noted, unique_name) {
        let is_shown = if volume.is_block {
            let places = Device::of(backends.node(), &volume.name)?;
            let places = places.places(backends.node(), uid, &volume.name)?;
            backends.mounts.is_device_mapped(&places.map, &places.link).await?
        } else if let Ok(target) = paths.target(uid, &volume.name) {
            backends.mounts.is_mount_point(&target).await?
        } else {
            false
        };
        if is_shown {
            return Ok(true);
        }
    }
    Ok(false)
}
