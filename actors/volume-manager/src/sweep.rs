//! One look for orphaned pod directories (row 10.26): at the disk first, and at runtime and mounts only if
//! there is a directory of an unknown pod.

use std::collections::BTreeSet;
use std::time::Duration;

use bridge_node::mounts::MountPoint;
use messages::PodUid;
use messages::pleg::GetHeldPods;
use supervision::AskPort;

use crate::actor::VolumeManager;
use crate::backends::Backends;
use crate::found;

const RUNTIME_DEADLINE: Duration = Duration::from_secs(10);

/// The result of a look.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Pods that have a directory and are not among the known ones.
    pub unknown: BTreeSet<PodUid>,
    /// The pods that the runtime holds; `None` if Pleg did not answer.
    pub in_runtime: Option<BTreeSet<PodUid>>,
    /// All mounts of the machine.
    pub mounts: Vec<MountPoint>,
}

/// Looks once. If the disk or the mounts cannot be read the result is empty, so that nothing is removed.
pub async fn look(
    backends: Backends,
    runtime: AskPort<VolumeManager, GetHeldPods>,
    known: BTreeSet<PodUid>,
) -> Looked {
    let on_disk = match found::pods_on_disk(&backends).await {
        Ok(on_disk) => on_disk,
        Err(error) => {
            tracing::warn!(error = error.message, "cannot look for directories of pods that are gone");
            return Looked::default();
        }
    };
    let unknown: BTreeSet<PodUid> = on_disk.difference(&known).cloned().collect();
    if unknown.is_empty() {
        return Looked::default();
    }
    let in_runtime = runtime.ask(GetHeldPods, RUNTIME_DEADLINE).await.ok();
    let in_runtime = in_runtime.map(|pods| pods.keys().cloned().collect());
    match found::all_mounts(&backends).await {
        Ok(mounts) => Looked { unknown, in_runtime, mounts },
        Err(error) => {
            tracing::warn!(
                error = error.message,
                "cannot tell whether directories of pods that are gone are in use"
            );
            Looked::default()
        }
    }
}
