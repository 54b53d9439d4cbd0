//! Volumes of CSI drivers (rows 10.2, 10.3 and 10.16): persistent ones, which are staged once for the node and published to each
//! pod, and inline ones, which live as long as their pod. A driver's volume is only ever undone by its driver.

mod device;
mod expand;
mod label;
mod measure;
mod notes;
mod set_up;
mod tear_down;
mod volume;

use std::path::Path;
use std::time::Duration;

use bridge_csi::rules::paths::Paths;
use futures::FutureExt;
use futures::future::BoxFuture;
use pod_rules::volume_plugins::CSI;

use super::{ExpandError, FoundVolume, SetUp, TornDown, VolumeKind, Wanted};
use crate::backends::{Backends, NodeFacts};
use crate::devices::Device;
use crate::kinds::Measured;
use crate::source::Source;
use crate::steps::{SetUpError, VolumePlan};
use volume::CsiVolume;

/// How long a set-up may take: a wait for the controller and three calls to the driver, each of which ends by its own deadline.
const SET_UP_WITHIN: Duration = Duration::from_secs(600);

/// The kind.
#[derive(Debug)]
pub(super) struct Csi;

fn paths(node: NodeFacts<'_>) -> Paths {
    Paths::new(node.layout.root())
}

impl VolumeKind for Csi {
    fn plugin(&self) -> &'static str {
        CSI
    }

    fn label(&self, source: &Source) -> String {
        volume::driver_of(source).map_or_else(|| CSI.to_owned(), |driver| format!("{CSI}:{driver}"))
    }

    fn label_of(&self, unique_name: &str) -> String {
        volume::named(unique_name).map_or_else(|| CSI.to_owned(), |(driver, _)| format!("{CSI}:{driver}"))
    }

    fn serves(&self, source: &Source) -> bool {
        volume::serves(source)
    }

    /// The steps follow from what the driver can do and from what is there already, so the plan is the place alone.
    fn plan(&self, wanted: &Wanted<'_>) -> Result<VolumePlan, String> {
        let volume = CsiVolume::of(wanted.source, wanted.pod).ok_or("no volume of a CSI driver")?;
        let paths = paths(wanted.node);
        if volume.is_block {
            let link = paths.pod_device(wanted.uid.as_str(), wanted.source.spec_name());
            return Ok(VolumePlan::of(link.map_err(|error| error.to_string())?, Vec::new()));
        }
        paths.device_mount(&volume.driver, &volume.handle).map_err(|error| error.to_string())?;
        let target = paths.target(wanted.uid.as_str(), wanted.source.spec_name());
        Ok(VolumePlan::of(target.map_err(|error| error.to_string())?, Vec::new()))
    }

    fn set_up<'a>(
        &'a self,
        backends: &'a Backends,
        wanted: &'a Wanted<'a>,
        plan: &'a VolumePlan,
    ) -> BoxFuture<'a, Result<SetUp, SetUpError>> {
        set_up::set_up(backends, wanted, &plan.host_path).boxed()
    }

    fn within(&self) -> Duration {
        SET_UP_WITHIN
    }

    fn refreshes(&self) -> bool {
        true
    }

    fn refresh<'a>(
        &'a self,
        backends: &'a Backends,
        wanted: &'a Wanted<'a>,
        plan: &'a VolumePlan,
    ) -> Option<BoxFuture<'a, Result<(), SetUpError>>> {
        Some(set_up::publish_anew(backends, wanted, &plan.host_path).boxed())
    }

    fn takes_mount_options(&self) -> bool {
        true
    }

    fn takes_label<'a>(
        &'a self,
        backends: &'a Backends,
        source: &'a Source,
    ) -> BoxFuture<'a, Result<bool, String>> {
        async {
            let driver = volume::driver_of(source).unwrap_or_default();
            let policy = label::policy(backends, driver).await.map_err(|error| error.to_string())?;
            Ok(policy.se_linux_mount)
        }
        .boxed()
    }

    fn shares_devices(&self) -> bool {
        true
    }

    fn may_lack_labels(&self) -> bool {
        true
    }

    fn has_block_devices(&self) -> bool {
        true
    }

    fn expands(&self) -> bool {
        true
    }

    fn expand<'a>(
        &'a self,
        backends: &'a Backends,
        wanted: &'a Wanted<'a>,
        plan: &'a VolumePlan,
        bytes: i64,
    ) -> BoxFuture<'a, Result<bool, ExpandError>> {
        expand::expand(backends, wanted, &plan.host_path, bytes).boxed()
    }

    /// The driver's own figures, with the volume's health where it tells of that.
    fn measure<'a>(
        &'a self,
        backends: &'a Backends,
        path: &'a Path,
    ) -> Option<BoxFuture<'a, Result<Measured, SetUpError>>> {
        Some(measure::measure(backends, path).boxed())
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn tear_down<'a>(
        &'a self,
        backends: &'a Backends,
        found: &'a FoundVolume<'a>,
    ) -> Option<BoxFuture<'a, Result<TornDown, SetUpError>>> {
        Some(tear_down::tear_down(backends, found).boxed())
    }

    fn idle_devices<'a>(&'a self, backends: &'a Backends) -> BoxFuture<'a, Result<Vec<Device>, SetUpError>> {
        tear_down::idle_devices(backends).boxed()
    }

    fn release<'a>(
        &'a self,
        backends: &'a Backends,
        device: &'a Device,
    ) -> BoxFuture<'a, Result<(), SetUpError>> {
        tear_down::release(backends, device).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::{inline, persistent, plan_of, pod};

    #[test]
    fn metrics_name_the_driver() {
        let claimed =
            persistent(serde_json::json!({"csi": {"driver": "d.example", "volumeHandle": "h"}}), false);
        let alone = inline(&serde_json::json!({"name": "v", "csi": {"driver": "e.example"}}));
        assert_eq!(Csi.label(&claimed), "kubernetes.io/csi:d.example");
        assert_eq!(Csi.label(&alone), "kubernetes.io/csi:e.example");
        assert_eq!(Csi.label_of("kubernetes.io/csi/d.example^h"), "kubernetes.io/csi:d.example");
    }

    #[test]
    fn a_volume_is_shown_where_the_go_kubelet_shows_it() {
        let spec = |driver: &str| serde_json::json!({"csi": {"driver": driver, "volumeHandle": "h"}});
        let place = |source: &Source| plan_of(&pod(), source, &[]).map(|plan| plan.host_path);
        let volumes = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi";
        assert_eq!(place(&persistent(spec("d.example"), false)), Ok(format!("{volumes}/pv/mount").into()));
        let scratch = serde_json::json!({"name": "v", "csi": {"driver": "d.example"}});
        assert_eq!(place(&inline(&scratch)), Ok(format!("{volumes}/v/mount").into()));
        assert!(place(&persistent(spec(".."), false)).is_err(), "a name that leads elsewhere");
        let mut block = spec("d.example");
        block["volumeMode"] = serde_json::json!("Block");
        let link = "/var/lib/kubelet/pods/u/volumeDevices/kubernetes.io~csi/pv";
        assert_eq!(place(&persistent(block, false)), Ok(link.into()));
    }
}
