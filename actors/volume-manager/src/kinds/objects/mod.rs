//! Volumes of objects (rows 10.6 to 10.9): secrets, config maps, the pod's own fields, and all of these with tokens in one
//! projected volume. They are a directory, or a tmpfs for contents that must not get onto a disk.

mod fetch;
mod payload;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge_node::mounts::Measure;
use futures::future::BoxFuture;
use pod_rules::volume_plugins;

use self::payload::ObjectVolume;
pub(crate) use self::payload::POD_BYTES_MAX;
use super::{SetUp, VOLUME_WITHIN, VolumeKind, Wanted};
use crate::backends::Backends;
use crate::kinds::Measured;
use crate::source::Source;
use crate::steps::{self, SetUpError, Step, VolumePlan, in_time};

/// ConfigMap volumes.
pub(super) const CONFIG_MAP: ObjectKind = ObjectKind(volume_plugins::CONFIG_MAP);
/// DownwardAPI volumes.
pub(super) const DOWNWARD_API: ObjectKind = ObjectKind(volume_plugins::DOWNWARD_API);
/// Projected volumes.
pub(super) const PROJECTED: ObjectKind = ObjectKind(volume_plugins::PROJECTED);
/// Secret volumes.
pub(super) const SECRET: ObjectKind = ObjectKind(volume_plugins::SECRET);

/// One of the four kinds, by its plugin.
#[derive(Debug)]
pub(super) struct ObjectKind(&'static str);

impl ObjectKind {
    fn volume(&self, source: &Source) -> Option<ObjectVolume> {
        payload::of(source.inline()?).filter(|volume| volume.plugin == self.0)
    }
}

impl VolumeKind for ObjectKind {
    fn plugin(&self) -> &'static str {
        self.0
    }

    fn serves(&self, source: &Source) -> bool {
        self.volume(source).is_some()
    }

    fn plan(&self, wanted: &Wanted<'_>) -> Result<VolumePlan, String> {
        let objects = self.volume(wanted.source).ok_or("no volume of objects")?;
        if !wanted.node.in_cluster && !objects.is_of_pod_alone() {
            let field = wanted.source.field();
            return Err(format!("volume source {field} is not supported by this kubelet yet"));
        }
        let path = wanted.path(self.0)?;
        let mut steps = vec![Step::MakeEmptyDir { path: path.clone() }];
        if objects.in_memory && !wanted.is_mounted(&path, "tmpfs") {
            let bytes = wanted.memory_bytes_max;
            steps.push(Step::MountTmpfs { path: path.clone(), size_bytes: (bytes > 0).then_some(bytes) });
        }
        Ok(VolumePlan::of(path, steps))
    }

    fn set_up<'a>(
        &'a self,
        backends: &'a Backends,
        wanted: &'a Wanted<'a>,
        plan: &'a VolumePlan,
    ) -> BoxFuture<'a, Result<SetUp, SetUpError>> {
        Box::pin(async move {
            let is_projected = async { Ok(backends.mounts.is_projected(&plan.host_path).await?) };
            let shows_files = in_time(VOLUME_WITHIN, is_projected).await?;
            match in_time(VOLUME_WITHIN, self.show(backends, wanted, plan, shows_files)).await {
                Ok(()) => Ok(SetUp::Ready),
                Err(error) if shows_files => Ok(SetUp::Stale(error)),
                Err(error) => Err(error),
            }
        })
    }

    /// The files' own time, and that of the look at whether there are earlier ones.
    fn within(&self) -> Duration {
        VOLUME_WITHIN * 2
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
        Some(Box::pin(async move {
            // Nothing is made for a pod whose volumes are undone or not mounted yet.
            match backends.mounts.is_projected(&plan.host_path).await {
                Ok(true) => self.show(backends, wanted, plan, true).await,
                _ => Ok(()),
            }
        }))
    }

    /// Config maps alone may get onto a disk.
    fn may_lack_mounts(&self) -> bool {
        self.0 == volume_plugins::CONFIG_MAP
    }

    fn measure<'a>(
        &'a self,
        backends: &'a Backends,
        path: &'a Path,
    ) -> Option<BoxFuture<'a, Result<Measured, SetUpError>>> {
        Some(super::measured(backends, path, Measure::Tree))
    }
}

impl ObjectKind {
    /// Writes the present objects into a volume, which shows files already or does not. They are fetched first, so that without
    /// them nothing is touched.
    async fn show(
        &self,
        backends: &Backends,
        wanted: &Wanted<'_>,
        plan: &VolumePlan,
        shows_files: bool,
    ) -> Result<(), SetUpError> {
        let Some(objects) = self.volume(wanted.source) else { return Ok(()) };
        let fetched = fetch::projection(backends, objects, wanted).await.map_err(SetUpError::Refused)?;
        let (projection, _place) = fetched;
        let mounts = backends.mounts.as_ref();
        let in_place = shows_files && !plan.steps.iter().any(|step| matches!(step, Step::MountTmpfs { .. }));
        if !in_place {
            for step in &plan.steps {
                steps::run(mounts, step).await?;
            }
        }
        if mounts.project(&plan.host_path, Arc::new(projection)).await? {
            tracing::debug!(pod = %wanted.uid, volume = wanted.name, "A volume shows something new");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::{mount_point, plan, plan_alone};

    #[test]
    fn a_volume_of_objects_is_a_directory_and_a_secret_one_in_memory() {
        let at = |plugin: &str| format!("/var/lib/kubelet/pods/u/volumes/kubernetes.io~{plugin}/v");
        let make = |path: &str| Step::MakeEmptyDir { path: path.into() };
        let tmpfs = |path: &str| Step::MountTmpfs { path: path.into(), size_bytes: Some(1 << 30) };
        let there =
            |volume: &serde_json::Value, mounts: &[_]| plan(volume, mounts).expect("it can be mounted");
        let config_map = there(&serde_json::json!({"name": "v", "configMap": {"name": "x"}}), &[]);
        let path = at("configmap");
        assert_eq!((config_map.host_path, config_map.steps), (path.clone().into(), vec![make(&path)]));
        for (plugin, source) in [
            ("secret", serde_json::json!({"name": "v", "secret": {"secretName": "x"}})),
            ("projected", serde_json::json!({"name": "v", "projected": {"sources": []}})),
            ("downward-api", serde_json::json!({"name": "v", "downwardAPI": {"items": []}})),
        ] {
            let path = at(plugin);
            assert_eq!(there(&source, &[]).steps, [make(&path), tmpfs(&path)]);
            assert_eq!(there(&source, &[mount_point(&path, "tmpfs")]).steps, [make(&path)]);
        }
    }

    #[test]
    fn without_a_cluster_there_are_no_objects() {
        let config_map = serde_json::json!({"name": "v", "configMap": {"name": "x"}});
        let refused = "volume source configMap is not supported by this kubelet yet";
        assert_eq!(plan_alone(&config_map), Err(refused.to_owned()));
        assert!(plan_alone(&serde_json::json!({"name": "v", "downwardAPI": {"items": []}})).is_ok());
    }
}
