//! emptyDir (row 10.4): a directory, memory or huge pages that begin empty and end with the pod.

mod huge_pages;

use std::path::Path;

use bridge_node::mounts::{GroupChange, Measure};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use pod_rules::volume_plugins::EMPTY_DIR;

use super::{VolumeKind, Wanted};
use crate::backends::Backends;
use crate::kinds::Measured;
use crate::source::Source;
use crate::steps::{SetUpError, Step, VolumePlan};
use crate::{fs_group, memory};

/// The kind.
#[derive(Debug)]
pub(super) struct EmptyDir;

impl VolumeKind for EmptyDir {
    fn plugin(&self) -> &'static str {
        EMPTY_DIR
    }

    /// A volume without any source is an emptyDir, as the API defaults it.
    fn serves(&self, source: &Source) -> bool {
        source.inline().is_some_and(|volume| volume.empty_dir.is_some() || source.field().is_empty())
    }

    fn plan(&self, wanted: &Wanted<'_>) -> Result<VolumePlan, String> {
        let default = EmptyDirVolumeSource::default();
        let source = wanted.source.inline().and_then(|volume| volume.empty_dir.as_ref()).unwrap_or(&default);
        let path = wanted.path(EMPTY_DIR)?;
        let marker = wanted.node.layout.pod_plugin(wanted.uid.as_str(), EMPTY_DIR, wanted.name);
        let marker = marker.map_err(|error| error.to_string())?;
        let mut steps = vec![Step::MakeEmptyDir { path: path.clone() }];
        // The note is about what is there: not about a tmpfs that is gone, as after a reboot.
        let mut ready = Some(marker.clone());
        match source.medium.as_deref().unwrap_or_default() {
            "" => {}
            "Memory" => {
                if !wanted.is_mounted(&path, "tmpfs") {
                    ready = None;
                    let bytes = memory::tmpfs_bytes(source.size_limit.as_ref(), wanted.memory_bytes_max);
                    let size_bytes = (bytes > 0).then_some(bytes);
                    steps.push(Step::MountTmpfs { path: path.clone(), size_bytes });
                }
            }
            medium => {
                let page_bytes = huge_pages::page_bytes(medium, wanted.pod)?;
                if !wanted.is_mounted(&path, "hugetlbfs") {
                    ready = None;
                    steps.push(Step::MountHugePages { path: path.clone(), page_bytes });
                }
            }
        }
        // `fsGroupChangePolicy` is for volumes that outlive their pods; an emptyDir begins empty.
        let change = GroupChange::Always;
        let group =
            fs_group::of_pod(wanted.pod).map(|gid| Step::SetGroup { path: path.clone(), gid, change });
        steps.extend(group);
        steps.push(Step::SetReady { marker });
        Ok(VolumePlan { host_path: path, ready, steps })
    }

    fn may_lack_mounts(&self) -> bool {
        true
    }

    fn measure<'a>(
        &'a self,
        backends: &'a Backends,
        path: &'a Path,
    ) -> Option<BoxFuture<'a, Result<Measured, SetUpError>>> {
        Some(super::measured(backends, path, Measure::Tree))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::{mount_point, plan, plan_in, pod, steps};

    const V: &str = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v";
    const MARKER: &str = "/var/lib/kubelet/pods/u/plugins/kubernetes.io~empty-dir/v";

    fn volume(source: serde_json::Value) -> serde_json::Value {
        serde_json::json!({"name": "v", "emptyDir": source})
    }

    fn in_memory(size_limit: Option<&str>) -> serde_json::Value {
        match size_limit {
            Some(limit) => volume(serde_json::json!({"medium": "Memory", "sizeLimit": limit})),
            None => volume(serde_json::json!({"medium": "Memory"})),
        }
    }

    #[test]
    fn an_empty_dir_is_a_directory_or_a_tmpfs() {
        let make = Step::MakeEmptyDir { path: V.into() };
        let ready = Step::SetReady { marker: MARKER.into() };
        assert_eq!(steps(&volume(serde_json::json!({})), &[]), [make.clone(), ready.clone()]);
        assert_eq!(steps(&serde_json::json!({"name": "v"}), &[]), [make.clone(), ready.clone()]);
        let tmpfs = |bytes| Step::MountTmpfs { path: V.into(), size_bytes: Some(bytes) };
        let in_tmpfs = |bytes| [make.clone(), tmpfs(bytes), ready.clone()];
        assert_eq!(steps(&in_memory(Some("64Mi")), &[]), in_tmpfs(64 << 20));
        assert_eq!(steps(&in_memory(None), &[]), in_tmpfs(1 << 30));
        assert_eq!(steps(&in_memory(None), &[mount_point(V, "tmpfs")]), [make.clone(), ready.clone()]);
        assert_eq!(steps(&in_memory(None), &[mount_point(V, "ext4")]), in_tmpfs(1 << 30));
    }

    #[test]
    fn what_was_noted_counts_while_the_volume_is_there() {
        let noted = |volume, mounts: &[_]| plan(&volume, mounts).expect("it can be mounted").ready;
        assert_eq!(noted(volume(serde_json::json!({})), &[]), Some(MARKER.into()));
        assert_eq!(noted(in_memory(None), &[]), None);
        assert_eq!(noted(in_memory(None), &[mount_point(V, "tmpfs")]), Some(MARKER.into()));
    }

    #[test]
    fn a_volume_is_given_to_the_pods_group() {
        let mut pod = pod();
        pod.spec.as_mut().expect("spec").security_context =
            Some(serde_json::from_value(serde_json::json!({"fsGroup": 1234})).expect("a context"));
        let group = Step::SetGroup { path: V.into(), gid: 1234, change: GroupChange::Always };
        let make = Step::MakeEmptyDir { path: V.into() };
        let given = plan_in(&pod, &volume(serde_json::json!({})), &[]).expect("it can be mounted");
        assert_eq!(given.steps, [make, group, Step::SetReady { marker: MARKER.into() }]);
        let host = serde_json::json!({"name": "v", "hostPath": {"path": "/data"}});
        let of_host = plan_in(&pod, &host, &[]).expect("it can be mounted");
        assert_eq!(of_host.steps, [], "what is the host's stays the host's");
    }

    #[test]
    fn what_cannot_be_mounted_says_why() {
        let medium = |medium: &str| {
            plan(&volume(serde_json::json!({"medium": medium})), &[]).expect_err("it cannot be mounted")
        };
        assert_eq!(medium("Tape"), "unknown storage medium \"Tape\"");
        assert!(medium("HugePages-2Mi").contains("no resource request for huge pages"));
    }
}
