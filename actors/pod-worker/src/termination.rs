//! PURE: the order of stopping containers and their grace periods (rows 4.3, 5.13, 5.17, 7.10).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use messages::runtime::{RuntimeContainer, RuntimePod};

use crate::plan::KillReason;
use crate::spec::{ContainerKind, PodView};
use crate::texts;

/// The least time between the stop signal and SIGKILL, in seconds.
pub const GRACE_SECONDS_MIN: i64 = 2;
/// The grace period of a pod that only the runtime has, in seconds (row 3.6).
pub const ORPHAN_GRACE_SECONDS: i64 = 1;

/// The stops that end a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminationPlan {
    /// Containers to stop, at the same time as far as `after` allows.
    pub kills: Vec<Kill>,
    /// Sandboxes to stop after all containers.
    pub sandboxes: Vec<Arc<str>>,
}

/// A container to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// The runtime's ID of the instance.
    pub id: Arc<str>,
    /// The container's name.
    pub name: Arc<str>,
    /// The container's kind, for the event's field path.
    pub kind: ContainerKind,
    /// The grace period in seconds, from now: the wait for other containers is a part of it. Without any left
    /// there is no preStop hook.
    pub grace_seconds: i64,
    /// When it is stopped: after all of this plan with an earlier turn, unless its grace period ends first. Regular containers
    /// come first, then the sidecars from the last one of the spec. `None`: it waits for no other, and no other for it.
    pub turn: Option<usize>,
    /// The message of the event Killing.
    pub message: String,
}

impl TerminationPlan {
    /// Whether nothing is left to stop.
    pub fn is_done(&self) -> bool {
        self.kills.is_empty() && self.sandboxes.is_empty()
    }
}

/// Plans the stop of everything that may be alive. `pod` is absent for a pod that only the runtime has.
///
/// A sandbox that is not ready may still hold a network, so it is stopped too, unless it is among the
/// `stopped` ones.
pub fn terminate(
    pod: Option<&Pod>,
    runtime: &RuntimePod,
    grace_seconds: i64,
    stopped: &BTreeSet<Arc<str>>,
) -> TerminationPlan {
    let named = pod.map(|pod| PodView::of(pod).by_name());
    let listed = |container: &RuntimeContainer| named.as_ref()?.get(&container.name);
    // The places of the live sidecars, the last one of the spec first.
    let sidecars: BTreeSet<Reverse<usize>> = runtime
        .live()
        .filter_map(listed)
        .filter(|listed| listed.kind == ContainerKind::Sidecar)
        .map(|listed| Reverse(listed.place))
        .collect();
    let turns: BTreeMap<usize, usize> =
        sidecars.into_iter().zip(1..).map(|(Reverse(place), turn)| (place, turn)).collect();
    let kills = runtime
        .live()
        .map(|container| (container, listed(container)))
        .map(|(container, listed)| Kill {
            id: container.id.clone(),
            name: container.name.clone(),
            kind: listed.map_or(ContainerKind::Regular, |listed| listed.kind),
            grace_seconds,
            turn: listed.and_then(|listed| match listed.kind {
                ContainerKind::Regular => Some(0),
                ContainerKind::Sidecar => turns.get(&listed.place).copied(),
                ContainerKind::Init | ContainerKind::Ephemeral => None,
            }),
            message: texts::stopping(&container.name),
        })
        .collect();
    let sandboxes = runtime
        .sandboxes
        .iter()
        .filter(|sandbox| sandbox.ready || !stopped.contains(&sandbox.id))
        .map(|sandbox| sandbox.id.clone())
        .collect();
    TerminationPlan { kills, sandboxes }
}

