//! PURE: the next step of a worker, from all the facts that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::facts::{ContainerVerdict, WorkerState};
use messages::runtime::{RuntimeHealth, RuntimePod};

use crate::backoff::CrashBackoff;
use crate::lifecycle::Lifecycle;
use crate::past::Past;
use crate::plan::{AttemptHistory, Finished, Inputs, PodPlan, plan};
use crate::termination::{TerminationPlan, terminate};
use crate::texts;

/// All facts of a worker that has no task under way.
#[derive(Clone, Copy, Debug)]
pub struct ReconcileInput<'a> {
    /// The state of the pod's lifecycle.
    pub lifecycle: &'a Lifecycle,
    /// The pod as it was last desired; absent for a pod that only the runtime has.
    pub pod: Option<&'a Pod>,
    /// Whether the pod was removed from its source, so that the worker ends once the pod is released.
    pub gone: bool,
    /// Whether StatusManager has answered if the pod had ended before this worker began.
    pub restored: bool,
    /// Whether no call of an earlier incarnation, or of a sync that was cut short, is in flight.
    pub settled: bool,
    /// The runtime's state of the pod, if the look began after the last step.
    pub observed: Option<&'a RuntimePod>,
    /// `observed` is the state at this moment or later.
    pub seen_at: Timestamp,
    /// The runtime's health; absent until Pleg has sent it.
    pub health: Option<&'a RuntimeHealth>,
    /// Settled probe verdicts by container name.
    pub verdicts: &'a BTreeMap<String, ContainerVerdict>,
    /// The restart delays.
    pub backoff: &'a CrashBackoff,
    /// The results of earlier attempts.
    pub known: &'a AttemptHistory,
    /// Which containers have run.
    pub past: &'a Past,
    /// Sandboxes that have been stopped and that the runtime still has.
    pub stopped_sandboxes: &'a BTreeSet<Arc<str>>,
    /// The end of the pause after a failure that concerns the whole pod: until then there is no step.
    pub retry_at: Option<Timestamp>,
    /// The stop of the pod waits for postStart hooks until this moment.
    pub hooks_until: Option<Timestamp>,
    /// How much of the grace period that wait has taken, in seconds.
    pub grace_used: i64,
    /// How many dead instances of each container are kept.
    pub dead_kept: usize,
    /// The present wall time.
    pub now: Timestamp,
}

/// What to release besides mounts and cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Containers and sandboxes, for pods that were deleted or evicted (row 9.5).
    pub containers: bool,
    /// Logs, for pods that were deleted.
    pub logs: bool,
}

/// The next step of a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask StatusManager whether the pod had ended before this worker began.
    Restore,
    /// Wait for calls in flight.
    Settle,
    /// Ask Pleg for a look at the runtime, and wait for it.
    Look,
    /// Carry out this plan, which may be idle.
    Sync(Box<PodPlan>),
    /// Begin to terminate the pod: it has nothing more to run.
    Finish(Finished),
    /// Stop these containers and sandboxes.
    Terminate(TerminationPlan),
    /// Note that nothing of the pod runs any more.
    Stopped,
    /// Release what the pod holds on the node.
    Release(Release),
    /// Wait for a message, or until this moment.
    Rest(Option<Timestamp>),
    /// End the worker.
    End,
}

/// Decides the next step.
pub fn next(situation: &ReconcileInput<'_>) -> Step {
    let lifecycle = situation.lifecycle;
    if lifecycle.released() {
        return if situation.gone && lifecycle.deleted() { Step::End } else { Step::Rest(None) };
    }
    if let Some(retry_at) = situation.retry_at.filter(|at| *at > situation.now) {
        return Step::Rest(Some(retry_at));
    }
    if !situation.settled {
        return Step::Settle;
    }
    let state = lifecycle.state();
    if state == WorkerState::Syncing {
        if situation.pod.is_none() {
            return Step::Rest(None);
        }
        if !situation.restored {
            return Step::Restore;
        }
    }
    let Some(observed) = situation.observed else { return Step::Look };
    match (state, situation.pod) {
        (WorkerState::Syncing, Some(pod)) => sync(situation, pod, observed),
        (WorkerState::Syncing, None) => Step::Rest(None),
        (WorkerState::Terminating, pod) => {
            if let Some(until) = situation.hooks_until.filter(|until| *until > situation.now) {
                return Step::Rest(Some(until));
            }
            let grace = lifecycle.grace_seconds().unwrap_or(1).saturating_sub(situation.grace_used);
            let mut plan = terminate(pod, observed, grace, situation.stopped_sandboxes);
            // Upstream's sync, which the pod's end does not cut off, kills such a container before all are stopped.
            let failed = &situation.known.hook_failed;
            for kill in plan.kills.iter_mut().filter(|kill| failed.get(&*kill.name) == Some(&kill.id)) {
                kill.message = texts::FAILED_POST_START_HOOK.to_owned();
            }
            if plan.is_done() { Step::Stopped } else { Step::Terminate(plan) }
        }
        (WorkerState::Terminated, _) => Step::Release(Release {
            containers: lifecycle.deleted() || lifecycle.evicted(),
            logs: lifecycle.deleted(),
        }),
    }
}

