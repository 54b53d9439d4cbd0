//! The context that actors run on: an ordinary actix context, with effects, streams and timers that belong
//! to the incarnation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix::dev::{AsyncContextParts, ContextParts};
use actix::{Actor, ActorContext, ActorFuture, ActorState, Addr, AsyncContext, SpawnHandle};
use futures::Stream;
use messages::PodUid;
use tokio_util::time::{DelayQueue, delay_queue};

use crate::blame;
use crate::cell::Cell;
use crate::effects::{Effect, Effects, Task, Then, Work};
use crate::streams::{Flow, Streams};
use crate::tree::Tree;

/// An actor under supervision.
pub trait Subsystem: Actor<Context = Ctx<Self>> {
    /// The actor's name in the supervision tree: the constant `RECEIVER` of its file in `messages`.
    const NAME: &'static str;
    /// The key of the actor's timers: one timer runs per value.
    type Timer: Ord + Clone + Debug + Unpin + 'static;

    /// Each incarnation begins here, with fresh state: it rebuilds the state from its sources and asks for
    /// resends.
    fn on_start(&mut self, _ctx: &mut Ctx<Self>) {}

    /// A timer set with [`Ctx::set_timer`] has run out.
    fn on_timer(&mut self, _timer: Self::Timer, _ctx: &mut Ctx<Self>) {}

    /// The pod of a timer: a panic in [`Subsystem::on_timer`] counts against that pod.
    fn timer_pod(_timer: &Self::Timer) -> Option<PodUid> {
        None
    }

    /// The quarantine of this pod is over: the actor does the steps that [`Ctx::for_pod`] has left out
    /// meanwhile. Messages, timers and effects of the pod are delivered again without this call.
    fn on_release(&mut self, _pod: &PodUid, _ctx: &mut Ctx<Self>) {}

    /// The state that `/supervision` shows, small: counts rather than objects.
    fn observe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Names an effect or stream of one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EffectId(pub(crate) u64);

/// The context of a supervised actor.
pub struct Ctx<A: Subsystem> {
    parts: ContextParts<A>,
    incarnation: u64,
    pub(crate) effects: Effects<A>,
    pub(crate) streams: Streams<A>,
    pub(crate) timers: Timers<A::Timer>,
    pub(crate) cell: Arc<Cell>,
    pub(crate) tree: Tree,
    next_id: u64,
}

impl<A: Subsystem> Ctx<A> {
    /// `messages_max` is the bound of the actor's mailbox.
    pub(crate) fn new(
        parts: ContextParts<A>,
        incarnation: u64,
        cell: Arc<Cell>,
        tree: Tree,
        messages_max: usize,
    ) -> Self {
        Self {
            parts,
            incarnation,
            effects: Effects::new(cell.clone(), tree.history().clone(), messages_max),
            streams: Streams::default(),
            timers: Timers { queue: None, keys: BTreeMap::new() },
            cell,
            tree,
            next_id: 0,
        }
    }

    /// 1 for the first incarnation, then 2, 3, …
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Runs one step of a loop, or of a stream, on behalf of a pod: a panic in the step counts against that
    /// pod. While the pod is quarantined here the step is left out and the result is `None`;
    /// [`Subsystem::on_release`] is called when the quarantine is over.
    pub fn for_pod<T>(&mut self, pod: &PodUid, step: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (!self.is_quarantined(pod)).then(|| blame::for_pod(pod, || step(self)))
    }

    /// Whether this subsystem has quarantined the pod.
    pub fn is_quarantined(&self, pod: &PodUid) -> bool {
        self.cell.is_quarantined(pod)
    }

    /// The pods that this subsystem has quarantined: for loops that must not be left early, or that are pure.
    pub fn quarantined(&self) -> BTreeSet<PodUid> {
        self.cell.quarantine_list().into_keys().collect()
    }

    /// Runs `work` as a task that belongs to this incarnation and is aborted with it; when it is done, `then`
    /// runs on the actor. A panic in either is a panic of the actor, counted against `pod` if given. Work for
    /// a quarantined pod begins when the quarantine is over. When as much waits for that as may
    /// wait (1024, or the bound of the mailbox if that is more), the actor restarts as if it had panicked for this pod.
    ///
    /// `what` is the effect's name. A bare name has the tree's default deadline; [`Effect::within`] gives
    /// another one, [`Effect::lasting`] none. An effect that passes its deadline is reported and dropped, and
    /// the actor restarts as if the effect had panicked: its state counts on a result that does not come, and
    /// a restart, which rebuilds the state, is the one recovery that every actor has and that is tested for
    /// each of its messages.
    pub fn effect<T: Send + 'static>(
        &mut self,
        what: impl Into<Effect>,
        pod: Option<PodUid>,
        work: impl Future<Output = T> + Send + 'static,
        then: impl FnOnce(&mut A, T, &mut Self) + Send + 'static,
    ) -> EffectId {
        let id = self.next_id();
        // Boxed, so that all effects of an actor have one type: tokio compiles a task's code for each type of
        // future.
        let work: Work<A> = Box::pin(async move {
            let value = work.await;
            Box::new(move |actor: &mut A, ctx: &mut Self| then(actor, value, ctx)) as Then<A>
        });
        let what = what.into();
        let task = Task { name: what.name, pod, within: what.limit.or(self.tree.effect_within()), work };
        match task.pod.clone().filter(|pod| self.is_quarantined(pod)) {
            Some(pod) => blame::for_pod(&pod, || self.effects.held.push(&pod, id, task)),
            None => self.effects.start(id, task),
        }
        id
    }

