//! The streams of one incarnation. Each has a waker of its own, so that a wake polls only the streams that
//! woke, however many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::Stream;
use futures::task::AtomicWaker;

use crate::context::{Ctx, EffectId, Subsystem};

/// What a stream's poll led to.
pub(crate) enum Flowed {
    Item,
    Ended,
    Quiet,
}

/// A stream with its item type erased.
pub(crate) trait Source<A: Subsystem> {
    fn name(&self) -> &'static str;
    fn poll_once(&mut self, actor: &mut A, ctx: &mut Ctx<A>, cx: &mut Context<'_>) -> Flowed;
}

pub(crate) struct Flow<T, F, E> {
    pub name: &'static str,
    pub stream: Pin<Box<dyn Stream<Item = T> + Send>>,
    pub each: F,
    pub end: Option<E>,
}

impl<A, T, F, E> Source<A> for Flow<T, F, E>
where
    A: Subsystem,
    F: FnMut(&mut A, T, &mut Ctx<A>),
    E: FnOnce(&mut A, &mut Ctx<A>),
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn poll_once(&mut self, actor: &mut A, ctx: &mut Ctx<A>, cx: &mut Context<'_>) -> Flowed {
        match self.stream.as_mut().poll_next(cx) {
            Poll::Ready(Some(item)) => {
                (self.each)(actor, item, ctx);
                Flowed::Item
            }
            Poll::Ready(None) => {
                if let Some(end) = self.end.take() {
                    end(actor, ctx);
                }
                Flowed::Ended
            }
            Poll::Pending => Flowed::Quiet,
        }
    }
}

/// A stream and its waker. The source is taken out while it is polled, so that its items may add and cancel
/// streams.
struct Held<A: Subsystem> {
    source: Option<Box<dyn Source<A>>>,
    waker: Waker,
}

pub(crate) struct Streams<A: Subsystem> {
    all: BTreeMap<EffectId, Held<A>>,
    woken: Arc<Woken>,
}

impl<A: Subsystem> Default for Streams<A> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), woken: Arc::default() }
    }
}

impl<A: Subsystem> Streams<A> {
    pub fn add(&mut self, id: EffectId, source: Box<dyn Source<A>>) {
        let waker = Waker::from(Arc::new(StreamWaker { id, woken: self.woken.clone() }));
        self.all.insert(id, Held { source: Some(source), waker });
        self.wake(id);
    }

    pub fn cancel(&mut self, id: EffectId) {
        self.all.remove(&id);
    }

    /// Marks the stream to be polled, and wakes the actor.
    pub fn wake(&self, id: EffectId) {
        self.woken.wake(id);
    }

    /// Takes the streams that have woken since the last call, in the order in which they were added. A stream
    /// that wakes later wakes the actor.
    pub fn take_woken(&self, cx: &mut Context<'_>) -> BTreeSet<EffectId> {
        self.woken.task.register(cx.waker());
        std::mem::take(&mut *self.woken.ids())
    }

    /// Takes a stream out to poll it; nothing if it was cancelled.
    pub fn take(&mut self, id: EffectId) -> Option<(Box<dyn Source<A>>, Waker)> {
        let held = self.all.get_mut(&id)?;
        Some((held.source.take()?, held.waker.clone()))
    }

    /// Puts a stream back, unless it was cancelled meanwhile.
    pub fn put_back(&mut self, id: EffectId, source: Box<dyn Source<A>>) {
        if let Some(held) = self.all.get_mut(&id) {
            held.source = Some(source);
        }
    }
}

/// The streams that are to be polled, and the waker of the actor that polls them.
#[derive(Default)]
struct Woken {
    ids: Mutex<BTreeSet<EffectId>>,
    task: AtomicWaker,
}

impl Woken {
    fn ids(&self) -> MutexGuard<'_, BTreeSet<EffectId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, id: EffectId) {
        // A stream that is in the set already has woken the actor.
        if self.ids().insert(id) {
            self.task.wake();
        }
    }
}

struct StreamWaker {
    id: EffectId,
    woken: Arc<Woken>,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.wake(self.id);
    }
}
