//! The pump feeds one incarnation: results of effects, timers, streams, then messages, one at a time and with
//! a budget, so that a flooded actor cannot starve its thread. It is the one future that actix polls for the
//! actor.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix::{ActorFuture, AsyncContext};
use messages::{Kind, PodUid};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::blame;
use crate::cell::Vitality;
use crate::context::{Ctx, Subsystem};
use crate::effects::Failed;
use crate::envelope::Entry;
use crate::events::EventKind;
use crate::faults::Faults;
use crate::mailbox::Mailbox;
use crate::panics::{self, PanicReport};
use crate::streams::Flowed;

/// Pieces of work done in one poll before the thread's other actors run.
const BUDGET: usize = 128;
/// How long one poll goes on with further pieces: of work that takes long, fewer are done before the others run.
const SLICE: Duration = Duration::from_millis(10);
/// Messages handled before the pump looks at effects, timers and streams again.
const BATCH: usize = 8;
/// Of messages that an actor other than the pod's worker handles, those that took so long stand in the pod's history: most take
/// microseconds, and each change of a pod is told to ten actors.
const NOTED_FROM: Duration = Duration::from_millis(1);
/// By how much a timer of a quarantined pod is put off.
const QUARANTINED_TIMER: Duration = Duration::from_secs(5);

/// What the driver and the pump of one actor share, on one thread.
pub(crate) struct Lane<A: Subsystem> {
    /// When the oldest ping came that the pump has not seen yet.
    pub ping: Option<Instant>,
    pub observers: Vec<oneshot::Sender<Value>>,
    pub faults: Faults<A>,
    /// The panic, or the missed deadline, of an effect whose actor is being unwound for it: the driver reads
    /// it here.
    pub effect_panic: Option<PanicReport>,
    /// Pods whose quarantine is over and of which the incarnation has not been told yet.
    pub released: Vec<PodUid>,
}

impl<A: Subsystem> Default for Lane<A> {
    fn default() -> Self {
        Self {
            ping: None,
            observers: Vec::new(),
            faults: Faults::default(),
            effect_panic: None,
            released: Vec::new(),
        }
    }
}

/// One poll, from its beginning.
#[derive(Clone, Copy)]
struct Slice(Instant);

impl Slice {
    /// Whether more is done in this poll, after so many pieces of which `max` may be done: in any case one.
    fn goes_on(self, done: usize, max: usize) -> bool {
        done == 0 || (done < max && self.0.elapsed() < SLICE)
    }
}

pub(crate) struct Pump<A: Subsystem> {
    mailbox: Arc<Mailbox<A>>,
    lane: Rc<RefCell<Lane<A>>>,
    started: bool,
}

impl<A: Subsystem> Pump<A> {
    pub fn new(mailbox: Arc<Mailbox<A>>, lane: Rc<RefCell<Lane<A>>>) -> Self {
        Self { mailbox, lane, started: false }
    }

    fn effects(
        actor: &mut A,
        ctx: &mut Ctx<A>,
        cx: &mut Context<'_>,
        lane: &RefCell<Lane<A>>,
        slice: Slice,
    ) -> usize {
        let mut done = 0;
        while slice.goes_on(done, BUDGET)
            && !ctx.waiting()
            && let Poll::Ready(effect) = ctx.effects.poll_done(cx)
        {
            done += 1;
            if let Err(Failed::Overdue(within)) = &effect.then {
                let (effect, pod) = (effect.name, effect.pod.clone());
                ctx.tree.emit(&ctx.cell, EventKind::EffectOverdue { effect, pod, seconds: within.as_secs() });
            }
            let of = effect.pod.clone();
            work(actor, ctx, lane, effect.name, effect.pod, |actor, ctx| match effect.then {
                Ok(then) => then(actor, ctx),
                Err(failed) => {
                    lane.borrow_mut().effect_panic = Some(failed.report(effect.name, of.as_ref()));
                    // The panic goes on where it belongs: in the actor that started the effect.
                    std::panic::resume_unwind(Box::new(EffectPanicked));
                }
            });
        }
        done
    }

    /// Starts the held effects of released pods, and tells the actor of the release.
    fn releases(&self, actor: &mut A, ctx: &mut Ctx<A>) -> usize {
        if ctx.waiting() {
            return 0;
        }
        let released = std::mem::take(&mut self.lane.borrow_mut().released);
        for pod in &released {
            ctx.start_held(pod);
            work(actor, ctx, &self.lane, "released", Some(pod.clone()), |actor, ctx| {
                actor.on_release(pod, ctx);
            });
        }
        released.len()
    }

    fn timers(&self, actor: &mut A, ctx: &mut Ctx<A>, cx: &mut Context<'_>, slice: Slice) -> usize {
        let mut done = 0;
        while slice.goes_on(done, BUDGET)
            && !ctx.waiting()
            && let Poll::Ready(timer) = ctx.timers.poll_expired(cx)
        {
            done += 1;
            let pod = A::timer_pod(&timer);
            if pod.as_ref().is_some_and(|pod| self.mailbox.is_quarantined(pod)) {
                // Put off as the pod's messages are, and set again until the release.
                ctx.set_timer(timer, QUARANTINED_TIMER);
                continue;
            }
            work(actor, ctx, &self.lane, "timer", pod, |actor, ctx| actor.on_timer(timer, ctx));
        }
        done
    }

