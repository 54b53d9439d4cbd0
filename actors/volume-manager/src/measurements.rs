//! PURE: whose volumes are measured when, and which asks wait for it (row 10.27). Nothing is measured unless it is asked for. Of
//! namespaces whose pods are due the one with the fewest places goes first, equals take turns, and none has more than half.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::FairQueue;
use messages::PodUid;
use messages::volume_manager::PodVolumeStats;

/// The most pods whose volumes are measured at the same time.
const PODS_AT_ONCE: usize = 8;
/// A pod whose volumes took longer than this is slow: its driver or server hangs.
const SLOW: Duration = Duration::from_secs(5);
/// The most slow pods that are measured beside the others, whose figures wait for none of them.
const SLOW_AT_ONCE: usize = 2;
/// A pod that stays slow is measured half as often each time, down to once in so many periods.
const RARELY: u32 = 16;
/// The most asks that wait; further ones are answered with what is known.
const ASKERS_MAX: usize = 64;

/// The pods that are measured in places of one kind, and those that wait for one.
#[derive(Debug)]
struct Line {
    places: usize,
    due: FairQueue<Arc<str>, PodUid>,
    /// The namespaces of the pods that have a place.
    held: BTreeMap<Arc<str>, usize>,
}

impl Line {
    fn new(places: usize) -> Self {
        Self { places, due: FairQueue::default(), held: BTreeMap::new() }
    }

    /// Gives a place to the pod whose turn it is.
    fn begin(&mut self) -> Option<(Arc<str>, PodUid)> {
        let Self { places, due, held } = self;
        if held.values().sum::<usize>() >= *places {
            return None;
        }
        let of = |namespace: &Arc<str>| held.get(namespace).copied().unwrap_or(0);
        let (namespace, uid) = due.pop_fewest(places.div_ceil(2), of)?;
        *held.entry(namespace.clone()).or_default() += 1;
        Some((namespace, uid))
    }

    fn ended(&mut self, namespace: &Arc<str>) {
        if let Some(count) = self.held.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(namespace);
            }
        }
    }
}

/// A measurement under way.
#[derive(Debug)]
struct UnderWay {
    since: Duration,
    namespace: Arc<str>,
    /// It has a place of slow pods.
    is_slow: bool,
}

/// The last figures of each pod, and the measurements that are due or under way. `A` is an asker.
#[derive(Debug)]
pub(crate) struct Measurements<A> {
    /// Figures are good for this long; `None` if volumes are not measured.
    period: Option<Duration>,
    known: BTreeMap<PodUid, (Duration, Arc<PodVolumeStats>)>,
    /// The pods that wait for a place.
    due: BTreeSet<PodUid>,
    ordinary: Line,
    slow_ones: Line,
    under_way: BTreeMap<PodUid, UnderWay>,
    /// The pods that were slow, and for how many periods their figures are good.
    slow: BTreeMap<PodUid, u32>,
    /// Those of the due ones and of those under way that the askers wait for.
    awaited: BTreeSet<PodUid>,
    askers: Vec<A>,
}

impl<A> Measurements<A> {
    /// No figures.
    pub fn new(period: Option<Duration>) -> Self {
        Self {
            period,
            known: BTreeMap::new(),
            due: BTreeSet::new(),
            ordinary: Line::new(PODS_AT_ONCE),
            slow_ones: Line::new(SLOW_AT_ONCE),
            under_way: BTreeMap::new(),
            slow: BTreeMap::new(),
            awaited: BTreeSet::new(),
            askers: Vec::new(),
        }
    }

    /// Has the volumes of these pods measured, which are given with their namespaces, except those that were a short while ago.
    /// Forgets all other pods. `now` is the time since one fixed moment. Returns the asker if there is nothing to wait for.
    pub fn ask(&mut self, pods: &BTreeMap<PodUid, Arc<str>>, now: Duration, asker: A) -> Option<A> {
        self.known.retain(|uid, _| pods.contains_key(uid));
        self.slow.retain(|uid, _| pods.contains_key(uid));
        let Some(period) = self.period else { return Some(asker) };
        for (uid, namespace) in pods {
            let slow = self.slow.get(uid);
            let period = period.saturating_mul(slow.copied().unwrap_or(1));
            let is_fresh = self.known.get(uid).is_some_and(|(at, _)| now.saturating_sub(*at) < period);
            if !is_fresh && !self.under_way.contains_key(uid) && self.due.insert(uid.clone()) {
                if slow.is_none() {
                    self.awaited.insert(uid.clone());
                }
                let line = if slow.is_none() { &mut self.ordinary } else { &mut self.slow_ones };
                line.due.push(namespace, uid.clone());
            }
        }
        if self.awaited.is_empty() || self.askers.len() >= ASKERS_MAX {
            return Some(asker);
        }
        self.askers.push(asker);
        None
    }

