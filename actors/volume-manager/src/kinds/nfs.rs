//! NFS (row 10.10): a share of a server, mounted by the program `mount` in the pod's directory. Its files are the server's: the
//! kubelet changes neither their group nor their labels.

use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use bridge_node::mounts::{HelperMount, Measure, MountPoint};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::NFSVolumeSource;
use pod_rules::volume_plugins::NFS;

use super::{FoundVolume, Measured, TornDown, VolumeKind, Wanted};
use crate::backends::Backends;
use crate::plan;
use crate::source::{Persistent, Source};
use crate::steps::{SetUpError, Step, VolumePlan};

/// The type of the file system; the program finds out which version the server has.
const FS_TYPE: &str = "nfs";
/// How long an unmount is waited for: after a minute the bridge forces it. Below what the whole volume may take, so that it is
/// told what does not end.
const UNMOUNT_WITHIN: Duration = Duration::from_secs(100);

/// The kind.
#[derive(Debug)]
pub(super) struct Nfs;

fn nfs(source: &Source) -> Option<&NFSVolumeSource> {
    match source {
        Source::Inline(volume) => volume.nfs.as_ref(),
        Source::Persistent(persistent) => persistent.spec()?.nfs.as_ref(),
    }
}

/// Whether the pod may only read: of a PersistentVolume its claim says so, as upstream has it.
fn is_read_only(source: &Source) -> bool {
    match source {
        Source::Inline(volume) => volume.nfs.as_ref().is_some_and(|nfs| nfs.read_only == Some(true)),
        Source::Persistent(persistent) => persistent.read_only,
    }
}

/// The share as the program names it, with an address of IPv6 in brackets.
fn share(source: &NFSVolumeSource) -> String {
    let NFSVolumeSource { path, server, .. } = source;
    match server.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{server}]:{path}"),
        Err(_) => format!("{server}:{path}"),
    }
}

/// Why a share is still mounted.
fn waits(mounts: &[MountPoint], path: &Path) -> String {
    let source = mounts.iter().rfind(|mount| mount.path == path).map(|mount| mount.source.as_str());
    format!(
        "the unmount of {} at {} has not ended within {} s, also by force: its server may not answer",
        source.unwrap_or_default(),
        path.display(),
        UNMOUNT_WITHIN.as_secs()
    )
}

impl VolumeKind for Nfs {
    fn plugin(&self) -> &'static str {
        NFS
    }

    fn serves(&self, source: &Source) -> bool {
        nfs(source).is_some()
    }

    fn plan(&self, wanted: &Wanted<'_>) -> Result<VolumePlan, String> {
        let source = nfs(wanted.source).ok_or("Spec does not reference a NFS volume type")?;
        let path = wanted.path(NFS)?;
        if wanted.mounts.has(&path) {
            // A server that has gone would not answer a look at it.
            return Ok(VolumePlan::of(path, Vec::new()));
        }
        let mut options = wanted.source.persistent().map(Persistent::mount_options).unwrap_or_default();
        if is_read_only(wanted.source) {
            options.insert("ro".to_owned());
        }
        let options = options.into_iter().collect();
        let mount = HelperMount { fs_type: FS_TYPE.to_owned(), source: share(source), options };
        let steps = vec![
            Step::MakeMountPoint { path: path.clone() },
            Step::MountByHelper { path: path.clone(), mount },
        ];
        Ok(VolumePlan::of(path, steps))
    }

    fn takes_mount_options(&self) -> bool {
        true
    }

    fn keeps_labels(&self) -> bool {
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
        Some(super::measured(backends, path, Measure::FileSystem))
    }

    /// A share whose server does not answer keeps none of the pod's other volumes.
    fn tear_down<'a>(
        &'a self,
        backends: &'a Backends,
        found: &'a FoundVolume<'a>,
    ) -> Option<BoxFuture<'a, Result<TornDown, SetUpError>>> {
        Some(Box::pin(async move {
            let pod = backends.node().layout.pod(found.uid.as_str());
            let pod = pod.map_err(|error| SetUpError::Refused(error.to_string()))?;
            // Not of the volume's directory, at which the server would be asked.
            let mounts = backends.mounts.list_below(&pod).await?;
            for path in plan::unmount(found.dir, &mounts) {
                let unmount = backends.mounts.unmount(&path);
                let ended = tokio::time::timeout(UNMOUNT_WITHIN, unmount).await;
                ended.map_err(|_| SetUpError::Refused(waits(&mounts, &path)))??;
            }
            Ok(TornDown::default())
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::tests::{inline, mount_point, persistent, plan_of, pod, steps};

    fn volume(nfs: Value) -> Value {
        json!({"name": "v", "nfs": nfs})
    }

    fn mounted(path: &str, source: &str, options: &[&str]) -> Vec<Step> {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mount = HelperMount { fs_type: "nfs".to_owned(), source: source.to_owned(), options };
        vec![Step::MakeMountPoint { path: path.into() }, Step::MountByHelper { path: path.into(), mount }]
    }

    #[test]
    fn a_share_is_mounted_in_the_pods_directory() {
        let v = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~nfs/v";
        let of = |server: &str, more: Value| {
            let mut nfs = json!({"server": server, "path": "/data"});
            nfs.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
            volume(nfs)
        };
        assert_eq!(steps(&of("host", json!({})), &[]), mounted(v, "host:/data", &[]));
        let read_only = of("fd00::1", json!({"readOnly": true}));
        assert_eq!(steps(&read_only, &[]), mounted(v, "[fd00::1]:/data", &["ro"]));
        let again = steps(&read_only, &[mount_point(v, "nfs4")]);
        assert!(again.is_empty(), "a server that has gone does not answer: {again:?}");

        let pv = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~nfs/pv";
        let spec = json!({
            "nfs": {"server": "192.0.2.1", "path": "/x", "readOnly": true},
            "mountOptions": ["soft", "nfsvers=4.2"],
        });
        let of_claim = |read_only| plan_of(&pod(), &persistent(spec.clone(), read_only), &[]);
        let written = of_claim(false).expect("it can be mounted").steps;
        assert_eq!(written, mounted(pv, "192.0.2.1:/x", &["nfsvers=4.2", "soft"]), "the claim decides");
        let read = of_claim(true).expect("it can be mounted").steps;
        assert_eq!(read, mounted(pv, "192.0.2.1:/x", &["nfsvers=4.2", "ro", "soft"]));
    }

    #[test]
    fn neither_group_nor_labels_of_a_share_are_the_kubelets() {
        let source = inline(&volume(json!({"server": "s", "path": "/"})));
        let mut grouped = pod();
        let context = serde_json::from_value(json!({"fsGroup": 7})).expect("a context");
        grouped.spec.as_mut().expect("spec").security_context = Some(context);
        let plan = plan_of(&grouped, &source, &[]).expect("it can be mounted");
        assert!(plan.steps.iter().all(|step| !matches!(step, Step::SetGroup { .. })), "{plan:?}");
        assert!(Nfs.keeps_labels() && Nfs.takes_mount_options() && !Nfs.has_block_devices());
    }

    #[test]
    fn a_share_that_stays_is_named() {
        let path = "/r/pods/u/volumes/kubernetes.io~nfs/v";
        let mounts = [MountPoint { source: "host:/data".to_owned(), ..mount_point(path, "nfs4") }];
        assert_eq!(
            waits(&mounts, Path::new(path)),
            "the unmount of host:/data at /r/pods/u/volumes/kubernetes.io~nfs/v has not ended within 100 s, also by \
             force: its server may not answer"
        );
    }
}
