//! What Pleg receives.

use std::sync::Arc;

use crate::runtime::{HeldPods, RuntimePod, RuntimePods};
use crate::{PodUid, delivery, receives};

/// Look at this pod now: something was done to it, or is expected of it.
#[derive(Clone, Debug)]
pub struct PodTouched {
    /// The pod's UID.
    pub uid: PodUid,
    /// Answered by a `PodObserved` whose `touch` is at least this. Grows per sender; 0 if nobody waits for the look. The
    /// highest one that waits in Pleg's mailbox is kept, whoever asks for a look after that.
    pub token: u64,
}
delivery!(PodTouched => (): Command, LatestPerKey, pod = |m| Some(&m.uid),
    absorb = |newer, older| newer.token = newer.token.max(older.token));

/// Send every pod's state and the runtime's health again: a receiver has restarted.
#[derive(Clone, Debug)]
pub struct ResendObserved;
delivery!(ResendObserved => (): Command, LatestPerKey);

/// What is known of every pod that could be looked at, as of the newest looks; `None` before the runtime has listed what
/// it has. A pod that is missing here is not gone: see [`GetHeldPods`].
#[derive(Clone, Debug)]
pub struct GetRuntimePods;
delivery!(GetRuntimePods => Option<RuntimePods>: Query, Reject);

/// What is known of one pod, whatever is known of others.
#[derive(Clone, Debug)]
pub struct GetRuntimePod {
    /// The pod's UID.
    pub uid: PodUid,
}
delivery!(GetRuntimePod => Option<Arc<RuntimePod>>: Query, Reject, pod = |m| Some(&m.uid));

/// Every pod of which the runtime holds something, once it has listed what it has; also those that cannot be looked at.
#[derive(Clone, Debug)]
pub struct GetHeldPods;
delivery!(GetHeldPods => HeldPods: Query, Reject);

receives!("Pleg": PodTouched, ResendObserved, GetRuntimePods, GetRuntimePod, GetHeldPods);
