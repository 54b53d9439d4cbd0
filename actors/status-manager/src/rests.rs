//! How often the statuses of pods are computed. A status is work for each container of the pod, which change one by one: that of
//! a pod of many containers would be the square of their number.

use std::collections::BTreeMap;
use std::time::Duration;

use messages::PodUid;
use tokio::time::Instant;

/// The status of a pod of so many containers is computed at each change.
const CONTAINERS_MAX: usize = 64;
/// How long a pod rests between two times for each container beyond.
const REST: Duration = Duration::from_millis(1);

/// The pods that rest, each until when.
#[derive(Debug, Default)]
pub(crate) struct Rests(BTreeMap<PodUid, Instant>);

impl Rests {
    /// How long the status of a pod of so many containers waits, or `None` if it is computed now: then a rest begins.
    pub(crate) fn left(&mut self, uid: &PodUid, containers: usize) -> Option<Duration> {
        let beyond = u32::try_from(containers.saturating_sub(CONTAINERS_MAX)).unwrap_or(u32::MAX);
        if beyond == 0 {
            self.0.remove(uid);
            return None;
        }
        let now = Instant::now();
        let left =
            self.0.get(uid).map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero());
        if left.is_none() {
            self.0.insert(uid.clone(), now + REST.saturating_mul(beyond));
        }
        left
    }

    /// The pod is gone.
    pub(crate) fn gone(&mut self, uid: &PodUid) {
        self.0.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pod_rests_by_the_number_of_its_containers_and_most_do_not() {
        let (mut rests, small, large) = (Rests::default(), PodUid::new("small"), PodUid::new("large"));
        assert!((0..9).all(|_| rests.left(&small, CONTAINERS_MAX).is_none()));
        assert_eq!(rests.left(&large, 1064), None);
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(rests.left(&large, 1064), Some(Duration::from_millis(600)));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!(rests.left(&large, 2), None, "it has fewer now");
        assert_eq!(rests.left(&large, 1064), None);
        assert!(rests.left(&large, 1064).is_some());
        rests.gone(&large);
        assert_eq!(rests.left(&large, 1064), None);
    }
}
