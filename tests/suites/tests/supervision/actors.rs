//! One actor for all tests: it counts, and fails in every way on demand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Handler, MessageResult, WrapFuture};
use messages::{Delivery, Key, PodUid, delivery};
use supervision::{
    Address, AskError, AskPort, Ctx, Place, ReplyLater, Seated, Subsystem, Supervised, Vitality, reply_later,
};
use testkit::Sandbox;

/// Adds one and answers the count of this incarnation.
#[derive(Clone, Debug)]
pub struct Count;
delivery!(Count => u64: Command, Wait);

/// A query for the incarnation's number.
#[derive(Clone, Debug, PartialEq)]
pub struct GetIncarnation;
delivery!(GetIncarnation => u64: Query, Reject);

/// Panics in the handler.
#[derive(Clone, Debug)]
pub struct PanicHere;
delivery!(PanicHere => (): Command, Reject);

/// Panics in an effect.
#[derive(Clone, Debug)]
pub struct PanicInEffect;
delivery!(PanicInEffect => (): Command, Reject);

/// Panics in an effect's future when it is dropped, after its value is there.
#[derive(Clone, Debug)]
pub struct PanicAfterEffect;
delivery!(PanicAfterEffect => (): Command, Reject);

/// Panics in the handler of a stream's second item.
#[derive(Clone, Debug)]
pub struct PanicInStream;
delivery!(PanicInStream => (): Command, Reject);

/// Panics on a message of a pod.
#[derive(Clone, Debug)]
pub struct Poison {
    pub uid: PodUid,
    pub panics: bool,
    /// Which of four places panics.
    pub place: u8,
}
delivery!(Poison => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

/// A question about a pod.
#[derive(Clone, Debug)]
pub struct GetPod(pub PodUid);
delivery!(GetPod => u64: Query, Reject, pod = |m| Some(&m.0));

/// The latest per key counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Latest(pub &'static str, pub u64);
delivery!(Latest => (): Command, LatestPerKey, key = |m| Key::Name(Arc::from(m.0)));

/// A subsystem's request, which is noted as the latest of its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Again(pub &'static str);
delivery!(Again => (): Command, LatestPerKey, key = |m| Key::Receiver(m.0));

/// There is only one such fact; the highest number is kept, whichever message said it.
#[derive(Clone, Debug, PartialEq)]
pub struct Only {
    pub number: u64,
    pub highest: u64,
}
delivery!(Only => (): Command, LatestPerKey, absorb = |newer, older| newer.highest = newer.highest.max(older.highest));

/// The oldest is dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct Log(pub u64);
delivery!(Log => (): Command, DropOldest);

/// Answers after an effect of this many milliseconds.
#[derive(Clone, Debug)]
pub struct AnswerLater(pub u64);
delivery!(AnswerLater => u64: Command, Reject);

/// Ticks after this many milliseconds, by a timer and by a stream.
#[derive(Clone, Debug)]
pub struct TickLater(pub u64);
delivery!(TickLater => (): Command, Reject);

/// Two streams: the first one's first item cancels both.
#[derive(Clone, Debug)]
pub struct StreamsThatCancel;
delivery!(StreamsThatCancel => (): Command, Reject);

/// The actor waits for something that never comes.
#[derive(Clone, Debug)]
pub struct HangForEver;
delivery!(HangForEver => (): Command, Reject);

/// Keeps the actor busy for ever: each one sends the next.
#[derive(Clone, Debug)]
pub struct AndAgain;
delivery!(AndAgain => (): Command, Reject);

/// Blocks the thread until the test lets it go.
#[derive(Clone, Debug)]
pub struct Block(pub Arc<Mutex<std::sync::mpsc::Receiver<()>>>);
delivery!(Block => (): Command, Reject);

/// Sets a timer that is about the pod `bad`.
#[derive(Clone, Debug)]
pub struct SetPodTimer;
delivery!(SetPodTimer => (): Command, Reject);

/// Sets a timer that panics.
#[derive(Clone, Debug)]
pub struct PanicByTimer;
delivery!(PanicByTimer => (): Command, Reject);

/// From now on the state panics when it is dropped.
#[derive(Clone, Debug)]
pub struct Arm;
delivery!(Arm => (): Command, Reject);

/// Ends normally.
#[derive(Clone, Debug)]
pub struct Finish;
delivery!(Finish => (): Command, Reject);

type Deed = dyn Fn(&mut Ctx<Counter>) + Send + Sync;

/// Does what a test says, with the actor's context.
#[derive(Clone)]
pub struct Do(Arc<Deed>);
delivery!(Do => (): Command, Reject);

impl Do {
    pub fn this(what: impl Fn(&mut Ctx<Counter>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(what))
    }
}

impl std::fmt::Debug for Do {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Do")
    }
}

