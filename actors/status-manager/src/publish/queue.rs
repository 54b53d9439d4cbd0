//! PURE: the order in which statuses are sent. At most one call for each pod, the latest status wins, few calls at a
//! time; pods that become ready or cease to be, and pods that are over, go before others, and namespaces take turns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::FairQueue;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use messages::PodUid;
use pod_rules::versions::version;
use serde_json::Value;

use super::diff::{Part, uid_of};
use super::execute::Outcome;
use crate::phase::Phase;

/// Calls under way at once.
const CALLS_MAX: usize = 16;
/// So often the turn is one of the crowd, however much is urgent: else one namespace of pods whose readiness flaps would keep what is not
/// urgent of all others from the API server for ever.
const CROWD_EVERY: u64 = 8;
/// Pause before a call that failed is made again, unless there is news before (row 8.6).
const RETRY: Duration = Duration::from_secs(10);

/// What the API server is to know of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Publication {
    /// The pod as the API server has it: itself or its mirror; `None` if the API server has neither.
    pub(crate) object: Option<Arc<Pod>>,
    /// Whether `object` is the mirror of a static pod.
    pub(crate) is_mirror: bool,
    /// Its status; `None` as long as there is nothing to tell.
    pub(crate) status: Option<Arc<PodStatus>>,
    /// Whether the node holds nothing of it any more, and never will again.
    pub(crate) is_finished: bool,
}

/// A call to make.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    /// The pod's UID as the kubelet knows it.
    pub(crate) pod: PodUid,
    /// The namespace of the pod at the API server.
    pub(crate) namespace: String,
    /// The name of the pod at the API server.
    pub(crate) name: String,
    /// The action of the call.
    pub(crate) what: CallKind,
}

/// The action of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallKind {
    /// Changes the status.
    Patch(Value),
    /// Deletes the pod of this UID at once.
    Delete {
        /// The pod's UID at the API server.
        uid: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Urgent,
    Crowd,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// Waits in this lane, in the line of this namespace, with this ticket.
    Queued(Lane, String, u64),
    UnderWay,
    /// The last call failed: it is made again when there is news or the time is over.
    Failed,
}

#[derive(Debug, Default)]
struct Slot {
    told: Publication,
    known: Part,
    ours: Part,
    state: State,
    /// The status that the call under way sends.
    sent: Option<Part>,
    /// The status that was sent last, and what the API server made of it: an equal one is not sent again.
    settled: Option<(Part, Part)>,
    /// The UID that the API server says it has no more.
    gone: Option<String>,
    /// Whether the API server has refused the pod with its status as too large.
    is_too_large: bool,
    /// The newest version of the object that the watch told of, as opposed to answers to our calls.
    watched: Option<u64>,
}

impl Slot {
    fn need(&self) -> Option<(Lane, CallKind)> {
        let object = self.told.object.as_deref()?;
        let uid = uid_of(object);
        if self.gone.as_deref() == Some(uid) {
            return None;
        }
        self.told.status.as_ref()?;
        let goes =
            self.told.is_finished && !self.told.is_mirror && object.metadata.deletion_timestamp.is_some();
        let delete = || (Lane::Urgent, CallKind::Delete { uid: uid.to_owned() });
        if goes && self.is_too_large {
            // Its spec leaves no room for a status, so that its end cannot be told before.
            return Some(delete());
        }
        let is_settled =
            self.settled.as_ref().is_some_and(|(ours, known)| *ours == self.ours && *known == self.known);
        if !is_settled && let Some(patch) = self.ours.patch_from(&self.known, uid) {
            let lane = if self.ours.is_urgent_after(&self.known) { Lane::Urgent } else { Lane::Crowd };
            return Some((lane, CallKind::Patch(patch)));
        }
        let phase = object.status.as_ref().and_then(|status| status.phase.as_deref());
        let has_ended = phase.and_then(Phase::parse).is_some_and(|phase| phase.is_terminal());
        (goes && has_ended).then(delete)
    }

    /// Takes the object as the watch tells it. A version older than the watch told of before is no late news: the
    /// server's data have been restored to an earlier time, and its answers since do not hold any more.
    fn told(&mut self, told: Publication) {
        let is_same = |ours: &Arc<Pod>, new: &Arc<Pod>| uid_of(ours) == uid_of(new);
        let same = self.told.object.as_ref().zip(told.object.as_ref()).is_some_and(|(a, b)| is_same(a, b));
        let now = told.object.as_ref().and_then(|pod| version(&pod.metadata));
        if same && now.is_some() && now < self.watched {
            self.told.object = None;
            self.settled = None;
            self.gone = None;
        }
        self.watched = now;
        self.take(told);
    }

    /// Takes the newer object of the two: an answer may come before the watch tells of an earlier change.
    fn take(&mut self, told: Publication) {
        let keep = match (&self.told.object, &told.object) {
            (Some(ours), Some(new)) => {
                uid_of(ours) == uid_of(new) && version(&ours.metadata) > version(&new.metadata)
            }
            _ => false,
        };
        let object = if keep { self.told.object.take() } else { told.object };
        if !keep {
            self.known = Part::of(object.as_ref().and_then(|pod| pod.status.as_ref()));
        }
        self.ours = Part::of(told.status.as_deref());
        self.told = Publication { object, ..told };
    }
}

