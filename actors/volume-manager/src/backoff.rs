//! When a volume that could not be mounted is tried again (row 10.1): each volume has a delay of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_pace::Backoff;
use messages::PodUid;
use messages::volume_manager::VolumeError;

/// The delays of each volume: from 500 ms, doubling up to 122 s.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(122));

/// The delays of a volume of which it is not known what it is made of: its claim may be bound at any moment, and the kubelet does
/// not hear of it.
const UNBOUND: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(10));

/// A volume that could not be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failed {
    error: VolumeError,
    delay: Duration,
    /// The end of the delay, as a duration on the caller's clock.
    until: Duration,
}

/// The volumes of all pods that could not be mounted.
#[derive(Debug, Default)]
pub struct MountBackoff(BTreeMap<PodUid, BTreeMap<String, Failed>>);

impl MountBackoff {
    /// The pod's volumes whose delay is not over, with the error of the last try.
    pub fn held(&self, pod: &PodUid, now: Duration) -> BTreeMap<String, VolumeError> {
        let failed = self.0.get(pod).into_iter().flatten();
        let waiting = failed.filter(|(_, failed)| failed.until > now);
        waiting.map(|(name, failed)| (name.clone(), failed.error.clone())).collect()
    }

    /// Notes the result of a try: the volumes in `errors` and `unbound` could not be mounted, and all others that were
    /// tried were mounted.
    pub fn tried(
        &mut self,
        pod: &PodUid,
        held: &BTreeMap<String, VolumeError>,
        errors: &[VolumeError],
        unbound: &[VolumeError],
        now: Duration,
    ) {
        let before = self.0.remove(pod).unwrap_or_default();
        let mut failing = BTreeMap::new();
        let errors = errors.iter().map(|error| (error, BACKOFF));
        for (error, delays) in errors.chain(unbound.iter().map(|error| (error, UNBOUND))) {
            let earlier = before.get(&error.volume).map(|failed| delays.following(failed.delay));
            let delay = earlier.unwrap_or(delays.first());
            let failed = Failed { error: error.clone(), delay, until: now.saturating_add(delay) };
            failing.insert(error.volume.clone(), failed);
        }
        failing.extend(before.into_iter().filter(|(name, _)| held.contains_key(name)));
        if !failing.is_empty() {
            self.0.insert(pod.clone(), failing);
        }
    }

    /// How long until the first volume of the pod may be tried again.
    pub fn next(&self, pod: &PodUid, now: Duration) -> Duration {
        let untils = self.0.get(pod).into_iter().flatten().map(|(_, failed)| failed.until);
        untils.min().map_or(Duration::ZERO, |until| until.saturating_sub(now))
    }

    /// What volumes of any pods may have waited for is there: all may be tried at once. Returns the pods.
    pub fn forget_all(&mut self) -> Vec<PodUid> {
        std::mem::take(&mut self.0).into_keys().collect()
    }

    /// The pod's objects have changed, or its volumes are undone: all its volumes may be tried at once.
    pub fn forget(&mut self, pod: &PodUid) {
        self.0.remove(pod);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(volume: &str) -> VolumeError {
        VolumeError { volume: volume.to_owned(), message: "no".to_owned() }
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_volume_waits_for_itself_and_a_change_ends_all_waits() {
        let (mut backoff, pod) = (MountBackoff::default(), PodUid::new("u"));
        backoff.tried(&pod, &BTreeMap::new(), &[error("a")], &[], ms(0));
        assert_eq!((backoff.held(&pod, ms(499)).len(), backoff.next(&pod, ms(100))), (1, ms(400)));
        assert!(backoff.held(&pod, ms(500)).is_empty());
        backoff.tried(&pod, &BTreeMap::new(), &[error("a"), error("b")], &[], ms(500));
        let held = backoff.held(&pod, ms(1_000));
        assert_eq!(held.keys().collect::<Vec<_>>(), ["a"], "it has failed twice, and b once");
        backoff.tried(&pod, &held, &[], &[], ms(1_000));
        assert_eq!(backoff.next(&pod, ms(1_000)), ms(500), "b is there, and a is not forgotten");
        backoff.forget(&pod);
        assert_eq!((backoff.held(&pod, ms(1_000)).len(), backoff.next(&pod, ms(1_000))), (0, ms(0)));
        assert!(backoff.0.is_empty());
    }

    proptest! {
        #[test]
        fn delays_double_to_two_minutes_and_two_seconds(failures in 1_u32..400) {
            let (mut backoff, pod, mut now) = (MountBackoff::default(), PodUid::new("u"), ms(0));
            for n in 0..failures {
                backoff.tried(&pod, &BTreeMap::new(), &[error("a")], &[], now);
                let delay = backoff.next(&pod, now);
                prop_assert_eq!(delay, ms(500 << n.min(20)).min(ms(122_000)));
                now += delay;
            }
            backoff.tried(&pod, &BTreeMap::new(), &[], &[], now);
            prop_assert!(backoff.0.is_empty());
        }
    }
}
