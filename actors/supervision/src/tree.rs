//! The supervision tree: its actors, their state, and how they are started.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use actix::Handler;
use actix_rt::ArbiterHandle;
use bridge_pace::history::History;
use messages::{Delivery, PodUid};
use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

mod children;
#[cfg(feature = "faults")]
mod faults;

use crate::address::{Address, MailboxHandle};
use crate::ask::{AskPort, Asker};
use crate::cell::{Cell, Crash, State, Vitality};
use crate::context::{Ctx, Subsystem};
use crate::driver::{Seat, supervise};
use crate::events::{EventKind, Failure, SupervisionEvent, trace};
use crate::mailbox::Mailbox;
use crate::orders::Order;
use crate::panics;
use crate::quarantine::QuarantinePolicy;
use crate::report::{ActorReport, NoSuchActor, Snapshot};
use crate::restart::RestartPolicy;

/// Events kept for `/supervision`.
const EVENTS_MAX: usize = 256;
/// How long a snapshot waits for one actor's observable state.
const OBSERVE_MS_MAX: u64 = 250;

/// The defaults of supervision for every actor; only mailbox bounds are set by actor name.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Restart intensity of subsystems.
    pub restart: RestartPolicy,
    /// Restart intensity of children (pod workers).
    pub child_restart: RestartPolicy,
    /// When a poison pod is quarantined, and for how long.
    pub quarantine: QuarantinePolicy,
    /// An actor that takes no message for this long is killed and restarted.
    pub stall_after: Duration,
    /// How long a dormant actor sleeps before the next try.
    pub dormant_retry: Duration,
    /// The deadline of an effect that names none of its own.
    pub effect_within: Duration,
    /// The most messages that may wait in a mailbox.
    pub mailbox_bound: usize,
    /// Mailbox bounds by actor name.
    pub mailbox_bounds: BTreeMap<String, usize>,
    /// Dormant children with more different causes than this are their parent's failure.
    pub dormant_children_max: usize,
    /// Fixes the jitter of restarts.
    pub seed: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            restart: RestartPolicy::default(),
            child_restart: RestartPolicy::default(),
            quarantine: QuarantinePolicy::default(),
            stall_after: Duration::from_secs(30),
            dormant_retry: Duration::from_secs(300),
            effect_within: Duration::from_secs(300),
            mailbox_bound: 1024,
            mailbox_bounds: BTreeMap::new(),
            dormant_children_max: 10,
            seed: 0,
        }
    }
}

/// How one actor is supervised.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub vitality: Vitality,
    pub restart: RestartPolicy,
    pub quarantine: QuarantinePolicy,
    pub stall_after: Duration,
    pub dormant_retry: Duration,
}

/// The thread an actor lives on.
#[derive(Clone, Debug)]
pub enum Place {
    /// The current thread, which must run a `LocalSet` (an arbiter, a test's sandbox).
    Here,
    /// An actix arbiter's thread.
    On(ArbiterHandle),
}

/// A handle on the supervision tree. Cheap to clone.
#[derive(Clone)]
pub struct Tree(Arc<Inner>);

struct Inner {
    policy: Policy,
    born: Instant,
    history: History,
    seats: Mutex<BTreeMap<String, Registered>>,
    events: Mutex<VecDeque<SupervisionEvent>>,
    observers: Mutex<Vec<Observer>>,
    /// Why the node has failed: the first failure, told once.
    failure: OnceLock<Failure>,
    failed: Notify,
    /// Actors with more dormant children than are borne.
    crowded: Mutex<BTreeSet<String>>,
}

type Observer = Arc<dyn Fn(&SupervisionEvent) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Registered {
    pub cell: Arc<Cell>,
    pub parent: Option<String>,
    pub remote: Arc<dyn Remote>,
    /// The `Supervised<A>`, for a parent that looks up a child of an earlier incarnation.
    pub handle: Arc<dyn Any + Send + Sync>,
}

/// The operations of the tree on an actor whose type it does not know.
pub(crate) trait Remote: Send + Sync {
    fn order(&self, order: Order);
    fn depth(&self) -> usize;
    fn bound(&self) -> usize;
}