/// The pods that wait, in lines by namespace.
#[derive(Debug, Default)]
struct Lines {
    urgent: FairQueue<String, PodUid>,
    crowd: FairQueue<String, PodUid>,
    turns: u64,
}

impl Lines {
    fn of(&mut self, lane: Lane) -> &mut FairQueue<String, PodUid> {
        match lane {
            Lane::Urgent => &mut self.urgent,
            Lane::Crowd => &mut self.crowd,
        }
    }

    /// Takes out the pod whose turn it is.
    fn pop(&mut self) -> Option<PodUid> {
        let lanes = match self.turns % CROWD_EVERY == CROWD_EVERY - 1 {
            true => [Lane::Crowd, Lane::Urgent],
            false => [Lane::Urgent, Lane::Crowd],
        };
        let (_, uid) = lanes.into_iter().find_map(|lane| self.of(lane).pop(|_| true))?;
        self.turns += 1;
        Some(uid)
    }
}

/// The statuses of all pods that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    pods: BTreeMap<PodUid, Slot>,
    lines: Lines,
    under_way: usize,
}

impl Publisher {
    /// Takes what the API server is to know of a pod now.
    pub(crate) fn told(&mut self, uid: &PodUid, publication: Publication) {
        let slot = self.pods.entry(uid.clone()).or_default();
        if slot.told == publication {
            return;
        }
        slot.told(publication);
        self.line_up(uid);
    }

    /// The pod is over, and its slot is removed.
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        if let Some(slot) = self.pods.get_mut(uid) {
            slot.told = Publication::default();
            self.line_up(uid);
            if self.pods.get(uid).is_some_and(|slot| slot.state != State::UnderWay) {
                self.pods.remove(uid);
            }
        }
    }

    /// The next call, if one may be made now.
    pub(crate) fn next(&mut self) -> Option<Call> {
        while self.under_way < CALLS_MAX {
            let uid = self.lines.pop()?;
            let Some(slot) = self.pods.get_mut(&uid) else { continue };
            slot.state = State::Idle;
            let Some((_, what)) = slot.need() else { continue };
            let Some(object) = &slot.told.object else { continue };
            slot.state = State::UnderWay;
            slot.sent = Some(slot.ours.clone());
            self.under_way += 1;
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            let (namespace, name) = (text(&object.metadata.namespace), text(&object.metadata.name));
            return Some(Call { pod: uid, namespace, name, what });
        }
        None
    }

    /// A call has ended. If it failed, returns the pause after which to call [`Publisher::due`].
    pub(crate) fn done(&mut self, uid: &PodUid, outcome: Outcome) -> Option<Duration> {
        self.under_way = self.under_way.saturating_sub(1);
        let slot = self.pods.get_mut(uid)?;
        slot.state = State::Idle;
        let sent = slot.sent.take();
        let Some(object) = &slot.told.object else {
            if slot.told.status.is_none() {
                self.pods.remove(uid);
            }
            return None;
        };
        match outcome {
            Outcome::Patched(pod) => {
                slot.is_too_large = false;
                if uid_of(&pod) == uid_of(object) {
                    let known = Part::of(pod.status.as_ref());
                    slot.settled = sent.map(|ours| (ours, known));
                    let told = Publication { object: Some(Arc::new(*pod)), ..slot.told.clone() };
                    slot.take(told);
                }
            }
            Outcome::Deleted | Outcome::Gone => slot.gone = Some(uid_of(object).to_owned()),
            Outcome::Failed(error) if error.is_too_large() && !slot.is_too_large => slot.is_too_large = true,
            Outcome::Failed(error) => {
                slot.state = State::Failed;
                return Some(error.retry_after.unwrap_or(RETRY).max(RETRY));
            }
        }
        self.line_up(uid);
        None
    }

    /// The pause after a failed call is over: it is made again.
    pub(crate) fn due(&mut self, uid: &PodUid) {
        if self.pods.get(uid).is_some_and(|slot| slot.state == State::Failed) {
            self.line_up(uid);
        }
    }

    /// Whether the API server knows all that is to be told of the pod, as far as calls can tell it.
    pub(crate) fn has_told(&self, uid: &PodUid) -> bool {
        self.pods.get(uid).is_none_or(|slot| slot.state == State::Idle)
    }

    /// The number of calls under way, and of pods of which the last call failed.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.under_way, self.pods.values().filter(|slot| slot.state == State::Failed).count())
    }

    fn line_up(&mut self, uid: &PodUid) {
        let Some(slot) = self.pods.get_mut(uid) else { return };
        if slot.state == State::UnderWay {
            return;
        }
        let lane = slot.need().map(|(lane, _)| lane);
        if let State::Queued(known, namespace, ticket) = &slot.state {
            // A pod that waits in front keeps its place.
            if lane.is_some_and(|lane| *known <= lane) {
                return;
            }
            self.lines.of(*known).remove(namespace, *ticket);
        }
        slot.state = State::Idle;
        if let Some(lane) = lane {
            let object = slot.told.object.as_ref();
            let namespace = object.and_then(|pod| pod.metadata.namespace.clone()).unwrap_or_default();
            let ticket = self.lines.of(lane).push(&namespace, uid.clone());
            slot.state = State::Queued(lane, namespace, ticket);
        }
    }
}

#[cfg(test)]
mod tests;
