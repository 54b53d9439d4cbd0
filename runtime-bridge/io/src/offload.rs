//! Blocking work on threads that may block, in lanes: each owner has a lane of its own, so that hanging calls of one
//! owner never stop another's; and one piece of work at a time for each key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::panics::{self, Carried};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinError;

use super::keys::{Keys, Turn};
use super::shares::SharedPlaces;

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
/// run at low priority and never on the blocking threads; pods take turns, and each has at most half of the places.
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
#[derive(Clone)]
pub struct Lane {
    io: Handle,
    places: Arc<Places>,
    keys: Keys,
}

struct Places {
    owner: &'static str,
    waiting: Arc<Semaphore>,
    threads: Arc<Semaphore>,
    quick: Arc<Semaphore>,
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
        Self { io, places: Arc::new(Places::new(owner, LANE_THREADS_MAX)), keys: Keys::default() }
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
        Self { io: self.io.clone(), places, keys: self.keys.clone() }
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
    ) -> Result<Option<OwnedSemaphorePermit>, NotRun> {
        let places = &self.places;
        let waiting = places.waiting.clone().try_acquire_owned();
        let waiting = waiting.map_err(|_| NotRun::Busy { owner: places.owner })?;
        let pod = key.as_deref().map(pod_of).unwrap_or_default().to_owned();
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
                    Ok((turn, place(&places.threads).await?, place(&places.quick).await?))
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
                let place = places.long.place(&pod).await.ok_or(NotRun::RuntimeGone)?;
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
        let places = |count| Arc::new(Semaphore::new(count));
        Self {
            owner,
            waiting: places(WAITING_MAX),
            threads: places(threads),
            quick: places(QUICK_MAX),
            long: SharedPlaces::new(LONG_MAX),
        }
    }
}

async fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, NotRun> {
    places.clone().acquire_owned().await.map_err(|_| NotRun::RuntimeGone)
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
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Far longer than any work takes that does not hang.
    const SOON: Duration = Duration::from_secs(60);

    fn lane() -> Lane {
        Lane::new("test", Handle::current())
    }

    /// Work that sends its number when it begins, and hangs until the gate is dropped.
    struct Gate {
        begun: mpsc::Sender<usize>,
        begins: mpsc::Receiver<usize>,
        gates: Vec<mpsc::Sender<()>>,
    }

    impl Gate {
        fn new() -> Self {
            let (begun, begins) = mpsc::channel();
            Self { begun, begins, gates: Vec::new() }
        }

        fn work(&mut self, number: usize) -> impl FnOnce() -> Result<usize, NotRun> + Send + use<> {
            let (gate, opened) = mpsc::channel::<()>();
            self.gates.push(gate);
            let begun = self.begun.clone();
            move || {
                let _ = begun.send(number);
                let _ = opened.recv();
                Ok(number)
            }
        }

        /// Waits until `count` pieces of work have begun since the last call.
        async fn begun(&self, count: usize) -> Vec<usize> {
            let mut begun = Vec::new();
            while begun.len() < count {
                match self.begins.try_recv() {
                    Ok(number) => begun.push(number),
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
            begun
        }
    }

    #[tokio::test]
    async fn slow_removals_hold_nothing_else_up_and_all_end() {
        let (lane, mut gate) = (lane(), Gate::new());
        let removals: Vec<_> =
            (0..100).map(|number| tokio::spawn(lane.remove(number.to_string(), gate.work(number)))).collect();
        gate.begun(4).await;
        let name = lane.run(|| Ok::<_, NotRun>(std::thread::current().name().map(str::to_owned)));
        let name = tokio::time::timeout(SOON, name).await.unwrap().unwrap();
        assert_ne!(name.as_deref(), Some("remove-tree"));
        assert!(gate.begins.try_recv().is_err(), "a place is kept to the end");
        drop(gate);
        let ended = futures::future::join_all(removals).await;
        let ended: Vec<_> = ended.into_iter().map(Result::unwrap).collect();
        assert_eq!(ended, (0..100).map(Ok).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn removals_of_one_pods_trees_leave_places_to_other_pods() {
        let (lane, mut gate) = (lane(), Gate::new());
        let tree = |number: usize| format!("/var/lib/kubelet/pods/crowd/volumes/kind/{number}");
        let crowd: Vec<_> =
            (0..50).map(|number| tokio::spawn(lane.remove(tree(number), gate.work(number)))).collect();
        gate.begun(2).await;
        let other = lane.remove("/var/lib/kubelet/pods/quiet/volumes/kind/v", || Ok::<_, NotRun>(1));
        assert_eq!(tokio::time::timeout(SOON, other).await, Ok(Ok(1)));
        assert!(gate.begins.try_recv().is_err(), "a pod has half of the places");
        drop(gate);
        for one in crowd {
            one.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn hung_calls_of_one_owner_never_stop_another() {
        let (hung, other, mut gate) = (lane(), lane(), Gate::new());
        let calls: Vec<_> = (0..1000).map(|number| tokio::spawn(hung.run(gate.work(number)))).collect();
        gate.begun(LANE_THREADS_MAX).await;
        let done = tokio::time::timeout(SOON, other.run(|| Ok::<_, NotRun>(1))).await;
        assert_eq!(done, Ok(Ok(1)));
        let beside = tokio::time::timeout(SOON, hung.beside("other").run(|| Ok::<_, NotRun>(1))).await;
        assert_eq!(beside, Ok(Ok(1)));
        assert!(gate.begins.try_recv().is_err(), "no lane has more threads than are its own");
        drop(gate);
        for call in calls {
            call.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn what_was_queued_for_a_dead_asker_never_begins_and_what_had_begun_keeps_its_key() {
        let (lane, mut gate) = (lane(), Gate::new());
        let begun = tokio::spawn(lane.run_alone("pod", gate.work(1)));
        gate.begun(1).await;
        let mut queued = lane.run_alone("pod", gate.work(2));
        assert!(futures::poll!(&mut queued).is_pending());
        // The incarnation that asked for both pieces of work ends.
        begun.abort();
        drop(queued);
        let mut next = lane.beside("next").run_alone("pod", gate.work(3));
        assert!(futures::poll!(&mut next).is_pending(), "it waits for what has begun");
        let elsewhere = lane.run_alone("another pod", || Ok::<_, NotRun>(4));
        assert_eq!(tokio::time::timeout(SOON, elsewhere).await, Ok(Ok(4)));
        assert!(gate.begins.try_recv().is_err());
        gate.gates.clear();
        assert_eq!(tokio::time::timeout(SOON, next).await, Ok(Ok(3)));
        assert_eq!(gate.begins.try_recv(), Ok(3), "the second one has not run");
        // The thread gives its key back after it has sent its outcome.
        let all_given_back = async {
            while !lane.keys.are_free() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, all_given_back).await.unwrap();
    }

    #[tokio::test]
    async fn a_full_lane_refuses_and_says_whose_it_is() {
        let (lane, mut gate) = (lane(), Gate::new());
        let _holds = tokio::spawn(lane.run_alone("pod", gate.work(0)));
        gate.begun(1).await;
        let mut waiting: Vec<_> =
            (0..WAITING_MAX).map(|_| lane.run_alone("pod", || Ok::<_, NotRun>(()))).collect();
        for one in &mut waiting {
            assert!(futures::poll!(one).is_pending());
        }
        let refused = lane.run(|| Ok::<_, NotRun>(())).await;
        assert_eq!(refused, Err(NotRun::Busy { owner: "test" }));
        drop(waiting);
        assert_eq!(lane.run(|| Ok::<_, NotRun>(())).await, Ok(()), "those that gave up have made room");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_begin_for_work_that_hangs_is_told_so_and_never_begins() {
        let (lane, mut gate) = (lane(), Gate::new());
        let hung: Vec<_> =
            (0..LANE_THREADS_MAX).map(|number| tokio::spawn(lane.run(gate.work(number)))).collect();
        // The paused clock stands while a thread blocks: it is moved on so that those that hang count as slow.
        let mut begun = 0;
        while begun < LANE_THREADS_MAX {
            begun += gate.begins.try_iter().count();
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        let mut waiting = lane.run(gate.work(LANE_THREADS_MAX));
        assert!(futures::poll!(&mut waiting).is_pending());
        tokio::time::advance(BEGIN_WITHIN).await;
        assert_eq!(futures::poll!(&mut waiting), std::task::Poll::Ready(Err(NotRun::Late { owner: "test" })));
        drop(waiting);
        gate.gates.clear();
        for one in hung {
            one.await.unwrap().unwrap();
        }
        assert_eq!(lane.run(|| Ok::<_, NotRun>(())).await, Ok(()));
        assert!(gate.begins.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn work_waits_no_longer_for_its_key_than_for_a_thread() {
        let (lane, mut gate) = (lane(), Gate::new());
        let hung = tokio::spawn(lane.run_alone("path", gate.work(0)));
        while gate.begins.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        let mut waiting = lane.run_alone("path", || Ok::<_, NotRun>(()));
        assert!(futures::poll!(&mut waiting).is_pending());
        tokio::time::advance(BEGIN_WITHIN).await;
        assert_eq!(waiting.await, Err(NotRun::Late { owner: "test" }));
        gate.gates.clear();
        hung.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_panic_takes_its_place_along() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            panics::note(info.location().map(ToString::to_string).unwrap_or_default());
            hook(info);
        }));
        let of_job = lane().run(broken);
        let running = Handle::current().spawn(panics::caught(async { broken() }));
        let of_steps = lane().run_steps(async { broken() });
        for work in [of_job, joined(running).boxed(), of_steps] {
            let panicked = format!("{:?}", panics::caught(work).await.unwrap_err());
            assert!(panicked.contains(&format!("offload.rs:{BROKEN}:")), "{panicked}, not {BROKEN}");
        }
    }

    const BROKEN: u32 = line!() + 3;

    fn broken() -> Result<(), NotRun> {
        panic!("in the work");
    }

    #[tokio::test]
    async fn a_panic_goes_on_in_whoever_waits_and_gives_the_key_back() {
        let lane = lane();
        let panics = tokio::spawn(lane.run_alone("pod", || -> Result<(), NotRun> { panic!("in the work") }));
        assert!(panics.await.unwrap_err().is_panic());
        let next = lane.run_alone("pod", || Ok::<_, NotRun>(()));
        assert_eq!(tokio::time::timeout(SOON, next).await, Ok(Ok(())));
    }
}
