//! Block devices of drivers (row 10.19): where their parts are, and how what is left of them is cleared away.

use std::path::{Path, PathBuf};

use bridge_csi::rules::paths::{BadName, VOL_DATA};
use pod_rules::volume_plugins::CSI;

use super::super::block::Places;
use super::paths;
use crate::backends::{Backends, NodeFacts};
use crate::steps::SetUpError;

/// The places of a driver's block device that its pods share.
#[derive(Clone, Debug)]
pub(super) struct Device {
    /// The directory of everything but what the driver has made.
    pub dir: PathBuf,
    /// The directory of the mounts for each pod.
    pub maps: PathBuf,
    /// The note that its pods share.
    pub note: PathBuf,
    /// Where the driver stages it.
    pub staging: PathBuf,
    /// The directory of what the driver publishes.
    pub publish_dir: PathBuf,
}

fn bad(error: &BadName) -> SetUpError {
    SetUpError::Refused(error.to_string())
}

impl Device {
    /// The places of the device of this PersistentVolume.
    pub fn of(node: NodeFacts<'_>, name: &str) -> Result<Self, SetUpError> {
        let paths = paths(node);
        let all = || {
            Ok(Self {
                dir: paths.block(name)?,
                maps: paths.block_map(name)?,
                note: paths.block_data(name)?.join(VOL_DATA),
                staging: paths.block_staging(name)?,
                publish_dir: paths.block_publish_dir(name)?,
            })
        };
        all().map_err(|error| bad(&error))
    }

    /// The places of one pod.
    pub fn places(&self, node: NodeFacts<'_>, uid: &str, name: &str) -> Result<Places, SetUpError> {
        Places::new(node, &self.maps, uid, CSI, name).map_err(SetUpError::Refused)
    }

    /// Removes what the driver may have left of a pod's device that it has taken back.
    pub async fn forget_published(&self, backends: &Backends, publish: &Path) -> Result<(), SetUpError> {
        // The directory above stays: another pod's device may be about to be published there.
        Ok(backends.mounts.forget(publish, &publish.join(VOL_DATA)).await?)
    }

    /// Removes everything of a device that is not staged; its note last, by which it is found.
    pub async fn forget(&self, backends: &Backends) -> Result<(), SetUpError> {
        let mounts = backends.mounts.as_ref();
        let above = self.publish_dir.with_file_name(VOL_DATA);
        if let Err(error) = mounts.forget(&self.publish_dir, &above).await {
            // The driver's own files: as upstream, they hold nothing up.
            tracing::warn!(%error, "What a driver has published of a device stays");
        }
        mounts.remove_tree(&self.staging).await?;
        mounts.remove_tree(&self.maps).await?;
        Ok(mounts.remove_tree(&self.dir).await?)
    }
}
