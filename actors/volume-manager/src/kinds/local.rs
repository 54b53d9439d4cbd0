//! Local persistent volumes (row 10.13): a directory or a disk of this node, bound into the pod's directory.

mod disk;

use std::path::{Path, PathBuf};

use bridge_node::mounts::{HelperMount, Measure, MountPoint};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::LocalVolumeSource;
use pod_rules::volume_plugins::LOCAL;

use super::block::{self, Places};
use super::{ExpandError, FoundVolume, SetUp, TornDown, VolumeKind, Wanted};
use crate::backends::Backends;
use crate::devices::Device;
use crate::kinds::Measured;
use crate::source::{Persistent, Source};
use crate::steps::{self, SetUpError, Step, VolumePlan};
use crate::{fs_group, notices};

/// The reason of the event about a volume that another pod has with another group.
const ALREADY_MOUNTED: &str = "AlreadyMountedVolume";

/// The kind.
#[derive(Debug)]
pub(super) struct Local;

/// The name of a volume's device, by which work on it takes its turn.
fn turn(name: &str) -> String {
    format!("{LOCAL}/{name}")
}

fn local(source: &Source) -> Option<&LocalVolumeSource> {
    source.persistent()?.spec()?.local.as_ref()
}

/// The step that shows the directory to the pod. Only the program `mount` knows all options.
fn bind(persistent: &Persistent, source: PathBuf, path: PathBuf) -> Step {
    let read_only = persistent.read_only;
    let mut options = persistent.mount_options();
    if options.is_empty() {
        return Step::BindDirectory { source, path, read_only };
    }
    options.insert("bind".to_owned());
    if read_only {
        options.insert("ro".to_owned());
    }
    let source = source.to_string_lossy().into_owned();
    let mount = HelperMount { fs_type: String::new(), source, options: options.into_iter().collect() };
    Step::MountByHelper { path, mount }
}

/// PURE: whether another place shows the same directory as the mount at `path`.
fn is_shared(mounts: &[MountPoint], path: &Path) -> bool {
    let own = mounts.iter().rfind(|mount| mount.path == path);
    let same = |own: &MountPoint, other: &MountPoint| {
        own.path != other.path && (&own.root, own.device) == (&other.root, other.device)
    };
    own.is_some_and(|own| mounts.iter().any(|other| same(own, other)))
}

fn other_group(volume: &str, wanted: u32, found: u32) -> String {
    format!(
        "The requested fsGroup is {wanted}, but the volume {volume} has GID {found}. The volume may not be shareable."
    )
}

