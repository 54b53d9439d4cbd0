//! Questions under way; callers that ask the same question share one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};

use super::ReviewError;

type Asking<V> = BoxFuture<'static, Result<V, ReviewError>>;
/// Questions by key; the number tells apart two that were asked one after the other.
type ByKey<K, V> = BTreeMap<K, (u64, WeakShared<Asking<V>>)>;
type Askings<K, V> = Arc<Mutex<ByKey<K, V>>>;

/// The questions under way, by their content. A question is cancelled when its last caller has gone.
#[derive(Debug)]
pub(super) struct ReviewsInFlight<K: Ord, V>(Askings<K, V>, AtomicU64);

/// Forgets a question when it ends, but not a newer one under the same key: a cancelled question is replaceable before
/// this runs.
struct InFlightGuard<K: Ord, V: Clone>(Askings<K, V>, K, u64);

fn locked<K, V: Clone>(askings: &Askings<K, V>) -> MutexGuard<'_, ByKey<K, V>> {
    askings.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Ord, V: Clone> Drop for InFlightGuard<K, V> {
    fn drop(&mut self) {
        let mut askings = locked(&self.0);
        if askings.get(&self.1).is_some_and(|(nth, _)| *nth == self.2) {
            askings.remove(&self.1);
        }
    }
}

impl<K: Ord + Clone + Send + 'static, V: Clone + Send + Sync + 'static> ReviewsInFlight<K, V> {
    pub(super) fn new() -> Self {
        Self(Arc::default(), AtomicU64::new(0))
    }

    /// The answer to a question; `ask` is called unless the question is under way.
    pub(super) fn join<F>(&self, key: K, ask: impl FnOnce() -> F) -> Shared<Asking<V>>
    where
        F: Future<Output = Result<V, ReviewError>> + Send + 'static,
    {
        let mut askings = locked(&self.0);
        if let Some(asking) = askings.get(&key).and_then(|(_, asking)| asking.upgrade()) {
            return asking;
        }
        let nth = self.1.fetch_add(1, Ordering::Relaxed);
        let (work, landing) = (ask(), InFlightGuard(self.0.clone(), key.clone(), nth));
        let asking = async move {
            let _landing = landing;
            work.await
        };
        let asking = asking.boxed().shared();
        askings.extend(asking.downgrade().map(|weak| (key, (nth, weak))));
        asking
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn equal_questions_are_asked_once_and_given_up_with_the_last_asker() {
        let in_flight: ReviewsInFlight<u32, u32> = ReviewsInFlight::new();
        let (asked, answered, go) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let ask = |key| {
            in_flight.join(key, || {
                asked.fetch_add(1, Ordering::Relaxed);
                let (answered, go) = (answered.clone(), go.clone());
                async move {
                    go.notified().await;
                    answered.fetch_add(1, Ordering::Relaxed);
                    Ok(key)
                }
            })
        };
        let (one, two, other) = (ask(1), ask(1), ask(2));
        assert_eq!((one.clone().now_or_never(), other.clone().now_or_never()), (None, None));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        drop((one, other));
        assert_eq!(in_flight.0.lock().unwrap().len(), 1, "nobody asks for the other one any more");
        go.notify_one();
        assert_eq!(two.await, Ok(1));
        assert_eq!(answered.load(Ordering::Relaxed), 1);
        assert!(in_flight.0.lock().unwrap().is_empty());
        drop(ask(1));
        assert_eq!(asked.load(Ordering::Relaxed), 3, "a later one is asked anew");
    }

    type Kept = Arc<Mutex<Option<Shared<Asking<u32>>>>>;

    /// Asks the same question again while the earlier one is being cancelled.
    struct AskAgain(Arc<ReviewsInFlight<u32, u32>>, Kept);

    impl Drop for AskAgain {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = Some(self.0.join(1, || std::future::ready(Ok(2))));
        }
    }

    #[tokio::test]
    async fn what_is_given_up_late_forgets_no_newer_question() {
        let (in_flight, newer) = (Arc::new(ReviewsInFlight::<u32, u32>::new()), Kept::default());
        let again = AskAgain(in_flight.clone(), newer.clone());
        let first = in_flight.join(1, || async move {
            let _again = again;
            std::future::pending().await
        });
        assert_eq!(first.clone().now_or_never(), None);
        drop(first);
        assert_eq!(in_flight.0.lock().unwrap().len(), 1, "the newer one is still being asked");
        let joined = in_flight.join(1, || std::future::ready(Ok(3)));
        assert_eq!(joined.await, Ok(2));
        newer.lock().unwrap().take();
    }
}