    /// The next pod whose volumes are measured now, if there is one.
    pub fn begin(&mut self, now: Duration) -> Option<PodUid> {
        let ordinary = self.ordinary.begin();
        let is_slow = ordinary.is_none();
        let (namespace, uid) = ordinary.or_else(|| self.slow_ones.begin())?;
        self.due.remove(&uid);
        self.under_way.insert(uid.clone(), UnderWay { since: now, namespace, is_slow });
        Some(uid)
    }

    /// A pod's measurement has ended. Returns the askers that have waited for it and for nothing else.
    pub fn ended(&mut self, uid: &PodUid, stats: PodVolumeStats, now: Duration) -> Vec<A> {
        let mut began = now;
        if let Some(UnderWay { since, namespace, is_slow }) = self.under_way.remove(uid) {
            began = since;
            let line = if is_slow { &mut self.slow_ones } else { &mut self.ordinary };
            line.ended(&namespace);
        }
        if now.saturating_sub(began) > SLOW {
            let periods = self.slow.entry(uid.clone()).or_insert(1);
            *periods = (*periods * 2).min(RARELY);
        } else {
            self.slow.remove(uid);
        }
        self.known.insert(uid.clone(), (now, Arc::new(stats)));
        self.awaited.remove(uid);
        if self.awaited.is_empty() { std::mem::take(&mut self.askers) } else { Vec::new() }
    }

    /// The askers have waited long enough: what is still under way is found by later asks.
    pub fn late(&mut self) -> Vec<A> {
        self.awaited.clear();
        std::mem::take(&mut self.askers)
    }

    /// Whether volumes are measured at all.
    pub fn are_measured(&self) -> bool {
        self.period.is_some()
    }

