//! Blocking work on threads that may block, in lanes: each owner has a lane of its own, so that hanging calls of one
//! owner never stop another's; and one piece of work at a time for each key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::panics::{self, Carried};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;

use super::keys::{Keys, Turn};
use super::shares::{SharedPlace, SharedPlaces};

/// The most threads that one lane holds. The I/O runtime has threads for all lanes at once.
pub const LANE_THREADS_MAX: usize = 32;
/// The most threads of a wide lane, whose work may hang for any of very many tenants.
pub const WIDE_LANE_THREADS_MAX: usize = 256;
/// The most pieces of a lane's quick work that run at the same time. More threads than the disk can serve only cost
/// memory.
const QUICK_MAX: usize = 8;
/// Work that takes longer (a hanging mount) gives its quick place to other work, and keeps its thread.
const SLOW: Duration = Duration::from_secs(1);
/// The most pieces of long work of one lane, such as removals of whole trees. A pod decides how long they take, so they
/// run at low priority and never on the blocking threads; tenants, or else pods, take turns, and each has at most half of the
/// places.
const LONG_MAX: usize = 4;
/// The most pieces of a lane's work that wait; more are refused.
const WAITING_MAX: usize = 4096;

/// Work waits no longer than this for its key and its place. The actor that asked gets an ordinary error with the reason: work of one that
/// hangs would else be taken for a fault of all that wait behind it. Far below what an actor's effect may last.
const BEGIN_WITHIN: Duration = Duration::from_secs(60);

/// The priority of work that no one waits for.
const LOWEST_PRIORITY: i32 = 19;

/// Why blocking work was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRun {
    /// The I/O runtime has shut down: the work was not done, or its end was not seen.
    #[error("the I/O runtime has shut down")]
    RuntimeGone,
    /// Too much work of this owner already waits, since its calls hang.
    #[error("too many blocking calls of {owner} wait for their turn")]
    Busy {
        /// The lane's owner.
        owner: &'static str,
    },
    /// Other work of this owner, or with the same key, has not ended in time; this work has not begun.
    #[error("blocking calls of {owner} hang: no other could begin within {} s", BEGIN_WITHIN.as_secs())]
    Late {
        /// The lane's owner.
        owner: &'static str,
    },
}

type Job = Box<dyn FnOnce() + Send>;

/// The blocking work of one owner: a subsystem or a part of the bridge. Clones are the same lane.
///
/// Work begins when the returned future is polled and there is a place for it. Dropping the future before that cancels
/// the work, as happens to all futures of an actor's incarnation at its end. Work that has begun runs to its end even
/// when the future is dropped, since half an unmount or half a checkpoint would be worse than an unneeded one. It keeps
/// its key until then, so that the next incarnation's work for the same key waits for it.
///
/// A lane may be had for a tenant ([`Lane::of_tenant`]): of the lane's places a tenant has at most half, and of tenants that wait
/// the one with the fewest goes first. Work of no tenant may have all places.
#[derive(Clone)]
pub struct Lane {
    io: Handle,
    tenant: Arc<str>,
    places: Arc<Places>,
    keys: Keys,
}

struct Places {
    owner: &'static str,
    waiting: SharedPlaces,
    threads: SharedPlaces,
    quick: SharedPlaces,
    long: SharedPlaces,
}

/// The kind of thread that runs the work.
#[derive(Clone, Copy)]
enum Threads {
    /// A blocking thread of the I/O runtime.
    Blocking,
    /// A thread of its own with this name, at the lowest priority.
    LowPriority(&'static str),
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lane").field(&self.places.owner).finish()
    }
}

impl Lane {
    /// An empty lane of `owner`.
    pub fn new(owner: &'static str, io: Handle) -> Self {
        let places = Arc::new(Places::new(owner, LANE_THREADS_MAX));
        Self { io, tenant: Arc::default(), places, keys: Keys::default() }
    }

    /// A lane of another owner with places of its own; work with the same key in both lanes runs one piece at a time.
    #[must_use]
    pub fn beside(&self, owner: &'static str) -> Self {
        self.with_threads(owner, LANE_THREADS_MAX)
    }

