//! How many probes are in flight at once. No pod waits for another's probes: each has lanes of its own, since a probe
//! may hang for as long as its `timeoutSeconds` say. Commands in containers go through the runtime and are expensive;
//! they have separate lanes, so that a runtime that has stopped answering delays no probe over the network.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use messages::PodUid;

use crate::timer::ProbeKey;

/// How many probes of one pod may be in flight. A container has at most one probe of each kind, so only pods with many
/// containers reach these limits; with `maxPods` they bound the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeLimits {
    /// Probes over the network.
    pub network_in_flight_max: usize,
    /// Probes that run commands in containers.
    pub exec_in_flight_max: usize,
}

impl Default for ProbeLimits {
    fn default() -> Self {
        Self { network_in_flight_max: 64, exec_in_flight_max: 32 }
    }
}

/// The path of a probe to its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Over the network.
    Network,
    /// Through the runtime.
    Exec,
}

#[derive(Debug, Default)]
struct Traffic {
    in_flight: usize,
    /// In the order in which they became due.
    waiting: BTreeSet<(Duration, ProbeKey)>,
    /// When each of them became due.
    due: BTreeMap<ProbeKey, Duration>,
}

impl Traffic {
    fn wait(&mut self, due: Duration, key: ProbeKey) {
        self.due.insert(key.clone(), due);
        self.waiting.insert((due, key));
    }

    fn forget(&mut self, key: &ProbeKey) {
        if let Some((key, due)) = self.due.remove_entry(key) {
            self.waiting.remove(&(due, key));
        }
    }

    fn first(&mut self) -> Option<ProbeKey> {
        let (_, key) = self.waiting.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }
}

#[derive(Debug, Default)]
struct Lanes {
    network: Traffic,
    exec: Traffic,
}

impl Lanes {
    fn of(&mut self, lane: Lane) -> &mut Traffic {
        match lane {
            Lane::Network => &mut self.network,
            Lane::Exec => &mut self.exec,
        }
    }

    fn is_empty(&self) -> bool {
        [&self.network, &self.exec].iter().all(|lane| lane.in_flight == 0 && lane.waiting.is_empty())
    }
}

/// Probes in flight, and those that are due and wait, the one that is longest due first. A probe waits at most once, so
/// the queue is bounded by the number of probes.
#[derive(Debug)]
pub struct AllLanes {
    limits: ProbeLimits,
    pods: BTreeMap<PodUid, Lanes>,
    in_flight: usize,
}

impl AllLanes {
    /// Lanes without probes.
    pub fn new(limits: ProbeLimits) -> Self {
        Self { limits, pods: BTreeMap::new(), in_flight: 0 }
    }

    /// Queues a probe that is due.
    pub fn wait(&mut self, lane: Lane, due: Duration, key: ProbeKey) {
        self.forget(&key);
        self.pods.entry(key.pod.clone()).or_default().of(lane).wait(due, key);
    }

    /// Removes a probe that is no longer due from the queue.
    pub fn forget(&mut self, key: &ProbeKey) {
        let Some(lanes) = self.pods.get_mut(&key.pod) else { return };
        for lane in [&mut lanes.network, &mut lanes.exec] {
            lane.forget(key);
        }
        if lanes.is_empty() {
            self.pods.remove(&key.pod);
        }
    }

    /// Whether a probe is due and waits.
    pub fn waits(&self, key: &ProbeKey) -> bool {
        self.pods
            .get(&key.pod)
            .is_some_and(|lanes| [&lanes.network, &lanes.exec].iter().any(|lane| lane.due.contains_key(key)))
    }

    /// The next probe of the pod that may begin. It counts as in flight until [`AllLanes::ended`].
    pub fn next(&mut self, pod: &PodUid) -> Option<(Lane, ProbeKey)> {
        let lanes = self.pods.get_mut(pod)?;
        let caps = [
            (Lane::Network, self.limits.network_in_flight_max),
            (Lane::Exec, self.limits.exec_in_flight_max),
        ];
        for (lane, cap) in caps {
            let traffic = lanes.of(lane);
            if traffic.in_flight < cap.max(1)
                && let Some(key) = traffic.first()
            {
                traffic.in_flight += 1;
                self.in_flight += 1;
                return Some((lane, key));
            }
        }
        None
    }

    /// A probe of the pod is not in flight any more.
    pub fn ended(&mut self, lane: Lane, pod: &PodUid) {
        let Some(lanes) = self.pods.get_mut(pod) else { return };
        let traffic = lanes.of(lane);
        if traffic.in_flight > 0 {
            traffic.in_flight -= 1;
            self.in_flight -= 1;
        }
        if lanes.is_empty() {
            self.pods.remove(pod);
        }
    }

