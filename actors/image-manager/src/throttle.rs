//! How often pulls may begin: a token bucket (row 6.4), in which a pod can overdraw its own share alone.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_pace::TokenBucket;
use messages::PodUid;

/// `registryPullQPS` and `registryBurst`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottlePolicy {
    /// Pulls per second in the long run; 0 is no limit.
    pub pulls_per_second: f64,
    /// Pulls that may begin at once after a quiet time.
    pub burst: u32,
}

impl Default for ThrottlePolicy {
    fn default() -> Self {
        Self { pulls_per_second: 5.0, burst: 10 }
    }
}

impl ThrottlePolicy {
    /// A full bucket. `now` and later moments are durations since one fixed moment.
    pub fn bucket(&self, now: Duration) -> TokenBucket {
        TokenBucket::new(self.pulls_per_second, self.burst, now)
    }
}

/// The error text of a pull that the bucket refuses.
pub const REFUSED: &str = "pull QPS exceeded";

/// What the bucket says to a pull whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The pull may begin: it has taken a token.
    Taken,
    /// Other pods' pulls have emptied the bucket: there is a token after this time.
    After(Duration),
    /// The pod has emptied the bucket, and would have done so on a node of its own: the pull fails.
    Overdrawn,
}

/// The node's bucket, and beside it each pod's account of what it has taken: a bucket of the same rate and burst. A
/// pod's account is never emptier than the node's bucket, so that a pod fails where it would fail alone, and
/// waits where others have been before it.
#[derive(Clone, Debug)]
pub struct Throttle {
    policy: ThrottlePolicy,
    node: TokenBucket,
    /// The accounts that are not full; as many as the bucket has given tokens while it filled.
    pods: BTreeMap<PodUid, TokenBucket>,
}

impl Throttle {
    /// A full bucket.
    pub fn new(policy: ThrottlePolicy, now: Duration) -> Self {
        Self { policy, node: policy.bucket(now), pods: BTreeMap::new() }
    }

    /// Takes a token for a pull of this pod, if there is one.
    pub fn take(&mut self, pod: &PodUid, now: Duration) -> Token {
        let burst = self.policy.burst;
        self.pods.retain(|_, account| !account.until(burst, now).is_zero());
        let mut account = self.pods.get(pod).cloned().unwrap_or_else(|| self.policy.bucket(now));
        if self.node.take(now) {
            account.take(now);
            self.pods.insert(pod.clone(), account);
            return Token::Taken;
        }
        if account.until(1, now).is_zero() { Token::After(self.node.until(1, now)) } else { Token::Overdrawn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_ten_then_five_a_second() {
        let mut bucket = ThrottlePolicy::default().bucket(Duration::ZERO);
        assert_eq!((0..20).filter(|_| bucket.take(Duration::ZERO)).count(), 10);
        let later = Duration::from_secs(1);
        assert_eq!((0..20).filter(|_| bucket.take(later)).count(), 5);
    }
    fn pod(name: &str) -> PodUid {
        PodUid::new(name)
    }

    #[test]
    fn a_pod_fails_where_it_would_fail_alone_and_waits_behind_others() {
        let mut throttle = Throttle::new(ThrottlePolicy::default(), Duration::ZERO);
        let mut take = |name: &str, ms: u64| throttle.take(&pod(name), Duration::from_millis(ms));
        for _ in 0..10 {
            assert_eq!(take("greedy", 0), Token::Taken);
        }
        assert_eq!(take("greedy", 0), Token::Overdrawn);
        assert_eq!(take("quiet", 0), Token::After(Duration::from_millis(200)));
        assert_eq!(take("quiet", 200), Token::Taken);
        assert_eq!(
            take("greedy", 200),
            Token::After(Duration::from_millis(200)),
            "its own account has filled"
        );
        assert_eq!(take("greedy", 400), Token::Taken);
    }

    #[test]
    fn pods_that_start_together_wait_and_their_accounts_are_forgotten() {
        let mut throttle = Throttle::new(ThrottlePolicy::default(), Duration::ZERO);
        let taken = |throttle: &mut Throttle, now| {
            let takes = (0..50).map(|number: u32| throttle.take(&pod(&number.to_string()), now));
            takes.map(|token| (token == Token::Taken, token == Token::Overdrawn)).collect::<Vec<_>>()
        };
        let at_once = taken(&mut throttle, Duration::ZERO);
        assert_eq!(at_once.iter().filter(|(begins, _)| *begins).count(), 10);
        assert!(!at_once.iter().any(|(_, fails)| *fails));
        assert_eq!(throttle.pods.len(), 10);
        throttle.take(&pod("late"), Duration::from_secs(60));
        assert_eq!(throttle.pods.len(), 1);
    }

    #[test]
    fn without_a_burst_no_pull_waits_for_ever() {
        let policy = ThrottlePolicy { pulls_per_second: 5.0, burst: 0 };
        assert_eq!(Throttle::new(policy, Duration::ZERO).take(&pod("a"), Duration::ZERO), Token::Overdrawn);
        let none = ThrottlePolicy { pulls_per_second: 0.0, burst: 0 };
        assert_eq!(Throttle::new(none, Duration::ZERO).take(&pod("a"), Duration::ZERO), Token::Taken);
    }
}
