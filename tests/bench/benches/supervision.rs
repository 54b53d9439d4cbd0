//! The supervision core beside plain actix: the same do-nothing actor on the same arbiter in the same run, so
//! that the ratio means something on any machine. Prints a table and one line of JSON.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "measures real time, beside plain actix addresses"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Context, Handler};
use actix_rt::{Arbiter, System};
use messages::{PodUid, delivery};
use serde_json::{Value, json};
use supervision::{
    Address, AskPort, ChildSpec, Ctx, Outside, Place, Policy, RestartPolicy, Subsystem, Supervised, Tree,
    Vitality,
};

/// Messages per round of tells.
const TELLS: u64 = 200_000;
/// Pods of a full node.
const PODS: u64 = 110;
/// Rounds; the median counts.
const ROUNDS: usize = 7;
/// Sequential asks.
const ASKS: usize = 20_000;
/// Crashes without a backoff.
const CRASHES: usize = 300;
/// Idle actors.
const IDLE: u64 = 10_000;

/// A message without effect.
#[derive(Clone, Debug)]
struct Nothing;
delivery!(Nothing => (): Command, Reject);

/// A message without effect about a pod: keyed, as most facts are.
#[derive(Clone, Debug)]
struct AboutPod(PodUid);
delivery!(AboutPod => (): Command, LatestPerKey, pod = |m| Some(&m.0));

/// An ask for a number.
#[derive(Clone, Debug)]
struct Number;
delivery!(Number => u64: Command, Reject);

/// A message that makes the actor panic.
#[derive(Clone, Debug)]
struct Crash;
delivery!(Crash => (): Command, Reject);

/// An ask to start so many idle children.
#[derive(Clone, Debug)]
struct Populate(u64);
delivery!(Populate => u64: Command, Reject);

struct Plain(Arc<AtomicU64>);

impl Actor for Plain {
    type Context = Context<Self>;
}

