//! The three states of a pod and the transitions between them (rows 4.1–4.3, 4.7).
//!
//! No transition leads back: a terminating pod never syncs again, and its grace period only decreases.

use k8s_openapi::api::core::v1::Pod;
use messages::facts::{Rejection, WorkerState};

use crate::spec::PodView;
use crate::termination::ORPHAN_GRACE_SECONDS;
use crate::texts;

/// Why a pod ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Its source does not list it any more.
    Removed,
    /// The runtime holds it, no source lists it, and the pool has no worker for it.
    Orphaned,
    /// The pod has a deletion timestamp.
    Deleted,
    /// Another subsystem wants the pod to end, by an `EvictPod`.
    Evicted {
        /// The grace period in seconds; it counts if it is shorter than the pod's own.
        grace_seconds: Option<i64>,
        /// The reason and message for the pod's status.
        why: Rejection,
    },
    /// The pod has run for longer than its `activeDeadlineSeconds` (row 3.9).
    Overdue,
    /// The pod's containers have nothing more to do, or its status says so already.
    Finished,
}

/// The effect of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// The pod begins to terminate: a running sync is cut short where that is safe.
    Began,
    /// The grace period has become shorter.
    Shortened,
    /// The pod had ended without being deleted, and is deleted now.
    NowDeleted,
}

/// How a pod ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ending {
    grace_seconds: i64,
    deleted: bool,
    evicted: bool,
    failed: Option<Rejection>,
}

/// The state of a pod between its first sync and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    ending: Option<Ending>,
    stopped: bool,
    released: bool,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

impl Lifecycle {
    /// The lifecycle of a pod that syncs.
    pub fn new() -> Self {
        Self { ending: None, stopped: false, released: false }
    }

    /// The state, as workers report it.
    pub fn state(&self) -> WorkerState {
        match (&self.ending, self.stopped) {
            (None, _) => WorkerState::Syncing,
            (Some(_), false) => WorkerState::Terminating,
            (Some(_), true) => WorkerState::Terminated,
        }
    }

    /// The grace period of a terminating pod, in seconds, at least 1; absent while it syncs.
    pub fn grace_seconds(&self) -> Option<i64> {
        self.ending.as_ref().map(|ending| ending.grace_seconds)
    }

    /// Whether the pod was removed or deleted, so that nothing of it is kept.
    pub fn deleted(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.deleted)
    }

    /// The reason and message, if the node has ended the pod.
    pub fn failed(&self) -> Option<&Rejection> {
        self.ending.as_ref().and_then(|ending| ending.failed.as_ref())
    }

    /// Whether the pod was evicted, so that only its logs are kept.
    pub fn evicted(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.evicted)
    }

    /// Whether everything of the pod that is not kept has been released.
    pub fn released(&self) -> bool {
        self.released
    }

    /// Takes in a reason to end.
    pub fn end(&mut self, trigger: &Trigger, pod: Option<&Pod>) -> Change {
        let deleted = matches!(trigger, Trigger::Removed | Trigger::Orphaned | Trigger::Deleted);
        let grace = effective_grace(self.grace_seconds(), trigger, pod);
        let Some(ending) = &mut self.ending else {
            let failed = match trigger {
                Trigger::Evicted { why, .. } => Some(why.clone()),
                Trigger::Overdue => {
                    Some(Rejection::new(texts::DEADLINE_EXCEEDED, texts::DEADLINE_EXCEEDED_MESSAGE))
                }
                _ => None,
            };
            let evicted = matches!(trigger, Trigger::Evicted { .. });
            self.ending = Some(Ending { grace_seconds: grace, deleted, evicted, failed });
            return Change::Began;
        };
        let shortened = grace < ending.grace_seconds;
        ending.grace_seconds = grace;
        let now_deleted = deleted && !ending.deleted;
        ending.deleted |= deleted;
        if now_deleted && self.stopped {
            // Its containers were kept for their logs, and are removed now.
            self.released = false;
            return Change::NowDeleted;
        }
        if shortened && !self.stopped {
            Change::Shortened
        } else if now_deleted {
            Change::NowDeleted
        } else {
            Change::None
        }
    }

    /// Notes that nothing of the pod runs any more, and nothing will.
    pub fn stopped(&mut self) {
        debug_assert!(self.ending.is_some(), "a pod that syncs cannot have been terminated");
        self.stopped = self.ending.is_some();
    }

    /// Notes that everything of the pod that is not kept has been released. Ignored unless the pod is
    /// terminated.
    pub fn release(&mut self) {
        self.released = self.stopped;
    }
}

