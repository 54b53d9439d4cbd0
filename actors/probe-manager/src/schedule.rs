//! When a probe is due (rows 7.2 and 7.9).
//!
//! A readiness probe is due at its container's start plus the initial delay. Startup and liveness probes kill, so they
//! keep upstream's ticks: every period from the moment at which the pod was added, the first one after the container's
//! start and the initial delay. A container that upstream gives most of a period to come up has that time here, too.
//! After its first run a probe is due every period. Lateness is measured, and does not count as failure.

use std::time::Duration;

use messages::facts::ProbeKind;

/// A readiness probe that facts about its container bring forward runs at most this often.
const READINESS_PAUSE: Duration = Duration::from_secs(1);

/// The times of a probe's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// `initialDelaySeconds`, from the container's start.
    pub initial_delay: Duration,
    /// `periodSeconds`; more than zero.
    pub period: Duration,
}

/// Everything that the time of a probe's next run depends on. Times are durations since one fixed moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleInput {
    /// The kind of the probe.
    pub kind: ProbeKind,
    /// The probe's delay and period.
    pub timing: Timing,
    /// Its container, while that runs.
    pub running: Option<Running>,
    /// Whether the container has started as far as its startup probe is concerned.
    pub started: bool,
    /// Whether its verdict stands until there is a new instance.
    pub on_hold: bool,
    /// Whether the pod is being stopped.
    pub terminating: bool,
    /// Whether a run is under way or waits for its turn.
    pub under_way: bool,
    /// The last run in this instance.
    pub last: Option<LastRun>,
    /// See [`spread`].
    pub spread: Duration,
    /// When the pod's probes were made.
    pub added: Duration,
    /// Since when neither the startup probe nor the postStart hook holds this probe back; zero if neither ever did.
    pub freed: Duration,
}

/// A container that runs, perhaps since before ProbeManager started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// When ProbeManager first saw it run.
    pub seen: Duration,
    /// How long it had been running at `seen`.
    pub age: Duration,
}

impl Running {
    fn start_plus(self, delay: Duration) -> Duration {
        self.seen + delay.saturating_sub(self.age)
    }
}

/// The last run of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRun {
    /// When it should have begun.
    pub due: Duration,
    /// When it ended.
    pub ended: Duration,
}

/// Why a probe is not due at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Its container does not run.
    NotRunning,
    /// The startup probe has not passed yet; or this is the startup probe, and it has passed.
    Startup,
    /// Its verdict stands for this instance.
    OnHold,
    /// Its pod is being stopped.
    Terminating,
    /// A run is under way.
    UnderWay,
}

/// When the probe is due.
///
/// # Errors
/// [`Blocked`], if it is not due until a fact changes.
pub fn next(situation: &ScheduleInput) -> Result<Duration, Blocked> {
    let ScheduleInput { kind, timing, started, .. } = *situation;
    if situation.under_way {
        return Err(Blocked::UnderWay);
    }
    let Some(running) = situation.running else { return Err(Blocked::NotRunning) };
    if situation.terminating && kind != ProbeKind::Readiness {
        return Err(Blocked::Terminating);
    }
    if situation.on_hold {
        return Err(Blocked::OnHold);
    }
    if started == (kind == ProbeKind::Startup) {
        return Err(Blocked::Startup);
    }
    if let Some(last) = situation.last {
        // The period counts from the time at which the last run was due, so that lateness does not add up. After a run
        // longer than its period the next one follows at once, and the runs missed meanwhile are left out.
        return Ok((last.due + timing.period).max(last.ended));
    }
    // The initial delay and the startup probe hold back only the first run: applied later, they could put two runs next
    // to each other.
    let earliest = running.start_plus(timing.initial_delay).max(situation.freed);
    Ok(match kind {
        ProbeKind::Readiness => earliest.max(running.seen + situation.spread),
        ProbeKind::Startup | ProbeKind::Liveness => {
            tick_from(situation.added + situation.spread, timing.period, earliest.max(running.seen))
        }
    })
}

