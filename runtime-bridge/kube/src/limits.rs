//! The queue in front of a token bucket: an average number of calls per second, and a burst (`kubeAPIQPS`,
//! `kubeAPIBurst`); and the places of calls in flight. Kinds of traffic take turns, and in each kind its tenants.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_pace::{FairQueue, TokenBucket, Turns};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// What a call is for: each kind has a line of its own at the rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// The node itself: the Node, the list of its pods, certificates. It goes before all other kinds, since no tenant
    /// can make it more.
    Node,
    /// The status of pods, their deletion, and mirror pods.
    Statuses,
    /// Claims and the volumes behind them.
    Volumes,
    /// Objects and tokens that pods refer to.
    Objects,
}

/// A kind of traffic, and the tenant that a call counts against: a namespace, or a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub traffic: Traffic,
    pub tenant: Arc<str>,
}

/// The rate at which calls may begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Calls per second; 0 or less is no limit.
    pub per_second: f64,
    /// Calls that may begin at once after a pause.
    pub burst: u32,
}

/// The turn of a call would come after its deadline, so waiting is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")]
pub(super) struct TooLate;

/// A call that waits: it is told when it may begin.
type Waiter = oneshot::Sender<Begun>;

#[derive(Debug)]
struct State {
    bucket: TokenBucket,
    lines: BTreeMap<Traffic, FairQueue<Arc<str>, Waiter>>,
    turns: Turns<Traffic>,
    /// The calls in flight by tenant, where they are bounded.
    in_flight: BTreeMap<Arc<str>, usize>,
}

impl State {
    /// The line whose turn it is, among those with a call that `may` go.
    fn next(&self, may: impl Fn(&Arc<str>) -> bool) -> Option<Traffic> {
        let ready = self.lines.iter().filter(|(_, line)| line.next(&may).is_some());
        let rank = |traffic: &Traffic| (*traffic != Traffic::Node, self.turns.round(traffic), *traffic);
        ready.map(|(traffic, _)| *traffic).min_by_key(rank)
    }

    fn pop(&mut self, may: impl Fn(&Arc<str>) -> bool) -> Option<(Arc<str>, Waiter)> {
        let traffic = self.next(&may)?;
        let line = self.lines.get_mut(&traffic)?;
        let popped = line.pop(&may);
        if traffic != Traffic::Node {
            self.turns.take(&traffic);
        }
        self.forget_empty(traffic);
        popped
    }

    fn forget_empty(&mut self, traffic: Traffic) {
        if self.lines.get(&traffic).is_some_and(FairQueue::is_empty) {
            self.lines.remove(&traffic);
        }
        if self.lines.is_empty() {
            self.turns.rest();
        }
    }

    /// How many calls go at most before one that comes now, if no other comes after it.
    fn ahead(&self, share: &Share) -> usize {
        let own = self.lines.get(&share.traffic).map_or(0, |line| line.ahead(&share.tenant));
        let others = self.lines.iter().filter(|(traffic, _)| **traffic != share.traffic);
        let before = |(traffic, line): (&Traffic, &FairQueue<Arc<str>, Waiter>)| match traffic {
            Traffic::Node => line.len(),
            _ if share.traffic == Traffic::Node => 0,
            _ => line.len().min(own + 1),
        };
        own + others.map(before).sum::<usize>()
    }
}

/// The queue in which calls wait for their turn. Cheap to clone; clones share the bucket.
///
/// A call takes its token when its turn has come, not before: a cancelled call leaves the queue, and all later calls
/// move up.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    limit: RateLimit,
    /// The most calls in flight; `None` is no bound.
    places: Option<usize>,
    /// The zero of the bucket's time.
    start: Instant,
    state: Arc<Mutex<State>>,
    /// Held by the one call that wakes when there is a token.
    line: Arc<tokio::sync::Mutex<()>>,
    /// Tells that call that something has changed.
    changed: Arc<Notify>,
}

/// The place of a call in flight, given up on drop.
#[derive(Debug)]
pub(super) struct Begun(Option<(Bucket, Arc<str>)>);

impl Drop for Begun {
    fn drop(&mut self) {
        let Some((bucket, tenant)) = self.0.take() else { return };
        let mut state = bucket.state();
        if let Some(count) = state.in_flight.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                state.in_flight.remove(&tenant);
            }
        }
        drop(state);
        bucket.pump_and_tell();
    }
}

/// A call's place in the queue, given up on drop.
struct Waiting<'a> {
    bucket: &'a Bucket,
    share: &'a Share,
    ticket: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.bucket.state();
        let traffic = self.share.traffic;
        let left =
            state.lines.get_mut(&traffic).and_then(|line| line.remove(&self.share.tenant, self.ticket));
        state.forget_empty(traffic);
        drop(state);
        drop(left);
    }
}