impl<A: Subsystem> Remote for Mailbox<A> {
    fn order(&self, order: Order) {
        Mailbox::order(self, order);
    }

    fn depth(&self) -> usize {
        Mailbox::depth(self)
    }

    fn bound(&self) -> usize {
        Mailbox::bound(self)
    }
}

/// A handle on a supervised actor, given to the code that started it.
pub struct Supervised<A: Subsystem> {
    mailbox: Arc<Mailbox<A>>,
    cell: Arc<Cell>,
}

/// A child of an actor.
pub type Child<A> = Supervised<A>;

impl<A: Subsystem> Clone for Supervised<A> {
    fn clone(&self) -> Self {
        Self { mailbox: self.mailbox.clone(), cell: self.cell.clone() }
    }
}

impl<A: Subsystem> Supervised<A> {
    /// The address for one message type.
    pub fn address<M: Delivery>(&self) -> Address<M>
    where
        A: Handler<M>,
    {
        Address::new(self.handle::<M>())
    }

    /// The way into the mailbox for one message type, which the tree notes as received.
    fn handle<M: Delivery>(&self) -> Arc<MailboxHandle<A>>
    where
        A: Handler<M>,
    {
        self.cell.receives(M::NAME);
        Arc::new(MailboxHandle { mailbox: self.mailbox.clone(), cell: self.cell.clone() })
    }

    /// The port by which actors of type `F` ask with one message type; the tree notes the edge ([`Tree::asks`]).
    pub fn asked<F: Asker, M: Delivery>(&self) -> AskPort<F, M>
    where
        A: Handler<M>,
    {
        self.cell.asked_by(F::NAME);
        AskPort::new(self.handle::<M>())
    }

    /// The actor's name in the tree.
    pub fn name(&self) -> &str {
        &self.cell.name
    }

    /// Orders the actor to end normally.
    pub fn stop(&self) {
        self.mailbox.order(Order::Stop);
    }

    /// Wakes the actor at once if it is dormant.
    pub fn revive(&self) {
        self.mailbox.order(Order::Revive);
    }

    /// Whether the actor has ended normally or failed for good.
    pub fn has_ended(&self) -> bool {
        matches!(self.cell.state(), State::Stopped | State::Failed)
    }
}

impl Tree {
    /// An empty tree.
    pub fn new(policy: Policy) -> Self {
        panics::install();
        let born = Instant::now();
        Self(Arc::new(Inner {
            policy,
            born,
            history: History::new(move || born.elapsed()),
            seats: Mutex::new(BTreeMap::new()),
            events: Mutex::new(VecDeque::new()),
            observers: Mutex::new(Vec::new()),
            failure: OnceLock::new(),
            failed: Notify::new(),
            crowded: Mutex::new(BTreeSet::new()),
        }))
    }

    /// Makes the actor's seat: its addresses work from now on, and messages wait. [`Seated::start`] starts
    /// the actor, so that actors that hold each other's addresses can all be seated before the first one
    /// runs.
    pub fn seat<A: Subsystem>(&self, vitality: Vitality) -> Seated<A> {
        self.make_seat(A::NAME.to_owned(), vitality, None, None)
    }

    fn make_seat<A: Subsystem>(
        &self,
        name: String,
        vitality: Vitality,
        parent: Option<String>,
        mailbox_bound: Option<usize>,
    ) -> Seated<A> {
        let policy = &self.0.policy;
        let configured = || policy.mailbox_bounds.get(A::NAME).copied().unwrap_or(policy.mailbox_bound);
        let mailbox_bound = mailbox_bound.unwrap_or_else(configured);
        let spec = Spec {
            vitality,
            restart: if vitality == Vitality::Child { &policy.child_restart } else { &policy.restart }
                .clone(),
            quarantine: policy.quarantine.clone(),
            stall_after: policy.stall_after,
            dormant_retry: policy.dormant_retry,
        };
        let mailbox = Arc::new(Mailbox::<A>::new(mailbox_bound));
        let cell = Arc::new(Cell::new(name.clone(), A::NAME, vitality));
        let handle = Supervised { mailbox: mailbox.clone(), cell: cell.clone() };
        let registered = Registered { cell, parent, remote: mailbox, handle: Arc::new(handle.clone()) };
        let older = self.seats().insert(name, registered);
        debug_assert!(
            older.is_none_or(|older| older.cell.state() == State::Stopped),
            "two live actors of one name"
        );
        Seated { tree: self.clone(), spec, handle }
    }

