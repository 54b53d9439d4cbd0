//! Effects: tasks that belong to one incarnation, each with a name, perhaps a pod, and a deadline. The table
//! of running effects is readable from any thread, so that `/supervision` shows what an actor waits for.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bridge_pace::history::{Begun, History, StepKind};
use messages::PodUid;
use serde::Serialize;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::cell::Cell;
use crate::context::{Ctx, EffectId, Subsystem};
use crate::held::Held;
use crate::panics::{self, PanicReport};

/// The most running effects that a report shows, the oldest first.
const SHOWN_MAX: usize = 16;
/// The most overdue effects that a report shows, the latest last.
const OVERDUE_KEPT: usize = 8;

/// The name of an effect and how long it may last. A bare name has the tree's default deadline
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
    /// The deadline as a duration, where `default` is that of a bare name; none for a lasting effect.
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

    /// An effect without a deadline: it may rightly take any time (a user's hook, a server's life), or each
    /// of its calls has a deadline of its own.
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
    /// The effect's name.
    pub name: &'static str,
    /// The pod on whose behalf it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodUid>,
    /// Milliseconds since it began; for an overdue effect that was dropped, until it was dropped.
    pub age_ms: u64,
    /// Its deadline in milliseconds; none for an effect without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// Whether it has passed its deadline.
    pub overdue: bool,
}

struct Running {
    name: &'static str,
    pod: Option<PodUid>,
    since: Instant,
    within: Option<Duration>,
    /// The pod's history knows of it.
    noted: Option<Begun>,
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

/// The effects of one actor, readable from other threads.
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

    /// The running effects, the oldest first, then those that were dropped at their deadline.
    pub fn reports(&self) -> Vec<EffectReport> {
        let mut reports: Vec<_> = self.running().values().take(SHOWN_MAX).map(Running::report).collect();
        reports.extend(self.let_go.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        reports
    }

    /// How many effects have passed their deadline since the process started.
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

/// The continuation of an effect: runs on the actor with the result of the work.
pub(crate) type Then<A> = Box<dyn FnOnce(&mut A, &mut Ctx<A>) + Send>;

pub(crate) type Work<A> = Pin<Box<dyn Future<Output = Then<A>> + Send>>;

/// Why the work of an effect has no outcome.
pub(crate) enum Failed {
    Panicked(PanicReport),
    /// The effect has passed its deadline, which was this long.
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
                after: within,
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

/// The work of an effect, with its name, pod and deadline.
pub(crate) struct Task<A: Subsystem> {
    pub name: &'static str,
    pub pod: Option<PodUid>,
    /// How long the effect may last from its beginning; none: any time.
    pub within: Option<Duration>,
    pub work: Work<A>,
}

/// The effects of one incarnation. Each is a tokio task, so that a wake polls only the effect that woke.
pub(crate) struct Effects<A: Subsystem> {
    tasks: JoinSet<Done<A>>,
    /// Effects of quarantined pods, which begin when the quarantine is over.
    pub held: Held<Task<A>>,
    handles: BTreeMap<EffectId, AbortHandle>,
    cell: Arc<Cell>,
    history: History,
}

impl<A: Subsystem> Effects<A> {
    pub fn new(cell: Arc<Cell>, history: History, messages_max: usize) -> Self {
        let held = Held::new(messages_max);
        Self { tasks: JoinSet::new(), held, handles: BTreeMap::new(), cell, history }
    }

    pub fn start(&mut self, id: EffectId, task: Task<A>) {
        let Task { name, pod, within, work } = task;
        #[cfg(feature = "faults")]
        let work = match self.cell.hangs.begin(name, within) {
            None => work,
            Some(when) => hung::<A>(work, when),
        };
        let begin = |pod: &PodUid| self.history.begin(pod.as_str(), StepKind::Effect, self.cell.kind, name);
        let noted = pod.as_ref().map(begin);
        let running = Running { name, pod: pod.clone(), since: Instant::now(), within, noted };
        self.cell.effects.running().insert(id, running);
        let handle = self.tasks.spawn(async move {
            let then = guarded::<A>(work, within).await;
            Done { id, name, pod, then }
        });
        self.handles.insert(id, handle);
    }

    /// Cancels an effect, running or held. False when there is no such effect.
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
                        if let Some(mut running) = running {
                            if matches!(done.then, Err(Failed::Overdue(_))) {
                                self.cell.effects.let_go(&running);
                            }
                            if let Some(noted) = running.noted.take() {
                                noted.end(done.then.is_ok());
                            }
                        }
                        return Poll::Ready(done);
                    }
                }
                // The effect was aborted.
                Poll::Ready(Some(Err(aborted))) => {
                    if aborted.is_panic() {
                        tracing::warn!(actor = %self.cell.name, "the work of a cancelled effect panicked while it was dropped");
                    }
                }
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

/// Work that is ordered to hang.
#[cfg(feature = "faults")]
fn hung<A: Subsystem>(work: Work<A>, when: crate::hangs::HangsWhen) -> Work<A> {
    Box::pin(async move {
        // Kept, so that callers that wait for the result go on waiting.
        let _result = match when {
            crate::hangs::HangsWhen::Begun => None,
            crate::hangs::HangsWhen::Done => Some(work.await),
        };
        std::future::pending().await
    })
}

/// The outcome of the work, or the panic or the deadline that ended it.
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
    // Dropped here rather than with the task, because tokio would swallow a panic of the drop.
    if let Err(report) = panics::catch(|| drop(work.take())) {
        outcome = outcome.and(Err(Failed::Panicked(report)));
    }
    outcome
}
