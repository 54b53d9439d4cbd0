//! How a context treats the futures that belong to it.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::dev::ContextFut;
use actix::{
    Actor, ActorContext, AsyncContext, Context, SpawnHandle, Supervised, Supervisor, WrapFuture,
    fut::ActorFutureExt,
};
use futures::task::noop_waker;

use crate::world::{Count, Later, Plain, Seen, Stop, on_one_thread, settle};

#[test]
fn a_response_future_outlives_a_restart() {
    on_one_thread(async {
        let seen = Seen::default();
        let plain = Plain::new(&seen);
        let addr = Supervisor::start(move |_| plain);
        let ask = addr.send(Later(100));
        settle().await;
        addr.send(Stop).await.unwrap();
        settle().await;
        assert_eq!(Seen::of(&seen.restarting), 1);
        assert_eq!(ask.await, Ok(()), "the answer of the earlier incarnation still comes");
        assert_eq!(Seen::of(&seen.late), 1, "and its effect happened");
    });
}

#[test]
fn every_wake_polls_all_futures_of_the_actor() {
    on_one_thread(async {
        struct Many(Arc<AtomicU64>);
        impl Actor for Many {
            type Context = Context<Self>;
            fn started(&mut self, ctx: &mut Self::Context) {
                for _ in 0..100 {
                    let polls = self.0.clone();
                    let never = std::future::poll_fn(move |_| {
                        polls.fetch_add(1, Ordering::SeqCst);
                        std::task::Poll::<()>::Pending
                    });
                    ctx.spawn(never.into_actor(self));
                }
                ctx.run_later(Duration::from_secs(1), |_, _| ());
            }
        }
        let polls = Arc::new(AtomicU64::new(0));
        let _addr = Many(polls.clone()).start();
        settle().await;
        let before = polls.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let more = polls.load(Ordering::SeqCst) - before;
        assert!(more >= 100, "one timer woke {more} futures that had nothing to do");
    });
}

/// A future that ticks for ever, and counts how often it was polled.
struct Ticking {
    polled: Rc<Cell<u64>>,
    handle: Rc<Cell<SpawnHandle>>,
}

impl Actor for Ticking {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let polled = self.polled.clone();
        let never = std::future::poll_fn(move |_| {
            polled.set(polled.get() + 1);
            std::task::Poll::<()>::Pending
        });
        self.handle.set(ctx.spawn(never.into_actor(self).map(|(), _, _| ())));
    }
}

impl Supervised for Ticking {}

type Body = ContextFut<Ticking, Context<Ticking>>;

fn ticking() -> (Body, Rc<Cell<u64>>, Rc<Cell<SpawnHandle>>) {
    let (polled, handle) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(SpawnHandle::default())));
    let actor = Ticking { polled: polled.clone(), handle: handle.clone() };
    (Context::new().into_future(actor), polled, handle)
}

fn poll_once(body: &mut Body) {
    let waker = noop_waker();
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(Pin::new(body).poll(&mut cx).is_pending());
}

#[test]
fn restart_keeps_pending_cancels_and_numbers_handles_anew() {
    let (mut body, polled, handle) = ticking();
    let _addr = body.address();
    poll_once(&mut body);
    let first = handle.get();
    // The first incarnation cancels its future, and crashes before its context comes to it.
    body.ctx().cancel_future(first);
    assert!(body.restart());
    polled.set(0);
    poll_once(&mut body);
    assert_eq!(handle.get(), first, "the next incarnation's future has the same handle");
    poll_once(&mut body);
    assert_eq!(polled.get(), 0, "so the old cancel killed the new future before its first poll");
}

#[test]
fn without_a_stale_cancel_the_next_incarnations_future_lives() {
    let (mut body, polled, _) = ticking();
    let _addr = body.address();
    poll_once(&mut body);
    assert!(body.restart());
    polled.set(0);
    poll_once(&mut body);
    poll_once(&mut body);
    assert!(polled.get() > 0);
}

#[test]
fn dropping_a_live_context_polls_the_actor_once_more() {
    let seen = Seen::default();
    let mut body = Context::new().into_future(Plain::new(&seen));
    let addr = body.address();
    let waker = noop_waker();
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(Pin::new(&mut body).poll(&mut cx).is_pending());
    addr.do_send(Count);
    drop(body);
    assert_eq!((Seen::of(&seen.stopping), Seen::of(&seen.stopped)), (1, 1), "it was run to its end");
    assert_eq!(Seen::of(&seen.handled), 0, "though not to its messages");
}

#[test]
fn dropping_a_terminated_context_does_not_poll_the_actor() {
    let seen = Seen::default();
    let mut body = Context::new().into_future(Plain::new(&seen));
    let _addr = body.address();
    let waker = noop_waker();
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(Pin::new(&mut body).poll(&mut cx).is_pending());
    body.ctx().terminate();
    drop(body);
    assert_eq!((Seen::of(&seen.stopping), Seen::of(&seen.stopped)), (0, 0));
}
