//! PURE: poison pods. A panic on behalf of a pod counts against that pod; the third in ten minutes
//! quarantines the pod in that subsystem. Effects that pass their deadlines count the longer, the longer they last: the third
//! in a row quarantines their pod, too. Pods that panic at one place in the code count as one cause, as replicas of one
//! template do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bridge_pace::Backoff;
use messages::PodUid;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::panics::PanicReport;

/// The longest quarantine of one of many pods that panic at one place.
const CROWD_MAX: Duration = Duration::from_secs(3600);

/// When a pod is quarantined, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuarantinePolicy {
    /// This many panics of one pod, or of several pods at one place, within `window` quarantine the pod.
    pub panics_max: u32,
    /// The length of time over which `panics_max` and `causes_max` count. An effect that passes its deadline counts for
    /// `panics_max` times that deadline longer.
    pub window: Duration,
    /// With more different causes than this within `window`, panics on behalf of pods count against the
    /// subsystem.
    pub causes_max: u32,
    /// Length of the first quarantine; it doubles with every further one.
    pub backoff_initial: Duration,
    /// The longest quarantine of a pod that panics alone. Pods that panic at one place take turns at panicking again: for
    /// every `panics_max` of them the quarantine is longer once more, up to an hour, so that a subsystem is not restarted the
    /// more often the more replicas a broken pod has.
    pub backoff_max: Duration,
}

impl Default for QuarantinePolicy {
    fn default() -> Self {
        Self {
            panics_max: 3,
            window: Duration::from_secs(600),
            causes_max: 3,
            backoff_initial: Duration::from_secs(10),
            backoff_max: Duration::from_secs(300),
        }
    }
}

/// What follows from a panic on behalf of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// There are more causes than `causes_max`: the panic counts towards the subsystem's restart limit.
    pub counts: bool,
    /// How long the pod is quarantined; none: it is not.
    pub quarantine: Option<Duration>,
}

/// Panics of one subsystem by pod. Bounded: panics older than the window are forgotten, and of a poison pod
/// the newest are kept.
#[derive(Debug, Default)]
pub struct Panics {
    by_pod: BTreeMap<PodUid, Record>,
}

#[derive(Debug, Default)]
struct Record {
    panics: VecDeque<Noted>,
    quarantines: u32,
    /// When the last quarantine ends.
    until: Option<Instant>,
}

#[derive(Debug)]
struct Noted {
    at: Instant,
    place: String,
    /// How long it counts.
    window: Duration,
}

impl Record {
    fn is_at(&self, place: &str) -> bool {
        self.panics.iter().any(|noted| noted.place == place)
    }
}

impl Panics {
    /// Records a panic at `now` on behalf of `pod`, and says what follows. The quarantine of a
    /// pod that `is_quarantined` already is lengthened.
    pub fn blame(
        &mut self,
        policy: &QuarantinePolicy,
        pod: &PodUid,
        report: &PanicReport,
        is_quarantined: bool,
        now: Instant,
    ) -> Blame {
        self.forget_old(now);
        let (limit, place) = (policy.panics_max as usize, report.place.as_str());
        let record = self.by_pod.entry(pod.clone()).or_default();
        let window = policy.window.saturating_add(report.after.saturating_mul(policy.panics_max));
        record.panics.push_back(Noted { at: now, place: place.to_owned(), window });
        let of_pod = record.panics.len();
        let all = self.by_pod.values().flat_map(|record| &record.panics);
        let of_place = all.filter(|noted| noted.place == place).count();
        let counts = self.causes() > policy.causes_max as usize;
        let is_poison = is_quarantined || of_pod >= limit || of_place >= limit;
        let quarantine = is_poison.then(|| self.lengthen(policy, pod, report, now)).flatten();
        Blame { counts, quarantine }
    }

