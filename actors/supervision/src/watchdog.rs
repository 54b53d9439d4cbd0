//! The watchdog: a thread outside the actors that notices a thread that does not answer.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tokio::time::Instant;

use crate::cell::{State, Vitality};
use crate::events::{EventKind, Failure};
use crate::tree::Tree;

/// When a silent thread is reported, and when the process is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchdogPolicy {
    /// Time between two pings.
    pub beat: Duration,
    /// A thread silent for this long is reported with the message being handled.
    pub report_after: Duration,
    /// A thread silent for this long ends the process: a blocked arbiter cannot be restarted.
    pub exit_after: Duration,
}

impl Default for WatchdogPolicy {
    fn default() -> Self {
        Self {
            beat: Duration::from_secs(5),
            report_after: Duration::from_secs(10),
            exit_after: Duration::from_secs(30),
        }
    }
}

/// A running watchdog; dropping this value ends it.
pub struct Watchdog {
    _stop: Sender<()>,
}

impl Watchdog {
    /// Starts the watchdog. `feed` runs at every beat at which all vital subsystems have answered (for
    /// systemd's watchdog); `give_up` runs once, when the process has to end although its actors' threads may
    /// be blocked.
    pub fn start(
        tree: Tree,
        policy: WatchdogPolicy,
        feed: impl Fn() + Send + 'static,
        give_up: impl FnOnce(Failure) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || watch(&tree, &policy, &feed, give_up, &stopped))?;
        Ok(Self { _stop: stop })
    }
}

fn watch(
    tree: &Tree,
    policy: &WatchdogPolicy,
    feed: &dyn Fn(),
    give_up: impl FnOnce(Failure),
    stopped: &Receiver<()>,
) {
    // By actor: since when it has been silent, and whether that was reported.
    let mut silent: BTreeMap<String, (Instant, bool)> = BTreeMap::new();
    let mut looked = Instant::now();
    loop {
        let now = Instant::now();
        // The watchdog's own thread did not run either: the process was suspended, and no actor could have
        // answered.
        if now.duration_since(looked) > policy.beat * 2 + policy.report_after {
            silent.clear();
        }
        looked = now;
        let watched = tree.watched();
        let mut well = true;
        silent.retain(|name, _| watched.iter().any(|cell| cell.name == *name));
        for cell in watched {
            let (since, reported) = silent.entry(cell.name.clone()).or_insert((now, false));
            if cell.last_answer() >= *since {
                (*since, *reported) = (now, false);
            }
            let quiet = now.duration_since(*since);
            let failed = matches!(cell.state(), State::Failed | State::Dormant);
            well &= cell.vitality != Vitality::Vital || (quiet < policy.beat * 2 && !failed);
            // The thread of the silent actor may be blocked by another actor on it.
            let culprit = || {
                tree.busy_on_thread_of(&cell).unwrap_or_else(|| (cell.name.clone(), "nothing that is known"))
            };
            let ended = cell.state() == State::Failed;
            if quiet >= policy.exit_after {
                let (actor, handling) = culprit();
                let seconds = quiet.as_secs();
                let reason = if ended {
                    format!("it failed for good {seconds} s ago and the process has not ended")
                } else {
                    format!("its thread has not come back for {seconds} s, handling {handling}")
                };
                let failure = Failure { actor, reason };
                tree.fail(failure.clone());
                give_up(failure);
                return;
            }
            if quiet >= policy.report_after && !*reported && !ended {
                *reported = true;
                let (actor, handling) = culprit();
                let handling =
                    if actor == cell.name { handling.to_owned() } else { format!("{handling} of {actor}") };
                tree.emit(&cell, EventKind::ThreadBlocked { seconds: quiet.as_secs(), handling });
            }
        }
        if well {
            feed();
        }
        tree.ping_all();
        match stopped.recv_timeout(policy.beat) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