    /// The same with [`WIDE_LANE_THREADS_MAX`] threads, for work whose callers give each tenant a few of them: it takes very many
    /// tenants whose work hangs to stop the rest.
    #[must_use]
    pub fn wide_beside(&self, owner: &'static str) -> Self {
        self.with_threads(owner, WIDE_LANE_THREADS_MAX)
    }

    fn with_threads(&self, owner: &'static str, threads: usize) -> Self {
        let places = Arc::new(Places::new(owner, threads));
        Self { io: self.io.clone(), tenant: self.tenant.clone(), places, keys: self.keys.clone() }
    }

    /// The same lane for the work of one of several that share its places, such as a namespace; an empty name is no tenant.
    #[must_use]
    pub fn of_tenant(&self, tenant: &str) -> Self {
        Self { tenant: Arc::from(tenant), ..self.clone() }
    }

    /// The handle of the I/O runtime.
    pub fn io(&self) -> &Handle {
        &self.io
    }

    /// Runs `work` on a thread that may block. A panic continues in the caller that awaits the future.
    pub fn run<T, E>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>>
    where
        T: Send + 'static,
        E: From<NotRun> + Send + 'static,
    {
        self.submit(None, Threads::Blocking, work)
    }

    /// The same as [`Lane::run`], after all earlier work with the same key.
    pub fn run_alone<T, E>(
        &self,
        key: impl Into<String>,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>>
    where
        T: Send + 'static,
        E: From<NotRun> + Send + 'static,
    {
        self.submit(Some(key.into()), Threads::Blocking, work)
    }

    /// Removes what a pod has filled, at low priority and after all work with the same key. A removal keeps its place to its
    /// end: however many trees are removed, and however large they are, no other work waits for that. It waits for its own
    /// place for as long as the removals before it take.
    pub fn remove<T, E>(
        &self,
        key: impl Into<String>,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>>
    where
        T: Send + 'static,
        E: From<NotRun> + Send + 'static,
    {
        self.submit(Some(key.into()), Threads::LowPriority("remove-tree"), work)
    }

    /// Runs long work on a thread of its own with this name, at the lowest priority.
    pub fn run_long<T, E>(
        &self,
        thread: &'static str,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>>
    where
        T: Send + 'static,
        E: From<NotRun> + Send + 'static,
    {
        self.submit(None, Threads::LowPriority(thread), work)
    }

    /// The same as [`Lane::run_long`], after all earlier work with the same key.
    pub fn run_long_alone<T, E>(
        &self,
        key: impl Into<String>,
        thread: &'static str,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>>
    where
        T: Send + 'static,
        E: From<NotRun> + Send + 'static,
    {
        self.submit(Some(key.into()), Threads::LowPriority(thread), work)
    }

    /// Runs work of several steps as a task of the I/O runtime. It begins when the returned future is polled, and runs to its
    /// end even when the future is dropped. A panic continues in the caller that awaits the future.
    pub fn run_steps<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>>
    where
        T: Send + 'static,
        E: From<NotRun> + Send + 'static,
    {
        let (io, work) = (self.io.clone(), panics::caught(work));
        async move { joined(io.spawn(work)).await }.boxed()
    }

    /// Waits for all work with this key that asked before, and has the key until what is returned is dropped: for what has
    /// several steps, which must not ask for the key themselves.
    ///
    /// # Errors
    /// [`NotRun::Late`] when that takes too long.
    pub async fn turn(&self, key: impl Into<String>) -> Result<Turn, NotRun> {
        let turn = tokio::time::timeout(BEGIN_WITHIN, self.keys.turn(key.into())).await;
        turn.map_err(|_| NotRun::Late { owner: self.places.owner })
    }

    fn submit<T, E>(
        &self,
        key: Option<String>,
        threads: Threads,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>>
    where
        T: Send + 'static,
        E: From<NotRun> + Send + 'static,
    {
        let (lane, (job, mut outcome)) = (self.clone(), telling(work));
        async move {
            let quick = lane.begin(key, threads, job).await?;
            let told = match tokio::time::timeout(SLOW, &mut outcome).await {
                Ok(told) => told,
                Err(_) => {
                    drop(quick);
                    outcome.await
                }
            };
            ended(told)
        }
        .boxed()
    }

    /// Waits for the turn of `job` and begins it. All work is boxed to one type, so that this code exists once. The
    /// caller gives the quick place back.
    async fn begin(
        self,
        key: Option<String>,
        threads: Threads,
        job: Job,
    ) -> Result<Option<SharedPlace>, NotRun> {
        let (places, tenant) = (&self.places, &*self.tenant);
        let waiting = places.waiting.try_place(tenant).ok_or(NotRun::Busy { owner: places.owner })?;
        let of_long = match (tenant, key.as_deref()) {
            ("", Some(key)) => pod_of(key).to_owned(),
            _ => tenant.to_owned(),
        };
        let turn = async {
            match key {
                Some(key) => Some(self.keys.turn(key).await),
                None => None,
            }
        };
        let begun = match threads {
            Threads::Blocking => {
                let begins = async {
                    let turn = turn.await;
                    Ok((turn, place(&places.threads, tenant).await?, place(&places.quick, tenant).await?))
                };
                let begins = tokio::time::timeout(BEGIN_WITHIN, begins).await;
                let (turn, thread, quick) = begins.map_err(|_| NotRun::Late { owner: places.owner })??;
                let job: Job = Box::new(move || {
                    job();
                    drop((turn, thread));
                });
                drop(self.io.spawn_blocking(job));
                Some(quick)
            }
            Threads::LowPriority(name) => {
                let turn = turn.await;
                let place = place(&places.long, &of_long).await?;
                let job: Job = Box::new(move || {
                    job();
                    drop((turn, place));
                });
                begin_at_low_priority(name, job);
                None
            }
        };
        drop(waiting);
        Ok(begun)
    }
}

/// The pod that work with this key is for: the name of its directory, or else the key.
fn pod_of(key: &str) -> &str {
    key.split_once("/pods/").and_then(|(_, rest)| rest.split('/').next()).unwrap_or(key)
}

impl Places {
    fn new(owner: &'static str, threads: usize) -> Self {
        Self {
            owner,
            waiting: SharedPlaces::new(WAITING_MAX),
            threads: SharedPlaces::new(threads),
            quick: SharedPlaces::new(QUICK_MAX),
            long: SharedPlaces::new(LONG_MAX),
        }
    }
}

async fn place(places: &SharedPlaces, tenant: &str) -> Result<SharedPlace, NotRun> {
    places.place(tenant).await.ok_or(NotRun::RuntimeGone)
}

/// Starts `work` on a thread of its own at the lowest priority, for long work that is not urgent. The caller bounds how
/// many such threads there are. The work begins at once, and runs to its end as work of a [`Lane`] does.
pub fn at_low_priority<T, E>(
    name: &'static str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> BoxFuture<'static, Result<T, E>>
where
    T: Send + 'static,
    E: From<NotRun> + Send + 'static,
{
    let (job, outcome) = telling(work);
    begin_at_low_priority(name, job);
    outcome.map(ended).boxed()
}

fn begin_at_low_priority(name: &'static str, job: Job) {
    let made = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // On Linux a priority belongs to a thread. If it cannot be lowered, the work is only quicker.
        let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
        job();
    });
    // Without a thread the job is dropped, and its caller gets [`NotRun::RuntimeGone`].
    drop(made);
}

/// The outcome of a job, or the panic that ended it.
type JobOutcome<T, E> = Result<Result<T, E>, Carried>;

/// The work as a job that sends its outcome.
fn telling<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> (Job, oneshot::Receiver<JobOutcome<T, E>>) {
    let (done, outcome) = oneshot::channel();
    // Perhaps no one waits any more.
    (Box::new(move || drop(done.send(panics::catch(work)))), outcome)
}

/// The outcome of such a job, or of a task, if it was seen.
fn ended<T, E: From<NotRun>, Unseen>(told: Result<JobOutcome<T, E>, Unseen>) -> Result<T, E> {
    told.map_or_else(|_| Err(NotRun::RuntimeGone.into()), panics::resumed)
}

/// What becomes of a task of the I/O runtime whose work is [`panics::caught`]: a panic goes on in the future that waits for it,
/// with its place.
///
/// # Errors
/// Those of the work, and [`NotRun::RuntimeGone`].
pub async fn joined<T, E: From<NotRun>>(
    running: impl Future<Output = Result<JobOutcome<T, E>, JoinError>>,
) -> Result<T, E> {
    ended(running.await)
}

#[cfg(test)]
mod tests;
