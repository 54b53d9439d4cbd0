//! One subsystem alone: the real actor on the thread that drives it, sinks that only count in place of all its
//! neighbours, and a do-nothing actor beside it as the floor.

mod floor;
mod report;
mod stage;

use std::time::{Duration, Instant};

pub use self::stage::{Count, Stage};
pub use ::stage::{IMAGE, Looks, Reports, desired, desired_pods, pods, runtime_pod, runtime_well, seen, uid};

use floor::Floor;
use report::{Figures, Report};

/// Sizes at which the cost is measured, in pods: one, a full node by default, and two dense nodes.
pub const SIZES: [usize; 4] = [1, 110, 500, 1000];

/// Rounds are repeated until so many messages have been handled.
const MESSAGES_MIN: u64 = 5000;
/// Or until this time has passed.
const ROUNDS_TIME_MAX: Duration = Duration::from_secs(5);
/// Number of asks, made one after another.
const ASKS: usize = 2000;
/// Asks end after this time.
const ASKS_TIME_MAX: Duration = Duration::from_secs(2);
/// Number of crashes.
const CRASHES: usize = 20;
/// Longest wait of a measurement.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kind of messages that a subsystem usually gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Tells; the floor is told as many.
    Tells,
    /// Asks; the floor is asked as often, as many at a time.
    Asks,
}

/// A subsystem that can be measured.
pub trait Subject {
    /// Its name in the tree.
    const NAME: &'static str;
    /// The kind of messages that it usually gets.
    const TRAFFIC: Traffic = Traffic::Tells;

    /// Starts the subsystem with all facts about so many pods, and waits until it has taken them in.
    fn start(stage: &Stage, pods: usize) -> impl Future<Output = Self>;

    /// Tells or asks something new about every pod, and waits until everything that follows has been done. Returns the
    /// number of messages.
    fn round(&self, round: u64) -> impl Future<Output = u64>;

    /// Makes a small ask; returns whether the answer was a good one.
    fn ask(&self) -> impl Future<Output = bool>;

    /// Whether it has all facts, as after [`Subject::start`].
    fn whole(&self) -> impl Future<Output = bool>;
}

/// Measures a subsystem and prints the figures as lines of a table and one line of JSON.
pub fn run<S: Subject>() {
    let report = actix_rt::System::new().block_on(measure::<S>());
    report.print();
}

async fn measure<S: Subject>() -> Report {
    // The largest first: later ones would use again the memory that earlier ones have left.
    let bytes_per_pod = bytes_per_pod::<S>(SIZES[SIZES.len() - 1]).await;
    let mut figures = Vec::new();
    for pods in SIZES {
        let stage = Stage::default();
        let subject = S::start(&stage, pods).await;
        let ours = throughput(async |round| subject.round(round).await).await;
        let own_asks = asks(async || subject.ask().await).await;
        let floor = Floor::start(&stage, pods);
        let floor_rate = throughput(async |_| floor.round(S::TRAFFIC).await).await;
        let floor_asks = asks(async || floor.ask().await).await;
        let recovery = recovery(&stage, &subject).await;
        figures.push(Figures { pods, ours, asks: own_asks, floor: floor_rate, floor_asks, recovery });
        stage.end().await;
    }
    Report { name: S::NAME, bytes_per_pod, figures }
}

/// Bytes of memory that a subsystem needs for each pod, without the pods' own objects, which all subsystems share.
async fn bytes_per_pod<S: Subject>(pods: usize) -> f64 {
    ::stage::prepare(pods);
    let stage = Stage::default();
    let one = S::start(&stage, 1).await;
    stage.end().await;
    drop(one);
    let stage = Stage::default();
    let before = resident();
    let all = S::start(&stage, pods).await;
    let bytes = (resident() - before) / pods as f64;
    stage.end().await;
    drop(all);
    bytes.max(0.0)
}

/// Messages per second.
async fn throughput(mut round: impl AsyncFnMut(u64) -> u64) -> f64 {
    let (mut sent, mut rounds) = (0, 0);
    // One round for warming up.
    round(0).await;
    let start = Instant::now();
    while sent < MESSAGES_MIN && start.elapsed() < ROUNDS_TIME_MAX {
        rounds += 1;
        sent += round(rounds).await;
    }
    sent as f64 / start.elapsed().as_secs_f64()
}

/// Median and 99th percentile in seconds.
async fn asks(mut ask: impl AsyncFnMut() -> bool) -> crate::Samples {
    let mut samples = crate::Samples::default();
    let begun = Instant::now();
    for _ in 0..ASKS {
        let start = Instant::now();
        assert!(ask().await, "an ask without a good answer");
        samples.push(start.elapsed().as_secs_f64());
        if begun.elapsed() > ASKS_TIME_MAX {
            break;
        }
    }
    samples
}

/// Seconds from a crash until the next incarnation has all facts again.
async fn recovery<S: Subject>(stage: &Stage, subject: &S) -> crate::Samples {
    let mut samples = crate::Samples::default();
    for _ in 0..CRASHES {
        let (start, starts) = (Instant::now(), stage.starts());
        stage.tree.kill(S::NAME).expect("the subject is seated");
        wait("the subject to start again", async || stage.starts() > starts).await;
        wait("the subject to recover", async || subject.whole().await).await;
        samples.push(start.elapsed().as_secs_f64());
    }
    samples
}

/// Waits without sleeping: everything is on this thread.
///
/// # Panics
/// After a minute.
pub async fn wait(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    loop {
        if done().await {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "waited a minute in vain for {what}");
        // A look may be as expensive as what it looks for. Looks are made ever less often, so that they are not the
        // load, and the end is still found within a twentieth of the time.
        let again = Instant::now() + start.elapsed() / 20;
        while Instant::now() < again {
            tokio::task::yield_now().await;
        }
    }
}

/// Resident bytes of this process.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs is mounted");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.expect("the second field is a number of pages") * rustix::param::page_size() as f64
}
