//! Notices the end of a container's process at once, on any runtime (row 30.4).
//!
//! A pidfd becomes readable when its process ends. The report only asks Pleg to look at this container now: the process
//! ends a little before the runtime knows it, and a reused pid would be watched in vain. Pleg's relist heals both.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use futures::stream::BoxStream;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;

use super::wire::ContainerStatusResponse;
use bridge_io::Io;
use bridge_pace::panics;

/// A container's process has ended, or was gone when the watch began.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exited {
    /// The ID of the container that the process belonged to.
    pub container_id: String,
    /// The process ID.
    pub pid: u32,
}

/// A watch that could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ExitWatchError {
    /// As many containers are watched as the bound allows; Pleg's relist will see this one's end.
    #[error("watch exit of container {container_id}: {limit} containers are watched already")]
    Full {
        /// The container that is not watched.
        container_id: String,
        /// The bound.
        limit: usize,
    },
    /// The kernel refused the watch.
    #[error("watch exit of container {container_id}, pid {pid}: {error}")]
    Kernel {
        /// The container that is not watched.
        container_id: String,
        /// Its process ID.
        pid: u32,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Reports the ends of containers' processes.
pub trait ExitWatcher: Send + Sync + 'static {
    /// Watches `pid` of a container until it ends, [`unwatch`](Self::unwatch) is called or the watcher is dropped.
    /// Watching the same pid of the same container again does nothing; another pid replaces the first. A pid that no
    /// longer exists is reported at once.
    ///
    /// # Errors
    /// [`ExitWatchError`]; the container is then not watched.
    fn watch(&self, container_id: &str, pid: u32) -> Result<(), ExitWatchError>;

    /// Ends the watch of a container; does nothing for one that is not watched.
    fn unwatch(&self, container_id: &str);

    /// A stream of the ends from now on. There is one subscriber at a time: a new one (the asking actor's next
    /// incarnation) replaces the old one and ends its stream. An end while there is no subscriber is not kept.
    fn exits(&self) -> BoxStream<'static, Exited>;
}

/// The longest verbose answer that is searched for a process ID, in bytes: it repeats what the pod's author wrote, several times.
const INFO_BYTES_MAX: usize = 1024 * 1024;

/// The process ID that containerd and CRI-O put into a verbose `ContainerStatus`; `None` while no process runs, where the runtime
/// does not state it, or in an answer of more than 1 MiB.
#[must_use]
pub fn container_pid(status: &ContainerStatusResponse) -> Option<u32> {
    #[derive(serde::Deserialize)]
    struct Info {
        pid: u32,
    }
    let text = status.info.get("info").filter(|text| text.len() <= INFO_BYTES_MAX)?;
    let info: Info = serde_json::from_str(text).ok()?;
    Some(info.pid).filter(|pid| *pid != 0)
}

/// Watches processes of this machine through pidfds; each costs one file descriptor and no thread.
#[derive(Clone)]
pub struct PidfdWatcher {
    io: Io,
    inner: Arc<Inner>,
}

struct Inner {
    limit: usize,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    by_container: BTreeMap<String, Watch>,
    subscriber: Option<mpsc::Sender<Exited>>,
}

struct Watch {
    pid: u32,
    // Dropping it ends the watch and closes the pidfd.
    _task: AbortOnDropHandle<()>,
}

impl PidfdWatcher {
    /// A watcher of at most `limit` containers at a time (a file descriptor each).
    #[must_use]
    pub fn new(io: Io, limit: usize) -> Self {
        let limit = limit.max(1);
        Self { io, inner: Arc::new(Inner { limit, watched: Mutex::default() }) }
    }

    /// How many containers are watched now.
    #[must_use]
    pub fn watching(&self) -> usize {
        self.inner.lock().by_container.len()
    }

    /// Reports when `end` has come. A watch that breaks reports, too: Pleg then looks, and may watch again.
    fn begin(&self, watched: &mut Watched, exited: Exited, end: impl Future<Output = ()> + Send + 'static) {
        let (container_id, pid, inner) =
            (exited.container_id.clone(), exited.pid, Arc::downgrade(&self.inner));
        let task = self.io.spawn(async move {
            if let Err(panic) = panics::caught(end).await {
                tracing::error!(%panic, container_id = exited.container_id, "The watch of a container's process broke");
            }
            if let Some(inner) = inner.upgrade() {
                inner.report(exited);
            }
        });
        let watch = Watch { pid, _task: AbortOnDropHandle::new(task) };
        watched.by_container.insert(container_id, watch);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, exited: Exited) {
        let mut watched = self.lock();
        if watched.by_container.get(&exited.container_id).is_some_and(|watch| watch.pid == exited.pid) {
            watched.by_container.remove(&exited.container_id);
        }
        // A subscriber that lags behind by a whole bound of ends misses this one; Pleg's relist sees it.
        if let Some(subscriber) = &watched.subscriber
            && let Err(error) = subscriber.try_send(exited)
        {
            tracing::debug!(%error, "a container's end reached no subscriber");
        }
    }
}

