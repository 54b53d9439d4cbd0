//! The supervising future of one actor: it makes incarnations, polls them under `catch_unwind`, and decides
//! what follows a crash. All that outlives an incarnation is in the actor's seat; an incarnation only borrows
//! it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use actix::dev::{AsyncContextParts, ContextFut, ContextParts, Mailbox as ActixMailbox};
use actix::{ActorContext, AsyncContext};
use messages::PodUid;
use tokio::time::{Instant, Sleep};
use tokio_util::time::{DelayQueue, delay_queue};

use crate::blame;
use crate::cell::{Cell, Crash, State, Vitality};
use crate::context::{Ctx, Subsystem};
use crate::events::EventKind;
use crate::mailbox::Mailbox;
use crate::orders::Order;
use crate::panics::{self, PanicReport};
use crate::pump::{Lane, Pump};
use crate::quarantine::Panics;
use crate::restart::{Culprit, RestartDecision, RestartHistory};
use crate::tree::{Spec, Tree};

/// The parts of an actor that outlive its incarnations.
pub(crate) struct Seat<A: Subsystem> {
    pub spec: Spec,
    pub cell: Arc<Cell>,
    pub mailbox: Arc<Mailbox<A>>,
    pub tree: Tree,
    pub factory: Arc<dyn Fn() -> A + Send + Sync>,
}

/// How an incarnation ended.
enum Exit {
    Normal,
    Ordered,
    Crashed(PanicOrOrder),
}

enum PanicOrOrder {
    Panic(PanicReport),
    Other(String),
}

/// Runs the actor until it ends for good.
pub(crate) async fn supervise<A: Subsystem>(seat: Seat<A>) {
    seat.cell.lives_here();
    let mut driver = Driver {
        history: RestartHistory::new(seat.tree.seed(&seat.cell.name)),
        panics: Panics::default(),
        lane: Rc::new(RefCell::new(Lane::default())),
        releases: None,
        release_keys: std::collections::BTreeMap::new(),
        revived: None,
        seat,
    };
    loop {
        let started = Instant::now();
        let exit = driver.incarnation().await;
        match exit {
            Exit::Normal | Exit::Ordered => break,
            Exit::Crashed(how) => {
                if !driver.after_crash(started, how).await {
                    break;
                }
            }
        }
    }
    let seat = &driver.seat;
    if seat.cell.state() != State::Failed {
        seat.cell.set_state(State::Stopped);
        seat.tree.emit(&seat.cell, EventKind::Stopped);
    }
    seat.cell.counters.dropped_many(seat.mailbox.close());
    seat.tree.ended(&seat.cell);
}

struct Driver<A: Subsystem> {
    seat: Seat<A>,
    history: RestartHistory,
    panics: Panics,
    lane: Rc<RefCell<Lane<A>>>,
    // Made with the first quarantine.
    releases: Option<DelayQueue<PodUid>>,
    release_keys: std::collections::BTreeMap<PodUid, delay_queue::Key>,
    /// When an order to revive came that has had no effect yet.
    revived: Option<Instant>,
}

impl<A: Subsystem> Driver<A> {
    async fn incarnation(&mut self) -> Exit {
        let seat = &self.seat;
        let number = seat.cell.incarnation.fetch_add(1, Ordering::Relaxed) + 1;
        seat.cell.begin("starting", None);
        #[cfg(feature = "faults")]
        self.lane.borrow_mut().faults.reset_stall();
        self.lane.borrow_mut().released.clear();
        let born = panics::catch(|| {
            self.lane.borrow_mut().faults.starting();
            let mailbox = ActixMailbox::<A>::default();
            let mut ctx = Ctx::new(
                ContextParts::new(mailbox.sender_producer()),
                number,
                seat.cell.clone(),
                seat.tree.clone(),
                seat.mailbox.bound(),
            );
            let actor = (seat.factory)();
            ctx.spawn(Pump::new(seat.mailbox.clone(), self.lane.clone()));
            ContextFut::new(ctx, actor, mailbox)
        });
        let mut body = match born {
            Ok(body) => body,
            Err(report) => return Exit::Crashed(PanicOrOrder::Panic(report)),
        };
        seat.cell.end();
        seat.cell.set_state(State::Running);
        seat.tree.emit(&seat.cell, EventKind::Started { incarnation: number });
        let exit = IncarnationFuture { driver: self, body: &mut body, stall: None }.await;
        // Terminated before the drop: dropping a live context would poll the actor once more, in a state that
        // a panic may have left broken.
        body.ctx().parts().terminate();
        let doing = self.seat.cell.take_doing();
        if let Err(report) = panics::catch(|| drop(body)) {
            tracing::warn!(actor = %self.seat.cell.name, panic = %report, "the state of a dead incarnation panicked while it was dropped");
        }
        if let (Exit::Crashed(_), Some(doing)) = (&exit, doing) {
            self.seat.cell.begin(doing.what, doing.pod);
        }
        exit
    }

