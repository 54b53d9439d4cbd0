//! PURE: which volumes of a pod are mounted, how containers use them, and in which order mounts are undone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bridge_node::host::SUBPATHS;
use bridge_node::mounts::MountPoint;
use k8s_openapi::api::core::v1::{Pod, PodSpec, VolumeDevice, VolumeMount};
use pod_rules::{phases, volumes};

use crate::source::Uses;

/// Whether the pod's status at the API server says that a kubelet has started containers of it.
pub fn was_started(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().any(|container| container.container_id.is_some())
}

/// Whether its status says that containers of the pod may run: a finished one has no volumes any longer.
pub fn runs(pod: &Pod) -> bool {
    was_started(pod) && !pod.status.as_ref().is_some_and(phases::has_ended)
}

/// The names of the volumes that containers of the pod use, in order.
pub fn used_names(pod: &Pod) -> Vec<String> {
    pod.spec.as_ref().map(uses).unwrap_or_default().into_keys().map(str::to_owned).collect()
}

/// How the containers of a pod use its volumes, by name. A volume that no container uses is not there: it is not mounted, as
/// upstream has it.
pub fn uses(spec: &PodSpec) -> BTreeMap<&str, Uses> {
    fn devices(devices: &Option<Vec<VolumeDevice>>) -> impl Iterator<Item = &str> {
        devices.iter().flatten().map(|device| device.name.as_str())
    }
    let containers = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ephemeral = || spec.ephemeral_containers.iter().flatten();
    let mut uses: BTreeMap<&str, Uses> = BTreeMap::new();
    for mount in volume_mounts(spec) {
        uses.entry(mount.name.as_str()).or_default().mounted = true;
    }
    let raw = containers().flat_map(|container| devices(&container.volume_devices));
    for name in raw.chain(ephemeral().flat_map(|container| devices(&container.volume_devices))) {
        uses.entry(name).or_default().as_device = true;
    }
    uses
}

/// What the containers of a pod mount, each kind of containers in turn.
fn volume_mounts(spec: &PodSpec) -> impl Iterator<Item = &VolumeMount> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mounts = containers.flat_map(|container| container.volume_mounts.iter().flatten());
    mounts.chain(ephemeral.flat_map(|container| container.volume_mounts.iter().flatten()))
}

/// The most mounts that VolumeManager makes of one pod: the kernel has room for 100,000 (`fs.mount-max`), and every look at
/// them reads all. Upstream has no bound.
pub const POD_MOUNTS_MAX: usize = 1024;
/// From so many mounts on the node on, a pod that would make many more waits: a hundred pods with as many as each may have would
/// leave the kernel no room for any other.
pub const NODE_MOUNTS_MANY: usize = 20_000;
/// The most mounts that a pod makes on such a node.
const FEW_MOUNTS: usize = 128;

/// How many mounts the pod's volumes are, and the parts of them that containers mount (subPath).
pub fn mounts_of(spec: &PodSpec) -> usize {
    let is_set = |path: &Option<String>| path.as_ref().is_some_and(|path| !path.is_empty());
    let is_part = |mount: &&VolumeMount| is_set(&mount.sub_path) || is_set(&mount.sub_path_expr);
    uses(spec).len() + volume_mounts(spec).filter(is_part).count()
}

/// Whether a pod that has `made` of its mounts makes so many more that it matters how many the node has.
pub fn is_many(wanted: usize, made: usize) -> bool {
    wanted.saturating_sub(made) > FEW_MOUNTS
}

/// Whether the `wanted` mounts of a pod, of which it has `made` ones on a node that has `on_node`, are few enough.
///
/// # Errors
/// They are more than [`POD_MOUNTS_MAX`], or too many more for the node.
pub fn are_few(wanted: usize, made: usize, on_node: usize) -> Result<(), String> {
    if wanted > POD_MOUNTS_MAX {
        return Err(format!(
            "the pod's volumes and subPaths are {wanted} mounts, and the node makes at most {POD_MOUNTS_MAX} of a pod"
        ));
    }
    if on_node >= NODE_MOUNTS_MANY && is_many(wanted, made) {
        return Err(format!(
            "the pod's volumes and subPaths are {wanted} mounts, and the node, which has {on_node}, makes at most \
             {FEW_MOUNTS} more of a pod"
        ));
    }
    Ok(())
}

/// Whether the pod has volumes of objects, whose files change with the objects.
pub fn shows_objects(pod: &Pod) -> bool {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(volumes::shows_objects)
}

/// Whether the pod has volumes behind claims.
pub fn has_claims(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.into_iter().any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some())
}

/// Whether the pod has volumes that their drivers may want to be shown anew from time to time: whether they do is not in its
/// spec.
pub fn may_renew(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.into_iter().any(|volume| {
        volume.csi.is_some() || volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
    })
}