#[allow(
    deprecated,
    reason = "its successor is an unsafe fn whose demand, a descriptor that stays open, an OwnedFd meets"
)]
fn readable_at_exit(process: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(process, Interest::READABLE)
}

impl ExitWatcher for PidfdWatcher {
    fn watch(&self, container_id: &str, pid: u32) -> Result<(), ExitWatchError> {
        let kernel =
            |error: io::Error| ExitWatchError::Kernel { container_id: container_id.into(), pid, error };
        let exited = Exited { container_id: container_id.to_owned(), pid };
        let mut watched = self.inner.lock();
        match watched.by_container.get(container_id) {
            Some(watch) if watch.pid == pid => return Ok(()),
            None if watched.by_container.len() >= self.inner.limit => {
                return Err(ExitWatchError::Full {
                    container_id: container_id.into(),
                    limit: self.inner.limit,
                });
            }
            _ => {}
        }
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(|| kernel(io::ErrorKind::InvalidInput.into()))?;
        let process = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => {
                watched.by_container.remove(container_id);
                drop(watched);
                self.inner.report(exited);
                return Ok(());
            }
            Err(error) => return Err(kernel(error.into())),
        };
        let readable = self.io.enter(|| readable_at_exit(process)).map_err(kernel)?;
        self.begin(&mut watched, exited, async move { drop(readable.readable().await) });
        Ok(())
    }

    fn unwatch(&self, container_id: &str) {
        self.inner.lock().by_container.remove(container_id);
    }

    fn exits(&self) -> BoxStream<'static, Exited> {
        let (subscriber, exits) = mpsc::channel(self.inner.limit);
        self.inner.lock().subscriber = Some(subscriber);
        ReceiverStream::new(exits).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_pid_is_read_from_the_verbose_status() {
        let status = |info: &str| ContainerStatusResponse {
            info: [("info".to_owned(), info.to_owned())].into(),
            ..Default::default()
        };
        assert_eq!(container_pid(&status(r#"{"sandboxID":"a","pid":4711,"removing":false}"#)), Some(4711));
        assert_eq!(container_pid(&status(r#"{"pid":0}"#)), None);
        assert_eq!(container_pid(&status("not json")), None);
        assert_eq!(container_pid(&ContainerStatusResponse::default()), None);
    }

    #[tokio::test]
    async fn ends_are_reported_watches_are_bounded_and_gone_pids_come_at_once() {
        let watcher = PidfdWatcher::new(Io::current(), 1);
        let mut exits = watcher.exits();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        watcher.watch("a", pid).unwrap();
        watcher.watch("a", pid).unwrap();
        assert!(matches!(watcher.watch("b", pid), Err(ExitWatchError::Full { limit: 1, .. })));
        assert_eq!(watcher.watching(), 1);
        drop(child.stdin.take());
        let next = tokio::time::timeout(Duration::from_secs(10), exits.next()).await.unwrap();
        assert_eq!(next, Some(Exited { container_id: "a".into(), pid }));
        assert_eq!(watcher.watching(), 0);
        child.wait().unwrap();
        watcher.watch("c", pid).unwrap();
        assert_eq!(exits.next().await, Some(Exited { container_id: "c".into(), pid }));
    }

    #[tokio::test]
    async fn a_watch_that_breaks_reports_and_is_there_no_longer() {
        let watcher = PidfdWatcher::new(Io::current(), 1);
        let mut exits = watcher.exits();
        let exited = Exited { container_id: "a".into(), pid: 1 };
        watcher.begin(&mut watcher.inner.lock(), exited.clone(), async { panic!("in the watch") });
        let next = tokio::time::timeout(Duration::from_secs(10), exits.next()).await.unwrap();
        assert_eq!((next, watcher.watching()), (Some(exited), 0));
    }

    #[tokio::test]
    async fn a_new_subscriber_takes_the_place_of_the_old_one() {
        let watcher = PidfdWatcher::new(Io::current(), 4);
        let mut old = watcher.exits();
        let _new = watcher.exits();
        assert_eq!(old.next().await, None);
    }
}