impl Bucket {
    pub fn new(limit: RateLimit, places: Option<usize>) -> Self {
        let bucket = TokenBucket::new(limit.per_second, limit.burst.max(1), Duration::ZERO);
        let (lines, turns, in_flight) = (BTreeMap::new(), Turns::default(), BTreeMap::new());
        let state = Arc::new(Mutex::new(State { bucket, lines, turns, in_flight }));
        let (start, line, changed) = (Instant::now(), Arc::default(), Arc::default());
        Self { limit, places, start, state, line, changed }
    }

    /// Another empty queue of the same rate, with at most so many calls in flight.
    pub fn anew(&self, places: usize) -> Self {
        Self::new(self.limit, Some(places.max(1)))
    }

    /// Waits until a call may begin. The calls of one tenant begin in the order of asking.
    ///
    /// # Errors
    /// [`TooLate`] at once, when the turn would come after `until`.
    pub async fn turn(&self, share: &Share, until: Instant) -> Result<Begun, TooLate> {
        if self.limit.per_second <= 0.0 && self.places.is_none() {
            return Ok(Begun(None));
        }
        let (granted, told) = oneshot::channel();
        let (_waiting, wait) = self.queue(share, granted);
        if wait > until.saturating_duration_since(Instant::now()) {
            return Err(TooLate);
        }
        self.pump_and_tell();
        let mut told = pin!(told);
        tokio::select! {
            biased;
            begun = told.as_mut() => begun.map_err(|_| TooLate),
            _first = self.line.lock() => loop {
                let wait = self.pump();
                tokio::select! {
                    biased;
                    begun = told.as_mut() => return begun.map_err(|_| TooLate),
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                }
            },
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Joins the end of its tenant's line; returns the place, and the time until its turn if no earlier call leaves and
    /// none comes.
    fn queue<'a>(&'a self, share: &'a Share, granted: Waiter) -> (Waiting<'a>, Duration) {
        let mut state = self.state();
        let ahead = u32::try_from(state.ahead(share)).unwrap_or(u32::MAX);
        let wait = state.bucket.until(ahead.saturating_add(1), self.now());
        let ticket = state.lines.entry(share.traffic).or_default().push(&share.tenant, granted);
        (Waiting { bucket: self, share, ticket }, wait)
    }

    /// Begins all calls that may begin now; returns the time until the next token, if a call waits for one.
    fn pump(&self) -> Option<Duration> {
        let mut begun = Vec::new();
        let mut state = self.state();
        let wait = loop {
            let State { bucket, in_flight, .. } = &mut *state;
            let taken: usize = in_flight.values().sum();
            // A tenant has at most half of the places, so that calls that hang leave the other half. Calls that count
            // against no tenant are all alike.
            let full: Vec<Arc<str>> = match self.places {
                Some(places) if taken >= places => break None,
                Some(places) => {
                    let half = |(tenant, count): &(&Arc<str>, &usize)| {
                        !tenant.is_empty() && **count >= places.div_ceil(2)
                    };
                    let crowds = in_flight.iter().filter(half);
                    crowds.map(|(tenant, _)| tenant.clone()).collect()
                }
                None => Vec::new(),
            };
            let now = self.now();
            let wait = bucket.until(1, now);
            let may = |tenant: &Arc<str>| !full.contains(tenant);
            if state.next(may).is_none() {
                break None;
            }
            if !wait.is_zero() {
                break Some(wait);
            }
            state.bucket.take(now);
            let Some((tenant, waiter)) = state.pop(may) else { break None };
            let place = self.places.map(|_| {
                *state.in_flight.entry(tenant.clone()).or_insert(0) += 1;
                (self.clone(), tenant)
            });
            begun.push((waiter, Begun(place)));
        };
        drop(state);
        for (waiter, place) in begun {
            // A call that has just been given up gives its place back.
            drop(waiter.send(place));
        }
        wait
    }

    /// Begins all calls that may begin now, and lets the call that waits for tokens know.
    fn pump_and_tell(&self) {
        if self.pump().is_some() {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn share(traffic: Traffic, tenant: &str) -> Share {
        Share { traffic, tenant: Arc::from(tenant) }
    }

    fn web() -> Share {
        share(Traffic::Statuses, "web")
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let web = web();
        let bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 5 }, None);
        let start = Instant::now();
        for _ in 0..5 {
            bucket.turn(&web, far()).await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            bucket.turn(&web, far()).await.unwrap();
        }
        let elapsed = start.elapsed();
        assert!((Duration::from_millis(990)..Duration::from_millis(1050)).contains(&elapsed), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_limit_never_waits() {
        let web = web();
        let bucket = Bucket::new(RateLimit { per_second: 0.0, burst: 0 }, None);
        let start = Instant::now();
        for _ in 0..1000 {
            bucket.turn(&web, start).await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_owes_nothing() {
        let web = web();
        let bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 1 }, None);
        bucket.turn(&web, far()).await.unwrap();
        let mut line: Vec<_> = (0..2000).map(|_| Box::pin(bucket.turn(&web, far()))).collect();
        for call in &mut line {
            assert!(call.as_mut().now_or_never().is_none(), "it waits");
        }
        let last = bucket.turn(&web, far());
        tokio::pin!(last);
        assert!(last.as_mut().now_or_never().is_none());
        drop(line);
        let start = Instant::now();
        last.await.unwrap();
        bucket.turn(&web, far()).await.unwrap();
        let elapsed = start.elapsed();
        assert!((Duration::from_millis(190)..Duration::from_millis(210)).contains(&elapsed), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_turn_comes_too_late_fails_at_once_and_delays_nobody() {
        let web = web();
        let bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 1 }, None);
        bucket.turn(&web, far()).await.unwrap();
        let start = Instant::now();
        let soon = start + Duration::from_millis(50);
        for _ in 0..1000 {
            assert_eq!(bucket.turn(&web, soon).await.unwrap_err(), TooLate);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        bucket.turn(&web, start + Duration::from_millis(100)).await.unwrap();
        assert!(start.elapsed() < Duration::from_millis(110), "{:?}", start.elapsed());
    }

    /// The order in which calls begin that all ask at the same time.
    async fn order(bucket: &Bucket, calls: Vec<Share>) -> Vec<Share> {
        let begun = Mutex::new(Vec::new());
        let calls = calls.into_iter().map(async |call| {
            let _place = bucket.turn(&call, far()).await.unwrap();
            begun.lock().unwrap().push(call.clone());
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
        futures::future::join_all(calls).await;
        begun.into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_take_turns_and_in_them_namespaces_and_the_node_goes_first() {
        let bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 1 }, None);
        let crowd = share(Traffic::Objects, "crowd");
        let (quiet, status) = (share(Traffic::Objects, "quiet"), share(Traffic::Statuses, "crowd"));
        let node = share(Traffic::Node, "");
        let mut calls = vec![crowd.clone(); 100];
        calls.extend([quiet.clone(), status.clone(), status.clone(), node.clone()]);
        let order = order(&bucket, calls).await;
        let place = |share: &Share| order.iter().position(|one| one == share).unwrap();
        assert_eq!(order.len(), 104);
        assert_eq!(order[..2], [crowd, node.clone()]);
        assert!(place(&quiet) < 7 && place(&status) < 4, "{:?}", &order[..8]);
        assert!(order.iter().rposition(|one| *one == status).unwrap() < 6, "{:?}", &order[..8]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_not_too_late_behind_the_calls_of_others() {
        let bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 1 }, None);
        let crowd = share(Traffic::Objects, "crowd");
        let line: Vec<_> = (0..6000)
            .map(|_| {
                let (bucket, crowd) = (bucket.clone(), crowd.clone());
                tokio::spawn(async move { drop(bucket.turn(&crowd, far()).await) })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(bucket.state().lines[&Traffic::Objects].len(), 5999, "the first has begun");
        let (start, soon) = (Instant::now(), Duration::from_millis(500));
        let (quiet, web) = (share(Traffic::Objects, "quiet"), web());
        let (one, two) = tokio::join!(bucket.turn(&quiet, start + soon), bucket.turn(&web, start + soon));
        drop((one.unwrap(), two.unwrap()));
        assert!(start.elapsed() < soon, "{:?}", start.elapsed());
        assert_eq!(bucket.turn(&crowd, start + soon).await.unwrap_err(), TooLate, "behind its own");
        line.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_hang_leave_half_of_the_places() {
        let unlimited = RateLimit { per_second: 0.0, burst: 0 };
        let bucket = Bucket::new(unlimited, None).anew(4);
        let crowd = share(Traffic::Node, "crowd");
        let hung = (bucket.turn(&crowd, far()).await.unwrap(), bucket.turn(&crowd, far()).await.unwrap());
        let mut third = Box::pin(bucket.turn(&crowd, far()));
        assert!(third.as_mut().now_or_never().is_none());
        let quiet = share(Traffic::Node, "quiet");
        let (one, two) =
            (bucket.turn(&quiet, far()).await.unwrap(), bucket.turn(&quiet, far()).await.unwrap());
        let mut other = Box::pin(bucket.turn(&web(), far())).now_or_never();
        assert!(other.take().is_none(), "all places are taken");
        drop(hung);
        third.await.unwrap();
        drop((one, two));
        assert!(bucket.state().in_flight.is_empty() && bucket.state().lines.is_empty());
    }
}
