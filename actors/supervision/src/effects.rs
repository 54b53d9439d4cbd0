//! Effects: tasks that belong to one incarnation, each with a name, perhaps a pod, and a deadline. The table of those
//! that run is readable from any thread, so that `/supervision` shows what an actor waits for.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use messages::PodUid;
use serde::Serialize;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::cell::Cell;
use crate::context::{Ctx, EffectId, Subsystem};
use crate::held::Held;
use crate::panics::{self, PanicReport};

/// Running effects that a report shows, the oldest first.
const SHOWN_MAX: usize = 16;
/// Effects let go at their deadline that a report shows, the latest last.
const OVERDUE_KEPT: usize = 8;

/// What an effect is called, and how long it may last. A bare name has the tree's default deadline
/// ([`crate::Policy::effect_within`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    pub(crate) name: &'static str,
    pub(crate) limit: Limit,
}

/// How long an effect may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Default,
    Within(Duration),
    Lasting,
}

impl Limit {
    /// The deadline, given that of a bare name.
    pub fn or(self, default: Duration) -> Option<Duration> {
        match self {
            Self::Default => Some(default),
            Self::Within(limit) => Some(limit),
            Self::Lasting => None,
        }
    }
}

impl Effect {
    /// An effect that may last `limit`.
    #[must_use]
    pub const fn within(name: &'static str, limit: Duration) -> Self {
        Self { name, limit: Limit::Within(limit) }
    }

    /// An effect without a deadline: it waits for what may take any time (a user's hook, a server's life), or each of
    /// its calls has a deadline of its own.
    #[must_use]
    pub const fn lasting(name: &'static str) -> Self {
        Self { name, limit: Limit::Lasting }
    }
}

impl From<&'static str> for Effect {
    fn from(name: &'static str) -> Self {
        Self { name, limit: Limit::Default }
    }
}

/// One effect, for `/supervision`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectReport {
    /// Its name.
    pub name: &'static str,
    /// The pod it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodUid>,
    /// Milliseconds since it began; of one that was let go, until then.
    pub age_ms: u64,
    /// Milliseconds it may last; none for an effect without a deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// It has lasted longer than it may.
    pub overdue: bool,
}

struct Running {
    name: &'static str,
    pod: Option<PodUid>,
    since: Instant,
    within: Option<Duration>,
}

impl Running {
    fn report(&self) -> EffectReport {
        let age = self.since.elapsed();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        EffectReport {
            name: self.name,
            pod: self.pod.clone(),
            age_ms: ms(age),
            within_ms: self.within.map(ms),
            overdue: self.within.is_some_and(|within| age >= within),
        }
    }
}

/// The effects of one actor as others see them.
#[derive(Default)]
pub(crate) struct EffectTable {
    running: Mutex<BTreeMap<EffectId, Running>>,
    let_go: Mutex<VecDeque<EffectReport>>,
    overdue: AtomicU64,
}

