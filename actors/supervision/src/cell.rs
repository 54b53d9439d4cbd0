//! What supervision knows of one actor, readable from any thread without asking the actor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use messages::PodUid;
use serde::Serialize;
use tokio::time::Instant;

use crate::blame::Polled;
use crate::effects::EffectTable;
use crate::panics::PanicReport;

/// How much the node needs an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Vitality {
    /// Above the restart limit the actor fails for good and the process ends.
    Vital,
    /// Above the restart limit the actor goes dormant and is tried again.
    Degradable,
    /// One of many (a pod worker): above the restart limit it goes dormant; too many dormant children are the
    /// parent's failure.
    Child,
}

/// Where an actor is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Not yet polled on its thread.
    Starting,
    /// Taking messages.
    Running,
    /// Crashed; the next incarnation waits for its backoff.
    Restarting,
    /// Above the restart limit; tried again later.
    Dormant,
    /// Above the restart limit and vital: the process is about to end.
    Failed,
    /// Ended normally.
    Stopped,
}

/// The piece of work that an actor is doing.
#[derive(Clone, Debug)]
pub(crate) struct Doing {
    /// The name of the message, effect or timer.
    pub what: &'static str,
    pub pod: Option<PodUid>,
}

/// A crash of one incarnation: what it was doing, and why it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Crash {
    /// The incarnation that crashed.
    pub incarnation: u64,
    /// The name of the message type, effect or stream being handled; `timer` for a timer, `starting` during
    /// start.
    pub handling: String,
    /// The pod on whose behalf the work was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodUid>,
    /// Panic, stall or kill order.
    pub reason: String,
    /// `file:line:column` of a panic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

pub(crate) struct Cell {
    pub name: String,
    pub kind: &'static str,
    pub vitality: Vitality,
    pub counters: Counters,
    pub effects: EffectTable,
    pub restarts: AtomicU64,
    pub incarnation: AtomicU64,
    /// Crashes that counted against pods.
    pub pod_crashes: AtomicU64,
    /// How many pods are quarantined. Read at every step for a pod, and nearly always zero, so that the lock
    /// is rarely taken.
    quarantined: AtomicUsize,
    thread: OnceLock<ThreadId>,
    // Written for every message, so it has a lock of its own; `busy` says whether the work is still going on.
    doing: Mutex<Doing>,
    busy: AtomicBool,
    /// How often each piece of work was begun.
    #[cfg(feature = "faults")]
    begun: Mutex<BTreeMap<&'static str, u32>>,
    #[cfg(feature = "faults")]
    pub hangs: crate::hangs::Hangs,
    dynamic: Mutex<Dynamic>,
}

struct Dynamic {
    state: State,
    last_crash: Option<Crash>,
    quarantined: BTreeMap<PodUid, String>,
    receives: Vec<&'static str>,
    asked_by: BTreeSet<&'static str>,
    answered: Instant,
}

impl Cell {
    pub fn new(name: String, kind: &'static str, vitality: Vitality) -> Self {
        Self {
            name,
            kind,
            vitality,
            counters: Counters::default(),
            effects: EffectTable::default(),
            restarts: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            pod_crashes: AtomicU64::new(0),
            quarantined: AtomicUsize::new(0),
            thread: OnceLock::new(),
            doing: Mutex::new(Doing { what: "", pod: None }),
            busy: AtomicBool::new(false),
            #[cfg(feature = "faults")]
            begun: Mutex::default(),
            #[cfg(feature = "faults")]
            hangs: crate::hangs::Hangs::default(),
            dynamic: Mutex::new(Dynamic {
                state: State::Starting,
                last_crash: None,
                quarantined: BTreeMap::new(),
                receives: Vec::new(),
                asked_by: BTreeSet::new(),
                answered: Instant::now(),
            }),
        }
    }

    fn dynamic(&self) -> MutexGuard<'_, Dynamic> {
        self.dynamic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn state(&self) -> State {
        self.dynamic().state
    }

    pub fn set_state(&self, state: State) {
        self.dynamic().state = state;
    }

    /// Notes that the actor lives on the current thread.
    pub fn lives_here(&self) {
        self.thread.get_or_init(|| std::thread::current().id());
    }

    /// The thread the actor lives on; none before its first poll.
    pub fn thread(&self) -> Option<ThreadId> {
        self.thread.get().copied()
    }

    /// Notes that the actor begins a piece of work.
    pub fn begin(&self, what: &'static str, pod: Option<PodUid>) {
        #[cfg(feature = "faults")]
        {
            *self.begun.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
        }
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = Doing { what, pod };
        self.busy.store(true, Ordering::Release);
    }

