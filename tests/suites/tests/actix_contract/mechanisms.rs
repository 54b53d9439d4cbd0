//! The two ways to supervise an actix actor, as small as they can be. `actors/supervision` uses the second.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use actix::dev::{AsyncContextParts, ContextFut, ContextParts, Mailbox};
use actix::{
    Actor, ActorContext, ActorFuture, ActorState, Addr, AsyncContext, Context, Handler, MailboxError,
    SpawnHandle,
};
use tokio::sync::oneshot;

use crate::world::{Count, Later, Panic, Plain, Seen, on_one_thread, settle};

/// Mechanism 1: the same context for ever, restarted in place after a panic.
struct InPlace {
    body: ContextFut<Plain, Context<Plain>>,
    restarts: Rc<Cell<u64>>,
}

impl Future for InPlace {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        loop {
            match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.body).poll(cx))) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(())) => return Poll::Ready(()),
                Err(_panic) => {
                    self.restarts.set(self.restarts.get() + 1);
                    if !self.body.restart() {
                        return Poll::Ready(());
                    }
                }
            }
        }
    }
}

fn start_in_place(seen: &Seen) -> (Addr<Plain>, Rc<Cell<u64>>) {
    let body = Context::new().into_future(Plain::new(seen));
    let (addr, restarts) = (body.address(), Rc::new(Cell::new(0)));
    tokio::task::spawn_local(InPlace { body, restarts: restarts.clone() });
    (addr, restarts)
}

#[test]
fn restart_in_place_keeps_addresses_and_mailbox() {
    on_one_thread(async {
        let seen = Seen::default();
        let (addr, restarts) = start_in_place(&seen);
        assert_eq!(addr.send(Count).await, Ok(1));
        let lost = addr.send(Panic);
        let waiting = addr.send(Count);
        assert_eq!(lost.await, Err(MailboxError::Closed));
        assert!(waiting.await.is_ok(), "the message behind the panic is answered by the next incarnation");
        assert!(addr.connected());
        assert_eq!((restarts.get(), Seen::of(&seen.restarting)), (1, 1));
    });
}

#[test]
fn restart_in_place_keeps_the_panicked_state_unless_the_actor_clears_it_itself() {
    on_one_thread(async {
        let (addr, _) = start_in_place(&Seen::default());
        assert_eq!(addr.send(Count).await, Ok(1));
        assert!(addr.send(Panic).await.is_err());
        assert_eq!(addr.send(Count).await, Ok(2), "G2 asks for 1: fresh state from a factory");
    });
}

#[test]
fn restart_in_place_bounds_nothing_and_lets_earlier_work_through() {
    on_one_thread(async {
        let seen = Seen::default();
        let (addr, _) = start_in_place(&seen);
        let late = addr.send(Later(100));
        settle().await;
        for _ in 0..1000 {
            addr.do_send(Count);
        }
        assert!(addr.send(Panic).await.is_err());
        assert_eq!(Seen::of(&seen.handled), 1000, "G4 asks for a bound, G5 for a way past these");
        assert_eq!(late.await, Ok(()), "G8 asks that this answer is lost");
    });
}

/// Mechanism 2: a fresh context per incarnation behind our own mailbox, which one future feeds to it.
struct Ours {
    queue: RefCell<VecDeque<Work>>,
    waker: RefCell<Option<Waker>>,
    bound: usize,
}

type Work = Box<dyn FnOnce(&mut Fresh, &mut OurContext)>;

impl Ours {
    /// Returns false if the mailbox is full: exactly at its bound, whatever the number of senders.
    fn tell(&self, work: impl FnOnce(&mut Fresh, &mut OurContext) + 'static) -> bool {
        let mut queue = self.queue.borrow_mut();
        if queue.len() >= self.bound {
            return false;
        }
        queue.push_back(Box::new(work));
        self.waker.borrow().iter().for_each(Waker::wake_by_ref);
        true
    }

    fn ask<M>(&self, message: M) -> Option<oneshot::Receiver<M::Result>>
    where
        M: actix::Message + 'static,
        Fresh: Handler<M>,
        <Fresh as Handler<M>>::Result: Into<M::Result>,
    {
        let (asker, answer) = oneshot::channel();
        let sent = self.tell(move |actor, ctx| {
            let _asker_gone = asker.send(actor.handle(message, ctx).into());
        });
        sent.then_some(answer)
    }
}

/// Our own context type around actix' parts.
struct OurContext {
    parts: ContextParts<Fresh>,
}

