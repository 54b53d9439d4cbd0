//! Mutating calls in flight: each runs to its end even if its caller goes away, one at a time per key; a call that is
//! identical to the last one queued under its key joins that one.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_io::watch;
use futures::FutureExt;
use futures::future::BoxFuture;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::error::{CriError, CriErrorKind};
use super::operations::{EnsureError, Ensured};
use super::rpc::Rpc;
use bridge_io::{Io, SharedTask};
use bridge_pace::history::{History, StepKind};

/// The most calls queued under one key, the running one included; further calls are refused.
const QUEUED_MAX: usize = 16;

/// The runtime's name in the history of a pod.
const RUNTIME: &str = "runtime";

/// The result of a flight. Calls without an answer have an empty ID.
pub(crate) type Outcome = Result<Ensured, EnsureError>;

/// An object that only one mutating call at a time may touch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A sandbox that has no ID yet.
    Pod(String),
    Sandbox(String),
    /// A container that has no ID yet.
    Create {
        sandbox_id: String,
        name: String,
    },
    Container(String),
    /// A container's log, apart from the container's stop, which may last as long as its grace period.
    Log(String),
    /// A container's checkpoint, which callers of the kubelet's server ask for: nothing that a pod needs waits for it.
    Checkpoint(String),
    Image(String),
    /// Pulls of one image by pods that may share the pull; pulls of other shares run beside it.
    Pull(String, PullShare),
    Runtime,
}

/// Identifies the pods that may share a pull: a fingerprint of everything that decides whether the image may be pulled.
/// Credentials go into it, so `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PullShare([u8; 32]);

impl PullShare {
    /// The fingerprint of these parts in this order.
    pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            let part = part.as_ref();
            // Without the lengths, two different lists of parts could yield the same bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Debug for PullShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PullShare(…)")
    }
}

impl Key {
    fn target(&self) -> String {
        match self {
            Key::Pod(id) | Key::Sandbox(id) | Key::Container(id) | Key::Image(id) | Key::Pull(id, _) => {
                id.clone()
            }
            Key::Log(id) => format!("{id}/log"),
            Key::Checkpoint(id) => format!("{id}/checkpoint"),
            Key::Create { sandbox_id, name } => format!("{sandbox_id}/{name}"),
            Key::Runtime => String::new(),
        }
    }
}

/// What two calls of one RPC under one key must have in common to be the same call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Same {
    Always,
    Attempt(u32),
    /// Seconds until SIGKILL. A shorter grace does not wait for a longer one: see [`InFlightCalls::submit`].
    Grace(i64),
    /// The encoded request.
    Request(Vec<u8>),
}

/// A mutating call that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The call.
    pub rpc: Rpc,
    /// The object of the call: a pod UID, a sandbox's or container's ID, or `<sandbox>/<container name>`.
    pub target: String,
    /// Whether it waits for another call.
    pub waiting: bool,
    /// The time since the call was submitted.
    pub age: Duration,
}

pub(crate) struct InFlightCalls {
    io: Io,
    /// Where the calls of pods are noted.
    history: Option<History>,
    table: Mutex<Table>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Table {
    next: u64,
    queues: BTreeMap<Key, VecDeque<InFlightCall>>,
}

struct InFlightCall {
    number: u64,
    rpc: Rpc,
    pod_uid: Option<String>,
    same: Same,
    // Runs at once, and no other call waits for it.
    beside: bool,
    joinable: bool,
    since: Instant,
    task: SharedTask<Outcome>,
}

impl InFlightCalls {
    pub(crate) fn new(io: Io) -> Arc<Self> {
        Arc::new(Self { io, history: None, table: Mutex::default(), changed: watch::Sender::new(()) })
    }