/// The grace period: the shortest of the present one, the API's deletion grace period and the trigger's;
/// without any of them the pod's own. At least one second.
fn effective_grace(current: Option<i64>, trigger: &Trigger, pod: Option<&Pod>) -> i64 {
    let deletion = pod.and_then(|pod| pod.metadata.deletion_grace_period_seconds);
    let override_seconds = match trigger {
        Trigger::Evicted { grace_seconds, .. } => *grace_seconds,
        Trigger::Orphaned => Some(ORPHAN_GRACE_SECONDS),
        Trigger::Removed | Trigger::Deleted | Trigger::Overdue | Trigger::Finished => None,
    };
    let granted = [current, deletion, override_seconds].into_iter().flatten().min();
    granted.or_else(|| pod.and_then(|pod| PodView::of(pod).grace_seconds())).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{container, pod};

    fn evicted(grace_seconds: Option<i64>) -> Trigger {
        Trigger::Evicted { grace_seconds, why: Rejection::new("Evicted", "low") }
    }

    #[test]
    fn grace_comes_from_the_pod_and_is_never_below_one_second() {
        let mut own = pod("Always", vec![], vec![container("c")]);
        let grace = |trigger: &Trigger, pod: Option<&Pod>| {
            let mut lifecycle = Lifecycle::new();
            assert_eq!(lifecycle.end(trigger, pod), Change::Began);
            lifecycle.grace_seconds().expect("it ends")
        };
        assert_eq!(grace(&Trigger::Removed, Some(&own)), 30);
        assert_eq!(grace(&Trigger::Orphaned, None), 1);
        assert_eq!(grace(&evicted(Some(0)), Some(&own)), 1);
        assert_eq!(grace(&evicted(None), Some(&own)), 30);
        assert_eq!(grace(&evicted(Some(60)), Some(&own)), 60);
        own.metadata.deletion_grace_period_seconds = Some(5);
        assert_eq!(grace(&Trigger::Deleted, Some(&own)), 5);
        assert_eq!(grace(&evicted(Some(60)), Some(&own)), 5);
    }

    #[test]
    fn a_finished_pod_that_is_removed_later_gives_back_the_rest() {
        let own = pod("Never", vec![], vec![container("c")]);
        let mut lifecycle = Lifecycle::new();
        lifecycle.end(&Trigger::Finished, Some(&own));
        assert_eq!(lifecycle.state(), WorkerState::Terminating);
        lifecycle.stopped();
        lifecycle.release();
        assert!(lifecycle.released() && !lifecycle.deleted());
        assert_eq!(lifecycle.end(&Trigger::Finished, Some(&own)), Change::None);
        assert_eq!(lifecycle.end(&Trigger::Removed, Some(&own)), Change::NowDeleted);
        assert!(!lifecycle.released() && lifecycle.deleted());
        lifecycle.release();
        assert!(lifecycle.released());
        assert_eq!(lifecycle.end(&Trigger::Removed, Some(&own)), Change::None);
    }

    #[test]
    fn the_first_cause_stays_the_status_cause() {
        let own = pod("Always", vec![], vec![container("c")]);
        let mut lifecycle = Lifecycle::new();
        lifecycle.end(&evicted(Some(10)), Some(&own));
        assert_eq!(lifecycle.end(&evicted(Some(3)), Some(&own)), Change::Shortened);
        lifecycle.end(&Trigger::Removed, Some(&own));
        assert_eq!(lifecycle.failed().map(|why| why.reason.as_str()), Some("Evicted"));
        assert!(lifecycle.deleted());
    }

    #[test]
    fn an_overdue_pod_has_failed_and_keeps_its_containers() {
        let own = pod("Always", vec![], vec![container("c")]);
        let mut lifecycle = Lifecycle::new();
        assert_eq!(lifecycle.end(&Trigger::Overdue, Some(&own)), Change::Began);
        assert_eq!(lifecycle.failed().map(|why| why.reason.as_str()), Some("DeadlineExceeded"));
        assert_eq!(lifecycle.grace_seconds(), Some(30));
        assert!(!lifecycle.evicted() && !lifecycle.deleted());
        assert_eq!(lifecycle.end(&evicted(Some(3)), Some(&own)), Change::Shortened);
        assert!(!lifecycle.evicted());
    }

    fn any_trigger() -> impl Strategy<Value = Trigger> {
        prop_oneof![
            Just(Trigger::Removed),
            Just(Trigger::Orphaned),
            Just(Trigger::Deleted),
            Just(Trigger::Overdue),
            Just(Trigger::Finished),
            proptest::option::of(-1i64..100).prop_map(evicted),
        ]
    }

    proptest! {
        #[test]
        fn states_only_go_forward_and_grace_only_down(
            triggers in proptest::collection::vec((any_trigger(), 0u8..4), 1..20),
        ) {
            let own = pod("Always", vec![], vec![container("c")]);
            let mut lifecycle = Lifecycle::new();
            let mut before = (lifecycle.state(), i64::MAX, false);
            for (trigger, then) in triggers {
                lifecycle.end(&trigger, Some(&own));
                if then == 1 {
                    lifecycle.stopped();
                }
                lifecycle.release();
                let grace = lifecycle.grace_seconds().expect("it ends");
                let now = (lifecycle.state(), grace, lifecycle.deleted());
                prop_assert!(now.0 >= before.0 && now.1 <= before.1 && now.2 >= before.2);
                prop_assert!(grace >= 1);
                prop_assert!(!lifecycle.released() || now.0 == WorkerState::Terminated);
                before = now;
            }
        }
    }
}