    /// How often each piece of work was begun, by its name.
    #[cfg(feature = "faults")]
    pub fn begun(&self) -> BTreeMap<&'static str, u32> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn end(&self) {
        self.busy.store(false, Ordering::Release);
    }

    pub fn take_doing(&self) -> Option<Doing> {
        let doing = self.doing();
        self.end();
        doing
    }

    pub fn doing(&self) -> Option<Doing> {
        let busy = self.busy.load(Ordering::Acquire);
        busy.then(|| self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    pub fn crashed(&self, crash: Crash) {
        self.dynamic().last_crash = Some(crash);
    }

    pub fn last_crash(&self) -> Option<Crash> {
        self.dynamic().last_crash.clone()
    }

    pub fn quarantined(&self, pod: &PodUid, panic: Option<&PanicReport>) {
        let mut dynamic = self.dynamic();
        match panic {
            Some(report) => dynamic.quarantined.insert(pod.clone(), report.to_string()),
            None => dynamic.quarantined.remove(pod),
        };
        self.quarantined.store(dynamic.quarantined.len(), Ordering::Release);
    }

    /// Whether this subsystem has quarantined the pod.
    pub fn is_quarantined(&self, pod: &PodUid) -> bool {
        self.quarantined.load(Ordering::Acquire) > 0 && self.dynamic().quarantined.contains_key(pod)
    }

    pub fn quarantine_list(&self) -> BTreeMap<PodUid, String> {
        self.dynamic().quarantined.clone()
    }

    /// Notes a message type for which an address or a port was handed out.
    pub fn receives(&self, name: &'static str) {
        let mut dynamic = self.dynamic();
        if !dynamic.receives.contains(&name) {
            dynamic.receives.push(name);
        }
    }

    /// Notes that an actor of this name was given a port to ask this one.
    pub fn asked_by(&self, name: &'static str) {
        self.dynamic().asked_by.insert(name);
    }

    pub fn askers(&self) -> BTreeSet<&'static str> {
        self.dynamic().asked_by.clone()
    }

    pub fn receives_list(&self) -> Vec<&'static str> {
        self.dynamic().receives.clone()
    }

    /// Notes that the actor's thread has answered a ping.
    pub fn answered(&self) {
        self.dynamic().answered = Instant::now();
    }

    pub fn last_answer(&self) -> Instant {
        self.dynamic().answered
    }
}

impl Polled for Cell {
    fn has_quarantined(&self, pod: &PodUid) -> bool {
        self.is_quarantined(pod)
    }
}

/// Counts and the handling-latency histogram of one actor.
#[derive(Default)]
pub(crate) struct Counters {
    handled: AtomicU64,
    replaced: AtomicU64,
    dropped: AtomicU64,
    dead_letters: AtomicU64,
    skipped: AtomicU64,
    // Handling time by powers of two of a microsecond: <1, <2, <4, … The last one takes the rest.
    buckets: [AtomicU32; 24],
    busy_ns: AtomicU64,
}

impl Counters {
    pub fn replaced(&self) {
        self.replaced.fetch_add(1, Ordering::Relaxed);
    }

    pub fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub fn dropped_many(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub fn dead_letter(&self) {
        self.dead_letters.fetch_add(1, Ordering::Relaxed);
    }

    pub fn skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// Only the actor's own thread writes these, so reading and writing apart loses nothing.
    pub fn handled(&self, took: Duration) {
        let add = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.handled, 1);
        let ns = took.as_nanos() as u64;
        add(&self.busy_ns, ns);
        let bucket = &self.buckets[(64 - (ns / 1000).leading_zeros()).min(23) as usize];
        bucket.store(bucket.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    pub fn report(&self) -> CountersReport {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let buckets: Vec<u64> = self.buckets.iter().map(|b| u64::from(b.load(Ordering::Relaxed))).collect();
        CountersReport {
            handled: load(&self.handled),
            replaced: load(&self.replaced),
            dropped: load(&self.dropped),
            dead_letters: load(&self.dead_letters),
            skipped_queries: load(&self.skipped),
            busy_seconds: load(&self.busy_ns) as f64 / 1e9,
            handling_p50_us: quantile(&buckets, 0.50),
            handling_p99_us: quantile(&buckets, 0.99),
        }
    }
}

/// The upper edge, in microseconds, of the bucket that holds the quantile.
fn quantile(buckets: &[u64], q: f64) -> u64 {
    let total: u64 = buckets.iter().sum();
    let rank = (total as f64 * q).ceil() as u64;
    let mut seen = 0;
    for (power, count) in buckets.iter().enumerate() {
        seen += count;
        if seen >= rank && total > 0 {
            return 1 << power;
        }
    }
    0
}

/// Counts of one actor since the process started, over all incarnations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CountersReport {
    /// Messages, effects' results and timers handled.
    pub handled: u64,
    /// Waiting messages replaced by a newer one of the same key.
    pub replaced: u64,
    /// Messages dropped: oldest of their type in a full mailbox, or waiting when the actor ended.
    pub dropped: u64,
    /// Messages refused: mailbox full, actor ended, pod quarantined.
    pub dead_letters: u64,
    /// Queries skipped since their asker had gone.
    pub skipped_queries: u64,
    /// Seconds spent handling.
    pub busy_seconds: f64,
    /// Median handling time in microseconds, upper edge of its power-of-two bucket.
    pub handling_p50_us: u64,
    /// 99th percentile likewise.
    pub handling_p99_us: u64,
}
