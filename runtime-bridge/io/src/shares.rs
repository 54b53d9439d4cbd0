//! Places that tenants share: the tenant with the fewest goes first, equals take turns, and none has more than half.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge_pace::FairQueue;
use tokio::sync::oneshot;

#[derive(Debug)]
struct State {
    free: usize,
    held: BTreeMap<Arc<str>, usize>,
    waiting: FairQueue<Arc<str>, oneshot::Sender<SharedPlace>>,
}

/// A number of places. Clones share them. Of tenants that wait the one with the fewest goes first, equals take turns, and none has
/// more than half.
#[derive(Clone, Debug)]
pub struct SharedPlaces {
    of_one: usize,
    state: Arc<Mutex<State>>,
}

/// A place, given back on drop.
#[derive(Debug)]
pub struct SharedPlace {
    places: SharedPlaces,
    tenant: Arc<str>,
}

impl Drop for SharedPlace {
    fn drop(&mut self) {
        let mut state = self.places.locked();
        state.free += 1;
        if let Some(count) = state.held.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(&self.tenant);
            }
        }
        drop(state);
        self.places.give();
    }
}

/// One that waits, until it is dropped.
struct Waiting<'a> {
    places: &'a SharedPlaces,
    tenant: &'a Arc<str>,
    ticket: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let left = self.places.locked().waiting.remove(self.tenant, self.ticket);
        drop(left);
    }
}

impl SharedPlaces {
    /// So many free places.
    pub fn new(count: usize) -> Self {
        let state = State { free: count, held: BTreeMap::new(), waiting: FairQueue::default() };
        Self { of_one: count.div_ceil(2).max(1), state: Arc::new(Mutex::new(state)) }
    }

    /// Places without an end, of which each tenant has at most so many.
    pub fn of_each(share: usize) -> Self {
        let state = State { free: usize::MAX, held: BTreeMap::new(), waiting: FairQueue::default() };
        Self { of_one: share.max(1), state: Arc::new(Mutex::new(state)) }
    }

    /// Waits for a place; `None` if there will be none. Work without a tenant may have all places.
    pub async fn place(&self, tenant: &str) -> Option<SharedPlace> {
        let tenant: Arc<str> = Arc::from(tenant);
        let (given, place) = oneshot::channel();
        let ticket = self.locked().waiting.push(&tenant, given);
        let _waiting = Waiting { places: self, tenant: &tenant, ticket };
        self.give();
        place.await.ok()
    }

    /// A place, if one is free for the tenant and none waits.
    pub fn try_place(&self, tenant: &str) -> Option<SharedPlace> {
        let tenant: Arc<str> = Arc::from(tenant);
        let mut state = self.locked();
        let is_free =
            state.free > 0 && state.waiting.is_empty() && self.rank(&state.held, &tenant) < self.of_one;
        if !is_free {
            return None;
        }
        *state.held.entry(tenant.clone()).or_insert(0) += 1;
        state.free -= 1;
        drop(state);
        Some(SharedPlace { places: self.clone(), tenant })
    }

    /// How many places the tenant has; work without a tenant never has its share.
    fn rank(&self, held: &BTreeMap<Arc<str>, usize>, tenant: &Arc<str>) -> usize {
        let of = held.get(tenant).copied().unwrap_or(0);
        if tenant.is_empty() { of.min(self.of_one - 1) } else { of }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives free places to those whose turn it is.
    fn give(&self) {
        let mut given = Vec::new();
        let mut state = self.locked();
        while state.free > 0 {
            let State { held, waiting, .. } = &mut *state;
            let rank = |tenant: &Arc<str>| self.rank(held, tenant);
            let Some((tenant, waiter)) = waiting.pop_fewest(self.of_one, rank) else { break };
            *state.held.entry(tenant.clone()).or_insert(0) += 1;
            state.free -= 1;
            given.push((waiter, SharedPlace { places: self.clone(), tenant }));
        }
        drop(state);
        for (waiter, place) in given {
            // One that has just left gives its place back.
            drop(waiter.send(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_tenant_has_at_most_half_and_those_that_wait_take_turns() {
        let places = SharedPlaces::new(4);
        let mut crowd: Vec<_> = (0..6).map(|_| Box::pin(places.place("crowd"))).collect();
        let mut held: Vec<_> = crowd.iter_mut().filter_map(|one| one.as_mut().now_or_never()).collect();
        assert_eq!(held.len(), 2);
        crowd.drain(..2);
        let others = (places.place("a").await, places.place("b").await);
        let (mut late, mut gone) = (Box::pin(places.place("c")), Box::pin(places.place("d")));
        assert!(late.as_mut().now_or_never().is_none() && gone.as_mut().now_or_never().is_none());
        drop(gone);
        held.pop();
        assert!(crowd[0].as_mut().now_or_never().is_none(), "it has a place");
        let late = late.now_or_never();
        assert!(late.is_some());
        drop((late, others, held));
        drop(crowd);
        let state = places.locked();
        assert_eq!((state.free, state.waiting.len(), state.held.len()), (4, 0, 0));
    }

    #[test]
    fn what_does_not_wait_has_no_more_than_its_share() {
        let places = SharedPlaces::new(4);
        let held = [places.try_place("crowd"), places.try_place("crowd")];
        assert!(held.iter().all(Option::is_some));
        assert!(places.try_place("crowd").is_none());
        let (other, of_none) = (places.try_place("other"), places.try_place(""));
        assert!(other.is_some() && of_none.is_some() && places.try_place("").is_none());
        drop((held, other, of_none));
        let state = places.locked();
        assert_eq!((state.free, state.held.len()), (4, 0));
    }

    #[tokio::test]
    async fn where_each_has_its_own_places_none_waits_for_another() {
        let places = SharedPlaces::of_each(2);
        let mut held = Vec::new();
        for tenant in ["a", "b", "c"] {
            held.extend([places.place(tenant).now_or_never(), places.place(tenant).now_or_never()]);
            assert!(places.place(tenant).now_or_never().is_none(), "{tenant} has its share");
        }
        assert!(held.iter().flatten().all(Option::is_some) && held.iter().flatten().count() == 6);
        drop(held);
        let state = places.locked();
        assert_eq!((state.free, state.held.len(), state.waiting.len()), (usize::MAX, 0, 0));
    }

    #[tokio::test]
    async fn work_of_no_tenant_may_have_all_places() {
        let places = SharedPlaces::new(3);
        let held = [places.place("").await, places.place("").await, places.place("").await];
        assert!(places.place("").now_or_never().is_none());
        drop(held);
        assert!(places.place("").now_or_never().is_some());
    }
}
