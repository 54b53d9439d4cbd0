//! What Pleg receives.

use crate::runtime::{HeldPods, RuntimePods};
use crate::{PodUid, delivery, receives};

/// Look at this pod now: something was done to it, or is expected of it.
#[derive(Clone, Debug)]
pub struct PodTouched {
    /// The pod's UID.
    pub uid: PodUid,
    /// Answered by a `PodObserved` whose `touch` is at least this. Grows per sender.
    pub token: u64,
}
delivery!(PodTouched => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

/// Send every pod's state and the runtime's health again: a receiver has restarted.
#[derive(Clone, Debug)]
pub struct ResendObserved;
delivery!(ResendObserved => (): Command, LatestPerKey);

/// Everything the runtime holds, as of the newest look; `None` before the first complete relist.
#[derive(Clone, Debug)]
pub struct GetRuntimePods;
delivery!(GetRuntimePods => Option<RuntimePods>: Query, Reject);

/// Every pod of which the runtime holds something, once it has listed what it has; also those that cannot be looked at.
#[derive(Clone, Debug)]
pub struct GetHeldPods;
delivery!(GetHeldPods => HeldPods: Query, Reject);

receives!("Pleg": PodTouched, ResendObserved, GetRuntimePods, GetHeldPods);
