//! Reads at start the checkpoints of earlier incarnations.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_node::checkpoint::{CheckpointError, CheckpointStore};
use futures::StreamExt;
use k8s_openapi::api::core::v1::PodStatus;
use messages::PodUid;
use pod_rules::phases::FAILED;
use pod_rules::reasons::REJECTED_PREFIX;
use serde_json::Value;

use crate::checkpoint::{Checkpoint, PREFIX};

/// How many checkpoints are read at the same time.
const LOADS_MAX: usize = 16;

/// Why a checkpoint that was read is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableCheckpoint {
    /// The checkpoint store finds it corrupt.
    #[error("{0}")]
    Corrupt(CheckpointError),
    /// Its content is not a pod status.
    #[error("checkpoint {name} is no pod status: {reason}")]
    Foreign {
        /// The checkpoint.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Reading it panics. It stays on the disk: another release may read it.
    #[error("checkpoint {name} cannot be read: {panic}")]
    Panicked {
        /// The checkpoint.
        name: String,
        /// The panic and its place.
        panic: String,
    },
    /// It is the status of another pod than its name says.
    #[error("checkpoint {name} is of pod {uid}")]
    Misnamed {
        /// The checkpoint.
        name: String,
        /// The pod that the status is of.
        uid: PodUid,
    },
}

/// The checkpoints' contents.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Restored {
    pub(crate) statuses: BTreeMap<PodUid, PodStatus>,
    /// Checkpoints that are ignored and reported.
    pub(crate) unusable: Vec<UnusableCheckpoint>,
}

/// Reads every checkpoint. At the start of a process, which is the actor's first incarnation, those of refused pods are removed:
/// each kubelet judges anew the pods that an earlier one refused, since its configuration may be another. Later incarnations tell
/// PodManager of them, which may have crashed at the same time: a refused pod stays refused.
///
/// # Errors
/// Reading itself failed: then nothing is known, which is not the same as there being no checkpoint.
pub(crate) async fn restore(
    store: Arc<dyn CheckpointStore>,
    is_first: bool,
) -> Result<Restored, CheckpointError> {
    let names = store.list(PREFIX).await?;
    let loads = names.into_iter().map(|name| {
        let load = store.load(&name);
        async move { (name, load.await) }
    });
    let mut loaded = futures::stream::iter(loads).buffered(LOADS_MAX);
    let mut restored = Restored::default();
    while let Some((name, content)) = loaded.next().await {
        match content {
            Ok(None) => {}
            Ok(Some(content)) => match contained(&name, || decode(&name, content)) {
                Ok(checkpoint) if is_first && is_refusal(&checkpoint.status) => {
                    let _ = store.remove(&name).await;
                }
                Ok(checkpoint) => {
                    restored.statuses.insert(checkpoint.pod.uid, checkpoint.status);
                }
                Err(panicked @ UnusableCheckpoint::Panicked { .. }) => restored.unusable.push(panicked),
                Err(unusable) => {
                    // If this fails, the next start finds it again and removes it.
                    let _ = store.remove(&name).await;
                    restored.unusable.push(unusable);
                }
            },
            Err(error @ CheckpointError::Corrupt { .. }) => {
                restored.unusable.push(UnusableCheckpoint::Corrupt(error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(restored)
}

fn is_refusal(status: &PodStatus) -> bool {
    let message = status.message.as_deref().unwrap_or_default();
    status.phase.as_deref() == Some(FAILED) && message.starts_with(REJECTED_PREFIX)
}

/// What a checkpoint says. A panic here would otherwise end every incarnation, and every process at its start.
fn contained(
    name: &str,
    decode: impl FnOnce() -> Result<Checkpoint, UnusableCheckpoint>,
) -> Result<Checkpoint, UnusableCheckpoint> {
    supervision::contained(decode).unwrap_or_else(|panic| {
        Err(UnusableCheckpoint::Panicked { name: name.to_owned(), panic: panic.to_string() })
    })
}

/// What the content of the checkpoint of this name says.
///
/// # Errors
/// It is no pod status, or that of another pod.
pub fn decode(name: &str, content: Value) -> Result<Checkpoint, UnusableCheckpoint> {
    // It is read from bytes, as all of the API is: reading a status from a `Value` would compile as much code again.
    let checkpoint: Checkpoint = serde_json::from_slice(content.to_string().as_bytes())
        .map_err(|error| UnusableCheckpoint::Foreign { name: name.to_owned(), reason: error.to_string() })?;
    if name.strip_prefix(PREFIX) == Some(checkpoint.pod.uid.as_str()) {
        Ok(checkpoint)
    } else {
        Err(UnusableCheckpoint::Misnamed { name: name.to_owned(), uid: checkpoint.pod.uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenes::pod_ref;

    #[test]
    fn a_status_survives_being_written_down() {
        let status = PodStatus { phase: Some("Succeeded".into()), ..PodStatus::default() };
        let checkpoint = Checkpoint { pod: pod_ref(), status };
        let content = serde_json::to_value(&checkpoint).unwrap();
        assert_eq!(decode("pod-status/uid-1", content.clone()), Ok(checkpoint));
        assert_eq!(
            decode("pod-status/uid-2", content).unwrap_err().to_string(),
            "checkpoint pod-status/uid-2 is of pod uid-1"
        );
        let panicked = contained("pod-status/uid-1", || panic!("foreign bytes")).unwrap_err();
        let text = panicked.to_string();
        assert!(text.starts_with("checkpoint pod-status/uid-1 cannot be read: foreign bytes"), "{text}");
        let foreign = decode("pod-status/uid-1", serde_json::json!({"pod": 1})).unwrap_err();
        assert!(foreign.to_string().starts_with("checkpoint pod-status/uid-1 is no pod status"));
    }
}
