//! The world of a subsystem alone: fakes without latency, real time, and addresses that count.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use messages::Delivery;
use stage::Fakes;
use supervision::{Address, EventKind, Policy, RestartPolicy, State, Tree};

use super::wait;

/// Everything that a subject may need.
pub struct Stage {
    /// The tree of the subject; restarts are not delayed, and mailboxes have room.
    pub tree: Tree,
    fakes: Fakes,
    starts: Arc<AtomicU64>,
}

impl Deref for Stage {
    type Target = Fakes;

    fn deref(&self) -> &Fakes {
        &self.fakes
    }
}

impl Default for Stage {
    /// A tree without actors.
    fn default() -> Self {
        let restart = RestartPolicy {
            backoff_initial: Duration::ZERO,
            backoff_max: Duration::ZERO,
            restarts_max: u32::MAX,
            ..RestartPolicy::default()
        };
        let tree = Tree::new(Policy { restart, mailbox_bound: 100_000, ..Policy::default() });
        let starts = Arc::new(AtomicU64::new(0));
        let count = starts.clone();
        tree.observe(move |event| {
            if matches!(event.what, EventKind::Started { .. }) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { tree, fakes: Fakes::new(), starts }
    }
}

impl Stage {
    /// How often an actor has started so far.
    pub(super) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Ends every actor.
    pub(super) async fn end(&self) {
        self.tree.stop_all();
        wait("the actors to end", async || {
            let actors = self.tree.snapshot().await.actors;
            actors.iter().all(|actor| matches!(actor.state, State::Stopped | State::Failed))
        })
        .await;
    }
}

/// The number of messages that a sink was told.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to the count.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Sets the count.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// A sink that only adds to this count.
    pub fn sink<M: Delivery>(&self) -> Address<M> {
        let count = self.clone();
        Address::sink("count", move |_| count.add(1))
    }
}
