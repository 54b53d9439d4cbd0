//! PURE: cores in use, from the CPU time of readings that come whenever an actor asks.

use std::collections::BTreeMap;

use bridge_node::stats::usage::GroupUse;
use jiff::Timestamp;

/// The shortest time over which a rate means something, as upstream's cAdvisor has it.
const SPAN_MIN_NS: i128 = 100_000_000;
/// A rate reaches back at least so far where a reading of then is kept, so that two callers that ask one after the other are
/// not told of a moment.
const SPAN_NS: i128 = 5_000_000_000;
/// A rate reaches back at most so far, as upstream keeps readings: after a pause the past is no present usage.
const AGE_MAX_NS: i128 = 120_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    at: Timestamp,
    total_ns: u64,
}

impl Seen {
    fn until(&self, at: Timestamp) -> i128 {
        at.as_nanosecond() - self.at.as_nanosecond()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct History {
    earlier: Option<Seen>,
    latest: Seen,
    nano_cores: Option<u64>,
}

impl History {
    fn begin(now: Seen) -> Self {
        Self { earlier: None, latest: now, nano_cores: None }
    }

    fn see(&mut self, now: Seen) {
        let elapsed = self.latest.until(now.at);
        if now.total_ns < self.latest.total_ns || elapsed < 0 {
            // Another cgroup of this name, or another time.
            *self = Self::begin(now);
            return;
        }
        let earlier = self.earlier.filter(|one| elapsed < SPAN_NS && one.until(now.at) <= AGE_MAX_NS);
        let base = earlier.unwrap_or(self.latest);
        let span = base.until(now.at);
        if span >= SPAN_MIN_NS {
            let used = i128::from(now.total_ns.saturating_sub(base.total_ns));
            let rate = u64::try_from(used.saturating_mul(1_000_000_000) / span).ok();
            self.nano_cores = rate.filter(|_| span <= AGE_MAX_NS);
        }
        if elapsed >= SPAN_NS {
            (self.earlier, self.latest) = (Some(self.latest), now);
        }
    }
}

/// The rates of all cgroups, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates(BTreeMap<String, History>);

impl Rates {
    /// Takes in the cgroups of one reading, and forgets those that have not been read for long.
    pub(crate) fn see<'a>(&mut self, groups: impl Iterator<Item = &'a GroupUse>, now: Timestamp) {
        for group in groups {
            let Some(cpu) = group.cpu else { continue };
            let seen = Seen { at: group.at, total_ns: cpu.total_ns };
            match self.0.get_mut(&group.name) {
                Some(history) => history.see(seen),
                None => drop(self.0.insert(group.name.clone(), History::begin(seen))),
            }
        }
        self.0.retain(|_, history| history.latest.until(now) <= AGE_MAX_NS);
    }

    /// Billionths of cores that a cgroup used up to the last reading; `None` before the second one.
    pub(crate) fn nano_cores(&self, group: &str) -> Option<u64> {
        self.0.get(group)?.nano_cores
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use bridge_node::stats::usage::CpuUse;

    use super::*;

    fn see(rates: &mut Rates, ms: i64, total_ms: u64) -> Option<u64> {
        let at = Timestamp::from_millisecond(1_800_000_000_000 + ms).unwrap();
        let cpu = Some(CpuUse { total_ns: total_ms * 1_000_000, ..CpuUse::default() });
        let group = GroupUse { name: "/a".to_owned(), at, cpu, ..GroupUse::default() };
        rates.see([&group].into_iter(), at);
        rates.nano_cores("/a").map(|nanos| nanos / 1_000_000)
    }

    #[test]
    fn a_rate_needs_two_readings_and_is_that_of_the_time_between_them() {
        let rates = &mut Rates::default();
        assert_eq!(see(rates, 0, 1000), None);
        assert_eq!(see(rates, 10_000, 6000), Some(500));
        assert_eq!(see(rates, 20_000, 6000), Some(0));
    }

    #[test]
    fn callers_at_once_share_the_longer_past() {
        let rates = &mut Rates::default();
        assert_eq!(see(rates, 0, 0), None);
        assert_eq!(see(rates, 50, 50), None, "too soon to mean something");
        assert_eq!(see(rates, 1000, 500), Some(500), "the only past there is");
        assert_eq!(see(rates, 10_000, 1000), Some(100));
        assert_eq!(see(rates, 10_500, 1500), Some(142), "not the moment alone: 1500 ms in 10.5 s");
        assert_eq!(see(rates, 16_000, 1600), Some(100), "600 ms in the 6 s since the last kept reading");
    }

    #[test]
    fn a_long_past_is_no_present() {
        let rates = &mut Rates::default();
        assert_eq!(see(rates, 0, 0), None);
        assert_eq!(see(rates, 10_000, 1000), Some(100));
        assert_eq!(see(rates, 600_000, 90_000), None);
        assert_eq!(see(rates, 601_000, 90_500), Some(500));
    }

    #[test]
    fn another_cgroup_of_the_same_name_and_a_clock_that_jumps_begin_anew() {
        let rates = &mut Rates::default();
        assert_eq!(see(rates, 0, 5000), None);
        assert_eq!(see(rates, 10_000, 10), None);
        assert_eq!(see(rates, 20_000, 1010), Some(100));
        assert_eq!(see(rates, 5000, 2000), None);
        assert_eq!(see(rates, 15_000, 3000), Some(100));
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let rates = &mut Rates::default();
        see(rates, 0, 0);
        rates.see([].into_iter(), Timestamp::from_second(1_800_000_200).unwrap());
        assert_eq!(rates.len(), 0);
    }
}
