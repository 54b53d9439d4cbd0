//! PURE: how long thresholds have been passed, and the pressure that follows (rows 19.3, 13.7). Times are durations
//! since one fixed moment.

use std::collections::BTreeMap;
use std::time::Duration;

use messages::facts::Pressure;

use crate::observation::{Observations, met};
use crate::signal::{Condition, Resource};
use crate::threshold::Threshold;

/// Thresholds and conditions over the measurements so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Watch {
    /// The passed thresholds, and since when they are.
    passed: Vec<(Threshold, Duration)>,
    /// The thresholds that have been due, until their minimum reclaim is available.
    unresolved: Vec<Threshold>,
    /// The conditions, and when each was last seen.
    conditions: BTreeMap<Condition, Duration>,
}

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assessment {
    /// The node's pressure: the conditions seen now or within `transition`.
    pub(crate) pressure: Pressure,
    /// The thresholds to act against now, the most urgent first.
    pub(crate) due: Vec<Threshold>,
}

impl Watch {
    /// Takes over the pressure that an earlier incarnation told: it counts as seen now.
    pub(crate) fn inherit(&mut self, pressure: Pressure, now: Duration) {
        let held = [
            (Condition::Memory, pressure.memory),
            (Condition::Disk, pressure.disk),
            (Condition::Pid, pressure.pid),
        ];
        self.conditions.extend(held.into_iter().filter(|(_, holds)| *holds).map(|(one, _)| (one, now)));
    }

    /// Forgets the thresholds with other amounts than these; a condition that was seen ends in its time.
    pub(crate) fn keep(&mut self, thresholds: &[Threshold]) {
        // Those of containers' writable layers are copies of another signal's.
        let stays = |known: &Threshold| {
            thresholds.iter().any(|one| Threshold { signal: known.signal, ..*one } == *known)
        };
        self.passed.retain(|(threshold, _)| stays(threshold));
        self.unresolved.retain(stays);
    }

    /// Judges a measurement. A condition ends when it has not been seen for `transition`.
    pub(crate) fn judge(
        &mut self,
        thresholds: &[Threshold],
        observed: &Observations,
        transition: Duration,
        now: Duration,
    ) -> Assessment {
        let mut passed = met(thresholds, observed, false);
        for threshold in met(&self.unresolved, observed, true) {
            if !passed.contains(&threshold) {
                passed.push(threshold);
            }
        }
        let since = |threshold: Threshold| {
            let known = self.passed.iter().find(|(known, _)| *known == threshold);
            (threshold, known.map_or(now, |(_, since)| *since))
        };
        self.passed = passed.into_iter().map(since).collect();
        for (threshold, _) in &self.passed {
            self.conditions.insert(threshold.signal.condition(), now);
        }
        self.conditions.retain(|_, seen| now.saturating_sub(*seen) < transition || *seen == now);
        let is_due =
            |(threshold, since): &&(Threshold, Duration)| now.saturating_sub(*since) >= threshold.grace;
        self.unresolved = self.passed.iter().filter(is_due).map(|(threshold, _)| *threshold).collect();
        let mut due = self.unresolved.clone();
        // Memory is the most urgent; the others keep the order of the configuration.
        due.sort_by_key(|threshold| threshold.signal.resource() != Resource::Memory);
        Assessment { pressure: self.pressure(transition, now), due }
    }

    fn pressure(&self, transition: Duration, now: Duration) -> Pressure {
        // With a period of zero no condition ever holds, as upstream.
        let holds = |condition| {
            self.conditions.get(&condition).is_some_and(|seen| now.saturating_sub(*seen) < transition)
        };
        Pressure {
            memory: holds(Condition::Memory),
            disk: holds(Condition::Disk),
            pid: holds(Condition::Pid),
        }
    }
}

#[cfg(test)]
mod tests {
    use pod_spec::quantity::Quantity;

    use super::*;
    use crate::observation::Observation;
    use crate::signal::Signal;
    use pod_rules::thresholds::Value;

    const TRANSITION: Duration = Duration::from_secs(300);

