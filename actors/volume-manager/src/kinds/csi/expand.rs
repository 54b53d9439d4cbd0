//! Has a driver make a volume larger that a pod has (row 10.25).

use std::path::Path;

use bridge_csi::rules::plan::Known;
use bridge_csi::rules::requests::{self, Expansion};
use bridge_csi::{CsiError, CsiErrorKind, Progress, Volume};

use super::set_up::{Job, text};
use crate::backends::Backends;
use crate::kinds::{ExpandError, Wanted};

/// Has the driver expand the volume; false if the pod does not have it yet.
pub(super) async fn expand(
    backends: &Backends,
    wanted: &Wanted<'_>,
    target: &Path,
    bytes: i64,
) -> Result<bool, ExpandError> {
    let failed = |error: crate::steps::SetUpError| ExpandError::Transient(error.to_string());
    let job = Job::of(backends, wanted, target).map_err(failed)?;
    let (volumes, volume) = (&backends.csi.volumes, &job.volume);
    // A call that waits here keeps no other pod's from being queued before this one.
    volumes.settled(&Volume::new(&volume.driver, &volume.handle), None).await;
    if job.published().await.map_err(failed)? != Known::Yes {
        return Ok(false);
    }
    let able = volumes.capabilities(&volume.driver).await.map_err(|error| match error.kind {
        CsiErrorKind::NotRegistered => ExpandError::Transient(error.status_text()),
        _ => ExpandError::Uncertain(format!(
            "Expander.NodeExpand failed to check if node supports expansion : {}",
            error.status_text()
        )),
    })?;
    if !able.expand {
        let driver = &volume.driver;
        return Err(ExpandError::NotSupported(format!(
            "NodeExpand is not supported by the CSI driver {driver}"
        )));
    }
    let secrets = job.secrets("NodeExpandSecretRef", volume.expand_secret.as_ref()).await;
    let secrets =
        secrets.map_err(|error| ExpandError::Final(format!("expander.NodeExpand failed: {error}")))?;
    let expansion = Expansion {
        volume_id: volume.handle.clone(),
        path: text(&job.target),
        staging_path: text(&job.device_mount),
        access: volume.access(None),
        bytes,
        secrets,
    };
    let asked = volumes.expand(&volume.driver, requests::expand(&expansion, &able)).await;
    asked.map(|_| true).map_err(|error| of_driver(&error))
}

/// PURE: what a driver's refusal means, in upstream's words.
fn of_driver(error: &CsiError) -> ExpandError {
    let what = "Expander.NodeExpand failed to expand the volume";
    let told = error.status_text();
    if error.is_in_use() {
        return ExpandError::InUse(format!("{what} : {told}"));
    }
    if error.is_infeasible() {
        return ExpandError::Infeasible(format!("{what} {told}"));
    }
    match error.progress() {
        Progress::NotBegun => ExpandError::Transient(told),
        Progress::Uncertain => ExpandError::Uncertain(format!("{what} : {told}")),
        Progress::Finished => ExpandError::Final(format!("{what} : {told}")),
    }
}

#[cfg(test)]
mod tests {
    use bridge_csi::Rpc;

    use super::*;

    #[test]
    fn what_a_driver_says_decides_whether_it_is_asked_again() {
        let of = |kind| of_driver(&CsiError::new("d", Rpc::NodeExpandVolume, kind, "no"));
        let what = "Expander.NodeExpand failed to expand the volume";
        assert_eq!(
            of(CsiErrorKind::OutOfRange),
            ExpandError::Infeasible(format!("{what} rpc error: code = OutOfRange desc = no"))
        );
        assert!(matches!(of(CsiErrorKind::FailedPrecondition), ExpandError::InUse(_)));
        assert!(matches!(of(CsiErrorKind::DeadlineExceeded), ExpandError::Uncertain(_)));
        assert!(matches!(of(CsiErrorKind::Internal), ExpandError::Final(_)));
        assert!(matches!(of(CsiErrorKind::NotRegistered), ExpandError::Transient(_)));
    }
}
