//! The checkpoint of a pod's verdicts, so that neither a restart of the kubelet nor of this actor makes Ready flap (row
//! 7.11): the runtime does not know the verdicts, and neither does the API server of a standalone kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_node::checkpoint::{ANSWER_WITHIN, CheckpointError, CheckpointStore, in_time};
use messages::PodUid;
use messages::facts::ContainerVerdict;
use serde::{Deserialize, Serialize};

/// Names of checkpoints begin with this.
pub const PREFIX: &str = "probe-results/";

/// After one that could not be read each further one has so long: most likely the disk does not answer at all, and pods that
/// have no checkpoint wait for the first reading.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

/// The name of a pod's checkpoint.
pub fn name(uid: &PodUid) -> String {
    format!("{PREFIX}{uid}")
}

/// The pod of a checkpoint's name.
pub fn uid(name: &str) -> Option<PodUid> {
    name.strip_prefix(PREFIX).map(PodUid::new)
}

/// The checkpoint of one pod, by container name.
pub type SavedPod = BTreeMap<String, SavedVerdict>;

/// The verdict on one container instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedVerdict {
    /// The instance; the verdict says nothing about another one.
    pub container_id: String,
    /// See [`ContainerVerdict::startup`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<bool>,
    /// See [`ContainerVerdict::liveness`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<bool>,
    /// See [`ContainerVerdict::readiness`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<bool>,
}

impl SavedVerdict {
    /// The part of a verdict that the checkpoint has.
    pub fn of(verdict: &ContainerVerdict) -> Self {
        Self {
            container_id: verdict.container_id.to_string(),
            startup: verdict.startup,
            liveness: verdict.liveness,
            readiness: verdict.readiness,
        }
    }

    /// The verdict to begin with, if `initial` is the verdict on a new instance.
    pub fn apply_to(&self, initial: &ContainerVerdict) -> ContainerVerdict {
        ContainerVerdict {
            container_id: initial.container_id.clone(),
            startup: self.startup,
            liveness: self.liveness,
            // A probe that the pod no longer has does not count.
            readiness: initial.readiness.map(|_| self.readiness.unwrap_or(false)),
        }
    }
}

/// What reading checkpoints has come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The checkpoints that say something.
    pub pods: BTreeMap<PodUid, SavedPod>,
    /// The pods of checkpoints that could not be read: what they say is not known yet.
    pub unread: BTreeSet<PodUid>,
}

/// Reads checkpoints, all of them unless pods are named. One that is damaged, or has another form, is treated as absent; one of
/// which the disk says nothing in time cannot be read.
///
/// # Errors
/// The checkpoints cannot be listed: nothing is known, which is not the same as there being none.
pub async fn load(
    checkpoints: Arc<dyn CheckpointStore>,
    pods: Option<BTreeSet<PodUid>>,
) -> Result<Loaded, CheckpointError> {
    let names: Vec<String> = match pods {
        Some(pods) => pods.iter().map(name).collect(),
        None => in_time(ANSWER_WITHIN, PREFIX, "list", checkpoints.list(PREFIX)).await?,
    };
    let mut all = Loaded::default();
    let mut within = ANSWER_WITHIN;
    for name in names {
        let Some(uid) = uid(&name) else { continue };
        match in_time(within, &name, "load", checkpoints.load(&name)).await {
            Ok(Some(content)) => match supervision::contained(|| serde_json::from_value(content)) {
                Ok(Ok(pod)) => drop(all.pods.insert(uid, pod)),
                Ok(Err(error)) => tracing::warn!(%error, pod = %uid, "ignoring verdicts of another form"),
                Err(panic) => tracing::error!(%panic, pod = %uid, "ignoring verdicts that cannot be read"),
            },
            Ok(None) => {}
            Err(error @ CheckpointError::Corrupt { .. }) => {
                tracing::warn!(%error, pod = %uid, "ignoring verdicts that cannot be read");
            }
            Err(error) => {
                tracing::warn!(%error, pod = %uid, "verdicts cannot be read yet");
                all.unread.insert(uid);
                within = AFTER_A_FAILURE;
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use bridge_node::checkpoint::FakeCheckpoints;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn saving_and_loading_gives_the_verdict_back(
            startup in any::<Option<bool>>(), liveness in any::<Option<bool>>(), readiness in any::<Option<bool>>(),
        ) {
            let container_id: Arc<str> = "c1".into();
            let verdict = ContainerVerdict { container_id: container_id.clone(), startup, liveness, readiness };
            let initial = ContainerVerdict {
                container_id, startup: None, liveness: None, readiness: readiness.map(|_| false),
            };
            let text = serde_json::to_value(SavedVerdict::of(&verdict)).expect("it is plain data");
            let loaded: SavedVerdict = serde_json::from_value(text).expect("it was saved");
            prop_assert_eq!(loaded.apply_to(&initial), verdict);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_not_the_same_as_absent() {
        let store = FakeCheckpoints::new();
        let [pod, gone] = ["1-2", "3-4"].map(PodUid::new);
        let load = |pods| load(Arc::new(store.clone()), pods);
        store.save(&name(&pod), &serde_json::json!({})).await.expect("there is room");
        store.set_failing(true);
        assert!(load(None).await.is_err());
        let both: BTreeSet<PodUid> = [pod.clone(), gone].into();
        let unread = Loaded { unread: both.clone(), ..Loaded::default() };
        assert_eq!(load(Some(both.clone())).await, Ok(unread));
        store.set_failing(false);
        let read = Loaded { pods: [(pod.clone(), SavedPod::new())].into(), ..Loaded::default() };
        assert_eq!(load(Some(both)).await.as_ref(), Ok(&read));
        assert_eq!(load(None).await, Ok(read));
        store.corrupt(&name(&pod), "its checksum does not match");
        assert_eq!(load(None).await, Ok(Loaded::default()), "that is an answer");
    }

    #[test]
    fn checkpoints_are_named_for_their_pod() {
        let pod = PodUid::new("1-2");
        assert_eq!(name(&pod), "probe-results/1-2");
        assert_eq!(uid("probe-results/1-2"), Some(pod));
        assert_eq!(uid("pod-status/1-2"), None);
    }
}
