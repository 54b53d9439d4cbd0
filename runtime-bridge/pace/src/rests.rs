//! Rests: work for something that consists of many parts, which change one by one, would be the square of their number if it
//! were done at each change.

use std::collections::BTreeMap;
use std::time::Duration;

/// With so many parts there is no rest.
const PARTS_MAX: usize = 64;
/// How long a rest is for each part beyond.
const REST: Duration = Duration::from_millis(1);

/// What rests, and until when. Moments are durations since one fixed moment.
#[derive(Clone, Debug)]
pub struct Rests<K>(BTreeMap<K, Duration>);

impl<K> Default for Rests<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Rests<K> {
    /// How long the work for `key`, which has so many parts, still waits, or `None` if it is done now: then a rest begins.
    pub fn left(&mut self, key: &K, parts: usize, now: Duration) -> Option<Duration> {
        let until = self.0.get(key).filter(|_| parts > PARTS_MAX);
        let left = until.map(|until| until.saturating_sub(now)).filter(|left| !left.is_zero());
        if left.is_none() {
            self.begin(key, parts, now);
        }
        left
    }

    /// A rest begins now, also where one is under way: for work that takes a while, at whose end the caller begins its rest.
    pub fn begin(&mut self, key: &K, parts: usize, now: Duration) {
        let beyond = u32::try_from(parts.saturating_sub(PARTS_MAX)).unwrap_or(u32::MAX);
        if beyond == 0 {
            self.0.remove(key);
        } else {
            self.0.insert(key.clone(), now.saturating_add(REST.saturating_mul(beyond)));
        }
    }

    /// There is no more work for `key`.
    pub fn gone(&mut self, key: &K) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_has_many_parts_rests_by_their_number_and_most_does_not() {
        let (mut rests, small, large) = (Rests::default(), "small", "large");
        assert!((0..9).all(|_| rests.left(&small, PARTS_MAX, ms(0)).is_none()));
        assert_eq!(rests.left(&large, 1064, ms(0)), None);
        assert_eq!(rests.left(&large, 1064, ms(400)), Some(ms(600)));
        assert_eq!(rests.left(&large, 2, ms(999)), None, "it has fewer now");
        assert_eq!(rests.left(&large, 1064, ms(999)), None);
        assert_eq!(rests.left(&large, 1064, ms(1998)), Some(ms(1)));
        assert_eq!(rests.left(&large, 1064, ms(1999)), None);
        rests.gone(&large);
        assert_eq!(rests.left(&large, 1064, ms(2000)), None);
        rests.gone(&large);
        assert!(rests.0.is_empty(), "nothing is kept");
    }

    #[test]
    fn a_rest_that_begins_at_the_end_of_the_work_takes_the_place_of_the_one_before() {
        let mut rests = Rests::default();
        assert_eq!(rests.left(&"large", 164, ms(0)), None);
        rests.begin(&"large", 164, ms(70));
        assert_eq!(rests.left(&"large", 164, ms(100)), Some(ms(70)));
        rests.begin(&"large", PARTS_MAX, ms(110));
        assert!(rests.0.is_empty(), "it has fewer now");
    }
}