    /// Starts the effects that waited for the end of the pod's quarantine.
    pub(crate) fn start_held(&mut self, pod: &PodUid) {
        for (id, task) in self.effects.held.take(pod) {
            self.effects.start(id, task);
        }
    }

    /// Aborts an effect or a stream: its continuation never runs. A blocking call or a call to the container
    /// runtime that the effect has begun runs to its own end in the bridge; a call that is still queued does
    /// not begin.
    pub fn cancel_effect(&mut self, id: EffectId) {
        if !self.effects.cancel(id) {
            self.streams.cancel(id);
        }
    }

    /// Calls `each` for every item of a stream, and `end` when it ends.
    pub fn stream<T: Send + 'static>(
        &mut self,
        name: &'static str,
        stream: impl Stream<Item = T> + Send + 'static,
        each: impl FnMut(&mut A, T, &mut Self) + Send + 'static,
        end: impl FnOnce(&mut A, &mut Self) + Send + 'static,
    ) -> EffectId {
        let id = self.next_id();
        self.streams.add(id, Box::new(Flow { name, stream: Box::pin(stream), each, end: Some(end) }));
        id
    }

    /// Sets the timer, or moves it if it is set. Any length is allowed: lengths come from numbers of the API
    /// unchecked.
    pub fn set_timer(&mut self, timer: A::Timer, after: Duration) {
        self.timers.set(timer, after);
    }

    /// Cancels the timer, if it is set.
    pub fn cancel_timer(&mut self, timer: &A::Timer) {
        self.timers.cancel(timer);
    }

    fn next_id(&mut self) -> EffectId {
        self.next_id += 1;
        EffectId(self.next_id)
    }
}

/// The longest wait given to the queue at once: the queue takes no more than about two years.
const AT_ONCE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

pub(crate) struct Timers<K> {
    // The queue takes some kilobytes, so it is made with the first timer: many actors never set one.
    queue: Option<DelayQueue<K>>,
    keys: BTreeMap<K, Waiting>,
}

struct Waiting {
    key: delay_queue::Key,
    /// How long the timer still waits after the queue gives it back.
    rest: Duration,
}

impl<K: Ord + Clone> Timers<K> {
    /// Sets a timer of any length: one that is longer than the queue takes is put into the queue again for
    /// the rest, and runs out only after that.
    fn set(&mut self, timer: K, after: Duration) {
        let queue = self.queue.get_or_insert_with(DelayQueue::new);
        let now = after.min(AT_ONCE_MAX);
        let rest = after.saturating_sub(now);
        if let Some(waiting) = self.keys.get_mut(&timer) {
            queue.reset(&waiting.key, now);
            waiting.rest = rest;
        } else {
            let key = queue.insert(timer.clone(), now);
            self.keys.insert(timer, Waiting { key, rest });
        }
    }

    fn cancel(&mut self, timer: &K) {
        if let (Some(waiting), Some(queue)) = (self.keys.remove(timer), &mut self.queue) {
            queue.remove(&waiting.key);
        }
    }

    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<K> {
        loop {
            let Some(queue) = &mut self.queue else { return Poll::Pending };
            let Poll::Ready(Some(expired)) = queue.poll_expired(cx) else { return Poll::Pending };
            let timer = expired.into_inner();
            match self.keys.remove(&timer) {
                Some(waiting) if !waiting.rest.is_zero() => self.set(timer, waiting.rest),
                _ => return Poll::Ready(timer),
            }
        }
    }
}

impl<A: Subsystem> ActorContext for Ctx<A> {
    fn stop(&mut self) {
        self.parts.stop();
    }

    fn terminate(&mut self) {
        self.parts.terminate();
    }

    fn state(&self) -> ActorState {
        self.parts.state()
    }
}

impl<A: Subsystem> AsyncContext<A> for Ctx<A> {
    fn address(&self) -> Addr<A> {
        self.parts.address()
    }

    fn spawn<F: ActorFuture<A, Output = ()> + 'static>(&mut self, fut: F) -> SpawnHandle {
        self.parts.spawn(fut)
    }

    fn wait<F: ActorFuture<A, Output = ()> + 'static>(&mut self, fut: F) {
        self.parts.wait(fut);
    }

    fn waiting(&self) -> bool {
        self.parts.waiting()
    }

    fn cancel_future(&mut self, handle: SpawnHandle) -> bool {
        self.parts.cancel_future(handle)
    }
}

impl<A: Subsystem> AsyncContextParts<A> for Ctx<A> {
    fn parts(&mut self) -> &mut ContextParts<A> {
        &mut self.parts
    }
}
