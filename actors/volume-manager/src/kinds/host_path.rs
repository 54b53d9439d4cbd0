//! hostPath (row 10.5): a path of the node, which stays as it is when the pod ends.

use std::path::PathBuf;

use bridge_node::mounts::HostPathType;
use pod_rules::volume_plugins::HOST_PATH;

use super::{VolumeKind, Wanted};
use crate::source::Source;
use crate::steps::{Step, VolumePlan};

/// The kind.
#[derive(Debug)]
pub(super) struct HostPath;

impl VolumeKind for HostPath {
    fn plugin(&self) -> &'static str {
        HOST_PATH
    }

    fn serves(&self, source: &Source) -> bool {
        source.host_path().is_some()
    }

    fn keeps_labels(&self) -> bool {
        true
    }

    fn plan(&self, wanted: &Wanted<'_>) -> Result<VolumePlan, String> {
        let source = wanted.source.host_path().ok_or("no hostPath")?;
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
        Ok(VolumePlan::of(path, steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::{plan, steps};

    #[test]
    fn a_host_path_is_checked_where_its_type_is_given() {
        let host = |path: &str, kind: &str| serde_json::json!({"name": "v", "hostPath": {"path": path, "type": kind}});
        let plain = plan(&host("/data", ""), &[]).expect("it can be mounted");
        assert_eq!((plain.host_path, plain.steps), ("/data".into(), vec![]));
        assert_eq!(
            steps(&host("/data", "DirectoryOrCreate"), &[]),
            [Step::CheckHostPath { path: "/data".into(), kind: HostPathType::DirectoryOrCreate }]
        );
        let error = |path: &str, kind: &str| plan(&host(path, kind), &[]).expect_err("it cannot be mounted");
        assert_eq!(error("/a/../b", ""), "invalid HostPath `/a/../b`: must not contain '..'");
        assert_eq!(error("/a", "Disk"), "Disk is an invalid volume type");
    }
}