    pub(crate) fn seats(&self) -> MutexGuard<'_, BTreeMap<String, Registered>> {
        self.0.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `observer` with every event from now on, on the thread where the event happens. The observer
    /// must not block.
    pub fn observe(&self, observer: impl Fn(&SupervisionEvent) + Send + Sync + 'static) {
        self.0.observers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(observer));
    }

    /// Resolves when a vital subsystem has failed for good.
    pub async fn failed(&self) -> Failure {
        loop {
            let mut failed = pin!(self.0.failed.notified());
            // From here on no failure is missed.
            failed.as_mut().enable();
            if let Some(failure) = self.0.failure.get() {
                return failure.clone();
            }
            failed.await;
        }
    }

    /// Declares the node failed from outside the actors; the watchdog calls it for a blocked thread.
    pub fn fail(&self, failure: Failure) {
        if self.0.failure.set(failure).is_ok() {
            self.0.failed.notify_waiters();
        }
    }

    /// Orders every actor to end, children included.
    pub fn stop_all(&self) {
        for registered in self.seats().values() {
            registered.remote.order(Order::Stop);
        }
    }

    /// Crashes the actor now, as a stall would.
    pub fn kill(&self, actor: &str) -> Result<(), NoSuchActor> {
        self.find(actor)?.remote.order(Order::Kill("killed by order"));
        Ok(())
    }

    /// Wakes a dormant actor at once.
    pub fn revive(&self, actor: &str) -> Result<(), NoSuchActor> {
        self.find(actor)?.remote.order(Order::Revive);
        Ok(())
    }

    fn find(&self, actor: &str) -> Result<Registered, NoSuchActor> {
        self.seats().get(actor).cloned().ok_or_else(|| NoSuchActor(actor.to_owned()))
    }

    /// Pings every actor. Children are pinged because they too can stall; their thread is watched through
    /// their parent.
    pub(crate) fn ping_all(&self) {
        for registered in self.seats().values() {
            registered.remote.order(Order::Ping);
        }
    }

    /// The actor that keeps the thread of `silent` busy and the work it does: `silent` itself, or another
    /// actor of that thread.
    pub(crate) fn busy_on_thread_of(&self, silent: &Cell) -> Option<(String, &'static str)> {
        if let Some(doing) = silent.doing() {
            return Some((silent.name.clone(), doing.what));
        }
        let thread = silent.thread()?;
        let seats = self.seats();
        let mut there = seats.values().filter(|r| r.cell.thread() == Some(thread));
        there.find_map(|r| Some((r.cell.name.clone(), r.cell.doing()?.what)))
    }

    pub(crate) fn watched(&self) -> Vec<Arc<Cell>> {
        let watched =
            |r: &&Registered| r.cell.vitality != Vitality::Child && r.cell.state() != State::Stopped;
        self.seats().values().filter(watched).map(|r| r.cell.clone()).collect()
    }

    /// What was done for each pod lately. Moments are durations since the tree was made.
    pub fn history(&self) -> &History {
        &self.0.history
    }

    pub(crate) fn effect_within(&self) -> Duration {
        self.0.policy.effect_within
    }

    pub(crate) fn seed(&self, name: &str) -> u64 {
        // FNV-1a, so that actors do not share their jitter.
        name.bytes().fold(self.0.policy.seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    pub(crate) fn emit(&self, cell: &Cell, what: EventKind) {
        let event = SupervisionEvent {
            actor: cell.name.clone(),
            at_ms: self.0.born.elapsed().as_millis() as u64,
            what: what.clone(),
        };
        trace(&event);
        {
            let mut events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner);
            // Starts and normal ends of children are left out: they would push crashes out of the record.
            if cell.vitality != Vitality::Child
                || !matches!(what, EventKind::Started { incarnation: 1 } | EventKind::Stopped)
            {
                if events.len() == EVENTS_MAX {
                    events.pop_front();
                }
                events.push_back(event.clone());
            }
        }
        let observers = self.0.observers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for observer in observers {
            // An actor's driver runs this code: a panicking observer must not take the actor down.
            if let Err(panic) = panics::catch(|| observer(&event)) {
                tracing::error!(%panic, "An observer of supervision panicked");
            }
        }
        match what {
            EventKind::Failed => self.fail(Failure { actor: cell.name.clone(), reason: last_words(cell) }),
            EventKind::Dormant { .. } | EventKind::Started { .. } | EventKind::Stopped => {
                self.judge_children(cell, &what)
            }
            _ => {}
        }
    }

    pub(crate) fn ended(&self, cell: &Cell) {
        if cell.vitality == Vitality::Child {
            let mut seats = self.seats();
            // A successor of the same name may have the seat already.
            if seats.get(&cell.name).is_some_and(|r| std::ptr::eq(&*r.cell, cell)) {
                seats.remove(&cell.name);
            }
        }
    }

    /// Which subsystem may ask which, as (asker, asked) names: one edge for each port that was handed out.
    pub fn asks(&self) -> BTreeSet<(&'static str, &'static str)> {
        let seats = self.seats();
        let edges =
            seats.values().flat_map(|r| r.cell.askers().into_iter().map(|asker| (asker, r.cell.kind)));
        edges.collect()
    }

    /// The state of every actor, for `/supervision`.
    pub async fn snapshot(&self) -> Snapshot {
        let seats: Vec<Registered> = self.seats().values().cloned().collect();
        let mut asked = Vec::with_capacity(seats.len());
        for registered in seats {
            let (asker, answer) = oneshot::channel();
            registered.remote.order(Order::Observe(asker));
            asked.push((registered, answer));
        }
        let until = Instant::now() + Duration::from_millis(OBSERVE_MS_MAX);
        let mut actors = Vec::with_capacity(asked.len());
        for (registered, answer) in asked {
            let observed = match tokio::time::timeout_at(until, answer).await {
                Ok(Ok(value)) => value,
                _ => Value::Null,
            };
            actors.push(registered.report(observed));
        }
        let events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        Snapshot { uptime_ms: self.0.born.elapsed().as_millis() as u64, actors, events }
    }

    /// The vital actors that have failed, sleep or have stopped. No actor is asked, so the call is cheap and
    /// works although an actor hangs.
    pub fn lost_vitals(&self) -> Vec<String> {
        let lost = |cell: &Cell| {
            cell.vitality == Vitality::Vital
                && matches!(cell.state(), State::Failed | State::Dormant | State::Stopped)
        };
        self.seats().values().filter(|r| lost(&r.cell)).map(|r| r.cell.name.clone()).collect()
    }

    /// Reports without the actors' own state, so that no actor is asked: for metrics.
    pub(crate) fn reports(&self) -> Vec<ActorReport> {
        let seats: Vec<Registered> = self.seats().values().cloned().collect();
        seats.into_iter().map(|registered| registered.report(Value::Null)).collect()
    }
}