fn sync(situation: &ReconcileInput<'_>, pod: &Pod, observed: &RuntimePod) -> Step {
    let Some(health) = situation.health.filter(|health| health.ready) else {
        return Step::Rest(None);
    };
    let plan = plan(&Inputs {
        pod,
        runtime: observed,
        verdicts: situation.verdicts,
        backoff: situation.backoff,
        known: situation.known,
        past: situation.past,
        network_ready: health.network_ready,
        dead_kept: situation.dead_kept,
        seen_at: situation.seen_at,
        now: situation.now,
    });
    match plan.finished {
        Some(finished) => Step::Finish(finished),
        None => Step::Sync(Box::new(plan)),
    }
}

#[cfg(test)]
mod tests {
    use messages::facts::Rejection;
    use proptest::prelude::*;

    use super::*;
    use crate::backoff::BackoffBounds;
    use crate::fixtures::{at, container, exited, pod, running, runtime_pod, sandbox};
    use crate::lifecycle::Trigger;

    struct World {
        lifecycle: Lifecycle,
        pod: Option<Pod>,
        gone: bool,
        restored: bool,
        settled: bool,
        observed: Option<RuntimePod>,
        health: Option<RuntimeHealth>,
        stopped: BTreeSet<Arc<str>>,
        retry_at: Option<Timestamp>,
        hooks_until: Option<Timestamp>,
        grace_used: i64,
        known: AttemptHistory,
    }

    impl World {
        fn new(policy: &str, containers: Vec<messages::runtime::RuntimeContainer>) -> Self {
            Self {
                lifecycle: Lifecycle::new(),
                pod: Some(pod(policy, vec![], vec![container("a")])),
                gone: false,
                restored: true,
                settled: true,
                observed: Some(runtime_pod(containers)),
                health: Some(health(true)),
                stopped: BTreeSet::new(),
                retry_at: None,
                hooks_until: None,
                grace_used: 0,
                known: AttemptHistory::default(),
            }
        }

        fn next(&self) -> Step {
            next(&ReconcileInput {
                lifecycle: &self.lifecycle,
                pod: self.pod.as_ref(),
                gone: self.gone,
                restored: self.restored,
                settled: self.settled,
                observed: self.observed.as_ref(),
                seen_at: at(1_000),
                health: self.health.as_ref(),
                verdicts: &BTreeMap::new(),
                backoff: &CrashBackoff::new(BackoffBounds::default()),
                known: &self.known,
                past: &Past::default(),
                stopped_sandboxes: &self.stopped,
                retry_at: self.retry_at,
                hooks_until: self.hooks_until,
                grace_used: self.grace_used,
                dead_kept: 1,
                now: at(1_000),
            })
        }
    }

    fn health(ready: bool) -> RuntimeHealth {
        RuntimeHealth {
            answered: true,
            name: "containerd".into(),
            version: "2".into(),
            ready,
            network_ready: true,
            events: true,
            ..RuntimeHealth::default()
        }
    }

    #[test]
    fn nothing_is_created_before_all_is_known() {
        let mut world = World::new("Always", vec![]);
        world.observed.as_mut().expect("set").sandboxes.clear();
        let Step::Sync(plan) = world.next() else { panic!("it syncs") };
        assert!(plan.create_sandbox.is_some());
        world.restored = false;
        assert_eq!(world.next(), Step::Restore);
        world.restored = true;
        world.settled = false;
        assert_eq!(world.next(), Step::Settle);
        world.settled = true;
        world.health = Some(health(false));
        assert_eq!(world.next(), Step::Rest(None));
        world.health = None;
        assert_eq!(world.next(), Step::Rest(None));
        world.observed = None;
        assert_eq!(world.next(), Step::Look);
        world.retry_at = Some(at(1_010));
        assert_eq!(world.next(), Step::Rest(Some(at(1_010))));
        world.retry_at = Some(at(1_000));
        assert_eq!(world.next(), Step::Look);
        world.pod = None;
        assert_eq!(world.next(), Step::Rest(None));
    }