    /// The length of the pod's next quarantine. A new pod begins with the length that its place has reached: pods that are
    /// made anew, each with another UID, are no way around it. A pod whose effects pass their deadlines is left alone for as
    /// long as they had lasted, doubling to four times that.
    fn lengthen(
        &mut self,
        policy: &QuarantinePolicy,
        pod: &PodUid,
        report: &PanicReport,
        now: Instant,
    ) -> Option<Duration> {
        let PanicReport { place, after, .. } = report;
        let of_place = |record: &&Record| record.is_at(place);
        let crowd = u32::try_from(self.by_pod.values().filter(of_place).count()).unwrap_or(u32::MAX);
        let reached = self.by_pod.values().filter(of_place).map(|record| record.quarantines).max();
        let record = self.by_pod.get_mut(pod)?;
        record.quarantines = record.quarantines.saturating_add(1).max(reached.unwrap_or(0));
        let longest = policy.backoff_max.max(after.saturating_mul(4));
        let alone = Backoff::doubling(policy.backoff_initial.max(*after), longest).after(record.quarantines);
        let length = alone.saturating_mul(crowd.div_ceil(policy.panics_max.max(1))).min(CROWD_MAX.max(alone));
        record.until = Some(now + length);
        // One more panic after the quarantine brings the next one. The newest stay: they are the ones
        // that the next panic may share its window with.
        while record.panics.len() > policy.panics_max as usize {
            record.panics.pop_front();
        }
        Some(length)
    }

    /// The number of different causes: pods that panic at a common place share one cause, and a pod that
    /// panics in many places is one cause.
    fn causes(&self) -> usize {
        let mut causes: Vec<BTreeSet<&str>> = Vec::new();
        for record in self.by_pod.values() {
            let mut places: BTreeSet<&str> = record.panics.iter().map(|noted| noted.place.as_str()).collect();
            causes.retain(|cause| {
                let is_apart = cause.is_disjoint(&places);
                if !is_apart {
                    places.extend(cause);
                }
                is_apart
            });
            causes.push(places);
        }
        causes.len()
    }

