//! The messages that Pleg receives.

use std::sync::Arc;

use crate::runtime::{HeldPods, RuntimePod, RuntimePods};
use crate::{Key, PodUid, delivery, receives};

/// Asks Pleg to look at this pod in the runtime now, since its containers were or will be changed.
#[derive(Clone, Debug)]
pub struct PodTouched {
    /// The pod's UID.
    pub uid: PodUid,
    /// Answered by a [`SeenPod`](crate::facts::SeenPod) whose `touch` is at least this. Grows per sender; 0 if the sender does not wait for the look. Of
    /// several that wait in Pleg's mailbox the highest is kept, whichever message is the newest.
    pub token: u64,
}
delivery!(PodTouched => (): Command, LatestPerKey, pod = |m| Some(&m.uid),
    absorb = |newer, older| newer.token = newer.token.max(older.token));

/// Asks Pleg to send every pod's state and the runtime's health again: the receiver has restarted or has missed a change.
#[derive(Clone, Debug)]
pub struct ResendObserved {
    /// Its name in the supervision tree.
    pub receiver: &'static str,
}
delivery!(ResendObserved => (): Command, LatestPerKey, key = |m| Key::Receiver(m.receiver));

/// Asks for the state of every pod that Pleg could look at, as of its newest looks; `None` before the runtime's first
/// list. A pod that is missing here may still exist: see [`GetHeldPods`].
#[derive(Clone, Debug)]
pub struct GetRuntimePods;
delivery!(GetRuntimePods => Option<RuntimePods>: Query, Reject);

/// Asks for the state of one pod, whether or not Pleg could look at the others.
#[derive(Clone, Debug)]
pub struct GetRuntimePod {
    /// The pod's UID.
    pub uid: PodUid,
}
delivery!(GetRuntimePod => Option<Arc<RuntimePod>>: Query, Reject, pod = |m| Some(&m.uid));

/// Asks for every pod of which the runtime holds a sandbox or container, also those that cannot be looked at; answered
/// once the runtime has listed them.
#[derive(Clone, Debug)]
pub struct GetHeldPods;
delivery!(GetHeldPods => HeldPods: Query, Reject);

receives!("Pleg": PodTouched, ResendObserved, GetRuntimePods, GetRuntimePod, GetHeldPods);