    #[test]
    fn a_finished_job_is_stopped_released_and_rests() {
        let mut world = World::new("Never", vec![exited("a", 0, 0, 1, 0)]);
        assert_eq!(world.next(), Step::Finish(Finished::Done));
        world.lifecycle.end(&Trigger::Finished, world.pod.as_ref());
        let Step::Terminate(plan) = world.next() else { panic!("the sandbox is still there") };
        assert!(plan.kills.is_empty() && plan.sandboxes.len() == 1);
        world.observed.as_mut().expect("set").sandboxes[0].ready = false;
        world.stopped.extend(plan.sandboxes);
        assert_eq!(world.next(), Step::Stopped);
        world.lifecycle.stopped();
        assert_eq!(world.next(), Step::Release(Release { containers: false, logs: false }));
        world.lifecycle.release();
        assert_eq!(world.next(), Step::Rest(None));
        world.lifecycle.end(&Trigger::Removed, world.pod.as_ref());
        assert_eq!(world.next(), Step::Release(Release { containers: true, logs: true }));
        world.lifecycle.release();
        assert_eq!(world.next(), Step::Rest(None));
        world.gone = true;
        assert_eq!(world.next(), Step::End);
    }

    #[test]
    fn an_evicted_pod_keeps_its_logs_only() {
        let mut world = World::new("Always", vec![]);
        world.observed.as_mut().expect("set").sandboxes.clear();
        let why = Rejection::new("Evicted", "");
        world.lifecycle.end(&Trigger::Evicted { grace_seconds: None, why }, world.pod.as_ref());
        assert_eq!(world.next(), Step::Stopped);
        world.lifecycle.stopped();
        assert_eq!(world.next(), Step::Release(Release { containers: true, logs: false }));
    }

    #[test]
    fn an_orphan_is_stopped_without_status_or_health() {
        let mut world = World::new("Always", vec![running("a", 0)]);
        world.pod = None;
        world.restored = false;
        world.health = None;
        world.lifecycle.end(&Trigger::Orphaned, None);
        let Step::Terminate(plan) = world.next() else { panic!("it is stopped") };
        assert_eq!(plan.kills[0].grace_seconds, 1);
    }

    #[test]
    fn a_stop_waits_for_post_start_hooks_and_has_the_rest_of_the_grace() {
        let mut world = World::new("Always", vec![running("a", 0)]);
        world.hooks_until = Some(at(1_010));
        assert!(matches!(world.next(), Step::Sync(_)), "a pod that goes on does not wait");
        world.lifecycle.end(&Trigger::Deleted, world.pod.as_ref());
        assert_eq!(world.next(), Step::Rest(Some(at(1_010))));
        world.hooks_until = Some(at(1_000));
        world.grace_used = 12;
        let grace = |world: &World| match world.next() {
            Step::Terminate(plan) => plan.kills[0].grace_seconds,
            step => panic!("it is stopped, not {step:?}"),
        };
        assert_eq!(grace(&world), 18);
        world.hooks_until = None;
        world.grace_used = 30;
        assert_eq!(grace(&world), 0, "there is no time for a preStop hook");
    }

    #[test]
    fn a_stop_says_whose_hook_has_failed_meanwhile() {
        let mut world = World::new("Always", vec![running("a", 0), running("b", 0), running("c", 0)]);
        world.known.hook_failed.insert("b".into(), Arc::from("b-0"));
        world.known.hook_failed.insert("c".into(), Arc::from("another"));
        world.lifecycle.end(&Trigger::Deleted, world.pod.as_ref());
        let Step::Terminate(plan) = world.next() else { panic!("it is stopped") };
        let messages: Vec<_> = plan.kills.iter().map(|kill| kill.message.as_str()).collect();
        assert_eq!(messages, ["Stopping container a", "FailedPostStartHook", "Stopping container c"]);
    }

    proptest! {
        /// Once termination has begun nothing is created any more, whatever is observed.
        #[test]
        fn a_terminating_pod_never_syncs(live in proptest::bool::ANY, ready in proptest::bool::ANY, settled in proptest::bool::ANY, evicted in proptest::bool::ANY) {
            let mut world = World::new("Always", if live { vec![running("a", 0)] } else { vec![] });
            world.observed.as_mut().expect("set").sandboxes = vec![sandbox(0, ready)];
            world.settled = settled;
            let why = Rejection::new("Evicted", "");
            let trigger =
                if evicted { Trigger::Evicted { grace_seconds: None, why } } else { Trigger::Removed };
            world.lifecycle.end(&trigger, world.pod.as_ref());
            prop_assert!(!matches!(world.next(), Step::Sync(_) | Step::Finish(_)));
            prop_assert_eq!(world.next() == Step::Settle, !settled);
        }
    }
}