    /// An empty table, whose calls of pods are noted here.
    pub(crate) fn noting(&self, history: History) -> Arc<Self> {
        let (io, history) = (self.io.clone(), Some(history));
        Arc::new(Self { io, history, table: Mutex::default(), changed: watch::Sender::new(()) })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `work` under `key`, or joins the last call queued there if it is the same.
    ///
    /// There is one exception to the rule of one call at a time: a stop with a shorter grace period than one in flight
    /// runs beside it, since it can only make the other end sooner.
    ///
    /// A panic of the call goes on in each of its callers.
    pub(crate) fn submit<F>(
        self: &Arc<Self>,
        key: Key,
        rpc: Rpc,
        pod_uid: Option<&str>,
        same: Same,
        work: F,
    ) -> BoxFuture<'static, Outcome>
    where
        F: FnOnce() -> BoxFuture<'static, Outcome> + Send + 'static,
    {
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        let queue = table.queues.entry(key.clone()).or_default();
        if let Some(last) = queue.back()
            && (last.joinable && last.rpc == rpc && last.same == same)
        {
            return last.task.outcome();
        }
        if queue.len() >= QUEUED_MAX {
            let message = format!("{} calls wait for {:?} already", queue.len(), key.target());
            let refused = CriError::new(rpc, CriErrorKind::ResourceExhausted, message);
            return std::future::ready(Err(EnsureError::Failed(refused))).boxed();
        }
        let beside = match &same {
            Same::Grace(grace) => queue.iter().any(
                |flight| matches!(&flight.same, Same::Grace(longer) if flight.rpc == rpc && longer > grace),
            ),
            _ => false,
        };
        let landing = InFlightGuard { in_flight: Arc::clone(self), key: key.clone(), number };
        let noted = self.history.clone().zip(pod_uid.map(str::to_owned));
        let work = async move {
            if !beside {
                landing.cleared().await;
            }
            let begun = noted.map(|(history, pod)| history.begin(&pod, StepKind::Call, RUNTIME, rpc.name()));
            let outcome = work().await;
            if let Some(begun) = begun {
                begun.end(outcome.is_ok());
            }
            // The flight leaves the table before its waiters get the outcome, so that a later call starts a new one.
            drop(landing);
            outcome
        };
        let cancelled =
            move || Err(EnsureError::Failed(CriError::new(rpc, CriErrorKind::DeadlineExceeded, "cancelled")));
        let task = self.io.spawn_shared(work, cancelled);
        let outcome = task.outcome();
        let pod_uid = pod_uid.map(str::to_owned);
        let since = Instant::now();
        let flight = InFlightCall { number, rpc, pod_uid, same, beside, joinable: true, since, task };
        queue.push_back(flight);
        outcome
    }

    /// Cancels the calls of `rpc` under `key`; returns their number.
    pub(crate) fn cancel(&self, key: &Key, rpc: Rpc) -> usize {
        let mut table = self.lock();
        let Some(queue) = table.queues.get_mut(key) else { return 0 };
        let mut cancelled = 0;
        for flight in queue.iter_mut().filter(|flight| flight.rpc == rpc && flight.joinable) {
            flight.joinable = false;
            flight.task.cancel();
            cancelled += 1;
        }
        cancelled
    }

    pub(crate) fn of_pod(&self, pod_uid: &str) -> Vec<InFlight> {
        self.list(|flight| flight.pod_uid.as_deref() == Some(pod_uid))
    }

    /// The pulls that are not cancelled: each image and share once.
    pub(crate) fn pulls(&self) -> Vec<(String, PullShare)> {
        let table = self.lock();
        let pulls = table.queues.iter().filter_map(|(key, queue)| match key {
            Key::Pull(image, share) => {
                queue.iter().any(|flight| flight.joinable).then(|| (image.clone(), *share))
            }
            _ => None,
        });
        pulls.collect()
    }

    fn list(&self, wanted: impl Fn(&InFlightCall) -> bool) -> Vec<InFlight> {
        let table = self.lock();
        let mut found = Vec::new();
        for (key, queue) in &table.queues {
            let head = head(queue);
            for flight in queue.iter().filter(|flight| wanted(flight)) {
                found.push(InFlight {
                    rpc: flight.rpc,
                    target: key.target(),
                    waiting: !flight.beside && head != Some(flight.number),
                    age: flight.since.elapsed(),
                });
            }
        }
        found
    }

    /// Ends when no call of the pod is in flight, but for calls of this RPC.
    pub(crate) async fn settled(self: Arc<Self>, pod_uid: String, but_for: Option<Rpc>) {
        let mut changed = self.changed.subscribe();
        let is_in_flight = || self.of_pod(&pod_uid).iter().any(|flight| Some(flight.rpc) != but_for);
        while is_in_flight() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

fn head(queue: &VecDeque<InFlightCall>) -> Option<u64> {
    queue.iter().find(|flight| !flight.beside).map(|flight| flight.number)
}

/// Takes its flight off the table however the flight's task ends: done, cancelled or by a panic.
struct InFlightGuard {
    in_flight: Arc<InFlightCalls>,
    key: Key,
    number: u64,
}

impl InFlightGuard {
    /// Waits for the turn of this flight.
    async fn cleared(&self) {
        let mut changed = self.in_flight.changed.subscribe();
        loop {
            let first = self.in_flight.lock().queues.get(&self.key).and_then(head);
            if first == Some(self.number) || changed.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut table = self.in_flight.lock();
        if let Some(queue) = table.queues.get_mut(&self.key) {
            queue.retain(|flight| flight.number != self.number);
            if queue.is_empty() {
                table.queues.remove(&self.key);
            }
        }
        drop(table);
        self.in_flight.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use bridge_pace::panics;

    use super::*;

    #[tokio::test]
    async fn a_panic_of_a_call_goes_on_in_each_of_its_callers() {
        let calls = InFlightCalls::new(Io::current());
        let broken = || {
            let work = async {
                panics::note("there".to_owned());
                panic!("in the call")
            };
            let key = Key::Container("c".to_owned());
            calls.submit(key, Rpc::StopContainer, None, Same::Always, || work.boxed())
        };
        for caller in [broken(), broken()] {
            let panic = panics::caught(caller).await.unwrap_err();
            assert_eq!(panic.to_string(), "in the call at there");
        }
        assert_eq!(calls.list(|_| true), []);
    }
}