    /// Records the crash and waits for the next start. False when there is no next start.
    async fn after_crash(&mut self, started: Instant, how: PanicOrOrder) -> bool {
        let now = Instant::now();
        let doing = self.seat.cell.take_doing();
        let (reason, place, panic) = match how {
            PanicOrOrder::Panic(report) => (report.message.clone(), Some(report.place.clone()), Some(report)),
            PanicOrOrder::Other(reason) => (reason, None, None),
        };
        // The pod that the panicking code named itself is more precise than the pod of the message.
        let named = panic.as_ref().and_then(|report| report.pod.clone());
        let pod = named.or_else(|| doing.as_ref().and_then(|doing| doing.pod.clone()));
        let crash = Crash {
            incarnation: self.seat.cell.incarnation.load(Ordering::Relaxed),
            handling: doing.map_or("", |doing| doing.what).to_owned(),
            pod: pod.clone(),
            reason,
            place,
        };
        self.seat.cell.crashed(crash.clone());
        self.seat.tree.emit(&self.seat.cell, EventKind::Crashed(crash));
        let culprit = match (&panic, &pod) {
            // A child stands for one pod already: its restart budget does what a quarantine would.
            (Some(report), Some(pod)) if self.seat.spec.vitality != Vitality::Child => {
                self.blame(pod, report, now)
            }
            _ => Culprit::Actor,
        };
        match self.history.crashed(&self.seat.spec.restart, started, now, culprit) {
            RestartDecision::Restart(delay) => {
                self.seat.cell.set_state(State::Restarting);
                if !self.wait(delay, false).await {
                    return false;
                }
            }
            // No stream of broken pods ends the process; it goes on no faster than this.
            RestartDecision::Exhausted
                if culprit == Culprit::Pod && self.seat.spec.vitality == Vitality::Vital =>
            {
                self.seat.cell.set_state(State::Restarting);
                if !self.wait(self.seat.spec.restart.backoff_max, false).await {
                    return false;
                }
            }
            RestartDecision::Exhausted => {
                if !self.exhausted().await {
                    return false;
                }
            }
        }
        self.seat.cell.restarts.fetch_add(1, Ordering::Relaxed);
        let down_ms = now.elapsed().as_millis() as u64;
        self.seat.tree.emit(&self.seat.cell, EventKind::Restarted { down_ms });
        true
    }

    /// Decides what the panic counts against, and quarantines a poison pod.
    fn blame(&mut self, pod: &PodUid, report: &PanicReport, now: Instant) -> Culprit {
        self.seat.cell.pod_crashes.fetch_add(1, Ordering::Relaxed);
        let was_quarantined = self.seat.cell.is_quarantined(pod);
        let blame = self.panics.blame(&self.seat.spec.quarantine, pod, report, was_quarantined, now);
        if let Some(length) = blame.quarantine {
            self.seat.cell.counters.dropped_many(self.seat.mailbox.quarantine(pod));
            self.seat.cell.quarantined(pod, Some(report));
            let releases = self.releases.get_or_insert_with(DelayQueue::new);
            let key = releases.insert(pod.clone(), length);
            if let Some(older) = self.release_keys.insert(pod.clone(), key) {
                releases.try_remove(&older);
            }
            self.seat.tree.emit(
                &self.seat.cell,
                EventKind::Quarantined { pod: pod.clone(), panic: report.clone(), seconds: length.as_secs() },
            );
        }
        match (blame.counts, was_quarantined) {
            (true, _) => Culprit::Actor,
            (false, true) => Culprit::QuarantinedPod,
            (false, false) => Culprit::Pod,
        }
    }

    async fn exhausted(&mut self) -> bool {
        if self.seat.spec.vitality == Vitality::Vital {
            self.seat.cell.set_state(State::Failed);
            self.seat.tree.emit(&self.seat.cell, EventKind::Failed);
            return false;
        }
        // What it was revived for waits in its mailbox: that is tried before the actor is left alone.
        if self.revived.take().is_some_and(|at| at.elapsed() < self.seat.spec.restart.window) {
            self.history.clear();
            self.seat.cell.set_state(State::Restarting);
            return self.wait(self.seat.spec.restart.backoff_max, false).await;
        }
        self.seat.cell.set_state(State::Dormant);
        // Messages would wait here for minutes: dropping them tells askers at once that no answer comes.
        self.seat.cell.counters.dropped_many(self.seat.mailbox.clear());
        let retry = self.seat.spec.dormant_retry;
        self.seat.tree.emit(&self.seat.cell, EventKind::Dormant { retry_seconds: retry.as_secs() });
        if !self.wait(retry, true).await {
            return false;
        }
        self.history.clear();
        true
    }