/// Every path below a pod's directory on which something is mounted, in the order of unmounting: the latest
/// mount first, each path once. `mounts` are in the order in which they were made.
pub fn unmount(pod_dir: &Path, mounts: &[MountPoint]) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let below = mounts.iter().rev().filter(|mount| mount.path.starts_with(pod_dir));
    below.filter(|mount| seen.insert(&mount.path)).map(|mount| mount.path.clone()).collect()
}

/// The places, other than `path`, where the same part of the same file system is mounted as there. Below the directories of
/// plugins the kubelet mounts itself: what ends like `path` from there on is the same place by another way, as upstream judges.
pub fn references<'m>(mounts: &'m [MountPoint], path: &Path) -> Vec<&'m Path> {
    let Some(own) = mounts.iter().rfind(|mount| mount.path == path) else { return Vec::new() };
    let text = path.to_string_lossy();
    let same_place = text.find("/plugins/kubernetes.io/").map_or(&*text, |at| &text[at..]);
    let is_other = |mount: &&MountPoint| {
        (&mount.root, mount.device) == (&own.root, own.device)
            && !mount.path.to_string_lossy().contains(same_place)
    };
    mounts.iter().filter(is_other).map(|mount| mount.path.as_path()).collect()
}

/// Whether what is mounted at `path` is mounted nowhere else, so that no unmount there takes it from people.
///
/// # Errors
/// Upstream's text.
pub fn is_nowhere_else(mounts: &[MountPoint], path: &Path) -> Result<(), String> {
    let found: Vec<_> = references(mounts, path).iter().map(|path| path.display().to_string()).collect();
    if found.is_empty() {
        return Ok(());
    }
    Err(format!(
        "GetDeviceMountRefs check failed: the device mount path {:?} is still mounted by other references [{}]",
        path.display().to_string(),
        found.join(" ")
    ))
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
    if !matches!(&*parts.next()?, "volumes" | "volumeDevices") {
        return None;
    }
    let (plugin, name) = (parts.next()?, parts.next()?);
    Some((plugin.replace('~', "/"), name.into_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kinds::tests::mount_point;

    #[test]
    fn a_pod_has_a_bounded_number_of_mounts() {
        let few_on = |volumes: usize, parts: usize, made: usize, on_node: usize| {
            let names: Vec<_> = (0..volumes).map(|n| format!("v{n}")).collect();
            let whole =
                names.iter().map(|name| serde_json::json!({"name": name, "mountPath": format!("/{name}")}));
            let part = |n| serde_json::json!({"name": "v0", "mountPath": format!("/p{n}"), "subPath": format!("{n}")});
            let mounts: Vec<_> = whole.chain((0..parts).map(part)).collect();
            let spec = serde_json::json!({
                "containers": [{"name": "c", "volumeMounts": mounts}],
                "volumes": names.iter().map(|name| serde_json::json!({"name": name})).collect::<Vec<_>>(),
            });
            are_few(mounts_of(&serde_json::from_value(spec).expect("a spec")), made, on_node)
        };
        let few = |volumes, parts| few_on(volumes, parts, 0, NODE_MOUNTS_MANY - 1);
        assert_eq!(few(POD_MOUNTS_MAX, 0), Ok(()));
        assert_eq!(few(24, POD_MOUNTS_MAX - 24), Ok(()));
        let text = "the pod's volumes and subPaths are 1025 mounts, and the node makes at most 1024 of a pod";
        assert_eq!(few(POD_MOUNTS_MAX + 1, 0), Err(text.to_owned()));
        assert_eq!(few(1, POD_MOUNTS_MAX), Err(text.to_owned()));
        assert_eq!(few_on(FEW_MOUNTS, 0, 0, NODE_MOUNTS_MANY), Ok(()));
        assert_eq!(few_on(900, 0, 800, NODE_MOUNTS_MANY), Ok(()), "most of them are made already");
        let text = "the pod's volumes and subPaths are 129 mounts, and the node, which has 20000, makes at most 128 more of a pod";
        assert_eq!(few_on(FEW_MOUNTS, 1, 0, NODE_MOUNTS_MANY), Err(text.to_owned()));
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

    #[test]
    fn what_shows_the_same_elsewhere_refers_to_a_mount() {
        let staged = "/r/plugins/kubernetes.io/csi/d/1/globalmount";
        let on = |path: &str, root: &str, minor| MountPoint {
            root: root.into(),
            device: (8, minor),
            ..mount_point(path, "ext4")
        };
        let seen = format!("/host{staged}");
        let mounts = [
            on(staged, "/", 1),
            on(&seen, "/", 1),
            on("/mnt/people", "/", 1),
            on("/mnt/part", "/sub", 1),
            on("/mnt/other", "/", 2),
        ];
        assert_eq!(references(&mounts, Path::new(staged)), [Path::new("/mnt/people")]);
        assert_eq!(references(&mounts, Path::new("/r/nothing")), Vec::<&Path>::new());
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

    }
}
