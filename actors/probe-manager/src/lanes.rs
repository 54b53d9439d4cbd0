//! How many probes are in flight at once. Commands in containers go through the runtime and are dear; they have a lane
//! of their own, so that a runtime that has stopped answering holds up no probe over the network.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::timer::ProbeKey;

/// Caps on probes in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeLimits {
    /// Over the network, on this node.
    pub network_in_flight_max: usize,
    /// Commands in containers.
    pub exec_in_flight_max: usize,
}

impl Default for ProbeLimits {
    fn default() -> Self {
        Self { network_in_flight_max: 64, exec_in_flight_max: 32 }
    }
}

/// The way a probe takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Over the network.
    Network,
    /// Through the runtime.
    Exec,
}

#[derive(Debug, Default)]
struct Traffic {
    in_flight_max: usize,
    in_flight: usize,
    waiting: BTreeSet<(Duration, ProbeKey)>,
}

/// Probes in flight, and those that are due and wait, the longest due first. A probe waits at most once, so the queue
/// is bounded by the probes that exist.
#[derive(Debug)]
pub struct Lanes {
    network: Traffic,
    exec: Traffic,
}

impl Lanes {
    /// Nothing in flight.
    pub fn new(limits: ProbeLimits) -> Self {
        let traffic = |cap: usize| Traffic { in_flight_max: cap.max(1), ..Traffic::default() };
        Self { network: traffic(limits.network_in_flight_max), exec: traffic(limits.exec_in_flight_max) }
    }

    fn of(&mut self, lane: Lane) -> &mut Traffic {
        match lane {
            Lane::Network => &mut self.network,
            Lane::Exec => &mut self.exec,
        }
    }

    /// A probe is due.
    pub fn wait(&mut self, lane: Lane, due: Duration, key: ProbeKey) {
        self.forget(&key);
        self.of(lane).waiting.insert((due, key));
    }

    /// A probe is not due any more.
    pub fn forget(&mut self, key: &ProbeKey) {
        for lane in [&mut self.network, &mut self.exec] {
            lane.waiting.retain(|(_, waiting)| waiting != key);
        }
    }

    /// A probe is due and waits.
    pub fn waits(&self, key: &ProbeKey) -> bool {
        [&self.network, &self.exec].iter().any(|lane| lane.waiting.iter().any(|(_, waiting)| waiting == key))
    }

    /// The next probe that may begin. It is in flight from now on, until [`Lanes::ended`].
    pub fn next(&mut self) -> Option<(Lane, ProbeKey)> {
        for lane in [Lane::Network, Lane::Exec] {
            let traffic = self.of(lane);
            if traffic.in_flight < traffic.in_flight_max
                && let Some((_, key)) = traffic.waiting.pop_first()
            {
                traffic.in_flight += 1;
                return Some((lane, key));
            }
        }
        None
    }

    /// A probe is not in flight any more.
    pub fn ended(&mut self, lane: Lane) {
        let traffic = self.of(lane);
        traffic.in_flight = traffic.in_flight.saturating_sub(1);
    }

    /// Probes in flight.
    pub fn in_flight(&self) -> usize {
        self.network.in_flight + self.exec.in_flight
    }

    /// Probes that are due and wait.
    pub fn waiting(&self) -> usize {
        self.network.waiting.len() + self.exec.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use messages::PodUid;
    use messages::facts::ProbeKind;
    use proptest::prelude::*;

    use super::*;

    fn key(n: u8) -> ProbeKey {
        ProbeKey { pod: PodUid::new(&n.to_string()), container: "c".to_owned(), kind: ProbeKind::Liveness }
    }

    #[test]
    fn the_longest_due_goes_first_and_exec_holds_up_nobody() {
        let mut lanes = Lanes::new(ProbeLimits { network_in_flight_max: 1, exec_in_flight_max: 1 });
        for (lane, due, n) in
            [(Lane::Exec, 1, 1), (Lane::Exec, 2, 2), (Lane::Network, 9, 3), (Lane::Network, 5, 4)]
        {
            lanes.wait(lane, Duration::from_secs(due), key(n));
        }
        assert_eq!(lanes.next(), Some((Lane::Network, key(4))));
        assert_eq!(lanes.next(), Some((Lane::Exec, key(1))));
        assert_eq!(lanes.next(), None);
        lanes.ended(Lane::Network);
        assert_eq!(lanes.next(), Some((Lane::Network, key(3))));
        assert!(lanes.waits(&key(2)) && !lanes.waits(&key(3)));
        lanes.forget(&key(2));
        lanes.ended(Lane::Exec);
        assert_eq!(lanes.next(), None);
        assert_eq!((lanes.in_flight(), lanes.waiting()), (1, 0));
    }

    proptest! {
        #[test]
        fn caps_hold_and_nothing_waits_needlessly(steps in proptest::collection::vec((0u8..4, 0u8..20, any::<bool>()), 0..200)) {
            let limits = ProbeLimits { network_in_flight_max: 3, exec_in_flight_max: 2 };
            let mut lanes = Lanes::new(limits);
            let mut flying = Vec::new();
            for (step, n, exec) in steps {
                let lane = if exec { Lane::Exec } else { Lane::Network };
                match step {
                    0 | 1 => lanes.wait(lane, Duration::from_secs(u64::from(n)), key(n)),
                    2 => if let Some(lane) = flying.pop() { lanes.ended(lane) },
                    _ => lanes.forget(&key(n)),
                }
                while let Some((lane, key)) = lanes.next() {
                    prop_assert!(!lanes.waits(&key));
                    flying.push(lane);
                }
                let exec_flying = flying.iter().filter(|lane| **lane == Lane::Exec).count();
                prop_assert!(exec_flying <= 2 && flying.len() - exec_flying <= 3);
                prop_assert_eq!(lanes.in_flight(), flying.len());
            }
        }
    }
}