impl VolumeKind for Local {
    fn plugin(&self) -> &'static str {
        LOCAL
    }

    fn serves(&self, source: &Source) -> bool {
        local(source).is_some()
    }

    fn plan(&self, wanted: &Wanted<'_>) -> Result<VolumePlan, String> {
        let (Some(persistent), Some(local)) = (wanted.source.persistent(), local(wanted.source)) else {
            return Err("no local volume".to_owned());
        };
        if local.path.is_empty() {
            return Err(format!("LocalVolume volume {:?} path is empty", persistent.name()));
        }
        if local.path.split('/').any(|part| part == "..") {
            return Err(format!("invalid path: {} must not contain '..'", local.path));
        }
        if persistent.is_block() {
            let places = Places::usual(wanted.node, wanted.uid.as_str(), LOCAL, persistent.name())?;
            return Ok(VolumePlan::of(places.link, Vec::new()));
        }
        let (source, path) = (PathBuf::from("/").join(&local.path), wanted.path(LOCAL)?);
        let is_new = !wanted.mounts.has(&path);
        let read_only = persistent.read_only;
        let mut steps =
            vec![Step::MakeMountPoint { path: path.clone() }, bind(persistent, source, path.clone())];
        if is_new && !read_only {
            steps.extend(fs_group::change(wanted.pod, &path));
        }
        Ok(VolumePlan::of(path, steps))
    }

    fn takes_mount_options(&self) -> bool {
        true
    }

    fn shares_devices(&self) -> bool {
        true
    }

    fn has_block_devices(&self) -> bool {
        true
    }

    /// What a directory of the node or a pod's device holds is not the kubelet's: as upstream, it is only told.
    fn expands(&self) -> bool {
        true
    }

    fn expand<'a>(
        &'a self,
        backends: &'a Backends,
        wanted: &'a Wanted<'a>,
        _plan: &'a VolumePlan,
        _bytes: i64,
    ) -> BoxFuture<'a, Result<bool, ExpandError>> {
        Box::pin(async move {
            let Some(local) = local(wanted.source).filter(|_| !wanted.source.is_block()) else {
                return Ok(true);
            };
            let path = Path::new("/").join(&local.path);
            if !disk::is_disk(backends, &path).await {
                return Ok(true);
            }
            let grown = disk::grow(backends, wanted.source.spec_name(), &path).await;
            grown.map_err(|error| ExpandError::Final(error.to_string()))
        })
    }

    /// The volume's files are given to the group of the first pod that uses it.
    fn set_up<'a>(
        &'a self,
        backends: &'a Backends,
        wanted: &'a Wanted<'a>,
        plan: &'a VolumePlan,
    ) -> BoxFuture<'a, Result<SetUp, SetUpError>> {
        Box::pin(async move {
            let mounts = backends.mounts.as_ref();
            if wanted.source.is_block() {
                let name = wanted.source.spec_name();
                let places = Places::usual(wanted.node, wanted.uid.as_str(), LOCAL, name);
                let places = places.map_err(SetUpError::Refused)?;
                let local = local(wanted.source).map(|local| Path::new("/").join(&local.path));
                let _turn = backends.devices.turn(&turn(name)).await;
                block::map(backends, wanted, &local.unwrap_or_default(), &places).await?;
                return Ok(SetUp::Ready);
            }
            let disk = match (wanted.source.persistent(), local(wanted.source)) {
                (Some(persistent), Some(local))
                    if disk::is_disk(backends, &Path::new("/").join(&local.path)).await =>
                {
                    let place = disk::mounted(backends, wanted, persistent).await?;
                    Some(bind(persistent, place, plan.host_path.clone()))
                }
                _ => None,
            };
            // Of several pods that begin at the same time one sees no other, and gives the volume to its group.
            let place = local(wanted.source).map(|local| format!("ownership of /{}", local.path));
            let _turn = backends.devices.turn(&place.unwrap_or_default()).await;
            for step in &plan.steps {
                let step = match (step, &disk) {
                    (Step::BindDirectory { .. } | Step::MountByHelper { .. }, Some(of_disk)) => of_disk,
                    (step, _) => step,
                };
                if let Step::SetGroup { path, gid, .. } = step {
                    let all = mounts.list_below(&backends.pod_dirs.layout().pods()).await?;
                    if is_shared(&all, path) {
                        let found = mounts.group_of(path).await?;
                        if found != *gid {
                            let name = wanted.source.spec_name();
                            notices::warn(
                                &backends.events,
                                wanted.pod,
                                ALREADY_MOUNTED,
                                other_group(name, *gid, found),
                            );
                        }
                        continue;
                    }
                }
                steps::run(mounts, step).await?;
            }
            Ok(SetUp::Ready)
        })
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

    fn idle_devices<'a>(&'a self, backends: &'a Backends) -> BoxFuture<'a, Result<Vec<Device>, SetUpError>> {
        disk::idle(backends).boxed()
    }

    fn release<'a>(
        &'a self,
        backends: &'a Backends,
        device: &'a Device,
    ) -> BoxFuture<'a, Result<(), SetUpError>> {
        disk::release(backends, device).boxed()
    }

    /// Directories are undone by unmounting them, and so are disks, which are taken from the node when no pod has them.
    fn tear_down<'a>(
        &'a self,
        backends: &'a Backends,
        found: &'a FoundVolume<'a>,
    ) -> Option<BoxFuture<'a, Result<TornDown, SetUpError>>> {
        if !found.is_block {
            return None;
        }
        Some(Box::pin(async move {
            let places = Places::found(backends.node(), LOCAL, found).map_err(SetUpError::Refused)?;
            let _turn = backends.devices.turn(&turn(found.name)).await;
            block::unmap(backends, &places).await?;
            Ok(TornDown::default())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::{mount_point, persistent, plan_of, pod};

    const V: &str = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~local-volume/pv";

    #[test]
    fn a_local_volume_is_bound_below_the_pod() {
        let volume =
            |path: &str, read_only| persistent(serde_json::json!({"local": {"path": path}}), read_only);
        let make = Step::MakeMountPoint { path: V.into() };
        let bind = |read_only| Step::BindDirectory { source: "/disks/a".into(), path: V.into(), read_only };
        let steps =
            |pod: &_, source: &Source, mounts: &[_]| plan_of(pod, source, mounts).map(|plan| plan.steps);
        assert_eq!(steps(&pod(), &volume("/disks/a", false), &[]), Ok(vec![make.clone(), bind(false)]));
        let mut grouped = pod();
        grouped.spec.as_mut().expect("spec").security_context = serde_json::from_value(
            serde_json::json!({"fsGroup": 7, "fsGroupChangePolicy": "OnRootMismatch"}),
        )
        .expect("a context");
        let given = steps(&grouped, &volume("/disks/a", false), &[]).expect("it can be mounted");
        assert_eq!(given.len(), 3, "its files are given to the group: {given:?}");
        let again = steps(&grouped, &volume("/disks/a", false), &[mount_point(V, "ext4")]);
        assert_eq!(again.map(|steps| steps.len()), Ok(2), "once");
        assert_eq!(
            steps(&grouped, &volume("/disks/a", true), &[]),
            Ok(vec![make, bind(true)]),
            "what is read-only is not written to"
        );
        let spec = serde_json::json!({"local": {"path": "/disks/a"}, "mountOptions": ["noexec"]});
        let with_options = steps(&pod(), &persistent(spec, true), &[]).expect("it can be mounted");
        let options = ["bind", "noexec", "ro"].map(str::to_owned).to_vec();
        let mount = HelperMount { fs_type: String::new(), source: "/disks/a".to_owned(), options };
        assert_eq!(with_options[1], Step::MountByHelper { path: V.into(), mount });
        let empty = steps(&pod(), &volume("", false), &[]);
        assert_eq!(empty, Err("LocalVolume volume \"pv\" path is empty".to_owned()));
        assert!(steps(&pod(), &volume("/a/../b", false), &[]).is_err());
    }

    #[test]
    fn a_directory_that_another_pod_has_keeps_its_group() {
        let mount = |path: &str, root: &str, minor| MountPoint {
            root: root.into(),
            device: (8, minor),
            ..mount_point(path, "ext4")
        };
        let own = mount(V, "/disks/a", 1);
        let other = |root, minor| mount("/var/lib/kubelet/pods/other/volumes/x/pv", root, minor);
        assert!(is_shared(&[own.clone(), other("/disks/a", 1)], Path::new(V)));
        assert!(!is_shared(&[own.clone(), other("/disks/b", 1)], Path::new(V)));
        assert!(!is_shared(&[own.clone(), other("/disks/a", 2)], Path::new(V)));
        assert!(!is_shared(&[own.clone(), own], Path::new(V)) && !is_shared(&[], Path::new(V)));
        assert_eq!(
            other_group("pv", 7, 8),
            "The requested fsGroup is 7, but the volume pv has GID 8. The volume may not be shareable."
        );
    }
}