impl EffectTable {
    fn running(&self) -> MutexGuard<'_, BTreeMap<EffectId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The effects that run, the oldest first, then those that were let go at their deadline.
    pub fn reports(&self) -> Vec<EffectReport> {
        let mut reports: Vec<_> = self.running().values().take(SHOWN_MAX).map(Running::report).collect();
        reports.extend(self.let_go.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        reports
    }

    /// Effects that passed their deadline since the process started.
    pub fn overdue(&self) -> u64 {
        self.overdue.load(Ordering::Relaxed)
    }

    fn let_go(&self, effect: &Running) {
        self.overdue.fetch_add(1, Ordering::Relaxed);
        let mut let_go = self.let_go.lock().unwrap_or_else(PoisonError::into_inner);
        if let_go.len() == OVERDUE_KEPT {
            let_go.pop_front();
        }
        let_go.push_back(effect.report());
    }
}

/// What runs on the actor when the work of an effect is done.
pub(crate) type Then<A> = Box<dyn FnOnce(&mut A, &mut Ctx<A>) + Send>;

pub(crate) type Work<A> = Pin<Box<dyn Future<Output = Then<A>> + Send>>;

/// Why the work of an effect has no outcome.
pub(crate) enum Failed {
    Panicked(PanicReport),
    /// Its deadline of this length has passed.
    Overdue(Duration),
}

impl Failed {
    /// As the panic that the actor has of it.
    pub fn report(self, effect: &str, pod: Option<&PodUid>) -> PanicReport {
        match self {
            Self::Panicked(report) => report,
            Self::Overdue(within) => PanicReport {
                // Named with the pod: that effects of several pods wait too long is no fault that these pods share, as a
                // panic at one line is. What they wait for may well be held by others.
                place: pod
                    .map_or_else(|| format!("effect {effect}"), |pod| format!("effect {effect} of {pod}")),
                message: format!("overdue: it has not ended within {within:?}"),
                pod: None,
            },
        }
    }
}

/// An effect that has ended.
pub(crate) struct Done<A: Subsystem> {
    id: EffectId,
    pub name: &'static str,
    pub pod: Option<PodUid>,
    pub then: Result<Then<A>, Failed>,
}

/// The work of an effect, with what is known of it.
pub(crate) struct Task<A: Subsystem> {
    pub name: &'static str,
    pub pod: Option<PodUid>,
    /// How long it may last once it has begun.
    pub within: Option<Duration>,
    pub work: Work<A>,
}

/// The effects of one incarnation. They are tasks, so that a wake polls only what woke.
pub(crate) struct Effects<A: Subsystem> {
    tasks: JoinSet<Done<A>>,
    /// Those that wait for the end of a quarantine.
    pub held: Held<Task<A>>,
    handles: BTreeMap<EffectId, AbortHandle>,
    cell: Arc<Cell>,
}

impl<A: Subsystem> Effects<A> {
    pub fn new(cell: Arc<Cell>) -> Self {
        Self { tasks: JoinSet::new(), held: Held::default(), handles: BTreeMap::new(), cell }
    }

    pub fn start(&mut self, id: EffectId, task: Task<A>) {
        let Task { name, pod, within, work } = task;
        let running = Running { name, pod: pod.clone(), since: Instant::now(), within };
        self.cell.effects.running().insert(id, running);
        let handle = self.tasks.spawn(async move {
            let then = guarded::<A>(work, within).await;
            Done { id, name, pod, then }
        });
        self.handles.insert(id, handle);
    }

    /// False: there is no such effect.
    pub fn cancel(&mut self, id: EffectId) -> bool {
        let Some(handle) = self.handles.remove(&id) else { return self.held.cancel(id) };
        handle.abort();
        self.cell.effects.running().remove(&id);
        true
    }

    /// The next effect that has ended and was not cancelled meanwhile.
    pub fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Done<A>> {
        loop {
            match self.tasks.poll_join_next(cx) {
                Poll::Ready(Some(Ok(done))) => {
                    if self.handles.remove(&done.id).is_some() {
                        let running = self.cell.effects.running().remove(&done.id);
                        if let (Err(Failed::Overdue(_)), Some(running)) = (&done.then, running) {
                            self.cell.effects.let_go(&running);
                        }
                        return Poll::Ready(done);
                    }
                }
                // Aborted.
                Poll::Ready(Some(Err(_))) => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<A: Subsystem> Drop for Effects<A> {
    fn drop(&mut self) {
        self.cell.effects.running().clear();
    }
}

/// The outcome of the work, or the panic that ended it, or that it has lasted too long.
async fn guarded<A: Subsystem>(work: Work<A>, within: Option<Duration>) -> Result<Then<A>, Failed> {
    let mut work = Some(work);
    let mut deadline = std::pin::pin!(within.map(tokio::time::sleep));
    let mut outcome = std::future::poll_fn(|cx| {
        let polled = panics::catch(|| match &mut work {
            Some(work) => work.as_mut().poll(cx),
            None => Poll::Pending,
        });
        match polled {
            Ok(Poll::Ready(then)) => Poll::Ready(Ok(then)),
            Err(report) => Poll::Ready(Err(Failed::Panicked(report))),
            Ok(Poll::Pending) => match (deadline.as_mut().as_pin_mut(), within) {
                (Some(deadline), Some(within)) => deadline.poll(cx).map(|()| Err(Failed::Overdue(within))),
                _ => Poll::Pending,
            },
        }
    })
    .await;
    // Dropped here and not with the task, which would keep a panic of the drop to itself.
    if let Err(report) = panics::catch(|| drop(work.take())) {
        outcome = outcome.and(Err(Failed::Panicked(report)));
    }
    outcome
}