    /// Waits for `delay`, obeying orders meanwhile. False when an order was to stop.
    async fn wait(&mut self, delay: Duration, dormant: bool) -> bool {
        if delay.is_zero() {
            // Without a timer, which would take a millisecond; but other actors of the thread run first.
            tokio::task::yield_now().await;
            return true;
        }
        let mut sleep = std::pin::pin!(tokio::time::sleep(delay));
        std::future::poll_fn(|cx| {
            self.seat.mailbox.waker.register(cx.waker());
            self.poll_releases(cx);
            while let Some(order) = self.seat.mailbox.take_order() {
                match order {
                    Order::Stop => return Poll::Ready(false),
                    Order::Revive if dormant => return Poll::Ready(true),
                    Order::Ping => self.seat.cell.answered(),
                    // There is no state to show: dropping the sender tells the asker so.
                    Order::Observe(asker) => drop(asker),
                    other => self.obey(other),
                }
            }
            sleep.as_mut().poll(cx).map(|()| true)
        })
        .await
    }

    /// Obeys an order that does not end the incarnation.
    fn obey(&mut self, order: Order) {
        match order {
            Order::Observe(asker) => {
                let observers = &mut self.lane.borrow_mut().observers;
                // Askers of an actor that was stalled have given up long ago.
                observers.retain(|asker| !asker.is_closed());
                observers.push(asker);
            }
            #[cfg(feature = "faults")]
            Order::Fault(messages::supervision::Fault::SqueezeMailbox { bound }) => {
                self.seat.mailbox.set_bound(bound)
            }
            #[cfg(feature = "faults")]
            Order::Fault(messages::supervision::Fault::Hang { effect, nth, done }) => {
                self.seat.cell.hangs.order(effect, nth, done);
            }
            #[cfg(feature = "faults")]
            Order::Fault(fault) => self.lane.borrow_mut().faults.add(fault),
            Order::Revive => self.revived = Some(Instant::now()),
            Order::Stop | Order::Kill(_) | Order::Ping => {}
        }
    }

    fn poll_releases(&mut self, cx: &mut Context<'_>) {
        while let Some(releases) = &mut self.releases
            && let Poll::Ready(Some(expired)) = releases.poll_expired(cx)
        {
            let pod = expired.into_inner();
            self.release_keys.remove(&pod);
            self.seat.cell.quarantined(&pod, None);
            self.seat.mailbox.release(&pod);
            self.lane.borrow_mut().released.push(pod.clone());
            self.seat.tree.emit(&self.seat.cell, EventKind::Released { pod });
        }
    }
}

/// The future that polls one incarnation until it ends.
struct IncarnationFuture<'a, A: Subsystem> {
    driver: &'a mut Driver<A>,
    body: &'a mut ContextFut<A, Ctx<A>>,
    stall: Option<Pin<Box<Sleep>>>,
}

impl<A: Subsystem> IncarnationFuture<'_, A> {
    fn orders(&mut self) -> Option<Exit> {
        while let Some(order) = self.driver.seat.mailbox.take_order() {
            match order {
                Order::Stop => {
                    self.body.ctx().stop();
                    return Some(Exit::Ordered);
                }
                Order::Kill(why) => return Some(Exit::Crashed(PanicOrOrder::Other(why.to_owned()))),
                Order::Ping => {
                    self.driver.seat.cell.answered();
                    self.driver.lane.borrow_mut().ping.get_or_insert_with(Instant::now);
                }
                other => self.driver.obey(other),
            }
        }
        None
    }

    /// Ends the incarnation when the actor has not taken a ping for `stall_after`: it waits for something
    /// that does not come.
    fn stalled(&mut self, cx: &mut Context<'_>) -> Option<Exit> {
        let pinged = self.driver.lane.borrow().ping;
        let Some(pinged) = pinged else {
            self.stall = None;
            return None;
        };
        let after = self.driver.seat.spec.stall_after;
        let timer = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(pinged + after)));
        timer
            .as_mut()
            .poll(cx)
            .is_ready()
            .then(|| Exit::Crashed(PanicOrOrder::Other(format!("stalled: took no message for {after:?}"))))
    }
}

impl<A: Subsystem> Future for IncarnationFuture<'_, A> {
    type Output = Exit;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exit> {
        let this = self.get_mut();
        this.driver.seat.mailbox.waker.register(cx.waker());
        this.driver.poll_releases(cx);
        if let Some(exit) = this.orders() {
            return Poll::Ready(exit);
        }
        #[cfg(feature = "faults")]
        this.driver.lane.borrow_mut().faults.exchange_poison();
        blame::polls(Some(this.driver.seat.cell.clone()));
        let polled = panics::catch(|| Pin::new(&mut *this.body).poll(cx));
        blame::polls(None);
        #[cfg(feature = "faults")]
        this.driver.lane.borrow_mut().faults.exchange_poison();
        match polled {
            Err(report) => {
                let effect = this.driver.lane.borrow_mut().effect_panic.take();
                Poll::Ready(Exit::Crashed(PanicOrOrder::Panic(effect.unwrap_or(report))))
            }
            Ok(Poll::Ready(())) => Poll::Ready(Exit::Normal),
            Ok(Poll::Pending) => this.stalled(cx).map_or(Poll::Pending, Poll::Ready),
        }
    }
}
