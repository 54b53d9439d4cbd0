//! Which statuses are checkpointed, and when: only what neither the runtime nor the API server could tell again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::Backoff;
use k8s_openapi::api::core::v1::PodStatus;
use messages::{PodRef, PodUid};
use serde::{Deserialize, Serialize};

/// The waits between failed writes.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));
/// Beyond this many pods a removal that failed is left to the next start.
const SLOTS_MAX: usize = 4096;

/// The checkpoint of a pod is stored under this prefix, followed by its UID.
pub const PREFIX: &str = "pod-status/";

/// A checkpoint's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The pod that has the status.
    pub pod: PodRef,
    /// The status.
    pub status: PodStatus,
}

/// The parts of a status by which a change is worth writing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Essence {
    phase: [Option<String>; 3],
    conditions: Vec<[String; 4]>,
    restarts: Vec<(String, i32)>,
}

impl Essence {
    fn of(status: &PodStatus) -> Self {
        let conditions = status.conditions.iter().flatten().map(|c| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            [c.type_.clone(), c.status.clone(), text(&c.reason), text(&c.message)]
        });
        let containers = [&status.init_container_statuses, &status.container_statuses];
        let restarts = containers.into_iter().flatten().flatten().map(|s| (s.name.clone(), s.restart_count));
        Self {
            phase: [status.phase.clone(), status.reason.clone(), status.message.clone()],
            conditions: conditions.collect(),
            restarts: restarts.collect(),
        }
    }
}

/// The next step for a pod's checkpoint, which the actor takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Write this, then call [`Writes::done`].
    Save(Box<Checkpoint>),
    /// Remove the checkpoint, then call [`Writes::done`].
    Remove(PodUid),
    /// Wait so long, then call [`Writes::due`].
    Wait(PodUid, Duration),
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Slot {
    /// The checkpoint on disk, as far as is known.
    safe: Option<Essence>,
    /// The status that shall be on disk; `None` for no checkpoint.
    wanted: Option<(PodRef, Arc<PodStatus>)>,
    /// The checkpoint that is being written, or `Some(None)` while it is being removed.
    under_way: Option<Option<Essence>>,
    /// Whether the wait after a failed try is under way.
    is_waiting: bool,
    failures: u32,
    problem: Option<String>,
}

/// All pods' checkpoints: at most one operation at a time for each, the latest status wins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writes {
    pods: BTreeMap<PodUid, Slot>,
}

impl Writes {
    /// This status is on disk already.
    pub fn restored(&mut self, uid: &PodUid, status: &PodStatus) {
        self.pods.entry(uid.clone()).or_default().safe = Some(Essence::of(status));
    }

    /// A pod has a new status: the next step, if any.
    pub fn told(&mut self, pod: &PodRef, status: Arc<PodStatus>) -> Option<Step> {
        self.pods.entry(pod.uid.clone()).or_default().wanted = Some((pod.clone(), status));
        self.next(&pod.uid)
    }

    /// A pod is over, and its checkpoint is to be removed: the next step, if any.
    pub fn gone(&mut self, uid: &PodUid) -> Option<Step> {
        self.pods.get_mut(uid)?.wanted = None;
        self.next(uid)
    }

    /// The operation has ended, well or with this error: the next step, if any.
    pub fn done(&mut self, uid: &PodUid, outcome: Result<(), String>) -> Option<Step> {
        let slot = self.pods.get_mut(uid)?;
        let written = slot.under_way.take()?;
        match outcome {
            Ok(()) => {
                slot.safe = written;
                slot.failures = 0;
                slot.problem = None;
                self.next(uid)
            }
            Err(problem) => {
                slot.problem = Some(problem);
                slot.is_waiting = true;
                slot.failures = slot.failures.saturating_add(1);
                let wait = BACKOFF.after(slot.failures);
                if slot.wanted.is_none() && self.pods.len() > SLOTS_MAX {
                    self.pods.remove(uid);
                    return None;
                }
                Some(Step::Wait(uid.clone(), wait))
            }
        }
    }

    /// The wait after a failure is over: the next step, if any.
    pub fn due(&mut self, uid: &PodUid) -> Option<Step> {
        self.pods.get_mut(uid)?.is_waiting = false;
        self.next(uid)
    }

    /// The number of operations under way, and the pods whose last operation failed, each with its error.
    pub fn problems(&self) -> (usize, BTreeMap<&PodUid, &str>) {
        let under_way = self.pods.values().filter(|s| s.under_way.is_some()).count();
        let failed = self.pods.iter().filter_map(|(uid, s)| Some((uid, s.problem.as_deref()?)));
        (under_way, failed.collect())
    }

