//! PURE: poison pods. A panic on behalf of a pod counts against that pod; the third in ten minutes
//! quarantines the pod in that subsystem. Pods that panic at one place in the code count as one cause, as
//! replicas of one template do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bridge_pace::Backoff;
use messages::PodUid;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The longest quarantine of one of many pods that panic at one place.
const CROWD_MAX: Duration = Duration::from_secs(3600);

/// When a pod is quarantined, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuarantinePolicy {
    /// This many panics of one pod, or of several pods at one place, within `window` quarantine the pod.
    pub panics_max: u32,
    /// The length of time over which `panics_max` and `causes_max` count.
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
    /// When and where each panic happened.
    panics: VecDeque<(Instant, String)>,
    quarantines: u32,
    /// When the last quarantine ends.
    until: Option<Instant>,
}

impl Panics {
    /// Records a panic at `now` and at `place` on behalf of `pod`, and says what follows. The quarantine of a
    /// pod that `is_quarantined` already is lengthened.
    pub fn blame(
        &mut self,
        policy: &QuarantinePolicy,
        pod: &PodUid,
        place: &str,
        is_quarantined: bool,
        now: Instant,
    ) -> Blame {
        self.forget_old(policy, now);
        let limit = policy.panics_max as usize;
        let record = self.by_pod.entry(pod.clone()).or_default();
        record.panics.push_back((now, place.to_owned()));
        let of_pod = record.panics.len();
        let all = self.by_pod.values().flat_map(|record| &record.panics);
        let of_place = all.filter(|(_, there)| there == place).count();
        let counts = self.causes() > policy.causes_max as usize;
        let is_poison = is_quarantined || of_pod >= limit || of_place >= limit;
        let quarantine = is_poison.then(|| self.lengthen(policy, pod, place, now)).flatten();
        Blame { counts, quarantine }
    }

    /// The length of the pod's next quarantine. A new pod begins with the length that its place has reached: pods that are
    /// made anew, each with another UID, are no way around it.
    fn lengthen(
        &mut self,
        policy: &QuarantinePolicy,
        pod: &PodUid,
        place: &str,
        now: Instant,
    ) -> Option<Duration> {
        let of_place = |record: &&Record| record.panics.iter().any(|(_, there)| there == place);
        let crowd = u32::try_from(self.by_pod.values().filter(of_place).count()).unwrap_or(u32::MAX);
        let reached = self.by_pod.values().filter(of_place).map(|record| record.quarantines).max();
        let record = self.by_pod.get_mut(pod)?;
        record.quarantines = record.quarantines.saturating_add(1).max(reached.unwrap_or(0));
        let alone = Backoff::doubling(policy.backoff_initial, policy.backoff_max).after(record.quarantines);
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
            let mut places: BTreeSet<&str> = record.panics.iter().map(|(_, place)| place.as_str()).collect();
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

    fn forget_old(&mut self, policy: &QuarantinePolicy, now: Instant) {
        self.by_pod.retain(|_, record| {
            // What led to a quarantine is known as long after its end: some quarantines are longer than the window.
            let until = record.until;
            let since = |at: Instant| now.saturating_duration_since(until.map_or(at, |until| until.max(at)));
            record.panics.retain(|(at, _)| since(*at) < policy.window);
            !record.panics.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics of pods at places, as `pod@place`, all at `now`.
    fn blame_all(panics: &mut Panics, now: Instant, what: &[&str]) -> Vec<Blame> {
        let policy = QuarantinePolicy::default();
        let one = |what: &&str| {
            let (pod, place) = what.split_once('@').unwrap();
            panics.blame(&policy, &PodUid::new(pod), place, false, now)
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
            let blame = panics.blame(&policy, &uid, "1", false, start + at);
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
        let blame = panics.blame(&policy, &PodUid::new("a"), "1", true, now);
        assert_eq!(blame.quarantine, Some(Duration::from_secs(10)));
    }
}
