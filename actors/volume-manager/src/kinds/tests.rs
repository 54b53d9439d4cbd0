//! What the tests of kinds share.

use std::sync::Arc;

use bridge_node::host::Layout;
use bridge_node::mounts::MountPoint;
use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;

use super::{Mounted, Wanted, serving};
use crate::backends::NodeFacts;
use crate::memory;
use crate::source::{Persistent, Source};
use crate::steps::{Step, VolumePlan};

pub(crate) fn mount_point(path: &str, fs_type: &str) -> MountPoint {
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

/// A pod without limits.
pub(crate) fn pod() -> Pod {
    let pod = serde_json::json!({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c"}]}});
    serde_json::from_value(pod).expect("a pod")
}

/// The source of an inline volume.
pub(crate) fn inline(volume: &serde_json::Value) -> Source {
    Source::Inline(Box::new(serde_json::from_value(volume.clone()).expect("a volume")))
}

/// The source of a PersistentVolume `pv` with this spec.
pub(crate) fn persistent(spec: serde_json::Value, read_only: bool) -> Source {
    let volume = serde_json::json!({"metadata": {"name": "pv"}, "spec": spec});
    let volume = Arc::new(serde_json::from_value(volume).expect("a PersistentVolume"));
    Source::Persistent(Box::new(Persistent { volume, read_only, claim: Default::default() }))
}

fn layout() -> Layout {
    Layout::new("/var/lib/kubelet", "/var/log/pods", "/var/log/containers").expect("it is canonical")
}

fn node(layout: &Layout) -> NodeFacts<'_> {
    NodeFacts { layout, allocatable_memory_bytes: 1 << 30, in_cluster: true }
}

fn plan_on(
    in_cluster: bool,
    pod: &Pod,
    source: &Source,
    mounts: &[MountPoint],
) -> Result<VolumePlan, String> {
    let layout = layout();
    let node = NodeFacts { in_cluster, ..node(&layout) };
    let uid = PodUid::new("u");
    let pod = &Arc::new(pod.clone());
    serving(source)?.plan(&Wanted {
        name: "v",
        source,
        pod,
        uid: &uid,
        node,
        mounts: &Mounted::of(mounts),
        memory_bytes_max: memory::bytes_max(pod, node.allocatable_memory_bytes),
        label: None,
        room_for_files: &Default::default(),
    })
}

/// The plan of a source on a member of a cluster.
pub(crate) fn plan_of(pod: &Pod, source: &Source, mounts: &[MountPoint]) -> Result<VolumePlan, String> {
    plan_on(true, pod, source, mounts)
}

/// The plan of an inline volume of this pod.
pub(crate) fn plan_in(
    pod: &Pod,
    volume: &serde_json::Value,
    mounts: &[MountPoint],
) -> Result<VolumePlan, String> {
    plan_of(pod, &inline(volume), mounts)
}

#[test]
fn mounts_are_found_by_their_paths() {
    let path = |number: usize| format!("/pods/u/volumes/kubernetes.io~empty-dir/v{number:05}");
    let mount = |number| MountPoint {
        path: path(number).into(),
        fs_type: "tmpfs".to_owned(),
        source: "tmpfs".to_owned(),
        root: "/".into(),
        options: Vec::new(),
        fs_options: Vec::new(),
        device: (0, 1),
    };
    let mounts: Vec<MountPoint> = (0..30_000).map(mount).collect();
    let mounted = Mounted::of(&mounts);
    let begun = tokio::time::Instant::now();
    let found = (0..30_000).filter(|number| mounted.is(path(*number).as_ref(), "tmpfs")).count();
    let took = begun.elapsed();
    assert!(took.as_secs() < 5, "{took:?}");
    assert_eq!((found, mounted.is(path(0).as_ref(), "ext4")), (30_000, false));
}

/// The plan of an inline volume.
pub(crate) fn plan(volume: &serde_json::Value, mounts: &[MountPoint]) -> Result<VolumePlan, String> {
    plan_in(&pod(), volume, mounts)
}

/// The plan of an inline volume on a node without a cluster.
pub(crate) fn plan_alone(volume: &serde_json::Value) -> Result<VolumePlan, String> {
    plan_on(false, &pod(), &inline(volume), &[])
}

/// The steps for an inline volume that can be mounted.
pub(crate) fn steps(volume: &serde_json::Value, mounts: &[MountPoint]) -> Vec<Step> {
    plan(volume, mounts).expect("it can be mounted").steps
}

#[test]
fn a_source_that_no_kind_serves_is_named() {
    let refused = |source: &Source| serving(source).err();
    let text = |field: &str| Some(format!("volume source {field} is not supported by this kubelet yet"));
    let ceph = serde_json::json!({"name": "v", "cephfs": {"monitors": ["x"]}});
    let unmatched = "failed to get Plugin from volumeSpec for volume \"v\" err=no volume plugin matched";
    assert_eq!(refused(&inline(&ceph)), Some(unmatched.to_owned()));
    let portworx = serde_json::json!({"name": "v", "other": {}});
    assert_eq!(refused(&inline(&portworx)), None, "what has no source is an emptyDir");
    assert_eq!(
        refused(&persistent(serde_json::json!({"vsphereVolume": {"volumePath": "x"}}), false)),
        text("vsphereVolume")
    );
}

#[test]
fn hostile_names_never_lead_out_of_the_pods_directory() {
    for name in ["", ".", "..", "a/b", "../x", "/", "a/../../b"] {
        let volume = serde_json::json!({"name": name});
        let below = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/";
        match plan(&volume, &[]) {
            Ok(plan) => assert!(plan.host_path.to_string_lossy().starts_with(below), "{name:?}: {plan:?}"),
            Err(error) => assert!(!error.is_empty()),
        }
    }
}
