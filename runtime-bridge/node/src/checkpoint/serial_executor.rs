//! Work that must happen in the order of the calls, without a thread of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_pace::panics;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The most jobs that wait; the node has at most a few hundred pods with one save under way each.
const WAITING_MAX: usize = 4096;

/// A job waits no longer than this for those before it: a disk that hangs is told as an error, and not taken for a fault of
/// the pods whose saves wait.
const BEGIN_WITHIN: Duration = Duration::from_secs(60);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    draining: bool,
}

/// A queue of jobs. Two saves under one name must not overtake each other, as two `spawn_blocking` calls may: the older
/// content would stay on disk. One blocking thread drains the queue and ends when the queue is empty.
#[derive(Clone)]
pub(crate) struct SerialExecutor {
    io: Handle,
    queue: Arc<Mutex<Queue>>,
}

/// Why a job was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Too many jobs wait, or those before it have not ended in time.
    Full,
    /// The runtime has shut down.
    Gone,
}

impl SerialExecutor {
    pub(crate) fn new(io: Handle) -> Self {
        Self { io, queue: Arc::default() }
    }

    /// A queue for another owner on the same runtime: hanging jobs of one do not stop the other.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.io.clone())
    }

    /// Queues `work` now; it runs after everything queued before it, whether or not the future is polled. Work whose
    /// future is dropped before it begins does not run: it belongs to an incarnation that has ended, and the next one
    /// knows better; nor does work that has waited for a minute. Work that has begun runs to its end, and the next one's waits for it.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Refused>> {
        let (tell, told) = oneshot::channel();
        let (begin, begun) = oneshot::channel();
        let job: Job = Box::new(move || {
            if !tell.is_closed() {
                let _ = begin.send(());
                // The actor that asked may have gone meanwhile.
                let _ = tell.send(panics::catch(work));
            }
        });
        let start = {
            let mut queue = locked(&self.queue);
            if queue.jobs.len() >= WAITING_MAX {
                return std::future::ready(Err(Refused::Full)).boxed();
            }
            queue.jobs.push_back(job);
            !std::mem::replace(&mut queue.draining, true)
        };
        if start {
            let queue = Arc::clone(&self.queue);
            // Not awaited: the thread ends when the queue is empty.
            drop(self.io.spawn_blocking(move || drain(&queue)));
        }
        async move {
            // Dropped before it begins the job tells by `told`.
            let _ = tokio::time::timeout(BEGIN_WITHIN, begun).await.map_err(|_| Refused::Full)?;
            told.await.map(panics::resumed).map_err(|_| Refused::Gone)
        }
        .boxed()
    }
}

fn drain(queue: &Mutex<Queue>) {
    loop {
        let job = {
            let mut queue = locked(queue);
            match queue.jobs.pop_front() {
                Some(job) => job,
                None => {
                    queue.draining = false;
                    return;
                }
            }
        };
        // Its panic is caught and goes on in its caller; the jobs behind it still run.
        job();
    }
}

fn locked(queue: &Mutex<Queue>) -> std::sync::MutexGuard<'_, Queue> {
    queue.lock().expect("no job runs while this lock is held")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn queued_work_of_a_dead_incarnation_is_dropped_and_what_has_begun_is_waited_for() {
        let serial_executor = SerialExecutor::new(Handle::current());
        let (tell, told) = mpsc::channel();
        let (gate, opened) = mpsc::channel::<()>();
        let writes = |number: u32| {
            let tell = tell.clone();
            move || tell.send(number).unwrap()
        };
        let first = writes(1);
        let begun = serial_executor.run(move || {
            first();
            let _ = opened.recv();
        });
        while told.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        let queued = serial_executor.run(writes(2));
        drop((begun, queued));
        let next = serial_executor.run(writes(3));
        let other = serial_executor.another().run(|| 4);
        assert_eq!(other.await, Ok(4), "another owner's does not wait for what hangs");
        assert!(told.try_recv().is_err(), "the next one waits for what has begun");
        drop(gate);
        assert_eq!(next.await, Ok(()));
        assert_eq!(told.try_recv(), Ok(3), "the second one has not run");
    }

    #[tokio::test]
    async fn a_panic_of_a_job_goes_on_in_its_caller_and_the_next_job_runs() {
        let serial_executor = SerialExecutor::new(Handle::current());
        let broken = serial_executor.run(|| -> u32 {
            panics::note("there".to_owned());
            panic!("in the job")
        });
        let next = serial_executor.run(|| 2);
        let panic = panics::caught(broken).await.unwrap_err();
        assert_eq!(panic.to_string(), "in the job at there");
        assert_eq!(next.await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_behind_one_that_hangs_is_refused_and_never_runs() {
        let serial_executor = SerialExecutor::new(Handle::current());
        let (gate, opened) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let begins = tell.clone();
        let hung = serial_executor.run(move || {
            begins.send(1).unwrap();
            let _ = opened.recv();
        });
        while told.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        let mut waiting = serial_executor.run(move || tell.send(2).unwrap());
        assert!(futures::poll!(&mut waiting).is_pending());
        tokio::time::advance(BEGIN_WITHIN).await;
        assert_eq!(waiting.await, Err(Refused::Full));
        drop(gate);
        assert_eq!(hung.await, Ok(()));
        assert_eq!(serial_executor.run(|| 3).await, Ok(3));
        assert!(told.try_recv().is_err(), "what was refused has not run");
    }
}
