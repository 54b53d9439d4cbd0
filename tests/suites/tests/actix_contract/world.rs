//! A plain actix actor that counts and panics on demand, on one thread with a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::{Actor, ActorContext, Context, Handler, Message, ResponseFuture, Supervised};
use tokio::task::LocalSet;

/// Runs a test on one thread on which actix can start actors; time jumps when no task is ready.
pub fn on_one_thread<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, test)
}

/// Lets everything happen that is ready.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Adds one and answers.
pub struct Count;

impl Message for Count {
    type Result = u64;
}

/// Panics in the handler.
pub struct Panic;

impl Message for Panic {
    type Result = ();
}

/// Ends the actor in actix' own way.
pub struct Stop;

impl Message for Stop {
    type Result = ();
}

/// Counts one more end after so many milliseconds, in a detached future.
pub struct Later(pub u64);

impl Message for Later {
    type Result = ();
}

/// The counters by which a test sees what happened.
#[derive(Clone, Default)]
pub struct Seen {
    pub started: Arc<AtomicU64>,
    pub restarting: Arc<AtomicU64>,
    pub stopping: Arc<AtomicU64>,
    pub stopped: Arc<AtomicU64>,
    /// The count that `stopped` saw.
    pub stopped_at: Arc<AtomicU64>,
    pub handled: Arc<AtomicU64>,
    pub late: Arc<AtomicU64>,
}

impl Seen {
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::SeqCst);
    }

    pub fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::SeqCst)
    }
}

/// The actor.
#[derive(Default)]
pub struct Plain {
    pub count: u64,
    pub seen: Seen,
}

impl Plain {
    pub fn new(seen: &Seen) -> Self {
        Self { count: 0, seen: seen.clone() }
    }
}

impl Actor for Plain {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        Seen::add(&self.seen.started);
    }

    fn stopping(&mut self, _: &mut Self::Context) -> actix::Running {
        Seen::add(&self.seen.stopping);
        actix::Running::Stop
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        Seen::add(&self.seen.stopped);
        self.seen.stopped_at.store(self.count, Ordering::SeqCst);
    }
}

impl Supervised for Plain {
    fn restarting(&mut self, _: &mut Self::Context) {
        Seen::add(&self.seen.restarting);
    }
}

impl Handler<Count> for Plain {
    type Result = u64;
    fn handle(&mut self, _: Count, _: &mut Self::Context) -> u64 {
        Seen::add(&self.seen.handled);
        self.count += 1;
        self.count
    }
}

impl Handler<Panic> for Plain {
    type Result = ();
    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        panic!("on demand");
    }
}

impl Handler<Stop> for Plain {
    type Result = ();
    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

impl Handler<Later> for Plain {
    type Result = ResponseFuture<()>;
    fn handle(&mut self, Later(ms): Later, _: &mut Self::Context) -> Self::Result {
        let late = self.seen.late.clone();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Seen::add(&late);
        })
    }
}