    fn next(&mut self, uid: &PodUid) -> Option<Step> {
        let slot = self.pods.get_mut(uid)?;
        if slot.under_way.is_some() || slot.is_waiting {
            return None;
        }
        let Some((pod, status)) = &slot.wanted else {
            if slot.safe.is_none() {
                self.pods.remove(uid);
                return None;
            }
            slot.under_way = Some(None);
            return Some(Step::Remove(uid.clone()));
        };
        let essence = Essence::of(status);
        if slot.safe.as_ref() == Some(&essence) {
            return None;
        }
        slot.under_way = Some(Some(essence));
        Some(Step::Save(Box::new(Checkpoint { pod: pod.clone(), status: (**status).clone() })))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerStatus;
    use proptest::prelude::*;

    use super::*;
    use crate::scenes::pod_ref;

    fn status(phase: &str, restarts: i32) -> Arc<PodStatus> {
        Arc::new(PodStatus {
            phase: Some(phase.into()),
            container_statuses: Some(vec![ContainerStatus {
                name: "a".into(),
                restart_count: restarts,
                ..ContainerStatus::default()
            }]),
            ..PodStatus::default()
        })
    }

    fn save(status: &Arc<PodStatus>) -> Option<Step> {
        Some(Step::Save(Box::new(Checkpoint { pod: pod_ref(), status: (**status).clone() })))
    }

    #[test]
    fn one_write_at_a_time_and_the_latest_wins() {
        let (mut writes, pod) = (Writes::default(), pod_ref());
        assert_eq!(writes.told(&pod, status("Pending", 0)), save(&status("Pending", 0)));
        assert_eq!(writes.told(&pod, status("Running", 0)), None);
        assert_eq!(writes.told(&pod, status("Running", 1)), None);
        assert_eq!(writes.done(&pod.uid, Ok(())), save(&status("Running", 1)));
        assert_eq!(writes.done(&pod.uid, Ok(())), None);
    }

    #[test]
    fn only_what_matters_is_written() {
        let (mut writes, pod) = (Writes::default(), pod_ref());
        writes.restored(&pod.uid, &status("Running", 0));
        let mut moved = (*status("Running", 0)).clone();
        moved.pod_ip = Some("10.0.0.9".into());
        assert_eq!(writes.told(&pod, Arc::new(moved)), None);
        assert_eq!(writes.told(&pod, status("Running", 1)), save(&status("Running", 1)));
    }

    #[test]
    fn a_full_disk_is_tried_again_with_the_latest_and_shown() {
        let (mut writes, pod) = (Writes::default(), pod_ref());
        writes.told(&pod, status("Running", 0));
        let wait = |seconds| Some(Step::Wait(pod_ref().uid, Duration::from_secs(seconds)));
        assert_eq!(writes.done(&pod.uid, Err("no space".into())), wait(1));
        assert_eq!(writes.told(&pod, status("Succeeded", 0)), None, "not before the wait is over");
        assert_eq!(writes.problems().1.into_values().collect::<Vec<_>>(), ["no space"]);
        assert_eq!(writes.due(&pod.uid), save(&status("Succeeded", 0)));
        assert_eq!(writes.done(&pod.uid, Err("no space".into())), wait(2));
        for seconds in [4, 8, 16, 32, 60, 60] {
            assert!(writes.due(&pod.uid).is_some());
            assert_eq!(writes.done(&pod.uid, Err("no space".into())), wait(seconds));
        }
        assert!(writes.due(&pod.uid).is_some());
        assert_eq!(writes.done(&pod.uid, Ok(())), None);
        assert_eq!(writes.problems(), (0, BTreeMap::new()));
    }

    #[test]
    fn a_pod_that_is_over_loses_its_checkpoint() {
        let (mut writes, pod) = (Writes::default(), pod_ref());
        writes.restored(&pod.uid, &status("Running", 0));
        assert_eq!(writes.gone(&pod.uid), Some(Step::Remove(pod.uid.clone())));
        assert_eq!(writes.done(&pod.uid, Ok(())), None);
        assert_eq!(writes, Writes::default(), "nothing is kept of it");
    }

    #[derive(Clone, Debug)]
    enum Event {
        Told(i32),
        Gone,
        Done(bool),
        Due,
    }

    fn events() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0..3).prop_map(Event::Told),
            Just(Event::Gone),
            any::<bool>().prop_map(Event::Done),
            Just(Event::Due)
        ]
    }

    proptest! {
        /// Once the disk works, it holds in the end the status that was told last.
        #[test]
        fn the_disk_follows(history in prop::collection::vec(events(), 0..40)) {
            let (mut writes, pod) = (Writes::default(), pod_ref());
            let (mut disk, mut wanted): (Option<i32>, Option<i32>) = (None, None);
            let mut under_way: Option<Step> = None;
            let settle = std::iter::repeat_n([Event::Done(true), Event::Due], 3).flatten();
            for event in history.into_iter().chain(settle) {
                let step = match event {
                    Event::Told(count) => {
                        wanted = Some(count);
                        writes.told(&pod, status("Running", count))
                    }
                    Event::Gone => {
                        wanted = None;
                        writes.gone(&pod.uid)
                    }
                    Event::Due => writes.due(&pod.uid),
                    Event::Done(works) => match under_way.take() {
                        None => None,
                        Some(step) if works => {
                            disk = match step {
                                Step::Save(saved) => Some(saved.status.container_statuses.unwrap()[0].restart_count),
                                _ => None,
                            };
                            writes.done(&pod.uid, Ok(()))
                        }
                        Some(_) => writes.done(&pod.uid, Err("no space".into())),
                    },
                };
                match step {
                    Some(step @ (Step::Save(_) | Step::Remove(_))) => {
                        prop_assert!(under_way.is_none(), "two operations at once");
                        under_way = Some(step);
                    }
                    Some(Step::Wait(..)) | None => {}
                }
            }
            prop_assert_eq!(disk, wanted);
        }
    }
}
