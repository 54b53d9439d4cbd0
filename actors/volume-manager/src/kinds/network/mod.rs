//! Disks that a network brings, of iSCSI targets (row 10.11) and of Fibre Channel (row 10.12): brought to the node once for all
//! pods, mounted there and bound into each pod's directory, or shown to each pod as a block device. What the kubelet has brought
//! it takes away when no pod uses it; what the node or other volumes use stays.

mod away;
mod disk;
mod fc;
mod iscsi;
mod iscsiadm;
mod note;
mod set_up;
mod tear_down;
mod uses;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use bridge_node::mounts::Measure;
use futures::FutureExt;
use futures::future::BoxFuture;
use pod_rules::volume_plugins;

use super::block;
use super::{FoundVolume, Measured, SetUp, TornDown, VolumeKind, Wanted};
use crate::backends::Backends;
use crate::devices::Device;
use crate::source::Source;
use crate::steps::{SetUpError, VolumePlan};
use disk::Disk;

/// How long a set-up may take: waits for the controller, for logins and for disks, each of which ends by its own deadline.
const SET_UP_WITHIN: Duration = Duration::from_secs(600);

/// The kind of one of the networks.
#[derive(Debug)]
pub(super) struct Network {
    plugin: &'static str,
}

/// Disks of iSCSI targets.
pub(super) const ISCSI: Network = Network { plugin: volume_plugins::ISCSI };
/// Disks of Fibre Channel.
pub(super) const FC: Network = Network { plugin: volume_plugins::FC };

/// A disk that is on the node, by the kernel's names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ways {
    /// What is mounted: the map that joins several ways, or the only way.
    top: String,
    /// The ways.
    names: BTreeSet<String>,
}

impl VolumeKind for Network {
    fn plugin(&self) -> &'static str {
        self.plugin
    }

    fn serves(&self, source: &Source) -> bool {
        disk::serves(self.plugin, source)
    }

    /// The steps follow from what the node has already, so the plan is the place alone.
    fn plan(&self, wanted: &Wanted<'_>) -> Result<VolumePlan, String> {
        let disk = Disk::of(self.plugin, wanted.source, wanted.pod)?;
        disk::places(wanted.node, self.plugin, &disk.dir)?;
        if disk.is_block {
            let name = wanted.source.spec_name();
            let link = wanted.node.layout.pod_device(wanted.uid.as_str(), self.plugin, name);
            return Ok(VolumePlan::of(link.map_err(|error| error.to_string())?, Vec::new()));
        }
        Ok(VolumePlan::of(wanted.path(self.plugin)?, Vec::new()))
    }

    fn set_up<'a>(
        &'a self,
        backends: &'a Backends,
        wanted: &'a Wanted<'a>,
        plan: &'a VolumePlan,
    ) -> BoxFuture<'a, Result<SetUp, SetUpError>> {
        set_up::set_up(backends, wanted, self.plugin, &plan.host_path).boxed()
    }

    fn within(&self) -> Duration {
        SET_UP_WITHIN
    }

    fn takes_mount_options(&self) -> bool {
        true
    }

    fn takes_label<'a>(&'a self, _: &'a Backends, _: &'a Source) -> BoxFuture<'a, Result<bool, String>> {
        std::future::ready(Ok(true)).boxed()
    }

    fn may_lack_labels(&self) -> bool {
        true
    }

    fn has_block_devices(&self) -> bool {
        true
    }

    fn shares_devices(&self) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn measure<'a>(
        &'a self,
        backends: &'a Backends,
        path: &'a Path,
    ) -> Option<BoxFuture<'a, Result<Measured, SetUpError>>> {
        if block::is_link(path) {
            return Some(Box::pin(block::measure(backends, path)));
        }
        Some(super::measured(backends, path, Measure::FileSystem))
    }

    /// File systems are undone by unmounting them, and their disks are taken from the node when no pod has them.
    fn tear_down<'a>(
        &'a self,
        backends: &'a Backends,
        found: &'a FoundVolume<'a>,
    ) -> Option<BoxFuture<'a, Result<TornDown, SetUpError>>> {
        found.is_block.then(|| tear_down::device(backends, self.plugin, found).boxed())
    }

    fn idle_devices<'a>(&'a self, backends: &'a Backends) -> BoxFuture<'a, Result<Vec<Device>, SetUpError>> {
        tear_down::idle_devices(backends, self.plugin).boxed()
    }

    fn release<'a>(
        &'a self,
        backends: &'a Backends,
        device: &'a Device,
    ) -> BoxFuture<'a, Result<(), SetUpError>> {
        tear_down::release(backends, self.plugin, device).boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::tests::{inline, persistent, plan_of, pod};
    use crate::kinds::{of_device, of_plugin};

    #[test]
    fn a_disk_is_shown_where_the_go_kubelet_shows_it() {
        let iscsi = json!({"targetPortal": "10.0.0.1", "iqn": "iqn.2020-01.test:a", "lun": 0});
        let place = |source: &Source| plan_of(&pod(), source, &[]).map(|plan| plan.host_path);
        let pods = "/var/lib/kubelet/pods/u";
        let own = inline(&json!({"name": "v", "iscsi": iscsi.clone()}));
        assert_eq!(place(&own), Ok(format!("{pods}/volumes/kubernetes.io~iscsi/v").into()));
        let claimed = persistent(json!({"iscsi": iscsi, "volumeMode": "Block"}), false);
        assert_eq!(place(&claimed), Ok(format!("{pods}/volumeDevices/kubernetes.io~iscsi/pv").into()));
        let fc = persistent(json!({"fc": {"wwids": ["3600"]}}), false);
        assert_eq!(place(&fc), Ok(format!("{pods}/volumes/kubernetes.io~fc/pv").into()));
        let odd = persistent(json!({"fc": {"wwids": ["../../x"]}}), false);
        assert!(place(&odd).is_err());
        for kind in [ISCSI, FC] {
            assert!(kind.has_block_devices() && kind.takes_mount_options() && !kind.expands());
            assert_eq!(of_plugin(kind.plugin).map(VolumeKind::plugin), Some(kind.plugin));
            let device = disk::device(kind.plugin, "a/b");
            assert_eq!(of_device(&device).map(VolumeKind::plugin), Some(kind.plugin));
            assert_eq!(disk::dir_of(kind.plugin, &device), Some("a/b"));
        }
    }
}
