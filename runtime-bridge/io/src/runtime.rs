//! The multi-thread runtimes on which every socket, child process and blocking call of the bridge lives.
//!
//! A slow disk or a busy connection then never holds up an actor's thread, and no connection ends with an arbiter. The
//! kubelet has two: one for what it asks of others, and one for what others ask of it, so that its clients cannot hold up
//! its own calls.

use std::future::Future;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::SharedTask;
use crate::offload::{LANE_THREADS_MAX, Lane, NotRun, WIDE_LANE_THREADS_MAX};

/// How long a stopping I/O runtime waits for blocking calls that are still running.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// The most lanes of blocking calls in the bridge, each with threads of its own, beside one wide one.
const LANES_MAX: usize = 36;
/// Threads for blocking calls (file systems, `fsync`), started when they are needed: enough for all lanes at once, so
/// that work with a place in its lane never waits for a thread.
const BLOCKING_THREADS_MAX: usize = LANES_MAX * LANE_THREADS_MAX + WIDE_LANE_THREADS_MAX;

/// A handle of the I/O runtime, with a lane for blocking calls. Cheap to clone; it does not keep the runtime alive.
#[derive(Clone, Debug)]
pub struct Io {
    handle: Handle,
    lane: Lane,
}

/// Owns the I/O runtime: dropping it stops every task on it, waiting at most two seconds for blocking calls.
///
/// It must be dropped on a thread that runs no async code, such as at the end of `main`.
#[derive(Debug)]
pub struct IoRuntime {
    // `None` only while it is being dropped.
    runtime: Option<Runtime>,
    io: Io,
}

impl Io {
    /// Starts a runtime of its own with `threads` workers (at least one) named "io", with timers and I/O.
    ///
    /// # Errors
    /// The operating system's error when the threads or the poller cannot be made.
    pub fn start(threads: usize) -> std::io::Result<IoRuntime> {
        Self::start_named("io", threads)
    }

    /// Does what [`Io::start`] does, with threads of this name.
    ///
    /// # Errors
    /// As [`Io::start`].
    pub fn start_named(name: &'static str, threads: usize) -> std::io::Result<IoRuntime> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name(name)
            .enable_all()
            .build()?;
        let io = Io::of(runtime.handle().clone());
        Ok(IoRuntime { runtime: Some(runtime), io })
    }

    /// The runtime the caller runs on: for tests on a paused single-thread clock.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn current() -> Self {
        Self::of(Handle::current())
    }

    fn of(handle: Handle) -> Self {
        Self { lane: Lane::new("kubelet", handle.clone()), handle }
    }

    /// A handle of the same runtime for one subsystem: its blocking calls have a lane of their own, so that hanging
    /// calls of one subsystem do not stop another.
    #[must_use]
    pub fn for_owner(&self, owner: &'static str) -> Self {
        Self { handle: self.handle.clone(), lane: Lane::new(owner, self.handle.clone()) }
    }

    /// The same for one of several that share the places of this handle's lane, as [`Lane::of_tenant`].
    #[must_use]
    pub fn of_tenant(&self, tenant: &str) -> Self {
        Self { handle: self.handle.clone(), lane: self.lane.of_tenant(tenant) }
    }

    /// Runs `future` on the I/O runtime, also when the returned handle is dropped.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // Boxed to one type per output, since tokio's task code would else be compiled for each future's own type.
        let future: BoxFuture<'static, F::Output> = Box::pin(future);
        self.handle.spawn(future)
    }

    /// Runs `work` on the I/O runtime for all callers that share its outcome; `gone` is the outcome if it is cancelled.
    pub fn spawn_shared<T: Clone + Send + Sync + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        gone: impl FnOnce() -> T + Send + 'static,
    ) -> SharedTask<T> {
        SharedTask::spawn(&self.handle, work, gone)
    }

    /// Runs `f` on a thread where it may block, once there is a place in this handle's [`Lane`]. Dropping the future
    /// cancels `f` until it has begun, and not after.
    ///
    /// Not for paused clocks: tokio does not advance its clock while a blocking call runs.
    ///
    /// # Errors
    /// [`NotRun`], as from [`Lane::run`].
    pub fn blocking<F, T>(&self, f: F) -> BoxFuture<'static, Result<T, NotRun>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.lane.run(move || Ok(f()))
    }

    /// This handle's lane.
    #[must_use]
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Calls `f` inside the runtime, so that sockets and timers that it makes belong to the runtime.
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        let _inside = self.handle.enter();
        f()
    }
}

impl IoRuntime {
    /// The handle that the bridge's parts clone.
    #[must_use]
    pub fn io(&self) -> Io {
        self.io.clone()
    }
}

impl Drop for IoRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn work_runs_on_the_io_threads_and_ends_with_the_guard() {
        let runtime = Io::start(1).unwrap();
        let io = runtime.io();
        let name = || std::thread::current().name().map(str::to_owned);
        let (tx, rx) = std::sync::mpsc::channel();
        drop(io.spawn(async move { tx.send(name()) }));
        assert_eq!(rx.recv().unwrap().as_deref(), Some("io"));
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        drop(io.spawn(async move {
            let _held = tx;
            std::future::pending::<()>().await;
        }));
        drop(runtime);
        assert!(rx.recv().is_err(), "the task was dropped with its runtime");
    }

    #[test]
    fn what_hangs_for_one_tenant_holds_up_no_other() {
        let runtime = Io::start(2).unwrap();
        let io = runtime.io();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for _ in 0..2 * LANE_THREADS_MAX {
            let wait = wait.clone();
            let hangs = io.of_tenant("crowd").blocking(move || wait.lock().unwrap().recv());
            drop(io.spawn(hangs));
        }
        let (tell, told) = std::sync::mpsc::channel();
        drop(io.spawn(io.of_tenant("other").blocking(move || tell.send(()))));
        assert!(told.recv_timeout(Duration::from_secs(50)).is_ok(), "the crowd has half of the threads");
        drop(go);
    }
}
