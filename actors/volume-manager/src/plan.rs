//! The steps that make a pod's volumes ready (rows 10.4 and 10.5), and those that undo them: from the desired
//! volumes and the present mounts. Each step may be repeated.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bridge_node::host::{Layout, SUBPATHS};
use bridge_node::mounts::{HostPathType, MountPoint};
use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, EphemeralContainer, HostPathVolumeSource, Pod, PodSpec, Volume, VolumeMount,
};
use messages::PodUid;
use messages::volume_manager::VolumeError;
use pod_rules::volume_plugins::{EMPTY_DIR, HOST_PATH};
use pod_rules::volumes;

use crate::payload::{self, ObjectVolume};
use crate::{huge_pages, memory};

/// One step. Repeating it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the directory of an emptyDir, writable for every user.
    MakeEmptyDir {
        /// The directory.
        path: PathBuf,
    },
    /// Mount a tmpfs on a directory.
    MountTmpfs {
        /// The directory.
        path: PathBuf,
        /// Its size in bytes; `None` for the kernel's own limit. Never 0, which the kernel takes for no
        /// limit.
        size_bytes: Option<u64>,
    },
    /// Mount huge pages on a directory.
    MountHugePages {
        /// The directory.
        path: PathBuf,
        /// Bytes of one page.
        page_bytes: u64,
    },
    /// Give a directory to the pod's group.
    SetGroup {
        /// The directory.
        path: PathBuf,
        /// `spec.securityContext.fsGroup`.
        gid: u32,
    },
    /// Note that the steps before this one are done.
    SetReady {
        /// The plugin's directory for notes about the volume.
        marker: PathBuf,
    },
    /// Check that a path of the host is of the kind that the pod expects, or make it if the kind asks for
    /// that.
    CheckHostPath {
        /// The path.
        path: PathBuf,
        /// `type` of the hostPath volume.
        kind: HostPathType,
    },
}

/// The plan that makes one volume ready.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumePlan {
    /// The volume's name in the pod spec.
    pub name: String,
    /// The volume's plugin.
    pub plugin: &'static str,
    /// The path on the host that containers mount.
    pub host_path: PathBuf,
    /// The directory of the note that all steps were done before: then none is repeated, because containers
    /// may have changed the volume since. Absent if the steps are needed in any case.
    pub ready: Option<PathBuf>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// For a volume of objects: the objects to show after the steps.
    pub objects: Option<ObjectVolume>,
}

/// The facts about the node that plans depend on.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The paths of the kubelet's directories.
    pub layout: &'a Layout,
    /// Memory that pods may have on this node, in bytes.
    pub allocatable_memory_bytes: u64,
    /// Whether there is an API server to fetch objects from.
    pub in_cluster: bool,
}

/// The plan of every volume that a container of the pod uses, in the pod spec's order; unused volumes are not
/// mounted, as upstream has it. `mounts` are the mounts below the pod's directory.
pub fn mount(
    uid: &PodUid,
    pod: &Pod,
    node: PlanInput<'_>,
    mounts: &[MountPoint],
) -> Vec<Result<VolumePlan, VolumeError>> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let used = used_volumes(spec);
    let volumes = spec.volumes.iter().flatten().filter(|volume| used.contains(volume.name.as_str()));
    volumes.map(|volume| mount_one(volume, pod, uid, node, mounts)).collect()
}

/// Whether the pod's status at the API server says that a kubelet has started containers of it.
pub fn was_started(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().any(|container| container.container_id.is_some())
}

/// The names of the volumes that containers of the pod use, in order.
pub fn used_names(pod: &Pod) -> Vec<String> {
    pod.spec.as_ref().map(used_volumes).unwrap_or_default().into_iter().map(str::to_owned).collect()
}

fn used_volumes(spec: &PodSpec) -> BTreeSet<&str> {
    fn names(mounts: &Option<Vec<VolumeMount>>) -> impl Iterator<Item = &str> {
        mounts.iter().flatten().map(|mount| mount.name.as_str())
    }
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let devices = containers.clone().flat_map(|container| container.volume_devices.iter().flatten());
    containers
        .flat_map(|container| names(&container.volume_mounts))
        .chain(ephemeral.flat_map(|EphemeralContainer { volume_mounts, .. }| names(volume_mounts)))
        .chain(devices.map(|device| device.name.as_str()))
        .collect()
}