    /// The last figures.
    pub fn known(&self) -> BTreeMap<PodUid, Arc<PodVolumeStats>> {
        self.known.iter().map(|(uid, (_, stats))| (uid.clone(), stats.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Pods of two namespaces in turn.
    fn pods(count: usize) -> BTreeMap<PodUid, Arc<str>> {
        let namespace = |number: usize| Arc::from(if number.is_multiple_of(2) { "even" } else { "odd" });
        (0..count).map(|number| (PodUid::new(&format!("pod-{number}")), namespace(number))).collect()
    }

    fn begun(measurements: &mut Measurements<u32>) -> Vec<PodUid> {
        begun_at(measurements, Duration::ZERO)
    }

    fn begun_at(measurements: &mut Measurements<u32>, now: Duration) -> Vec<PodUid> {
        std::iter::from_fn(|| measurements.begin(now)).collect()
    }

    #[test]
    fn pods_that_hang_hold_up_no_others_figures() {
        let mut all = Measurements::new(Some(MINUTE));
        let twenty = pods(20);
        assert_eq!(all.ask(&twenty, Duration::ZERO, 1), None);
        assert_eq!(begun(&mut all).len(), PODS_AT_ONCE);
        let hung: Vec<PodUid> = all.under_way.keys().cloned().collect();
        for uid in &hung {
            all.ended(uid, PodVolumeStats::new(), 2 * SLOW);
        }
        let mut others = BTreeSet::new();
        while let Some(uid) = all.begin(2 * SLOW) {
            let answered = all.ended(&uid, PodVolumeStats::new(), 2 * SLOW);
            others.insert(uid);
            assert_eq!(answered.is_empty(), others.len() < 12);
        }
        // A minute later the others have all places, and those that hung are not due yet.
        assert_eq!(all.ask(&twenty, 2 * MINUTE - SLOW, 2), None);
        assert!(begun_at(&mut all, 2 * MINUTE).iter().all(|uid| others.contains(uid)));
        for uid in &others {
            all.ended(uid, PodVolumeStats::new(), 2 * MINUTE);
            while all.begin(2 * MINUTE).is_some() {}
        }
        assert_eq!(all.ask(&twenty, 3 * MINUTE, 3), None, "the others alone are waited for");
        assert_eq!(all.under_way.values().filter(|one| one.is_slow).count(), 0);
        let slow = begun_at(&mut all, 3 * MINUTE).into_iter().filter(|uid| hung.contains(uid)).count();
        assert_eq!(slow, SLOW_AT_ONCE);
    }

    #[test]
    fn a_namespace_whose_pods_all_hang_leaves_half_of_the_places() {
        let mut all = Measurements::new(Some(MINUTE));
        let named = |name: &str, count: usize| -> BTreeMap<PodUid, Arc<str>> {
            (0..count).map(|number| (PodUid::new(&format!("{name}-{number}")), Arc::from(name))).collect()
        };
        let mut both = named("crowd", 100);
        assert_eq!(all.ask(&both, Duration::ZERO, 1), None);
        assert_eq!(begun(&mut all).len(), PODS_AT_ONCE / 2, "however many are due");
        both.extend(named("quiet", 20));
        assert_eq!(all.ask(&both, Duration::ZERO, 2), None);
        for round in 0..5 {
            let next = begun(&mut all);
            assert!(next.iter().all(|uid| uid.as_str().starts_with("quiet")), "{round}: {next:?}");
            assert_eq!(next.len(), 4, "{round}");
            for uid in &next {
                all.ended(uid, PodVolumeStats::new(), Duration::ZERO);
            }
        }
        assert_eq!(all.known().len(), 20);
        // Those that hung are slow, and have a place of their own.
        let hung: Vec<PodUid> = all.under_way.keys().cloned().collect();
        for uid in &hung {
            all.ended(uid, PodVolumeStats::new(), 2 * SLOW);
        }
        all.ask(&both, 3 * MINUTE, 3);
        let next = begun_at(&mut all, 3 * MINUTE);
        let of = |name: &str| next.iter().filter(|uid| uid.as_str().starts_with(name)).count();
        assert_eq!((of("crowd"), of("quiet")), (PODS_AT_ONCE / 2 + SLOW_AT_ONCE / 2, PODS_AT_ONCE / 2));
    }

    #[test]
    fn a_minute_old_figure_is_measured_again_and_a_pod_that_hangs_is_awaited_once() {
        let mut all = Measurements::new(Some(MINUTE));
        let two = pods(2);
        assert_eq!(all.ask(&two, Duration::ZERO, 1), None);
        let started = begun(&mut all);
        assert_eq!(started.iter().collect::<BTreeSet<_>>(), two.keys().collect::<BTreeSet<_>>());
        assert!(all.ended(&started[0], PodVolumeStats::new(), Duration::ZERO).is_empty());
        assert_eq!(all.late(), [1]);
        // The first is known and the second under way: there is nothing to wait for.
        assert_eq!(all.ask(&two, MINUTE / 2, 2), Some(2));
        assert_eq!(all.known().into_keys().collect::<Vec<_>>(), [started[0].clone()]);
        assert_eq!(all.ask(&two, MINUTE, 3), None);
        assert_eq!(begun_at(&mut all, MINUTE), [started[0].clone()]);
        assert_eq!(all.ended(&started[0], PodVolumeStats::new(), MINUTE), [3]);
        assert_eq!(all.ask(&pods(0), MINUTE, 4), Some(4));
        assert!(all.known().is_empty(), "pods without volumes are forgotten");
        let mut off = Measurements::new(None);
        assert_eq!((off.ask(&two, MINUTE, 5), off.begin(MINUTE)), (Some(5), None));
    }

    proptest! {
        #[test]
        fn each_asker_is_answered_once_and_few_pods_are_measured_at_once(
            steps in proptest::collection::vec((0u8..4, 0usize..20, 0u64..50), 1..200)
        ) {
            let mut all: Measurements<usize> = Measurements::new(Some(MINUTE));
            let (mut now, mut open, mut under_way) = (Duration::ZERO, BTreeSet::new(), Vec::new());
            for (number, (step, count, gap)) in steps.into_iter().enumerate() {
                now += Duration::from_secs(gap);
                let answered = match step {
                    0 => {
                        open.insert(number);
                        Vec::from_iter(all.ask(&pods(count), now, number))
                    }
                    1 => { under_way.extend(all.begin(now)); Vec::new() }
                    2 if !under_way.is_empty() => {
                        let uid = under_way.remove(count % under_way.len());
                        all.ended(&uid, PodVolumeStats::new(), now)
                    }
                    _ => all.late(),
                };
                prop_assert!(under_way.len() <= PODS_AT_ONCE + SLOW_AT_ONCE);
                for asker in answered { prop_assert!(open.remove(&asker)); }
            }
            for asker in all.late() { prop_assert!(open.remove(&asker)); }
            prop_assert!(open.is_empty());
        }
    }
}
