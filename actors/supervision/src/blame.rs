//! Which pod a panic counts against: the pod on whose behalf the thread works. The pump runs messages,
//! effects and timers that name a pod under that pod's name; a loop over pods, or a stream, names the pod of
//! each step itself.
//!
//! The name is only read when a panic happens, so it decides nothing and pure code may use it.

use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use bridge_pace::panics as places;
use messages::PodUid;

thread_local! {
    // The actor that this thread polls.
    static POLLED: RefCell<Option<Arc<dyn Polled>>> = const { RefCell::new(None) };
    static POD: RefCell<Option<PodUid>> = const { RefCell::new(None) };
    // The pod of the panic that this thread unwinds from; its place is noted where the bridge knows of it, too.
    static NOTED: RefCell<Option<PodUid>> = const { RefCell::new(None) };
}

/// Runs one step on behalf of a pod: a panic in the step counts against that pod. The innermost name counts.
pub fn for_pod<T>(pod: &PodUid, step: impl FnOnce() -> T) -> T {
    let _named = name(pod);
    step()
}

/// As [`for_pod`], for a step of a loop over pods that has to come to its end, so that the actor does not end at the same pod
/// again and again: the panic of a pod that the actor has quarantined leaves out that step alone.
pub fn step<T>(pod: &PodUid, step: impl FnOnce() -> T) -> Option<T> {
    let panic = match catch_unwind(AssertUnwindSafe(|| for_pod(pod, step))) {
        Ok(value) => return Some(value),
        Err(panic) => panic,
    };
    if !POLLED.with(|polled| polled.borrow().as_ref().is_some_and(|actor| actor.has_quarantined(pod))) {
        resume_unwind(panic);
    }
    let place = places::take().unwrap_or_default();
    take_noted();
    tracing::error!(%pod, place, "A step for a pod in quarantine panicked and is left out");
    None
}

/// An actor that a thread polls.
pub(crate) trait Polled {
    fn has_quarantined(&self, pod: &PodUid) -> bool;
}

/// Notes which actor this thread polls from now on.
pub(crate) fn polls(actor: Option<Arc<dyn Polled>>) {
    POLLED.with(|polled| *polled.borrow_mut() = actor);
}

/// As [`for_pod`], for the rest of a block, such as the body of a loop: the name holds until the returned
/// value is dropped.
#[must_use = "the name holds for as long as this is kept"]
pub fn name(pod: &PodUid) -> Named {
    let named =
        Named { outer: POD.with(|current| current.replace(Some(pod.clone()))), _of_thread: PhantomData };
    #[cfg(feature = "faults")]
    poison::maybe_panic(pod);
    named
}

/// Runs asynchronous work on behalf of a pod, as [`for_pod`] does: for effects that work on many pods.
pub async fn work_for_pod<T>(pod: &PodUid, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|cx| for_pod(pod, || under(pod, || work.as_mut().poll(cx)))).await
}

/// Does a step for a pod. A panic that comes over from another thread, where this thread's names are not known, is put down
/// to the pod before it goes on.
fn under<T>(pod: &PodUid, step: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        NOTED.with(|noted| {
            noted.borrow_mut().get_or_insert_with(|| pod.clone());
        });
        resume_unwind(panic)
    })
}

/// Notes the pod of a panic; the panic hook does.
pub(crate) fn note(pod: Option<PodUid>) {
    NOTED.with(|noted| *noted.borrow_mut() = pod);
}

/// The pod that was noted last; it is noted no longer.
pub(crate) fn take_noted() -> Option<PodUid> {
    NOTED.with(|noted| noted.borrow_mut().take())
}

/// The pod that the current thread works for. The panic hook reads it.
pub(crate) fn current() -> Option<PodUid> {
    POD.try_with(|pod| pod.try_borrow().ok().and_then(|pod| pod.clone())).ok().flatten()
}

/// The name of a pod on this thread; its drop restores the name before it, also while unwinding.
#[derive(Debug)]
pub struct Named {
    outer: Option<PodUid>,
    // The name belongs to the thread, so this value must not leave it.
    _of_thread: PhantomData<*const ()>,
}

impl Drop for Named {
    fn drop(&mut self) {
        POD.with(|current| *current.borrow_mut() = self.outer.take());
    }
}

/// Poison that tests have ordered: pods for which every step panics in the actor that is being polled.
#[cfg(feature = "faults")]
pub(crate) mod poison {
    use std::cell::RefCell;

    use messages::PodUid;

    thread_local! {
        static ARMED: RefCell<Vec<(PodUid, u32)>> = const { RefCell::new(Vec::new()) };
    }

    /// Swaps the thread's orders with those of this actor; called before and after the actor's poll.
    pub fn exchange(orders: &mut Vec<(PodUid, u32)>) {
        ARMED.with(|armed| std::mem::swap(&mut *armed.borrow_mut(), orders));
    }

    pub(super) fn maybe_panic(pod: &PodUid) {
        let due = ARMED.with(|armed| {
            let mut armed = armed.borrow_mut();
            let order = armed.iter_mut().find(|(poisoned, left)| poisoned == pod && *left > 0);
            order.is_some_and(|(_, left)| {
                *left -= 1;
                true
            })
        });
        assert!(!due, "fault: poison pod {pod}");
    }
}