/// The grace period of a single container that is killed while its pod goes on, in seconds: the pod's
/// deletion grace period, else the failed probe's own (only if the pod has one too), else the pod's. The
/// preStop hook may take that long; [`remaining_seconds`] is what is left for the container.
pub fn kill_grace_seconds(pod: &Pod, container: Option<&Container>, reason: KillReason) -> i64 {
    let of_probe = |probe: Option<&Probe>| probe.and_then(|probe| probe.termination_grace_period_seconds);
    match (pod.metadata.deletion_grace_period_seconds, PodView::of(pod).grace_seconds()) {
        (Some(deletion), _) => deletion,
        (None, None) => GRACE_SECONDS_MIN,
        (None, Some(own)) => {
            let probe = match reason {
                KillReason::StartupProbe => of_probe(container.and_then(|c| c.startup_probe.as_ref())),
                KillReason::LivenessProbe => of_probe(container.and_then(|c| c.liveness_probe.as_ref())),
                KillReason::PostStartHook | KillReason::Other => None,
            };
            probe.unwrap_or(own)
        }
    }
}

/// The longest grace period that any container of the pod can get, in seconds.
pub fn longest_grace_seconds(pod: &Pod) -> u64 {
    let view = PodView::of(pod);
    let containers = view.regular().iter().chain(view.init());
    let probes = containers.flat_map(|container| [&container.startup_probe, &container.liveness_probe]);
    let of_probes = probes.filter_map(|probe| probe.as_ref()?.termination_grace_period_seconds);
    let of_pod = [pod.metadata.deletion_grace_period_seconds, view.grace_seconds()].into_iter().flatten();
    let longest = of_probes.chain(of_pod).chain([GRACE_SECONDS_MIN]).max();
    longest.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0)
}

/// The grace period for StopContainer after a wait, in seconds; only whole seconds of the wait count, as
/// upstream cuts them.
pub fn remaining_seconds(grace_seconds: i64, waited_whole_seconds: i64) -> i64 {
    grace_seconds.saturating_sub(waited_whole_seconds).max(GRACE_SECONDS_MIN)
}

#[cfg(test)]
mod tests {
    use messages::runtime::ContainerState;
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{container, exited, instance, pod, probe, running, runtime_pod, sandbox, sidecar};