    fn threshold(signal: Signal, bytes: u64, grace: u64, reclaim: Option<u64>) -> Threshold {
        Threshold {
            signal,
            value: Value::Amount(Quantity::binary(bytes)),
            grace: Duration::from_secs(grace),
            min_reclaim: reclaim.map(|bytes| Value::Amount(Quantity::binary(bytes))),
        }
    }

    fn observed(available: &[(Signal, u64)]) -> Observations {
        let capacity = Quantity::binary(1000);
        let one = |(signal, bytes): &(Signal, u64)| {
            (*signal, Observation { available: Quantity::binary(*bytes), capacity })
        };
        available.iter().map(one).collect()
    }

    fn judge(watch: &mut Watch, thresholds: &[Threshold], memory: u64, second: u64) -> (bool, usize) {
        let seen = observed(&[(Signal::MemoryAvailable, memory)]);
        let judged = watch.judge(thresholds, &seen, TRANSITION, Duration::from_secs(second));
        (judged.pressure.memory, judged.due.len())
    }

    #[test]
    fn hard_ones_are_due_at_once_and_the_condition_stays_for_a_while() {
        let hard = [threshold(Signal::MemoryAvailable, 100, 0, None)];
        let mut watch = Watch::default();
        assert_eq!(judge(&mut watch, &hard, 100, 0), (false, 0), "as much as that is enough");
        assert_eq!(judge(&mut watch, &hard, 99, 10), (true, 1));
        assert_eq!(judge(&mut watch, &hard, 100, 20), (true, 0));
        assert_eq!(judge(&mut watch, &hard, 100, 309), (true, 0));
        assert_eq!(judge(&mut watch, &hard, 100, 310), (false, 0));
    }

    #[test]
    fn soft_ones_have_to_hold() {
        let soft = [threshold(Signal::MemoryAvailable, 100, 30, None)];
        let mut watch = Watch::default();
        assert_eq!(judge(&mut watch, &soft, 50, 0), (true, 0));
        assert_eq!(judge(&mut watch, &soft, 50, 29), (true, 0));
        assert_eq!(judge(&mut watch, &soft, 100, 30), (true, 0));
        assert_eq!(judge(&mut watch, &soft, 50, 31), (true, 0), "it begins anew");
        assert_eq!(judge(&mut watch, &soft, 50, 61), (true, 1));
    }

    #[test]
    fn it_is_over_when_enough_is_reclaimed() {
        let hard = [threshold(Signal::MemoryAvailable, 100, 0, Some(50))];
        let mut watch = Watch::default();
        assert_eq!(judge(&mut watch, &hard, 120, 0), (false, 0), "it was never passed");
        assert_eq!(judge(&mut watch, &hard, 90, 10), (true, 1));
        assert_eq!(judge(&mut watch, &hard, 149, 20), (true, 1));
        assert_eq!(judge(&mut watch, &hard, 150, 30), (true, 0));
        assert_eq!(judge(&mut watch, &hard, 120, 40), (true, 0));
    }

    #[test]
    fn memory_comes_first_and_conditions_are_told_apart() {
        let thresholds = [
            threshold(Signal::PidAvailable, 100, 0, None),
            threshold(Signal::NodeFsInodesFree, 100, 0, None),
            threshold(Signal::MemoryAvailable, 100, 0, None),
        ];
        let mut watch = Watch::default();
        let seen = observed(&[(Signal::NodeFsInodesFree, 1), (Signal::MemoryAvailable, 1)]);
        let judged = watch.judge(&thresholds, &seen, TRANSITION, Duration::ZERO);
        assert_eq!(judged.pressure, Pressure { memory: true, disk: true, pid: false });
        let due: Vec<&str> = judged.due.iter().map(|one| one.signal.as_str()).collect();
        assert_eq!(due, ["memory.available", "nodefs.inodesFree"], "what was not measured is not passed");
    }

    #[test]
    fn what_was_said_before_is_taken_over() {
        let hard = [threshold(Signal::MemoryAvailable, 100, 0, None)];
        let mut watch = Watch::default();
        watch.inherit(Pressure { memory: true, ..Pressure::default() }, Duration::from_secs(5));
        assert_eq!(judge(&mut watch, &hard, 500, 6), (true, 0));
        assert_eq!(judge(&mut watch, &hard, 500, 305), (false, 0));
    }
}
