//! Images (row 6.8): the runtime mounts them, PodWorker has ImageManager provide them, and nothing is to be done here.

use std::path::PathBuf;

use pod_rules::volume_plugins::IMAGE;

use super::{VolumeKind, Wanted};
use crate::source::Source;
use crate::steps::VolumePlan;

/// The kind.
#[derive(Debug)]
pub(super) struct Image;

impl VolumeKind for Image {
    fn plugin(&self) -> &'static str {
        IMAGE
    }

    fn serves(&self, source: &Source) -> bool {
        source.inline().is_some_and(|volume| volume.image.is_some())
    }

    fn keeps_labels(&self) -> bool {
        true
    }

    /// A volume without a path on the host.
    fn plan(&self, _: &Wanted<'_>) -> Result<VolumePlan, String> {
        Ok(VolumePlan::of(PathBuf::new(), Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::serving;
    use crate::kinds::tests::{inline, plan};

    #[test]
    fn an_image_has_no_path_and_needs_no_step() {
        let volume = serde_json::json!({"name": "v", "image": {"reference": "r/x:1"}});
        let planned = plan(&volume, &[]).expect("the runtime mounts it");
        assert_eq!((planned.host_path, planned.steps), (PathBuf::new(), vec![]));
        assert_eq!(serving(&inline(&volume)).expect("it is served").plugin(), IMAGE);
    }
}