    fn forget_old(&mut self, now: Instant) {
        self.by_pod.retain(|_, record| {
            // What led to a quarantine is known as long after its end: some quarantines are longer than the window.
            let until = record.until;
            let since = |at: Instant| now.saturating_duration_since(until.map_or(at, |until| until.max(at)));
            record.panics.retain(|noted| since(noted.at) < noted.window);
            !record.panics.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(place: &str, after: Duration) -> PanicReport {
        PanicReport { place: place.to_owned(), message: String::new(), pod: None, after }
    }

    fn panic(place: &str) -> PanicReport {
        report(place, Duration::ZERO)
    }

    /// Panics of pods at places, as `pod@place`, all at `now`.
    fn blame_all(panics: &mut Panics, now: Instant, what: &[&str]) -> Vec<Blame> {
        let policy = QuarantinePolicy::default();
        let one = |what: &&str| {
            let (pod, place) = what.split_once('@').unwrap();
            panics.blame(&policy, &PodUid::new(pod), &panic(place), false, now)
        };
        what.iter().map(one).collect()
    }

    fn seconds(blames: &[Blame]) -> Vec<u64> {
        blames.iter().map(|blame| blame.quarantine.map_or(0, |length| length.as_secs())).collect()
    }

    #[test]
    fn the_third_panic_of_a_pod_quarantines_it_and_never_counts() {
        let (mut panics, now) = (Panics::default(), Instant::now());
        let blames = blame_all(&mut panics, now, &["a@1", "a@2", "a@3", "a@4", "a@5"]);
        assert_eq!(seconds(&blames), [0, 0, 10, 20, 40]);
        assert!(blames.iter().all(|blame| !blame.counts), "one pod is one cause wherever it panics");
    }

    #[test]
    fn the_newest_panics_count_after_a_quarantine() {
        let (mut panics, start) = (Panics::default(), Instant::now());
        let minutes = |n: u64| start + Duration::from_secs(60 * n);
        let quarantined: Vec<bool> = [0, 1, 2, 9, 11]
            .map(|at| blame_all(&mut panics, minutes(at), &["a@1"])[0].quarantine.is_some())
            .to_vec();
        assert_eq!(quarantined, [false, false, true, true, true], "2, 9 and 11 are within ten minutes");
    }

    #[test]
    fn the_third_effect_in_a_row_that_passes_its_deadline_quarantines_its_pod_however_long_it_lasts() {
        for minutes in [1, 5, 60] {
            let (policy, mut panics) = (QuarantinePolicy::default(), Panics::default());
            let after = Duration::from_secs(60 * minutes);
            let mut now = Instant::now();
            let mut overdue = |now| {
                panics
                    .blame(&policy, &PodUid::new("a"), &report("effect x of a", after), false, now)
                    .quarantine
            };
            let quarantined = [(); 3].map(|()| {
                now += after + Duration::from_secs(10);
                overdue(now).is_some()
            });
            assert_eq!(quarantined, [false, false, true], "{minutes} min");
        }
    }

    #[test]
    fn a_pod_whose_effects_pass_their_deadlines_is_left_alone_for_longer_than_they_last() {
        let (policy, mut panics, now) = (QuarantinePolicy::default(), Panics::default(), Instant::now());
        let late = report("effect x of a", Duration::from_secs(300));
        let blames = [(); 8].map(|()| panics.blame(&policy, &PodUid::new("a"), &late, false, now));
        assert_eq!(seconds(&blames), [0, 0, 300, 600, 1200, 1200, 1200, 1200]);
    }

    #[test]
    fn a_fourth_cause_makes_it_the_subsystems_fault() {
        let (mut panics, now) = (Panics::default(), Instant::now());
        let blames = blame_all(&mut panics, now, &["a@1", "b@2", "c@3", "d@4"]);
        assert_eq!(blames.iter().map(|blame| blame.counts).collect::<Vec<_>>(), [false, false, false, true]);
        let later = now + Duration::from_secs(600);
        assert!(!blame_all(&mut panics, later, &["e@5"])[0].counts, "old panics are forgotten");
    }

    #[test]
    fn one_place_in_many_pods_is_one_cause_and_quarantines_each() {
        let (mut panics, now) = (Panics::default(), Instant::now());
        let pods: Vec<String> = (0..50).map(|pod| format!("{pod}@1")).collect();
        let blames = blame_all(&mut panics, now, &pods.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(blames.iter().all(|blame| !blame.counts));
        assert_eq!(seconds(&blames)[..3], [0, 0, 10], "three at one place are enough");
        assert_eq!(seconds(&blames)[3..7], [20, 20, 20, 30], "the more there are, the longer");
        assert_eq!(seconds(&blames)[49], 170);
        assert_eq!(seconds(&blame_all(&mut panics, now, &["7@1"])), [340]);
    }

    #[test]
    fn a_new_pod_begins_with_the_length_that_its_place_has_reached() {
        let (mut panics, now) = (Panics::default(), Instant::now());
        let blames = blame_all(&mut panics, now, &["a@1", "a@1", "a@1", "a@1", "a@1", "b@1", "c@2"]);
        assert_eq!(seconds(&blames), [0, 0, 10, 20, 40, 40, 0]);
    }

    #[test]
    fn many_replicas_restart_a_subsystem_hardly_more_often_than_one_pod() {
        let (policy, mut panics, start) = (QuarantinePolicy::default(), Panics::default(), Instant::now());
        // Each of them panics as soon as it is let in.
        let mut due: BTreeSet<(Duration, u32)> = (0..100).map(|pod| (Duration::ZERO, pod)).collect();
        let mut restarts = Vec::new();
        while let Some((at, pod)) = due.pop_first().filter(|(at, _)| *at < Duration::from_secs(6 * 3600)) {
            restarts.push(at);
            let uid = PodUid::new(&pod.to_string());
            let blame = panics.blame(&policy, &uid, &panic("1"), false, start + at);
            due.insert((at + blame.quarantine.unwrap_or(Duration::from_secs(1)), pod));
        }
        let in_the_last_hour = restarts.iter().filter(|at| **at >= Duration::from_secs(5 * 3600)).count();
        assert_eq!(in_the_last_hour, 100, "it was one in three seconds");
    }

    #[test]
    fn pods_that_share_a_place_share_a_cause() {
        let (mut panics, now) = (Panics::default(), Instant::now());
        blame_all(&mut panics, now, &["a@1", "b@2", "c@3"]);
        assert_eq!(panics.causes(), 3);
        blame_all(&mut panics, now, &["d@1", "d@2"]);
        assert_eq!(panics.causes(), 2, "d has the places of a and of b");
    }

    #[test]
    fn a_quarantined_pod_that_panics_is_left_alone_for_longer_at_once() {
        let (policy, mut panics, now) = (QuarantinePolicy::default(), Panics::default(), Instant::now());
        let blame = panics.blame(&policy, &PodUid::new("a"), &panic("1"), true, now);
        assert_eq!(blame.quarantine, Some(Duration::from_secs(10)));
    }
}
