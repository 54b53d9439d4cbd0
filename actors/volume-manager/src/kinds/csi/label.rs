//! The SELinux label that a volume of a driver is mounted with (row 10.24), and what the cluster says of the driver.

use std::path::Path;

use bridge_csi::rules::access::{self, Access, Use};
use bridge_csi::rules::policy::DriverPolicy;
use bridge_csi::rules::says;

use super::{Wanted, notes};
use crate::backends::Backends;
use crate::steps::SetUpError;

/// What the cluster says of the driver.
pub(super) async fn policy(backends: &Backends, driver: &str) -> Result<DriverPolicy, SetUpError> {
    let Some(objects) = &backends.volume_objects else { return Ok(DriverPolicy::of(None)) };
    match objects.csi_driver(driver).await {
        Ok(driver) => Ok(DriverPolicy::of(Some(&driver))),
        Err(error) if error.is_not_found() => Ok(DriverPolicy::of(None)),
        Err(error) => Err(SetUpError::Refused(says(&format!("failed to get CSIDriver {driver}: {error}")))),
    }
}

/// PURE: how a volume is used that is mounted with this label.
pub(super) fn with(mut access: Access, label: Option<&str>) -> Access {
    if let (Some(label), Use::Mount { flags, .. }) = (label, &mut access.used_as) {
        flags.push(access::se_linux_option(label));
    }
    access
}

/// Whether the volume, if its `note` tells that it is staged, has the label that the pod needs: otherwise it is taken from the
/// node first, once its other pods have left.
pub(super) async fn is_alike(
    backends: &Backends,
    wanted: &Wanted<'_>,
    unique_name: &str,
    note: &Path,
) -> Result<(), SetUpError> {
    if backends.selinux.is_none() {
        return Ok(());
    }
    // A note that is torn is written anew.
    let Ok(Some(staged)) = notes::read(backends, note).await else { return Ok(()) };
    if staged.se_linux() == wanted.label.unwrap_or_default() {
        return Ok(());
    }
    Err(SetUpError::Waits(format!(
        "waiting for unmount of volume {unique_name:?}, because it is already mounted to a different pod with a different SELinux label"
    )))
}