    fn streams(actor: &mut A, ctx: &mut Ctx<A>, cx: &mut Context<'_>, lane: &RefCell<Lane<A>>) -> usize {
        let mut done = 0;
        for id in ctx.streams.take_woken(cx) {
            if ctx.waiting() {
                ctx.streams.wake(id);
                continue;
            }
            let Some((mut source, waker)) = ctx.streams.take(id) else { continue };
            ctx.cell.begin(source.name(), None);
            let since = Instant::now();
            Faults::<A>::maybe_panic(lane, source.name());
            let flowed = source.poll_once(actor, ctx, &mut Context::from_waker(&waker));
            ctx.cell.end();
            match flowed {
                Flowed::Quiet => ctx.streams.put_back(id, source),
                Flowed::Item => {
                    ctx.streams.put_back(id, source);
                    // Only another poll tells whether the stream has more items.
                    ctx.streams.wake(id);
                }
                Flowed::Ended => ctx.streams.cancel(id),
            }
            if !matches!(flowed, Flowed::Quiet) {
                done += 1;
                ctx.cell.counters.handled(since.elapsed());
            }
        }
        done
    }

    fn messages(&self, actor: &mut A, ctx: &mut Ctx<A>, cx: &mut Context<'_>, slice: Slice) -> usize {
        let mut done = 0;
        while slice.goes_on(done, BATCH) && !ctx.waiting() {
            let delayed = self.lane.borrow_mut().faults.poll_delayed(cx);
            // A message that a fault has delayed or duplicated is not subject to faults again.
            let fresh = delayed.is_none();
            let Some(entry) = delayed.or_else(|| self.mailbox.pop()) else { break };
            done += 1;
            if entry.kind == Kind::Query && entry.envelope.asker_gone() {
                ctx.cell.counters.skipped();
                continue;
            }
            let met = if fresh { self.lane.borrow_mut().faults.meet(entry, &ctx.cell) } else { Some(entry) };
            let Some(Entry { name, pod, envelope, .. }) = met else { continue };
            let (of, since) = (pod.clone(), Instant::now());
            work(actor, ctx, &self.lane, name, pod, |actor, ctx| envelope.handle(actor, ctx));
            note(ctx, of.as_ref(), name, since.elapsed());
        }
        done
    }
}

/// Marks the unwind by which an effect's panic is raised again in its actor.
pub(crate) struct EffectPanicked;

/// Notes in a pod's history that a message has been handled: by the pod's own worker, or in a time that may be of interest.
fn note<A: Subsystem>(ctx: &Ctx<A>, pod: Option<&PodUid>, what: &'static str, took: Duration) {
    let is_of_interest = ctx.cell.vitality == Vitality::Child || took >= NOTED_FROM;
    if let Some(pod) = pod.filter(|_| is_of_interest) {
        ctx.tree.history().handled(pod.as_str(), ctx.cell.kind, what, took);
    }
}

/// Does one piece of work, which the actor's cell shows while it lasts.
fn work<A: Subsystem>(
    actor: &mut A,
    ctx: &mut Ctx<A>,
    lane: &RefCell<Lane<A>>,
    what: &'static str,
    pod: Option<PodUid>,
    run: impl FnOnce(&mut A, &mut Ctx<A>),
) {
    ctx.cell.begin(what, pod.clone());
    let since = Instant::now();
    Faults::<A>::maybe_panic(lane, what);
    match &pod {
        Some(pod) => blame::for_pod(pod, || run(actor, ctx)),
        None => run(actor, ctx),
    }
    ctx.cell.end();
    ctx.cell.counters.handled(since.elapsed());
}

/// What the actor shows. That it cannot be shown is no reason to end it: showing changes nothing, and a client may ask often.
fn observed<A: Subsystem>(actor: &A) -> serde_json::Value {
    panics::catch(|| actor.observe()).unwrap_or_else(|panic| {
        tracing::error!(actor = A::NAME, %panic, "the actor's state cannot be shown");
        serde_json::json!({ "panicked": panic.to_string() })
    })
}

impl<A: Subsystem> ActorFuture<A> for Pump<A> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, actor: &mut A, ctx: &mut Ctx<A>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.lane.borrow_mut().faults.stalled(cx) {
            return Poll::Pending;
        }
        if !this.started {
            this.started = true;
            work(actor, ctx, &this.lane, "starting", None, |actor, ctx| actor.on_start(ctx));
        }
        let observers = {
            let mut lane = this.lane.borrow_mut();
            lane.ping = None;
            std::mem::take(&mut lane.observers)
        };
        for observer in observers {
            let _asker_gone = observer.send(observed(actor));
        }
        Faults::<A>::maybe_panic_now(&this.lane);
        let (mut spent, slice) = (0, Slice(Instant::now()));
        while !ctx.waiting() {
            let done = this.releases(actor, ctx)
                + Self::effects(actor, ctx, cx, &this.lane, slice)
                + this.timers(actor, ctx, cx, slice)
                + Self::streams(actor, ctx, cx, &this.lane)
                + this.messages(actor, ctx, cx, slice);
            if done == 0 {
                break;
            }
            spent += done;
            if !slice.goes_on(spent, BUDGET) {
                // Polled again after what other threads have woken meanwhile: a plain wake would come before them.
                let _later = std::pin::pin!(tokio::task::yield_now()).poll(cx);
                break;
            }
            if this.lane.borrow_mut().faults.stalled(cx) {
                break;
            }
        }
        Poll::Pending
    }
}
