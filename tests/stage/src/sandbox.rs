//! A sandbox: one thread, a paused clock, a supervision tree. Time jumps to the next timer whenever no task is ready,
//! so a test of minutes takes milliseconds, and always goes the same way.

use std::time::Duration;

use supervision::{ActorReport, EventKind, Policy, State, SupervisionEvent, Tree};
use tokio::task::LocalSet;
use tokio::time::Instant;

/// The world of one test.
pub struct Sandbox {
    /// The tree under test.
    pub tree: Tree,
    crashes_expected: std::cell::Cell<bool>,
    bridge: std::cell::Cell<bool>,
}

/// Runs a test in a sandbox of its own. Afterwards every actor is stopped; a crash that the test did not
/// announce with [`Sandbox::expect_crashes`], or an actor that does not stop, fails the test.
pub fn sandbox<T>(policy: Policy, test: impl AsyncFnOnce(&Sandbox) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a current-thread runtime needs nothing from outside");
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let world = Sandbox {
            tree: Tree::new(policy),
            crashes_expected: std::cell::Cell::new(false),
            bridge: std::cell::Cell::new(false),
        };
        let result = test(&world).await;
        world.end().await;
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert!(world.bridge.get() || tasks == 0, "{tasks} tasks outlived their actors");
        result
    })
}

impl Sandbox {
    /// Notes that crashes are part of this test.
    pub fn expect_crashes(&self) {
        self.crashes_expected.set(true);
    }

    /// Notes that this test has bridges, whose calls run to their end even if the actors that made them are gone.
    pub fn expect_bridge_tasks(&self) {
        self.bridge.set(true);
    }

    /// Waits until `done` is true; fails after five minutes of sandbox time.
    pub async fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(300), "waited 5 minutes in vain for: {what}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Lets `time` pass, in which everything that is ready or due happens.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until `done` is true while the clock stands still. Fails after a million turns. For actors that never come
    /// to rest: with them the clock does not move, so [`Sandbox::until`] would wait in vain.
    pub async fn turns_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        for _ in 0..1_000_000 {
            if done() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("waited a million turns in vain for: {what}");
    }

    /// The report of one actor.
    pub async fn report(&self, actor: &str) -> ActorReport {
        let actors = self.tree.snapshot().await.actors;
        actors.into_iter().find(|report| report.name == actor).expect("the test names a seated actor")
    }

    /// The events of one actor so far.
    pub async fn events_of(&self, actor: &str) -> Vec<EventKind> {
        self.events().await.into_iter().filter(|event| event.actor == actor).map(|event| event.what).collect()
    }

    /// The events of the tree so far.
    pub async fn events(&self) -> Vec<SupervisionEvent> {
        self.tree.snapshot().await.events
    }

    async fn end(&self) {
        let crashed: Vec<_> = self
            .events()
            .await
            .into_iter()
            .filter(|event| matches!(event.what, EventKind::Crashed(_)))
            .collect();
        assert!(self.crashes_expected.get() || crashed.is_empty(), "unexpected crashes: {crashed:#?}");
        self.tree.stop_all();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let left: Vec<_> = self.tree.snapshot().await.actors;
        let left: Vec<_> = left
            .into_iter()
            .filter(|actor| !matches!(actor.state, State::Stopped | State::Failed))
            .map(|actor| (actor.name, actor.state))
            .collect();
        assert!(left.is_empty(), "actors that did not stop: {left:?}");
    }
}
