//! Mutating calls in flight: each runs to its end even if its caller goes away. Calls about a volume as a whole (stage,
//! unstage, expand) run alone; calls about one of its targets (publish, unpublish) run beside those of other targets, so that
//! no pod waits for another's. A call that is identical to the last one that it would wait for joins that one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::error::{CsiError, CsiErrorKind};
use crate::rpc::Rpc;
use bridge_io::watch;
use bridge_io::{Io, SharedTask};

/// The most calls of one volume that are queued or run; further calls are refused.
const QUEUED_MAX: usize = 256;

/// The result of a flight: the bytes of `NodeExpandVolume`, 0 for other calls.
type Outcome = Result<i64, CsiError>;

/// A volume of a driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Volume {
    /// The driver's name.
    pub driver: String,
    /// The volume's handle.
    pub volume_id: String,
}

impl Volume {
    /// The volume with this handle.
    pub fn new(driver: impl Into<String>, volume_id: impl Into<String>) -> Self {
        Self { driver: driver.into(), volume_id: volume_id.into() }
    }
}

/// The identity of a request: its hash, since requests hold secrets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Same([u8; 32]);

impl Same {
    pub(crate) fn of(request: &impl prost::Message) -> Self {
        Self(Sha256::digest(request.encode_to_vec()).into())
    }
}

/// What a call is about.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) volume: Volume,
    pub(crate) rpc: Rpc,
    /// The path of a publish or unpublish; `None`: the volume as a whole.
    pub(crate) target: Option<String>,
    pub(crate) same: Same,
}

impl Subject {
    fn excludes(&self, other: &Subject) -> bool {
        self.excludes_target(other.target.as_deref())
    }

    /// Whether a call about this target, `None`: about the volume as a whole, cannot run beside this one.
    fn excludes_target(&self, target: Option<&str>) -> bool {
        self.target.is_none() || target.is_none() || self.target.as_deref() == target
    }
}

/// A mutating call that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The volume.
    pub volume: Volume,
    /// The call.
    pub rpc: Rpc,
    /// The target path of a publish or unpublish.
    pub target: Option<String>,
    /// Whether it waits for another call of the volume.
    pub waiting: bool,
    /// The time since the call was submitted.
    pub age: Duration,
}

pub(crate) struct InFlightCalls {
    io: Io,
    table: Mutex<Table>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Table {
    next: u64,
    queues: BTreeMap<Volume, VecDeque<Flight>>,
}

struct Flight {
    number: u64,
    subject: Subject,
    joinable: bool,
    since: Instant,
    task: SharedTask<Outcome>,
}

impl InFlightCalls {
    pub(crate) fn new(io: Io) -> Arc<Self> {
        Arc::new(Self { io, table: Mutex::default(), changed: watch::Sender::new(()) })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `work` behind the volume's calls that exclude it, or joins the last of these if it is the same. A panic of
    /// the call goes on in each of its callers.
    pub(crate) fn submit<F>(self: &Arc<Self>, subject: Subject, work: F) -> BoxFuture<'static, Outcome>
    where
        F: FnOnce() -> BoxFuture<'static, Outcome> + Send + 'static,
    {
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        let queue = table.queues.entry(subject.volume.clone()).or_default();
        if let Some(last) = queue.iter().rev().find(|flight| flight.subject.excludes(&subject))
            && (last.joinable && last.subject.rpc == subject.rpc && last.subject.same == subject.same)
        {
            return last.task.outcome();
        }
        let (driver, rpc) = (subject.volume.driver.clone(), subject.rpc);
        if queue.len() >= QUEUED_MAX {
            let message =
                format!("{} calls of volume {:?} wait already", queue.len(), subject.volume.volume_id);
            let refused = CsiError::new(driver, rpc, CsiErrorKind::Refused, message);
            return std::future::ready(Err(refused)).boxed();
        }
        let landing = Landing { calls: Arc::clone(self), volume: subject.volume.clone(), number };
        let work = async move {
            landing.cleared().await;
            let outcome = work().await;
            // The flight leaves the table before its waiters get the outcome, so that a later call starts a new one.
            drop(landing);
            outcome
        };
        let cancelled = move || Err(CsiError::new(driver, rpc, CsiErrorKind::Cancelled, "context canceled"));
        let task = self.io.spawn_shared(work, cancelled);
        let outcome = task.outcome();
        let since = Instant::now();
        queue.push_back(Flight { number, subject, joinable: true, since, task });
        outcome
    }

    /// Cancels the calls of a volume at this target, `None`: those about the volume as a whole; returns their number.
    pub(crate) fn cancel(&self, volume: &Volume, target: Option<&str>) -> usize {
        let mut table = self.lock();
        let Some(queue) = table.queues.get_mut(volume) else { return 0 };
        let mut cancelled = 0;
        let meant = |flight: &&mut Flight| flight.joinable && flight.subject.target.as_deref() == target;
        for flight in queue.iter_mut().filter(meant) {
            flight.joinable = false;
            flight.task.cancel();
            cancelled += 1;
        }
        cancelled
    }

    pub(crate) fn list(&self, wanted: impl Fn(&Volume) -> bool) -> Vec<InFlight> {
        let table = self.lock();
        let mut found = Vec::new();
        for (volume, queue) in table.queues.iter().filter(|(volume, _)| wanted(volume)) {
            found.extend(queue.iter().map(|flight| InFlight {
                volume: volume.clone(),
                rpc: flight.subject.rpc,
                target: flight.subject.target.clone(),
                waiting: waits(queue, flight.number),
                age: flight.since.elapsed(),
            }));
        }
        found
    }

    /// Ends when no call of the volume is in flight that excludes one about this target, `None`: about the volume as a whole.
    pub(crate) async fn settled(self: Arc<Self>, volume: Volume, target: Option<String>) {
        let mut changed = self.changed.subscribe();
        let is_excluded = || {
            let table = self.lock();
            let mut queue = table.queues.get(&volume).into_iter().flatten();
            queue.any(|flight| flight.subject.excludes_target(target.as_deref()))
        };
        while is_excluded() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Whether a flight has to wait for one before it; no, when it has left the queue.
fn waits(queue: &VecDeque<Flight>, number: u64) -> bool {
    let Some(own) = queue.iter().find(|flight| flight.number == number) else { return false };
    queue.iter().any(|other| other.number < number && other.subject.excludes(&own.subject))
}

/// Takes its flight off the table however the flight's task ends: done, cancelled or by a panic.
struct Landing {
    calls: Arc<InFlightCalls>,
    volume: Volume,
    number: u64,
}

impl Landing {
    /// Waits for the turn of this flight.
    async fn cleared(&self) {
        let mut changed = self.calls.changed.subscribe();
        loop {
            let waits =
                self.calls.lock().queues.get(&self.volume).is_some_and(|queue| waits(queue, self.number));
            if !waits || changed.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut table = self.calls.lock();
        if let Some(queue) = table.queues.get_mut(&self.volume) {
            queue.retain(|flight| flight.number != self.number);
            if queue.is_empty() {
                table.queues.remove(&self.volume);
            }
        }
        drop(table);
        self.calls.changed.send_replace(());
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
            let (volume, same) = (Volume::new("d", "v"), Same([0; 32]));
            calls.submit(Subject { volume, rpc: Rpc::NodeStageVolume, target: None, same }, || work.boxed())
        };
        for caller in [broken(), broken()] {
            let panic = panics::caught(caller).await.unwrap_err();
            assert_eq!(panic.to_string(), "in the call at there");
        }
        assert_eq!(calls.list(|_| true), []);
    }
}