fn last_words(cell: &Cell) -> String {
    match cell.last_crash() {
        Some(Crash { handling, reason, place, pod, .. }) => {
            let place = place.map_or_else(String::new, |place| format!(" at {place}"));
            let pod = pod.map_or_else(String::new, |pod| format!(" of pod {pod}"));
            format!("above the restart limit; last crash while handling {handling}{pod}: {reason}{place}")
        }
        None => "above the restart limit".to_owned(),
    }
}

impl Registered {
    fn report(&self, observed: Value) -> ActorReport {
        let cell = &self.cell;
        ActorReport {
            name: cell.name.clone(),
            kind: cell.kind,
            parent: self.parent.clone(),
            vitality: cell.vitality,
            state: cell.state(),
            incarnation: cell.incarnation.load(Ordering::Relaxed),
            restarts: cell.restarts.load(Ordering::Relaxed),
            pod_crashes: cell.pod_crashes.load(Ordering::Relaxed),
            last_crash: cell.last_crash(),
            mailbox_depth: self.remote.depth(),
            mailbox_bound: self.remote.bound(),
            quarantined: cell.quarantine_list(),
            receives: cell.receives_list(),
            counters: cell.counters.report(),
            effects_overdue: cell.effects.overdue(),
            effects: cell.effects.reports(),
            observed,
        }
    }
}