    /// The containers that are stopped before this one.
    fn before<'a>(plan: &'a TerminationPlan, id: &str) -> Vec<&'a str> {
        let kill = plan.kills.iter().find(|kill| &*kill.id == id).expect("is killed");
        let is_before = |other: &&Kill| other.turn.is_some() && other.turn < kill.turn;
        plan.kills.iter().filter(is_before).map(|kill| &*kill.id).collect()
    }

    #[test]
    fn sidecars_go_last_and_in_reverse_order() {
        let pod = pod(
            "Always",
            vec![sidecar("s1"), container("i"), sidecar("s2")],
            vec![container("a"), container("b")],
        );
        let runtime = runtime_pod(vec![
            running("a", 0),
            exited("b", 0, 0, 1, 0),
            exited("i", 0, 0, 1, 0),
            running("s1", 0),
            running("s2", 0),
        ]);
        let plan = terminate(Some(&pod), &runtime, 30, &BTreeSet::new());
        assert_eq!(plan.kills.len(), 3);
        assert_eq!(before(&plan, "a-0"), Vec::<&str>::new());
        assert_eq!(before(&plan, "s2-0"), ["a-0"]);
        assert_eq!(before(&plan, "s1-0"), ["a-0", "s2-0"]);
        assert_eq!(plan.kills[0].message, "Stopping container a");
    }

    #[test]
    fn the_order_takes_work_by_the_number_of_containers() {
        let name = |kind: &str, number: usize| format!("{kind}{number:04}");
        let pod = pod(
            "Always",
            (0..4000).map(|number| sidecar(&name("s", number))).collect(),
            (0..4000).map(|number| container(&name("a", number))).collect(),
        );
        let all = ["a", "s"].into_iter().flat_map(|kind| (0..4000).map(move |number| name(kind, number)));
        let runtime = runtime_pod(all.map(|name| running(&name, 0)).collect());
        let begun = tokio::time::Instant::now();
        let plan = terminate(Some(&pod), &runtime, 30, &BTreeSet::new());
        let took = begun.elapsed();
        assert!(took.as_secs() < 5, "{took:?}");
        let turns: Vec<Option<usize>> = ["a3999", "s3999", "s0000"]
            .map(|name| plan.kills.iter().find(|kill| &*kill.name == name).and_then(|kill| kill.turn))
            .into();
        assert_eq!(turns, [Some(0), Some(1), Some(4000)]);
    }

    #[test]
    fn without_a_spec_all_are_killed_at_once() {
        let runtime = runtime_pod(vec![running("a", 0), instance("b", 0, ContainerState::Unknown)]);
        let plan = terminate(None, &runtime, ORPHAN_GRACE_SECONDS, &BTreeSet::new());
        assert!(plan.kills.iter().all(|kill| kill.turn.is_none() && kill.grace_seconds == 1));
        assert_eq!(plan.kills.len(), 2);
    }

    #[test]
    fn every_sandbox_is_stopped_once_and_a_ready_one_until_it_is_not() {
        let mut runtime = runtime_pod(vec![]);
        runtime.sandboxes = vec![sandbox(1, true), sandbox(0, false)];
        let plan = terminate(None, &runtime, 1, &BTreeSet::new());
        assert_eq!(plan.sandboxes.len(), 2);
        let stopped = plan.sandboxes.iter().cloned().collect();
        assert_eq!(terminate(None, &runtime, 1, &stopped).sandboxes, [Arc::from("sb-1")]);
        runtime.sandboxes[0].ready = false;
        assert!(terminate(None, &runtime, 1, &stopped).is_done());
    }

    #[test]
    fn grace_of_a_single_kill() {
        let mut c = container("c");
        c.liveness_probe = probe().map(|mut p| {
            p.termination_grace_period_seconds = Some(100);
            p
        });
        let mut pod = pod("Always", vec![], vec![c.clone()]);
        let grace = |pod: &Pod, reason| kill_grace_seconds(pod, Some(&c), reason);
        assert_eq!(grace(&pod, KillReason::LivenessProbe), 100);
        assert_eq!(grace(&pod, KillReason::StartupProbe), 30);
        assert_eq!(grace(&pod, KillReason::Other), 30);
        assert_eq!(longest_grace_seconds(&pod), 100, "whatever it is killed for");
        pod.spec.as_mut().expect("spec").termination_grace_period_seconds = None;
        assert_eq!(grace(&pod, KillReason::LivenessProbe), 2);
        pod.metadata.deletion_grace_period_seconds = Some(5);
        assert_eq!(grace(&pod, KillReason::LivenessProbe), 5);
        pod.metadata.deletion_grace_period_seconds = Some(500);
        assert_eq!(longest_grace_seconds(&pod), 500);
        pod.metadata.deletion_grace_period_seconds = Some(0);
        assert_eq!(grace(&pod, KillReason::Other), 0, "no hook is run");
        assert_eq!(remaining_seconds(0, 0), 2);
    }

    proptest! {
        /// Whatever runs, the order has no circle, and every live container is killed.
        #[test]
        fn the_order_always_ends(mask in 0u8..32) {
            let pod = pod("Always", vec![sidecar("s1"), sidecar("s2"), container("i")], vec![
                container("a"), container("b"),
            ]);
            let names = ["a", "b", "i", "s1", "s2"];
            let live: Vec<_> = names.iter().enumerate()
                .filter(|(bit, _)| mask & (1 << bit) != 0)
                .map(|(_, name)| running(name, 0))
                .collect();
            let count = live.len();
            let plan = terminate(Some(&pod), &runtime_pod(live), 30, &BTreeSet::new());
            prop_assert_eq!(plan.kills.len(), count);
            let turn = |name: &str| plan.kills.iter().find(|kill| &*kill.name == name).and_then(|kill| kill.turn);
            // A regular container is stopped before every sidecar, and a sidecar before those above it in the spec.
            for pair in [("a", "s2"), ("b", "s2"), ("a", "s1"), ("b", "s1"), ("s2", "s1")] {
                if let (Some(first), Some(second)) = (turn(pair.0), turn(pair.1)) {
                    prop_assert!(first < second, "{:?}", pair);
                }
            }
            prop_assert_eq!(turn("i"), None, "an init container waits for none, and none for it");
        }

        #[test]
        fn nobody_gets_less_than_two_seconds(grace in -5i64..1000, waited in 0i64..2000) {
            prop_assert!(remaining_seconds(grace, waited) >= GRACE_SECONDS_MIN);
        }
    }
}
