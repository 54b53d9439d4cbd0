//! Parts of volumes that containers mount (row 10.20).

use std::collections::BTreeMap;
use std::path::Path;

use messages::volume_manager::{PrepareSubpaths, Subpath, VolumeError};

use crate::backends::Backends;
use crate::kinds::VOLUME_WITHIN;
use crate::steps::{SetUpError, in_time};

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
    let made: Result<_, SetUpError> =
        in_time(VOLUME_WITHIN, async { Ok(backends.mounts.make_subpath(volume, path).await?) }).await;
    made.map_err(|error| failed("create subPath directory", &error))?;
    let bound: Result<_, SetUpError> =
        in_time(VOLUME_WITHIN, async { Ok(backends.mounts.bind_subpath(volume, path, &target).await?) })
            .await;
    bound.map_err(|error| failed("prepare subPath", &error))?;
    Ok(target.to_string_lossy().into_owned())
}
