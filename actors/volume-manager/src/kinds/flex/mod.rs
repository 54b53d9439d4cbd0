//! Volumes of FlexVolume drivers (row 10.15): programs of the node that mount them, and without which they are not undone.

mod set_up;
mod tear_down;
mod volume;

use std::path::Path;
use std::time::Duration;

use bridge_node::mounts::Measure;
use futures::FutureExt;
use futures::future::BoxFuture;
use pod_rules::volume_plugins::{FLEX_VOLUME, is_flex_driver};
use pod_spec::quantity::Quantity;

use super::{ExpandError, FoundVolume, Measured, SetUp, TornDown, VolumeKind, Wanted};
use crate::backends::Backends;
use crate::devices::Device;
use crate::flex::Undone;
use crate::source::Source;
use crate::steps::{SetUpError, VolumePlan};
use set_up::Job;

/// How long a set-up may take: a wait for the controller and a few calls to the driver, each of which ends by its own deadline.
const SET_UP_WITHIN: Duration = Duration::from_secs(600);

/// The kind.
#[derive(Debug)]
pub(super) struct Flex;

impl VolumeKind for Flex {
    fn plugin(&self) -> &'static str {
        FLEX_VOLUME
    }

    fn label(&self, source: &Source) -> String {
        volume::driver_of(source).unwrap_or(FLEX_VOLUME).to_owned()
    }

    fn has_plugin(&self, plugin: &str) -> bool {
        is_flex_driver(plugin)
    }

    fn serves(&self, source: &Source) -> bool {
        volume::driver_of(source).is_some()
    }

    fn is_there<'a>(
        &'a self,
        backends: &'a Backends,
        source: &'a Source,
    ) -> BoxFuture<'a, Result<(), String>> {
        set_up::has_driver(backends, source).boxed()
    }

    /// What is done depends on what the driver can do, so the plan is the place alone.
    fn plan(&self, wanted: &Wanted<'_>) -> Result<VolumePlan, String> {
        let driver = volume::driver_of(wanted.source).unwrap_or_default();
        if !is_flex_driver(driver) {
            return Err(format!("{driver:?} is not the name of a FlexVolume driver"));
        }
        Ok(VolumePlan::of(wanted.path(driver)?, Vec::new()))
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

    fn keeps_labels_of(&self, backends: &Backends, source: &Source) -> bool {
        let driver = volume::driver_of(source).unwrap_or_default();
        backends.flex.last_able(driver).is_some_and(|able| !able.relabels)
    }

    fn is_remote(&self) -> bool {
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
        expand(backends, wanted, &plan.host_path, bytes).boxed()
    }

    /// Only of drivers that say that their volumes can be measured.
    fn measure<'a>(
        &'a self,
        backends: &'a Backends,
        path: &'a Path,
    ) -> Option<BoxFuture<'a, Result<Measured, SetUpError>>> {
        let driver = volume::driver_at(path)?;
        let able = backends.flex.last_able(&driver)?;
        able.metrics.then(|| super::measured(backends, path, Measure::FileSystem))
    }

    fn tear_down<'a>(
        &'a self,
        backends: &'a Backends,
        found: &'a FoundVolume<'a>,
    ) -> Option<BoxFuture<'a, Result<TornDown, SetUpError>>> {
        let driver = volume::driver_at(found.dir).filter(|_| !found.is_block)?;
        Some(Box::pin(async move { tear_down::tear_down(backends, found, &driver).await }))
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

/// The name by which Nodes report a device of this kind.
pub(super) fn reported(device: &str) -> Option<&str> {
    device.strip_prefix(FLEX_VOLUME)?.strip_prefix('/')
}

