//! The one multi-thread runtime on which every socket, child process and blocking call of the bridge lives.
//!
//! A blocked disk or a busy connection then never holds up an actor's thread, and no connection dies with an arbiter.

use std::future::Future;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// How long a stopping I/O runtime waits for blocking calls that are still running.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Blocking calls (file systems, `fsync`) that may run at the same time; more of them wait.
const BLOCKING_THREADS_MAX: usize = 64;

/// A handle on the I/O runtime. Cheap to clone; it does not keep the runtime alive.
#[derive(Clone, Debug)]
pub struct Io {
    handle: Handle,
}

/// Owns the I/O runtime: dropping it stops every task on it, waiting at most two seconds for blocking calls.
///
/// It must be dropped on a thread that runs no async code: the end of `main`.
#[derive(Debug)]
pub struct IoRuntime {
    // Taken only while dropping.
    runtime: Option<Runtime>,
    io: Io,
}

impl Io {
    /// Starts a runtime of its own with `threads` workers (at least one), with timers and I/O.
    ///
    /// # Errors
    /// The operating system's error when the threads or the poller cannot be made.
    pub fn start(threads: usize) -> std::io::Result<IoRuntime> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("io")
            .enable_all()
            .build()?;
        let io = Io { handle: runtime.handle().clone() };
        Ok(IoRuntime { runtime: Some(runtime), io })
    }

    /// The runtime the caller runs on: for tests on a paused single-thread clock.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn current() -> Self {
        Self { handle: Handle::current() }
    }

    /// Runs `future` on the I/O runtime whether or not anybody keeps the returned handle.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // By its output's type alone: a task of tokio's for each future's own type is much code.
        let future: BoxFuture<'static, F::Output> = Box::pin(future);
        self.handle.spawn(future)
    }

    /// Runs `f` on a thread where it may block. It cannot be cancelled once it has begun.
    ///
    /// Not for paused clocks: tokio's clock stands still while a blocking call runs.
    pub fn blocking<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let f: Box<dyn FnOnce() -> T + Send> = Box::new(f);
        self.handle.spawn_blocking(f)
    }

    /// Calls `f` inside the runtime, so that sockets and timers made by it belong there.
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        let _inside = self.handle.enter();
        f()
    }
}

impl IoRuntime {
    /// The handle that the bridge's parts keep.
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
}
