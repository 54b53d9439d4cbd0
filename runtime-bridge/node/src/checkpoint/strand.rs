//! Work that must happen in the order in which it was asked for, without a thread of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use bridge_io::RuntimeGone;

/// Jobs that wait at most; the node has at most a few hundred pods and each has one save under way.
const WAITING_MAX: usize = 4096;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    draining: bool,
}

/// Two saves under one name must not overtake each other, as two `spawn_blocking` calls may: the older content
/// would stay on disk. One blocking thread drains the queue and goes home when it is empty.
#[derive(Clone)]
pub(crate) struct Strand {
    io: Handle,
    queue: Arc<Mutex<Queue>>,
}

/// Why a job was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Too many jobs wait.
    Full,
    /// The runtime is gone, or the job panicked.
    Gone,
}

impl From<RuntimeGone> for Refused {
    fn from(_: RuntimeGone) -> Self {
        Self::Gone
    }
}

impl Strand {
    pub(crate) fn new(io: Handle) -> Self {
        Self { io, queue: Arc::default() }
    }

    /// Queues `work` now; it runs after everything queued before it, whether or not the future is polled.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Refused>> {
        let (tell, told) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Nobody waiting is fine: the work is done all the same.
            let _ = tell.send(work());
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
            // Detached on purpose: it ends when the queue is empty.
            drop(self.io.spawn_blocking(move || drain(&queue)));
        }
        async move { told.await.map_err(|_| Refused::Gone) }.boxed()
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
        // A panicking job drops its sender, which its caller sees; the jobs behind it still run.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}

fn locked(queue: &Mutex<Queue>) -> std::sync::MutexGuard<'_, Queue> {
    queue.lock().expect("no job runs while this lock is held")
}