/// Has the driver make the file system of a volume as large as the volume.
async fn expand(
    backends: &Backends,
    wanted: &Wanted<'_>,
    path: &Path,
    bytes: i64,
) -> Result<bool, ExpandError> {
    let transient = ExpandError::Transient;
    let job = Job::of(backends, wanted, path).map_err(|error| transient(error.to_string()))?;
    let able = backends.flex.able(&job.volume.driver).await.map_err(transient)?;
    if !able.resizes {
        return Err(ExpandError::NotSupported(format!(
            "flexVolume driver {} resizes no file systems",
            job.volume.driver
        )));
    }
    let (device, mounted) = match able.attach {
        true => (job.device_path(), job.place.as_path()),
        false => (String::new(), path),
    };
    let told = job.volume.told(Default::default()).map_err(transient)?;
    let arguments = vec![
        told,
        device.clone(),
        mounted.to_string_lossy().into_owned(),
        bytes.to_string(),
        size_before(wanted.source).to_string(),
    ];
    match job.call(mounted, "expandfs", arguments).await {
        Ok(_) => Ok(true),
        // There is no disk of which the kubelet knows.
        Err(Undone::NotSupported) if device.is_empty() => Ok(true),
        Err(Undone::NotSupported) => {
            let grown = backends.mounts.grow_file_system(mounted, Path::new(&device)).await;
            grown.map(|()| true).map_err(|error| ExpandError::Final(error.to_string()))
        }
        Err(Undone::Failed(why)) => Err(ExpandError::Final(why)),
    }
}

/// The size that the claim of a PersistentVolume tells, in bytes; 0 if it tells none.
fn size_before(source: &Source) -> i64 {
    let told = source.persistent().and_then(|persistent| persistent.claim.status.as_ref());
    let size = told.and_then(|status| status.capacity.as_ref()?.get("storage"));
    let size = size.and_then(|size| Quantity::parse(&size.0).ok()).unwrap_or(Quantity::ZERO);
    size.units_rounded_up()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::tests::{inline, persistent, plan_of, pod};
    use crate::kinds::{of_device, of_plugin};

    #[test]
    fn a_volume_is_in_the_directory_of_its_driver() {
        let place = |driver: &str| {
            let source = inline(&json!({"name": "v", "flexVolume": {"driver": driver}}));
            plan_of(&pod(), &source, &[]).map(|plan| plan.host_path)
        };
        let volumes = "/var/lib/kubelet/pods/u/volumes";
        assert_eq!(place("vendor/tool"), Ok(format!("{volumes}/vendor~tool/v").into()));
        assert_eq!(place("tool"), Ok(format!("{volumes}/tool/v").into()));
        for driver in ["", "../x", "kubernetes.io/csi", "a/b/c", "a~b"] {
            assert_eq!(place(driver), Err(format!("{driver:?} is not the name of a FlexVolume driver")));
        }
        let claimed = persistent(json!({"flexVolume": {"driver": "vendor/tool"}}), false);
        let plan = plan_of(&pod(), &claimed, &[]).expect("it can be mounted");
        assert_eq!(plan.host_path, Path::new(&format!("{volumes}/vendor~tool/pv")));
        assert_eq!(Flex.label(&claimed), "vendor/tool");
    }

    #[test]
    fn volumes_and_devices_of_drivers_are_known_by_their_names() {
        let kind = of_plugin("vendor/tool").expect("a kind");
        assert_eq!(kind.plugin(), FLEX_VOLUME);
        let device = "kubernetes.io/flexvolume/vendor/tool/v";
        assert_eq!(crate::kinds::reported(device), "vendor/tool/v");
        assert_eq!(crate::kinds::reported("kubernetes.io/csi/d^h"), "kubernetes.io/csi/d^h");
        let kind = of_device(device).expect("a kind");
        assert_eq!(kind.plugin(), FLEX_VOLUME);
        assert!(of_plugin("kubernetes.io/other").is_none());
    }

    #[test]
    fn a_driver_is_told_how_large_a_volume_was() {
        let source = persistent(json!({"flexVolume": {"driver": "vendor/tool"}}), false);
        assert_eq!(size_before(&source), 0);
        let Source::Persistent(mut claimed) = source else { panic!("it is persistent") };
        let claim = json!({"metadata": {}, "status": {"capacity": {"storage": "1Gi"}}});
        claimed.claim = std::sync::Arc::new(serde_json::from_value(claim).expect("a claim"));
        assert_eq!(size_before(&Source::Persistent(claimed)), 1 << 30);
    }
}