impl Handler<Nothing> for Plain {
    type Result = ();
    fn handle(&mut self, _: Nothing, _: &mut Context<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Handler<Number> for Plain {
    type Result = u64;
    fn handle(&mut self, _: Number, _: &mut Context<Self>) -> u64 {
        7
    }
}

struct Ours(Arc<AtomicU64>);

impl Actor for Ours {
    type Context = Ctx<Self>;
}

impl Subsystem for Ours {
    const NAME: &'static str = "Ours";
    type Timer = ();
}

impl Handler<Nothing> for Ours {
    type Result = ();
    fn handle(&mut self, _: Nothing, _: &mut Ctx<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Handler<AboutPod> for Ours {
    type Result = ();
    fn handle(&mut self, _: AboutPod, _: &mut Ctx<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Handler<Number> for Ours {
    type Result = u64;
    fn handle(&mut self, _: Number, _: &mut Ctx<Self>) -> u64 {
        7
    }
}

impl Handler<Crash> for Ours {
    type Result = ();
    fn handle(&mut self, _: Crash, _: &mut Ctx<Self>) {
        panic!("as ordered");
    }
}

struct Parent(Arc<AtomicU64>);

impl Actor for Parent {
    type Context = Ctx<Self>;
}

impl Subsystem for Parent {
    const NAME: &'static str = "Parent";
    type Timer = ();
}

impl Handler<Populate> for Parent {
    type Result = u64;
    fn handle(&mut self, Populate(count): Populate, ctx: &mut Ctx<Self>) -> u64 {
        for number in 0..count {
            let counter = self.0.clone();
            ctx.child(&PodUid::new(&format!("{number:036}")), ChildSpec::default(), move || {
                Ours(counter.clone())
            });
        }
        count
    }
}

/// Nanoseconds per message of the median round; after each `burst` the sender waits until all is handled.
async fn ns_per_tell(handled: &AtomicU64, burst: u64, send: impl Fn(u64)) -> f64 {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..TELLS / burst {
            let goal = handled.load(Ordering::Relaxed) + burst;
            for number in 0..burst {
                send(number);
            }
            while handled.load(Ordering::Relaxed) < goal {
                tokio::task::yield_now().await;
            }
        }
        rounds.push(start.elapsed().as_nanos() as f64 / TELLS as f64);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Median and 99th percentile of a list of times, in microseconds.
fn percentiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize].as_nanos() as f64 / 1000.0;
    (at(0.5), at(0.99))
}

async fn times_of<F: Future<Output = bool>>(count: usize, once: impl Fn() -> F) -> Vec<Duration> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        assert!(once().await, "an ask without an answer");
        times.push(start.elapsed());
    }
    times
}

/// Resident bytes of this process.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs is mounted");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.expect("the second field is a number of pages") * 4096.0
}

struct Row {
    what: &'static str,
    unit: &'static str,
    plain: Option<f64>,
    ours: f64,
}

fn row(what: &'static str, unit: &'static str, plain: impl Into<Option<f64>>, ours: f64) -> Row {
    Row { what, unit, plain: plain.into(), ours }
}

fn policy(restart: RestartPolicy) -> Policy {
    // Room for a whole round: refusals are not measured.
    Policy { restart, mailbox_bound: TELLS as usize + 1, ..Policy::default() }
}

fn at_once() -> RestartPolicy {
    RestartPolicy { backoff_initial: Duration::ZERO, restarts_max: u32::MAX, ..RestartPolicy::default() }
}

/// Both actors on one arbiter; another thread asks and tells them.
struct Pair {
    arbiter: Arbiter,
    plain: Addr<Plain>,
    plain_handled: Arc<AtomicU64>,
    ours: Supervised<Ours>,
    ours_handled: Arc<AtomicU64>,
}

fn pair(tree: &Tree) -> Pair {
    let arbiter = Arbiter::new();
    let (plain_handled, ours_handled) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counter = plain_handled.clone();
    let plain = Plain::start_in_arbiter(&arbiter.handle(), move |_| Plain(counter));
    let counter = ours_handled.clone();
    let ours =
        tree.seat(Vitality::Degradable).start(&Place::On(arbiter.handle()), move || Ours(counter.clone()));
    Pair { arbiter, plain, plain_handled, ours, ours_handled }
}

async fn tells(pair: &Pair, rows: &mut Vec<Row>) {
    let address: Address<Nothing> = pair.ours.address();
    let ours =
        ns_per_tell(&pair.ours_handled, TELLS, |_| address.tell(Nothing).expect("there is room")).await;
    let plain = ns_per_tell(&pair.plain_handled, TELLS, |_| pair.plain.do_send(Nothing)).await;
    rows.push(row("tell, other thread", "ns", plain, ours));
}

async fn asks(pair: &Pair, rows: &mut Vec<Row>) {
    let port: AskPort<Outside, Number> = pair.ours.asked();
    let deadline = Duration::from_secs(10);
    let ours = || {
        let answer = port.ask(Number, deadline);
        async move { answer.await == Ok(7) }
    };
    let plain = || {
        let answer = pair.plain.send(Number);
        async move { answer.await == Ok(7) }
    };
    times_of(ASKS / 10, ours).await;
    let (ours50, ours99) = percentiles(times_of(ASKS, ours).await);
    times_of(ASKS / 10, plain).await;
    let (plain50, plain99) = percentiles(times_of(ASKS, plain).await);
    rows.push(row("ask, other thread, p50", "us", plain50, ours50));
    rows.push(row("ask, other thread, p99", "us", plain99, ours99));
}

/// The same measurements from a task of the actors' own thread.
async fn on_one_thread(rows: &mut Vec<Row>) {
    let tree = Tree::new(policy(RestartPolicy::default()));
    let (plain_handled, ours_handled) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let plain = Plain(plain_handled.clone()).start();
    let counter = ours_handled.clone();
    let ours: Supervised<Ours> =
        tree.seat(Vitality::Degradable).start(&Place::Here, move || Ours(counter.clone()));
    let address: Address<Nothing> = ours.address();
    let ours_ns = ns_per_tell(&ours_handled, TELLS, |_| address.tell(Nothing).expect("there is room")).await;
    let plain_ns = ns_per_tell(&plain_handled, TELLS, |_| plain.do_send(Nothing)).await;
    rows.push(row("tell, same thread", "ns", plain_ns, ours_ns));

    // A fact about each pod of a full node at a time. Plain actix has no keys.
    let pods: Vec<PodUid> = (0..PODS).map(|n| PodUid::new(&format!("{n:036}"))).collect();
    let keyed: Address<AboutPod> = ours.address();
    let tell = |n: u64| keyed.tell(AboutPod(pods[n as usize].clone())).expect("there is room");
    let ours_ns = ns_per_tell(&ours_handled, PODS, tell).await;
    let plain_ns = ns_per_tell(&plain_handled, PODS, |_| plain.do_send(Nothing)).await;
    rows.push(row("tell, same thread, keyed by 110 pods", "ns", plain_ns, ours_ns));

    let port: AskPort<Outside, Number> = ours.asked();
    let (ours50, ours99) = percentiles(
        times_of(ASKS, || {
            let answer = port.ask(Number, Duration::from_secs(10));
            async move { answer.await == Ok(7) }
        })
        .await,
    );
    let (plain50, plain99) = percentiles(
        times_of(ASKS, || {
            let answer = plain.send(Number);
            async move { answer.await == Ok(7) }
        })
        .await,
    );
    rows.push(row("ask, same thread, p50", "us", plain50, ours50));
    rows.push(row("ask, same thread, p99", "us", plain99, ours99));
    ours.stop();
}

async fn recovery(rows: &mut Vec<Row>) {
    let crash_and_ask = async |ours: &Supervised<Ours>, times: usize| {
        let (crash, number) = (ours.address::<Crash>(), ours.asked::<Outside, Number>());
        percentiles(
            times_of(times, || {
                crash.tell(Crash).expect("there is room");
                let answer = number.ask(Number, Duration::from_secs(30));
                async move { answer.await == Ok(7) }
            })
            .await,
        )
    };
    let tree = Tree::new(policy(at_once()));
    let fast = pair(&tree);
    let (p50, p99) = crash_and_ask(&fast.ours, CRASHES).await;
    rows.push(row("panic to next answer, no backoff, p50", "us", None, p50));
    rows.push(row("panic to next answer, no backoff, p99", "us", None, p99));
    let default = pair(&Tree::new(policy(RestartPolicy::default())));
    let (first, _) = crash_and_ask(&default.ours, 1).await;
    rows.push(row("panic to next answer, default policy", "us", None, first));
    for pair in [fast, default] {
        pair.ours.stop();
        pair.arbiter.stop();
    }
}

async fn idle(rows: &mut Vec<Row>) {
    let before = resident();
    let actors: Vec<Addr<Plain>> = (0..IDLE).map(|_| Plain(Arc::default()).start()).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let plain = (resident() - before) / IDLE as f64;

    let before = resident();
    let tree = Tree::new(Policy::default());
    let parent: Supervised<Parent> =
        tree.seat(Vitality::Degradable).start(&Place::Here, || Parent(Arc::default()));
    let answer = parent.asked::<Outside, Populate>().ask(Populate(IDLE), Duration::from_secs(30)).await;
    assert_eq!(answer, Ok(IDLE));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let ours = (resident() - before) / IDLE as f64;
    rows.push(row("idle actor, resident", "bytes", plain, ours));
    drop(actors);
    tree.stop_all();
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn print(rows: &[Row]) {
    println!("{:<40} {:>12} {:>12} {:>6}  unit", "", "plain actix", "supervised", "ratio");
    for Row { what, unit, plain, ours } in rows {
        let shown = plain.map_or("-".to_owned(), |plain| format!("{plain:.2}"));
        let ratio = plain.map_or("-".to_owned(), |plain| format!("{:.2}", ours / plain));
        println!("{what:<40} {shown:>12} {ours:>12.2} {ratio:>6}  {unit}");
        if *unit == "ns" {
            let per_second = |ns: f64| format!("{:.2}", 1000.0 / ns);
            let plain = plain.map_or("-".to_owned(), per_second);
            println!("{:<40} {plain:>12} {:>12} {:>6}  million/s", "", per_second(*ours), "");
        }
    }
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let ratio = row.plain.map(|plain| row.ours / plain);
            json!({ "what": row.what, "unit": row.unit, "plain": row.plain, "ours": row.ours, "ratio": ratio })
        })
        .collect();
    println!("{}", json!({ "bench": "supervision", "rows": rows }));
}

fn main() {
    let mut rows = Vec::new();
    System::new().block_on(async {
        // Measured first, before anything else has left memory to be used again.
        idle(&mut rows).await;
        let tree = Tree::new(policy(RestartPolicy::default()));
        let pair = pair(&tree);
        tells(&pair, &mut rows).await;
        asks(&pair, &mut rows).await;
        tree.stop_all();
        pair.arbiter.stop();
        on_one_thread(&mut rows).await;
        recovery(&mut rows).await;
    });
    print(&rows);
}