/// What the tests see from outside.
#[derive(Clone, Default)]
pub struct Outside {
    pub born: Arc<AtomicU64>,
    pub dropped: Arc<AtomicU64>,
    pub log: Arc<Mutex<Vec<u64>>>,
    pub latest: Arc<Mutex<Vec<Latest>>>,
    pub only: Arc<Mutex<Vec<Only>>>,
    pub poison_handled: Arc<AtomicU64>,
    pub pod_timers: Arc<AtomicU64>,
    pub late: Arc<AtomicU64>,
    pub ticks: Arc<AtomicU64>,
    pub again: Arc<OnceLock<Address<AndAgain>>>,
}

impl Outside {
    pub fn born(&self) -> u64 {
        self.born.load(Ordering::SeqCst)
    }

    pub fn logged(&self) -> Vec<u64> {
        self.log.lock().unwrap().clone()
    }
}

pub struct Counter {
    count: u64,
    armed: bool,
    outside: Outside,
}

impl Counter {
    pub fn new(outside: &Outside) -> Self {
        outside.born.fetch_add(1, Ordering::SeqCst);
        Self { count: 0, armed: false, outside: outside.clone() }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.outside.dropped.fetch_add(1, Ordering::SeqCst);
        assert!(!self.armed, "the state panics while it is dropped");
    }
}

impl Actor for Counter {
    type Context = Ctx<Self>;
}

impl Subsystem for Counter {
    const NAME: &'static str = "Counter";
    type Timer = &'static str;

    fn timer_pod(timer: &&'static str) -> Option<PodUid> {
        timer.strip_prefix("pod ").map(PodUid::new)
    }

    fn on_timer(&mut self, timer: &'static str, _ctx: &mut Ctx<Self>) {
        if timer.starts_with("pod ") {
            self.outside.pod_timers.fetch_add(1, Ordering::SeqCst);
            return;
        }
        assert!(timer == "tick", "timer {timer}");
        self.outside.ticks.fetch_add(1, Ordering::SeqCst);
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "count": self.count })
    }
}

/// Another subsystem with nothing to do with the first.
#[derive(Default)]
pub struct Sibling(u64);

impl Actor for Sibling {
    type Context = Ctx<Self>;
}

impl Subsystem for Sibling {
    const NAME: &'static str = "Sibling";
    type Timer = ();
}

impl Handler<Count> for Sibling {
    type Result = MessageResult<Count>;
    fn handle(&mut self, _: Count, _: &mut Ctx<Self>) -> Self::Result {
        self.0 += 1;
        MessageResult(self.0)
    }
}

impl Handler<Block> for Sibling {
    type Result = ();
    fn handle(&mut self, block: Block, _: &mut Ctx<Self>) {
        let _let_go = block.0.lock().unwrap().recv();
    }
}

impl Handler<Count> for Counter {
    type Result = MessageResult<Count>;
    fn handle(&mut self, _: Count, _: &mut Ctx<Self>) -> Self::Result {
        self.count += 1;
        MessageResult(self.count)
    }
}

impl Handler<Do> for Counter {
    type Result = ();
    fn handle(&mut self, Do(what): Do, ctx: &mut Ctx<Self>) {
        what(ctx);
    }
}

impl Handler<GetIncarnation> for Counter {
    type Result = MessageResult<GetIncarnation>;
    fn handle(&mut self, _: GetIncarnation, ctx: &mut Ctx<Self>) -> Self::Result {
        MessageResult(ctx.incarnation())
    }
}

impl Handler<PanicHere> for Counter {
    type Result = ();
    fn handle(&mut self, _: PanicHere, _: &mut Ctx<Self>) {
        panic!("here");
    }
}