/// A seat whose actor has not been started yet.
pub struct Seated<A: Subsystem> {
    tree: Tree,
    spec: Spec,
    handle: Supervised<A>,
}

impl<A: Subsystem> Seated<A> {
    /// The address for one message type; messages wait until the actor starts.
    pub fn address<M: Delivery>(&self) -> Address<M>
    where
        A: Handler<M>,
    {
        self.handle.address()
    }

    /// The handle that [`start`](Self::start) returns, for actors that need it before this one runs.
    pub fn handle(&self) -> Supervised<A> {
        self.handle.clone()
    }

    /// The port by which actors of type `F` ask with one message type; the tree notes the edge ([`Tree::asks`]).
    pub fn asked<F: Asker, M: Delivery>(&self) -> AskPort<F, M>
    where
        A: Handler<M>,
    {
        self.handle.asked()
    }

    /// Starts the actor on its thread. `factory` makes the state of each incarnation.
    pub fn start(self, place: &Place, factory: impl Fn() -> A + Send + Sync + 'static) -> Supervised<A> {
        let Self { tree, spec, handle } = self;
        let seat = Seat {
            spec,
            cell: handle.cell.clone(),
            mailbox: handle.mailbox.clone(),
            tree,
            factory: Arc::new(factory),
        };
        match place {
            Place::Here => {
                tokio::task::spawn_local(supervise(seat));
            }
            Place::On(arbiter) => {
                arbiter.spawn_fn(move || {
                    tokio::task::spawn_local(supervise(seat));
                });
            }
        }
        handle
    }
}

/// Settings of a child.
#[derive(Clone, Debug, Default)]
pub struct ChildSpec {
    /// The most messages that may wait; if absent, the tree's bound for the child's type.
    pub mailbox_bound: Option<usize>,
}

impl<A: Subsystem> Ctx<A> {
    /// The child with this key: the living one, also if an earlier incarnation of this actor started it, or a
    /// new one on this thread.
    pub fn child<W: Subsystem>(
        &mut self,
        key: &PodUid,
        spec: ChildSpec,
        factory: impl Fn() -> W + Send + Sync + 'static,
    ) -> Child<W> {
        let name = format!("{}/{key}", W::NAME);
        if let Some(child) = self.living::<W>(&name) {
            return child;
        }
        let parent = Some(self.cell.name.clone());
        let seated: Seated<W> = self.tree.make_seat(name, Vitality::Child, parent, spec.mailbox_bound);
        seated.start(&Place::Here, factory)
    }

    fn living<W: Subsystem>(&self, name: &str) -> Option<Child<W>> {
        let registered = self.tree.find(name).ok()?;
        let child = registered.handle.downcast_ref::<Child<W>>()?.clone();
        (!child.has_ended()).then_some(child)
    }

    /// Whether the child with this key lives.
    pub fn has_child<W: Subsystem>(&self, key: &PodUid) -> bool {
        self.living::<W>(&format!("{}/{key}", W::NAME)).is_some()
    }

    /// All living children of one type.
    pub fn children<W: Subsystem>(&self) -> Vec<(PodUid, Child<W>)> {
        let prefix = format!("{}/", W::NAME);
        let names: Vec<String> =
            self.tree.seats().keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
        names
            .into_iter()
            .filter_map(|name| Some((PodUid::new(&name[prefix.len()..]), self.living::<W>(&name)?)))
            .collect()
    }

    /// Orders a child to end normally.
    pub fn stop_child<W: Subsystem>(&self, key: &PodUid) {
        if let Some(child) = self.living::<W>(&format!("{}/{key}", W::NAME)) {
            child.stop();
        }
    }
}