fn mount_one(
    volume: &Volume,
    pod: &Pod,
    uid: &PodUid,
    node: PlanInput<'_>,
    mounts: &[MountPoint],
) -> Result<VolumePlan, VolumeError> {
    let failed = |message: String| VolumeError { volume: volume.name.clone(), message };
    if let Some(source) = &volume.host_path {
        return host_path(volume, source).map_err(failed);
    }
    if let Some(objects) = payload::of(volume).filter(|objects| node.in_cluster || objects.is_of_pod_alone())
    {
        return of_objects(volume, objects, pod, uid, node, mounts).map_err(failed);
    }
    match source_of(volume) {
        // A volume without any source is an emptyDir, as the API defaults it.
        None => empty_dir(volume, &EmptyDirVolumeSource::default(), pod, uid, node, mounts).map_err(failed),
        Some(source) => match &volume.empty_dir {
            Some(source) => empty_dir(volume, source, pod, uid, node, mounts).map_err(failed),
            None => Err(failed(format!("volume source {source} is not supported by this kubelet yet"))),
        },
    }
}

/// The field of the volume that is its source, as the API spells it.
fn source_of(volume: &Volume) -> Option<String> {
    let fields = serde_json::to_value(volume).ok()?;
    fields.as_object()?.keys().find(|field| *field != "name").cloned()
}

fn host_path(volume: &Volume, source: &HostPathVolumeSource) -> Result<VolumePlan, String> {
    let path = PathBuf::from(&source.path);
    if source.path.split('/').any(|part| part == "..") {
        return Err(format!("invalid HostPath `{}`: must not contain '..'", source.path));
    }
    let kind: HostPathType =
        source.type_.as_deref().unwrap_or_default().parse().map_err(|error| format!("{error}"))?;
    let steps = match kind {
        HostPathType::Unset => Vec::new(),
        kind => vec![Step::CheckHostPath { path: path.clone(), kind }],
    };
    Ok(VolumePlan {
        name: volume.name.clone(),
        plugin: HOST_PATH,
        host_path: path,
        ready: None,
        steps,
        objects: None,
    })
}

/// The plan of a volume of objects: a directory, or a tmpfs for contents that must not get onto a disk.
fn of_objects(
    volume: &Volume,
    objects: ObjectVolume,
    pod: &Pod,
    uid: &PodUid,
    node: PlanInput<'_>,
    mounts: &[MountPoint],
) -> Result<VolumePlan, String> {
    let path = node.layout.pod_volume(uid.as_str(), objects.plugin, &volume.name);
    let path = path.map_err(|error| error.to_string())?;
    let mut steps = vec![Step::MakeEmptyDir { path: path.clone() }];
    let is_mounted = mounts.iter().any(|mount| mount.path == path && mount.fs_type == "tmpfs");
    if objects.in_memory && !is_mounted {
        let bytes = memory::tmpfs_bytes(None, pod, node.allocatable_memory_bytes);
        steps.push(Step::MountTmpfs { path: path.clone(), size_bytes: (bytes > 0).then_some(bytes) });
    }
    let (name, plugin) = (volume.name.clone(), objects.plugin);
    Ok(VolumePlan { name, plugin, host_path: path, ready: None, steps, objects: Some(objects) })
}

/// Whether the pod has volumes of objects, whose files change with the objects.
pub fn shows_objects(pod: &Pod) -> bool {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(volumes::shows_objects)
}

fn empty_dir(
    volume: &Volume,
    source: &EmptyDirVolumeSource,
    pod: &Pod,
    uid: &PodUid,
    node: PlanInput<'_>,
    mounts: &[MountPoint],
) -> Result<VolumePlan, String> {
    let path =
        node.layout.pod_volume(uid.as_str(), EMPTY_DIR, &volume.name).map_err(|error| error.to_string())?;
    let marker =
        node.layout.pod_plugin(uid.as_str(), EMPTY_DIR, &volume.name).map_err(|error| error.to_string())?;
    let mut steps = vec![Step::MakeEmptyDir { path: path.clone() }];
    let mut ready = Some(marker.clone());
    match source.medium.as_deref().unwrap_or_default() {
        "" => {}
        "Memory" => {
            let there = mounts.iter().any(|mount| mount.path == path && mount.fs_type == "tmpfs");
            if !there {
                // The note is about a tmpfs that is gone, as after a reboot.
                ready = None;
                let limit = source.size_limit.as_ref();
                let bytes = memory::tmpfs_bytes(limit, pod, node.allocatable_memory_bytes);
                let size_bytes = (bytes > 0).then_some(bytes);
                steps.push(Step::MountTmpfs { path: path.clone(), size_bytes });
            }
        }
        medium => {
            let page_bytes = huge_pages::page_bytes(medium, pod)?;
            let there = mounts.iter().any(|mount| mount.path == path && mount.fs_type == "hugetlbfs");
            if !there {
                ready = None;
                steps.push(Step::MountHugePages { path: path.clone(), page_bytes });
            }
        }
    }
    // `fsGroupChangePolicy` is for volumes that outlive their pods; an emptyDir begins empty.
    steps.extend(payload::fs_group(pod).map(|gid| Step::SetGroup { path: path.clone(), gid }));
    steps.push(Step::SetReady { marker });
    let name = volume.name.clone();
    Ok(VolumePlan { name, plugin: EMPTY_DIR, host_path: path, ready, steps, objects: None })
}