impl ActorContext for OurContext {
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

impl AsyncContext<Fresh> for OurContext {
    fn spawn<F: ActorFuture<Fresh, Output = ()> + 'static>(&mut self, fut: F) -> SpawnHandle {
        self.parts.spawn(fut)
    }
    fn wait<F: ActorFuture<Fresh, Output = ()> + 'static>(&mut self, fut: F) {
        self.parts.wait(fut);
    }
    fn waiting(&self) -> bool {
        self.parts.waiting()
    }
    fn cancel_future(&mut self, handle: SpawnHandle) -> bool {
        self.parts.cancel_future(handle)
    }
    fn address(&self) -> Addr<Fresh> {
        self.parts.address()
    }
}

impl AsyncContextParts<Fresh> for OurContext {
    fn parts(&mut self) -> &mut ContextParts<Fresh> {
        &mut self.parts
    }
}

/// An actor without `impl Supervised`.
struct Fresh(u64);

impl Actor for Fresh {
    type Context = OurContext;
}

impl Handler<Count> for Fresh {
    type Result = u64;
    fn handle(&mut self, _: Count, _: &mut OurContext) -> u64 {
        self.0 += 1;
        self.0
    }
}

impl Handler<Panic> for Fresh {
    type Result = ();
    fn handle(&mut self, _: Panic, _: &mut OurContext) {
        panic!("on demand");
    }
}

/// The only future of every incarnation.
struct Pump(Rc<Ours>);

impl ActorFuture<Fresh> for Pump {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut Fresh,
        ctx: &mut OurContext,
        cx: &mut TaskContext<'_>,
    ) -> Poll<()> {
        *self.0.waker.borrow_mut() = Some(cx.waker().clone());
        for _ in 0..128 {
            let Some(work) = self.0.queue.borrow_mut().pop_front() else { return Poll::Pending };
            work(actor, ctx);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

async fn supervise(ours: Rc<Ours>, factory: impl Fn() -> Fresh, restarts: Rc<Cell<u64>>) {
    loop {
        let mailbox = Mailbox::default();
        let mut ctx = OurContext { parts: ContextParts::new(mailbox.sender_producer()) };
        ctx.spawn(Pump(ours.clone()));
        let mut body = ContextFut::new(ctx, factory(), mailbox);
        let crashed = std::future::poll_fn(|cx| {
            match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut body).poll(cx))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(())) => Poll::Ready(false),
                Err(_panic) => Poll::Ready(true),
            }
        })
        .await;
        // Otherwise the drop would poll the broken actor once more.
        body.ctx().terminate();
        drop(body);
        if !crashed {
            return;
        }
        restarts.set(restarts.get() + 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn start_behind_our_mailbox(bound: usize) -> (Rc<Ours>, Rc<Cell<u64>>) {
    let ours = Rc::new(Ours { queue: RefCell::default(), waker: RefCell::default(), bound });
    let restarts = Rc::new(Cell::new(0));
    tokio::task::spawn_local(supervise(ours.clone(), || Fresh(0), restarts.clone()));
    (ours, restarts)
}

#[test]
fn a_new_context_behind_our_mailbox_has_fresh_state_and_keeps_what_waits() {
    on_one_thread(async {
        let (ours, restarts) = start_behind_our_mailbox(16);
        assert_eq!(ours.ask(Count).unwrap().await, Ok(1));
        let lost = ours.ask(Panic).unwrap();
        let waiting = ours.ask(Count).unwrap();
        assert!(lost.await.is_err());
        assert_eq!(waiting.await, Ok(1), "fresh state");
        assert_eq!(restarts.get(), 1);
    });
}

#[test]
fn a_new_context_behind_our_mailbox_is_exactly_bounded_and_shares_the_thread() {
    on_one_thread(async {
        let (ours, _) = start_behind_our_mailbox(16);
        let taken = (0..100).filter(|_| ours.tell(|actor, _| actor.0 += 1)).count();
        assert_eq!(taken, 16);
        settle().await;
        // A message that always sends itself again: with the budget a sibling still gets its turn.
        fn again(ours: Rc<Ours>) {
            let next = ours.clone();
            ours.tell(move |_, ctx| {
                if ctx.state() == ActorState::Running {
                    again(next)
                }
            });
        }
        again(ours.clone());
        let (sibling, _) = start_behind_our_mailbox(16);
        let mut answer = sibling.ask(Count).unwrap();
        let mut turns = 0;
        while answer.try_recv().is_err() {
            turns += 1;
            assert!(turns < 1000, "the sibling starves");
            tokio::task::yield_now().await;
        }
        ours.tell(|_, ctx| ctx.stop());
    });
}