impl Handler<PanicInEffect> for Counter {
    type Result = ();
    fn handle(&mut self, _: PanicInEffect, ctx: &mut Ctx<Self>) {
        ctx.effect("broken effect", None, async { panic!("in the effect") }, |_, (), _| ());
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

impl Handler<PanicAfterEffect> for Counter {
    type Result = ();
    fn handle(&mut self, _: PanicAfterEffect, ctx: &mut Ctx<Self>) {
        let bomb = PanicsWhenDropped;
        let work = std::future::poll_fn(move |_| {
            let _it = &bomb;
            std::task::Poll::Ready(())
        });
        ctx.effect("effect with a bomb", None, work, |_, (), _| ());
    }
}

impl Handler<PanicInStream> for Counter {
    type Result = ();
    fn handle(&mut self, _: PanicInStream, ctx: &mut Ctx<Self>) {
        let items = futures::stream::iter([1, 2, 3]);
        ctx.stream("items", items, |_, item, _| assert!(item != 2, "item {item}"), |_, _| ());
    }
}

impl Handler<Poison> for Counter {
    type Result = ();
    fn handle(&mut self, message: Poison, _: &mut Ctx<Self>) {
        match message.place {
            0 => assert!(!message.panics, "poison"),
            1 => assert!(!message.panics, "poison elsewhere"),
            2 => assert!(!message.panics, "poison at a third place"),
            _ => assert!(!message.panics, "poison at a fourth place"),
        }
        self.outside.poison_handled.fetch_add(1, Ordering::SeqCst);
    }
}

impl Handler<GetPod> for Counter {
    type Result = MessageResult<GetPod>;
    fn handle(&mut self, _: GetPod, ctx: &mut Ctx<Self>) -> Self::Result {
        MessageResult(ctx.incarnation())
    }
}

impl Handler<Latest> for Counter {
    type Result = ();
    fn handle(&mut self, message: Latest, _: &mut Ctx<Self>) {
        self.outside.latest.lock().unwrap().push(message);
    }
}

impl Handler<Again> for Counter {
    type Result = ();
    fn handle(&mut self, Again(receiver): Again, _: &mut Ctx<Self>) {
        self.outside.latest.lock().unwrap().push(Latest(receiver, 0));
    }
}

impl Handler<Only> for Counter {
    type Result = ();
    fn handle(&mut self, message: Only, _: &mut Ctx<Self>) {
        self.outside.only.lock().unwrap().push(message);
    }
}

impl Handler<Log> for Counter {
    type Result = ();
    fn handle(&mut self, Log(number): Log, _: &mut Ctx<Self>) {
        self.outside.log.lock().unwrap().push(number);
    }
}

impl Handler<AnswerLater> for Counter {
    type Result = ReplyLater<u64>;
    fn handle(&mut self, AnswerLater(ms): AnswerLater, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let sleep = tokio::time::sleep(Duration::from_millis(ms));
        ctx.effect("answer", None, sleep, |actor, (), ctx| {
            actor.outside.late.fetch_add(1, Ordering::SeqCst);
            reply.send(ctx.incarnation());
        });
        later
    }
}

impl Handler<TickLater> for Counter {
    type Result = ();
    fn handle(&mut self, TickLater(ms): TickLater, ctx: &mut Ctx<Self>) {
        let after = Duration::from_millis(ms);
        ctx.set_timer("tick", after);
        let once = futures::stream::once(tokio::time::sleep(after));
        let tick = |actor: &mut Self, (), _: &mut Ctx<Self>| {
            actor.outside.ticks.fetch_add(1, Ordering::SeqCst);
        };
        ctx.stream("ticks", once, tick, |_, _| ());
    }
}

impl Handler<StreamsThatCancel> for Counter {
    type Result = ();
    fn handle(&mut self, _: StreamsThatCancel, ctx: &mut Ctx<Self>) {
        let ids = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..2 {
            let all = ids.clone();
            let each = move |actor: &mut Self, _: u64, ctx: &mut Ctx<Self>| {
                actor.outside.ticks.fetch_add(1, Ordering::SeqCst);
                all.lock().unwrap().drain(..).for_each(|id| ctx.cancel_effect(id));
            };
            let id = ctx.stream("items", futures::stream::iter(1..100), each, |_, _| ());
            ids.lock().unwrap().push(id);
        }
    }
}

impl Handler<HangForEver> for Counter {
    type Result = ();
    fn handle(&mut self, _: HangForEver, ctx: &mut Ctx<Self>) {
        ctx.wait(std::future::pending::<()>().into_actor(self));
    }
}

impl Handler<AndAgain> for Counter {
    type Result = ();
    fn handle(&mut self, _: AndAgain, _: &mut Ctx<Self>) {
        self.count += 1;
        let _full = self.outside.again.get().expect("set before the first one is sent").tell(AndAgain);
    }
}

impl Handler<Block> for Counter {
    type Result = ();
    fn handle(&mut self, block: Block, _: &mut Ctx<Self>) {
        let _let_go = block.0.lock().unwrap().recv();
    }
}

impl Handler<SetPodTimer> for Counter {
    type Result = ();
    fn handle(&mut self, _: SetPodTimer, ctx: &mut Ctx<Self>) {
        ctx.set_timer("pod bad", Duration::from_secs(1));
    }
}

impl Handler<PanicByTimer> for Counter {
    type Result = ();
    fn handle(&mut self, _: PanicByTimer, ctx: &mut Ctx<Self>) {
        ctx.set_timer("bomb", Duration::from_millis(10));
    }
}

impl Handler<Arm> for Counter {
    type Result = ();
    fn handle(&mut self, _: Arm, _: &mut Ctx<Self>) {
        self.armed = true;
    }
}

impl Handler<Finish> for Counter {
    type Result = ();
    fn handle(&mut self, _: Finish, ctx: &mut Ctx<Self>) {
        ctx.stop();
    }
}

/// A deadline that no healthy actor misses.
pub const SOON: Duration = Duration::from_secs(20);

/// The counter, started in the sandbox.
pub fn start(world: &Sandbox, vitality: Vitality) -> (Supervised<Counter>, Outside) {
    let outside = Outside::default();
    let seated: Seated<Counter> = world.tree.seat(vitality);
    let seed = outside.clone();
    (seated.start(&Place::Here, move || Counter::new(&seed)), outside)
}

/// Its sibling on the same thread.
pub fn start_sibling(world: &Sandbox) -> Supervised<Sibling> {
    world.tree.seat(Vitality::Degradable).start(&Place::Here, Sibling::default)
}

/// Asks with a deadline that a healthy actor keeps.
pub async fn ask<M: Delivery>(
    address: &AskPort<supervision::Outside, M>,
    message: M,
) -> Result<M::Result, AskError> {
    address.ask(message, SOON).await
}