/// Every path below a pod's directory on which something is mounted, in the order of unmounting: the latest
/// mount first, each path once. `mounts` are in the order in which they were made.
pub fn unmount(pod_dir: &Path, mounts: &[MountPoint]) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let below = mounts.iter().rev().filter(|mount| mount.path.starts_with(pod_dir));
    below.filter(|mount| seen.insert(&mount.path)).map(|mount| mount.path.clone()).collect()
}

/// The name of the volume of which a part is mounted at `path` below a pod's directory, by upstream's layout
/// `volume-subpaths/<name>/<container>/<index>`.
pub fn subpath_of(pod_dir: &Path, path: &Path) -> Option<String> {
    let mut parts = path.strip_prefix(pod_dir).ok()?.iter().map(|part| part.to_string_lossy());
    if parts.next()? != SUBPATHS { None } else { parts.next().map(|name| name.into_owned()) }
}

/// The plugin and name of the volume at `path` below a pod's directory, by upstream's layout `volumes/<plugin
/// with ~>/<name>`.
pub fn volume_at(pod_dir: &Path, path: &Path) -> Option<(String, String)> {
    let mut parts = path.strip_prefix(pod_dir).ok()?.iter().map(|part| part.to_string_lossy());
    if parts.next()? != "volumes" {
        return None;
    }
    let (plugin, name) = (parts.next()?, parts.next()?);
    Some((plugin.replace('~', "/"), name.into_owned()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, Container, PodSecurityContext};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use proptest::prelude::*;

    use super::*;

    const V: &str = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v";
    const MARKER: &str = "/var/lib/kubelet/pods/u/plugins/kubernetes.io~empty-dir/v";

    fn mount_point(path: &str, fs_type: &str) -> MountPoint {
        MountPoint {
            fs_options: Vec::new(),
            path: path.into(),
            root: "/".into(),
            fs_type: fs_type.to_owned(),
            source: fs_type.to_owned(),
            options: Vec::new(),
            device: (0, 1),
        }
    }

    fn volume() -> Volume {
        Volume { name: "v".to_owned(), ..Volume::default() }
    }

    fn pod(volumes: Vec<Volume>) -> Pod {
        let used = |volume: &Volume| VolumeMount { name: volume.name.clone(), ..VolumeMount::default() };
        let container = Container {
            volume_mounts: Some(volumes.iter().filter(|v| v.name != "unused").map(used).collect()),
            ..Container::default()
        };
        let spec = PodSpec { containers: vec![container], volumes: Some(volumes), ..PodSpec::default() };
        let metadata = ObjectMeta { uid: Some("u".to_owned()), ..ObjectMeta::default() };
        Pod { metadata, spec: Some(spec), status: None }
    }

    fn layout() -> Layout {
        Layout::new("/var/lib/kubelet", "/var/log/pods", "/var/log/containers").expect("it is canonical")
    }

    fn plans(volumes: Vec<Volume>, mounts: &[MountPoint]) -> Vec<Result<VolumePlan, VolumeError>> {
        let layout = layout();
        mount(
            &PodUid::new("u"),
            &pod(volumes),
            PlanInput { layout: &layout, allocatable_memory_bytes: 1 << 30, in_cluster: false },
            mounts,
        )
    }

    fn in_memory(size_limit: Option<&str>) -> Volume {
        let empty_dir = EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: size_limit.map(|limit| Quantity(limit.to_owned())),
        };
        Volume { empty_dir: Some(empty_dir), ..volume() }
    }

    fn steps(volume: Volume, mounts: &[MountPoint]) -> Vec<Step> {
        plans(vec![volume], mounts).remove(0).expect("it can be mounted").steps
    }

    fn host(path: &str, kind: Option<&str>) -> Volume {
        let host_path = HostPathVolumeSource { path: path.to_owned(), type_: kind.map(str::to_owned) };
        Volume { host_path: Some(host_path), ..volume() }
    }

    #[test]
    fn an_empty_dir_is_a_directory_or_a_tmpfs() {
        let make = Step::MakeEmptyDir { path: V.into() };
        let ready = Step::SetReady { marker: MARKER.into() };
        let plain = Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..volume() };
        assert_eq!(steps(plain, &[]), [make.clone(), ready.clone()]);
        assert_eq!(steps(volume(), &[]), [make.clone(), ready.clone()]);
        let tmpfs = |bytes| Step::MountTmpfs { path: V.into(), size_bytes: Some(bytes) };
        let in_tmpfs = |bytes| [make.clone(), tmpfs(bytes), ready.clone()];
        assert_eq!(steps(in_memory(Some("64Mi")), &[]), in_tmpfs(64 << 20));
        assert_eq!(steps(in_memory(None), &[]), in_tmpfs(1 << 30));
        assert_eq!(steps(in_memory(None), &[mount_point(V, "tmpfs")]), [make.clone(), ready.clone()]);
        assert_eq!(steps(in_memory(None), &[mount_point(V, "ext4")]), in_tmpfs(1 << 30));
    }

    #[test]
    fn what_was_noted_counts_while_the_volume_is_there() {
        let noted = |volume, mounts: &[MountPoint]| {
            plans(vec![volume], mounts).remove(0).expect("it can be mounted").ready
        };
        assert_eq!(noted(volume(), &[]), Some(MARKER.into()));
        assert_eq!(noted(in_memory(None), &[]), None);
        assert_eq!(noted(in_memory(None), &[mount_point(V, "tmpfs")]), Some(MARKER.into()));
        assert_eq!(noted(host("/data", None), &[]), None);
    }

    #[test]
    fn a_volume_is_given_to_the_pods_group() {
        let mut pod = pod(vec![volume(), host("/data", None)]);
        let context = PodSecurityContext { fs_group: Some(1234), ..PodSecurityContext::default() };
        pod.spec.as_mut().expect("spec").security_context = Some(context);
        let layout = layout();
        let node = PlanInput { layout: &layout, allocatable_memory_bytes: 1 << 30, in_cluster: false };
        let plans = mount(&PodUid::new("u"), &pod, node, &[]);
        let steps = |n: usize| plans[n].clone().expect("it can be mounted").steps;
        let group = Step::SetGroup { path: V.into(), gid: 1234 };
        let make = Step::MakeEmptyDir { path: V.into() };
        assert_eq!(steps(0), [make, group, Step::SetReady { marker: MARKER.into() }]);
        assert_eq!(steps(1), [], "what is the host's stays the host's");
    }

    #[test]
    fn a_host_path_is_checked_where_its_type_is_given() {
        let plan = plans(vec![host("/data", None)], &[]).remove(0).expect("it can be mounted");
        assert_eq!((plan.host_path, plan.steps), ("/data".into(), vec![]));
        assert_eq!(
            steps(host("/data", Some("DirectoryOrCreate")), &[]),
            [Step::CheckHostPath { path: "/data".into(), kind: HostPathType::DirectoryOrCreate }]
        );
    }

    #[test]
    fn what_cannot_be_mounted_says_why() {
        let error = |volume: Volume| plans(vec![volume], &[]).remove(0).expect_err("it cannot be mounted");
        assert_eq!(error(host("/a/../b", None)).message, "invalid HostPath `/a/../b`: must not contain '..'");
        assert_eq!(error(host("/a", Some("Disk"))).message, "Disk is an invalid volume type");
        let config_map = Some(ConfigMapVolumeSource::default());
        assert_eq!(
            error(Volume { config_map, ..volume() }),
            VolumeError {
                volume: "v".to_owned(),
                message: "volume source configMap is not supported by this kubelet yet".to_owned()
            }
        );
        let medium = |medium: &str| Volume {
            empty_dir: Some(EmptyDirVolumeSource { medium: Some(medium.to_owned()), size_limit: None }),
            ..volume()
        };
        assert_eq!(error(medium("Tape")).message, "unknown storage medium \"Tape\"");
        assert!(error(medium("HugePages-2Mi")).message.contains("no resource request for huge pages"));
    }

    #[test]
    fn a_volume_of_objects_is_a_directory_and_a_secret_one_in_memory() {
        let plan = |volume: serde_json::Value, mounts: &[MountPoint]| {
            let layout = layout();
            let node = PlanInput { layout: &layout, allocatable_memory_bytes: 1 << 30, in_cluster: true };
            let volume = serde_json::from_value(volume).expect("a volume");
            mount(&PodUid::new("u"), &pod(vec![volume]), node, mounts).remove(0).expect("it can be mounted")
        };
        let at = |plugin: &str| format!("/var/lib/kubelet/pods/u/volumes/kubernetes.io~{plugin}/v");
        let make = |path: &str| Step::MakeEmptyDir { path: path.into() };
        let tmpfs = |path: &str| Step::MountTmpfs { path: path.into(), size_bytes: Some(1 << 30) };
        let config_map = plan(serde_json::json!({"name": "v", "configMap": {"name": "x"}}), &[]);
        let path = at("configmap");
        assert_eq!((&config_map.host_path, config_map.steps), (&PathBuf::from(&path), vec![make(&path)]));
        assert!(config_map.objects.is_some());
        for (plugin, source) in [
            ("secret", serde_json::json!({"name": "v", "secret": {"secretName": "x"}})),
            ("projected", serde_json::json!({"name": "v", "projected": {"sources": []}})),
            ("downward-api", serde_json::json!({"name": "v", "downwardAPI": {"items": []}})),
        ] {
            let path = at(plugin);
            assert_eq!(plan(source.clone(), &[]).steps, [make(&path), tmpfs(&path)]);
            assert_eq!(plan(source, &[mount_point(&path, "tmpfs")]).steps, [make(&path)]);
        }
    }

    #[test]
    fn volumes_that_no_container_uses_are_left_alone() {
        let unused = Volume {
            name: "unused".to_owned(),
            config_map: Some(ConfigMapVolumeSource::default()),
            ..volume()
        };
        assert_eq!(plans(vec![unused, volume()], &[]).len(), 1);
    }

    #[test]
    fn mounts_go_in_reverse_and_each_place_once() {
        let pod_dir = Path::new("/r/pods/u");
        let mounts = ["/r/pods/u/a", "/r/pods/u/a/b", "/r/pods/u/a", "/r/pods/uu/c", "/r/pods"]
            .map(|path| mount_point(path, "tmpfs"));
        assert_eq!(unmount(pod_dir, &mounts), [PathBuf::from("/r/pods/u/a"), "/r/pods/u/a/b".into()]);
        assert_eq!(
            volume_at(pod_dir, Path::new("/r/pods/u/volumes/kubernetes.io~empty-dir/v")),
            Some(("kubernetes.io/empty-dir".to_owned(), "v".to_owned()))
        );
        let subpath = Path::new("/r/pods/u/volume-subpaths/v/c/0");
        assert_eq!(volume_at(pod_dir, subpath), None);
        assert_eq!(subpath_of(pod_dir, subpath).as_deref(), Some("v"));
        assert_eq!(subpath_of(pod_dir, Path::new("/r/pods/u/volumes/p/v")), None);
    }

    proptest! {
        #[test]
        fn nothing_outside_the_pod_is_ever_unmounted(paths in proptest::collection::vec("(/r)?(/pods)?(/u|/uu|/x)?(/a|/b)?", 0..12)) {
            let pod_dir = Path::new("/r/pods/u");
            let mounts: Vec<_> = paths.iter().filter(|p| !p.is_empty()).map(|path| mount_point(path, "tmpfs")).collect();
            let plan = unmount(pod_dir, &mounts);
            prop_assert!(plan.iter().all(|path| path.starts_with(pod_dir)));
            let wanted: BTreeSet<_> = mounts.iter().map(|m| m.path.clone()).filter(|p| p.starts_with(pod_dir)).collect();
            prop_assert_eq!(plan.iter().cloned().collect::<BTreeSet<_>>(), wanted);
        }

        #[test]
        fn hostile_names_never_lead_out_of_the_pods_directory(name in "[a./]{0,6}") {
            let volume = Volume { name, ..volume() };
            if let Ok(plan) = plans(vec![volume], &[]).remove(0) {
                let path = plan.host_path.to_string_lossy().into_owned();
                prop_assert!(path.starts_with("/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/"));
                prop_assert!(!plan.host_path.iter().any(|part| part == ".."));
            }
        }
    }
}
