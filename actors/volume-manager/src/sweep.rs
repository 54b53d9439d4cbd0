//! One look for orphaned pod directories (row 10.26): at the disk first, and at everything else only if something there
//! is not known.

use std::collections::BTreeSet;
use std::time::Duration;

use bridge_node::mounts::MountPoint;
use messages::PodUid;
use messages::pleg::GetHeldPods;
use supervision::AskPort;

use crate::actor::VolumeManager;
use crate::execute::{self, Ways};

const RUNTIME_DEADLINE: Duration = Duration::from_secs(10);

/// What a look has shown.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Pods that have a directory and are not among those known before.
    pub unknown: BTreeSet<PodUid>,
    /// Pods of which the runtime holds anything; `None` when that is not known.
    pub in_runtime: Option<BTreeSet<PodUid>>,
    /// All mounts of the machine.
    pub mounts: Vec<MountPoint>,
}

/// Looks. Whatever cannot be told makes the look a blind one: nothing is unknown then, and nothing is removed.
pub async fn look(
    ways: Ways,
    runtime: AskPort<VolumeManager, GetHeldPods>,
    known: BTreeSet<PodUid>,
) -> Looked {
    let on_disk = match execute::pods_on_disk(&ways).await {
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
    match execute::all_mounts(&ways).await {
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