/// The first tick that is not before `earliest`, of the ticks every `period` from `first` on.
fn tick_from(first: Duration, period: Duration, earliest: Duration) -> Duration {
    let behind = earliest.saturating_sub(first).as_nanos();
    let periods = u32::try_from(behind.div_ceil(period.as_nanos().max(1))).unwrap_or(u32::MAX);
    first.saturating_add(period.saturating_mul(periods))
}

/// When a readiness probe is due after a fact about its container has arrived: at once if the container has started and
/// is not ready, else at its regular time (row 7.2). The next period counts from there.
///
/// # Errors
/// [`Blocked`] as for [`next`].
pub fn next_on_fact(situation: &ScheduleInput, ready: bool, now: Duration) -> Result<Duration, Blocked> {
    let due = next(situation)?;
    if situation.kind != ProbeKind::Readiness || ready {
        return Ok(due);
    }
    let Some(running) = situation.running else { return Ok(due) };
    let not_before = match situation.last {
        Some(last) => last.ended + READINESS_PAUSE,
        None => running.start_plus(situation.timing.initial_delay),
    };
    Ok(due.min(now.max(not_before)))
}

/// How long the first probe of a container waits, so that not all begin at once when the kubelet has just started: a
/// part of the period given by `random`, and zero once the kubelet has run for a period.
pub fn spread(period: Duration, kubelet_age: Duration, random: u64) -> Duration {
    if kubelet_age >= period {
        return Duration::ZERO;
    }
    let part = (u128::from(random) * period.as_nanos()) >> 64;
    Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX)).min(period)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn situation(kind: ProbeKind) -> ScheduleInput {
        ScheduleInput {
            kind,
            timing: Timing { initial_delay: secs(0), period: secs(10) },
            running: Some(Running { seen: secs(100), age: secs(0) }),
            started: kind != ProbeKind::Startup,
            on_hold: false,
            terminating: false,
            under_way: false,
            last: None,
            spread: Duration::ZERO,
            added: secs(100),
            freed: Duration::ZERO,
        }
    }

    #[test]
    fn the_initial_delay_counts_from_the_containers_start() {
        let mut readiness = situation(ProbeKind::Readiness);
        readiness.timing.initial_delay = secs(15);
        assert_eq!(next(&readiness), Ok(secs(115)));
        readiness.running = Some(Running { seen: secs(200), age: secs(5) });
        assert_eq!(next(&readiness), Ok(secs(210)));
        readiness.running = Some(Running { seen: secs(2), age: secs(5000) });
        assert_eq!(next(&readiness), Ok(secs(2)));
        assert_eq!(next(&situation(ProbeKind::Readiness)), Ok(secs(100)));
    }

    #[test]
    fn probes_that_kill_keep_the_ticks_from_when_the_pod_was_added() {
        for kind in [ProbeKind::Liveness, ProbeKind::Startup] {
            let mut probe = situation(kind);
            probe.running = Some(Running { seen: secs(101), age: secs(1) });
            assert_eq!(next(&probe), Ok(secs(110)), "most of a period to come up");
            probe.timing.initial_delay = secs(15);
            assert_eq!(next(&probe), Ok(secs(120)));
            probe.timing.initial_delay = secs(20);
            assert_eq!(next(&probe), Ok(secs(120)));
            probe.freed = secs(301);
            assert_eq!(next(&probe), Ok(secs(310)), "what was held back is not caught up with");
            probe.freed = secs(0);
            probe.spread = secs(3);
            assert_eq!(next(&probe), Ok(secs(123)), "after a start of the kubelet");
            probe.timing = Timing { initial_delay: secs(0), period: Duration::MAX };
            assert_eq!(next(&probe), Ok(secs(103)));
            probe.spread = secs(0);
            assert_eq!(next(&probe), Ok(Duration::MAX));
        }
    }

    #[test]
    fn what_blocks_a_probe() {
        use ProbeKind::{Liveness, Readiness, Startup};
        for (kind, started, terminating, on_hold, running, expected) in [
            (Liveness, false, false, false, true, Err(Blocked::Startup)),
            (Readiness, false, false, false, true, Err(Blocked::Startup)),
            (Startup, true, false, false, true, Err(Blocked::Startup)),
            (Startup, false, false, false, true, Ok(secs(100))),
            (Liveness, true, true, false, true, Err(Blocked::Terminating)),
            (Startup, false, true, false, true, Err(Blocked::Terminating)),
            (Readiness, true, true, false, true, Ok(secs(100))),
            (Liveness, true, false, true, true, Err(Blocked::OnHold)),
            (Readiness, true, false, false, false, Err(Blocked::NotRunning)),
        ] {
            let running = running.then_some(Running { seen: secs(100), age: secs(0) });
            let case = ScheduleInput { started, terminating, on_hold, running, ..situation(kind) };
            assert_eq!(next(&case), expected, "{case:?}");
        }
    }

    #[test]
    fn lateness_neither_adds_up_nor_is_caught_up_with() {
        let mut probe = situation(ProbeKind::Liveness);
        probe.last = Some(LastRun { due: secs(110), ended: secs(113) });
        assert_eq!(next(&probe), Ok(secs(120)));
        probe.last = Some(LastRun { due: secs(110), ended: secs(150) });
        assert_eq!(next(&probe), Ok(secs(150)));
    }

    #[test]
    fn a_container_that_is_not_ready_is_asked_when_something_is_heard_of_it() {
        let mut probe = situation(ProbeKind::Readiness);
        probe.last = Some(LastRun { due: secs(110), ended: secs(111) });
        assert_eq!(next_on_fact(&probe, false, secs(115)), Ok(secs(115)));
        assert_eq!(next_on_fact(&probe, false, secs(111)), Ok(secs(112)));
        assert_eq!(next_on_fact(&probe, true, secs(115)), Ok(secs(120)));
        probe.last = None;
        probe.timing.initial_delay = secs(30);
        assert_eq!(next_on_fact(&probe, false, secs(115)), Ok(secs(130)));
        probe.spread = secs(9);
        assert_eq!(
            next_on_fact(
                &ScheduleInput { timing: Timing { initial_delay: secs(0), ..probe.timing }, ..probe },
                false,
                secs(102)
            ),
            Ok(secs(102))
        );
    }

    #[test]
    fn first_probes_are_spread_only_while_the_kubelet_is_young() {
        assert_eq!(spread(secs(10), secs(10), u64::MAX), Duration::ZERO);
        assert_eq!(spread(secs(10), secs(9), 0), Duration::ZERO);
        assert_eq!(spread(secs(10), secs(0), 1 << 63), secs(5));
    }

    proptest! {
        #[test]
        fn never_before_the_initial_delay_and_never_twice_within_a_period(
            seen in 0u64..1000, delay in 0u64..100, period in 1u64..100, ran in 0u64..500,
            random in any::<u64>(), age in 0u64..200, readiness in any::<bool>(), durations in proptest::collection::vec(0u64..150, 1..10),
        ) {
            let kind = if readiness { ProbeKind::Readiness } else { ProbeKind::Liveness };
            let spread = spread(secs(period), secs(age), random);
            prop_assert!(spread <= secs(period));
            let mut probe = ScheduleInput {
                timing: Timing { initial_delay: secs(delay), period: secs(period) },
                running: Some(Running { seen: secs(seen), age: secs(ran) }),
                spread,
                ..situation(kind)
            };
            let mut previous: Option<LastRun> = None;
            for duration in durations {
                let due = next(&probe).expect("nothing blocks it");
                prop_assert!(due >= secs(seen) && due + secs(ran) >= secs(seen + delay));
                if let Some(previous) = previous {
                    prop_assert!(due >= previous.due + secs(period) && due >= previous.ended);
                    prop_assert!(due <= (previous.due + secs(period)).max(previous.ended));
                }
                let last = LastRun { due, ended: due + secs(duration) };
                (probe.last, previous) = (Some(last), Some(last));
            }
        }
    }
}
