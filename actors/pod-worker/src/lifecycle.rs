//! The three states of a pod and the ways between them (rows 4.1–4.3, 4.7).
//!
//! There is no way back: a pod that terminates never syncs again, and its grace only decreases.

use k8s_openapi::api::core::v1::Pod;
use messages::facts::{Rejection, WorkerState};

use crate::spec::PodView;
use crate::termination::ORPHAN_GRACE_SECONDS;
use crate::texts;

/// Why a pod ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// It was removed from its source.
    Removed,
    /// The runtime holds it, and nobody desires or remembers it.
    Orphaned,
    /// Its deletion timestamp is set.
    Deleted,
    /// The node wants it gone.
    Evicted {
        /// Grace in seconds instead of the pod's own, if that is shorter.
        grace_seconds: Option<i64>,
        /// The status' reason and message.
        why: Rejection,
    },
    /// It has run for longer than it may (row 3.9).
    Overdue,
    /// Its containers have nothing more to do, or its status says so already.
    Finished,
}

/// What a trigger has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// The pod terminates from now on: a running sync is cut short where that is safe.
    Began,
    /// It has less time than before.
    Shortened,
    /// It had ended by itself and now goes for good.
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

/// Where a pod is on its way.
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
    /// A pod that syncs.
    pub fn new() -> Self {
        Self { ending: None, stopped: false, released: false }
    }

    /// The state.
    pub fn state(&self) -> WorkerState {
        match (&self.ending, self.stopped) {
            (None, _) => WorkerState::Syncing,
            (Some(_), false) => WorkerState::Terminating,
            (Some(_), true) => WorkerState::Terminated,
        }
    }

    /// The grace that is left to a terminating pod, in seconds, at least 1; absent while it syncs.
    pub fn grace_seconds(&self) -> Option<i64> {
        self.ending.as_ref().map(|ending| ending.grace_seconds)
    }

    /// It was removed or deleted, so nothing of it is kept.
    pub fn deleted(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.deleted)
    }

    /// The node has ended it, and this is why.
    pub fn failed(&self) -> Option<&Rejection> {
        self.ending.as_ref().and_then(|ending| ending.failed.as_ref())
    }

    /// The node wants nothing of it left but its logs.
    pub fn evicted(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.evicted)
    }

    /// All that has to be given back has been.
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
                Trigger::Overdue => Some(Rejection {
                    reason: texts::DEADLINE_EXCEEDED.to_owned(),
                    message: texts::DEADLINE_EXCEEDED_MESSAGE.to_owned(),
                }),
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
            // Its containers were kept for their logs; now they go.
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

    /// Nothing of the pod runs any more, and nothing will.
    pub fn stopped(&mut self) {
        debug_assert!(self.ending.is_some(), "a pod that syncs cannot have been terminated");
        self.stopped = self.ending.is_some();
    }

    /// All that has to be given back has been. Ignored unless the pod is terminated.
    pub fn release(&mut self) {
        self.released = self.stopped;
    }
}

/// The least of what was granted so far, the API's deletion grace and the caller's; without any of them the pod's own
/// wish. At least one second.
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
        Trigger::Evicted { grace_seconds, why: Rejection { reason: "Evicted".into(), message: "low".into() } }
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