    /// The number of probes in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The number of probes that are due and wait.
    pub fn waiting(&self) -> usize {
        self.pods.values().map(|lanes| lanes.network.waiting.len() + lanes.exec.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use messages::facts::ProbeKind;
    use proptest::prelude::*;

    use super::*;

    fn of(pod: &str, n: u8) -> ProbeKey {
        ProbeKey { pod: PodUid::new(pod), container: n.to_string(), kind: ProbeKind::Liveness }
    }

    fn key(n: u8) -> ProbeKey {
        of("pod", n)
    }

    #[test]
    fn the_longest_due_goes_first_and_exec_holds_up_nobody() {
        let pod = PodUid::new("pod");
        let mut lanes = AllLanes::new(ProbeLimits { network_in_flight_max: 1, exec_in_flight_max: 1 });
        for (lane, due, n) in
            [(Lane::Exec, 1, 1), (Lane::Exec, 2, 2), (Lane::Network, 9, 3), (Lane::Network, 5, 4)]
        {
            lanes.wait(lane, Duration::from_secs(due), key(n));
        }
        assert_eq!(lanes.next(&pod), Some((Lane::Network, key(4))));
        assert_eq!(lanes.next(&pod), Some((Lane::Exec, key(1))));
        assert_eq!(lanes.next(&pod), None);
        lanes.ended(Lane::Network, &pod);
        assert_eq!(lanes.next(&pod), Some((Lane::Network, key(3))));
        assert!(lanes.waits(&key(2)) && !lanes.waits(&key(3)));
        lanes.forget(&key(2));
        lanes.ended(Lane::Exec, &pod);
        assert_eq!(lanes.next(&pod), None);
        assert_eq!((lanes.in_flight(), lanes.waiting()), (1, 0));
    }

    #[test]
    fn what_hangs_in_many_pods_holds_up_no_other_pod() {
        let mut lanes = AllLanes::new(ProbeLimits::default());
        for pod in 0..40 {
            let pod = format!("hanging-{pod}");
            for n in 0..100 {
                let lane = if n % 2 == 0 { Lane::Network } else { Lane::Exec };
                lanes.wait(lane, Duration::ZERO, of(&pod, n));
            }
            let began = std::iter::from_fn(|| lanes.next(&PodUid::new(&pod))).count();
            assert_eq!(began, 50 + 32);
        }
        for lane in [Lane::Network, Lane::Exec] {
            lanes.wait(lane, Duration::from_secs(9), of("good", 1));
            assert_eq!(lanes.next(&PodUid::new("good")), Some((lane, of("good", 1))));
        }
    }

    #[test]
    fn waiting_takes_work_by_the_number_of_probes() {
        let keys: Vec<ProbeKey> =
            (0..10_000).map(|number| ProbeKey { container: format!("c{number:05}"), ..key(0) }).collect();
        let mut lanes = AllLanes::new(ProbeLimits::default());
        let begun = tokio::time::Instant::now();
        for due in [1, 2] {
            keys.iter().for_each(|key| lanes.wait(Lane::Exec, Duration::from_secs(due), key.clone()));
            assert!(keys.iter().all(|key| lanes.waits(key)));
        }
        assert_eq!(lanes.waiting(), keys.len());
        keys.iter().for_each(|key| lanes.forget(key));
        let took = begun.elapsed();
        assert!(took.as_secs() < 5, "{took:?}");
        assert_eq!((lanes.waiting(), keys.iter().any(|key| lanes.waits(key))), (0, false));
    }

    proptest! {
        #[test]
        fn caps_hold_and_nothing_waits_needlessly(
            steps in proptest::collection::vec((0u8..4, 0u8..20, any::<bool>(), 0u8..3), 0..200),
        ) {
            let limits = ProbeLimits { network_in_flight_max: 3, exec_in_flight_max: 2 };
            let mut lanes = AllLanes::new(limits);
            let mut running: Vec<(Lane, PodUid)> = Vec::new();
            for (step, n, exec, pod) in steps {
                let lane = if exec { Lane::Exec } else { Lane::Network };
                let key = of(&pod.to_string(), n);
                match step {
                    0 | 1 => lanes.wait(lane, Duration::from_secs(u64::from(n)), key),
                    2 => if let Some((lane, pod)) = running.pop() { lanes.ended(lane, &pod) },
                    _ => lanes.forget(&key),
                }
                for pod in (0..3).map(|pod: u8| PodUid::new(&pod.to_string())) {
                    while let Some((lane, key)) = lanes.next(&pod) {
                        prop_assert!(!lanes.waits(&key) && key.pod == pod);
                        running.push((lane, key.pod));
                    }
                    let of_pod = |lane| running.iter().filter(|one| **one == (lane, pod.clone())).count();
                    prop_assert!(of_pod(Lane::Exec) <= 2 && of_pod(Lane::Network) <= 3);
                }
                prop_assert_eq!(lanes.in_flight(), running.len());
            }
        }
    }
}
