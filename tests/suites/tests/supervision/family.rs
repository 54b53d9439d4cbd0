//! Children: they outlive their parent's incarnations and have budgets of their own (G7).

use std::time::Duration;

use actix::{Actor, Handler, MessageResult};
use messages::supervision::Fault;
use messages::{PodUid, delivery};
use supervision::{ChildSpec, Ctx, EventKind, Place, Policy, Seated, State, Subsystem, Supervised, Vitality};
use testkit::{Sandbox, sandbox};

use crate::actors::{Count, Counter, Outside, PanicHere, Poison, ask};

/// Starts the child of this pod, if it does not live, and answers how many live.
#[derive(Clone, Debug)]
pub struct StartChild(pub PodUid);
delivery!(StartChild => u64: Command, Wait);

/// Makes the child count, or panic.
#[derive(Clone, Debug)]
pub struct TellChild(pub PodUid, pub bool);
delivery!(TellChild => (): Command, Wait);

/// Makes the child panic at one of four places.
#[derive(Clone, Debug)]
pub struct PoisonChild(pub PodUid, pub u8);
delivery!(PoisonChild => (): Command, Wait);

/// Ends the child.
#[derive(Clone, Debug)]
pub struct StopChild(pub PodUid);
delivery!(StopChild => (): Command, Wait);

/// How many children live.
#[derive(Clone, Debug)]
pub struct GetChildren;
delivery!(GetChildren => u64: Query, Reject);

/// Has children.
pub struct Parent {
    outside: Outside,
}

impl Parent {
    pub fn new(outside: &Outside) -> Self {
        Self { outside: outside.clone() }
    }

    fn child(&self, uid: &PodUid, ctx: &mut Ctx<Self>) -> Supervised<Counter> {
        let seed = self.outside.clone();
        ctx.child(uid, ChildSpec { mailbox_bound: Some(5) }, move || Counter::new(&seed))
    }
}

impl Actor for Parent {
    type Context = Ctx<Self>;
}

impl Subsystem for Parent {
    const NAME: &'static str = "Parent";
    type Timer = ();
}

impl Handler<StartChild> for Parent {
    type Result = MessageResult<StartChild>;
    fn handle(&mut self, StartChild(uid): StartChild, ctx: &mut Ctx<Self>) -> Self::Result {
        self.child(&uid, ctx);
        MessageResult(ctx.children::<Counter>().len() as u64)
    }
}

impl Handler<TellChild> for Parent {
    type Result = ();
    fn handle(&mut self, TellChild(uid, panics): TellChild, ctx: &mut Ctx<Self>) {
        let child = self.child(&uid, ctx);
        let _full = if panics {
            child.address::<PanicHere>().tell(PanicHere).is_ok()
        } else {
            child.address::<Count>().tell(Count).is_ok()
        };
    }
}

impl Handler<PoisonChild> for Parent {
    type Result = ();
    fn handle(&mut self, PoisonChild(uid, place): PoisonChild, ctx: &mut Ctx<Self>) {
        let child = self.child(&uid, ctx);
        let _full = child.address::<Poison>().tell(Poison { uid, panics: true, place });
    }
}

impl Handler<StopChild> for Parent {
    type Result = ();
    fn handle(&mut self, StopChild(uid): StopChild, ctx: &mut Ctx<Self>) {
        ctx.stop_child::<Counter>(&uid);
    }
}

impl Handler<GetChildren> for Parent {
    type Result = MessageResult<GetChildren>;
    fn handle(&mut self, _: GetChildren, ctx: &mut Ctx<Self>) -> Self::Result {
        MessageResult(ctx.children::<Counter>().len() as u64)
    }
}

fn start(world: &Sandbox) -> (Supervised<Parent>, Outside) {
    let outside = Outside::default();
    let seated: Seated<Parent> = world.tree.seat(Vitality::Vital);
    let seed = outside.clone();
    (seated.start(&Place::Here, move || Parent::new(&seed)), outside)
}

fn uid(n: u64) -> PodUid {
    PodUid::new(&n.to_string())
}

#[test]
fn children_outlive_their_parents_incarnations_and_are_found_again() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (parent, outside) = start(world);
        let begin = parent.asked::<supervision::Outside, StartChild>();
        assert_eq!(ask(&begin, StartChild(uid(1))).await, Ok(1));
        assert_eq!(ask(&begin, StartChild(uid(2))).await, Ok(2));
        parent.address::<TellChild>().tell(TellChild(uid(1), false)).unwrap();
        world.tree.kill("Parent").unwrap();
        assert_eq!(ask(&begin, StartChild(uid(1))).await, Ok(2), "the same child, not a second one");
        assert_eq!(outside.born(), 2);
        let child = world.report("Counter/1").await;
        assert_eq!((child.incarnation, &child.observed["count"]), (1, &serde_json::json!(1)));
        assert_eq!((child.parent.as_deref(), child.mailbox_bound), (Some("Parent"), 5));
        parent.address::<StopChild>().tell(StopChild(uid(1))).unwrap();
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(ask(&parent.asked::<supervision::Outside, GetChildren>(), GetChildren).await, Ok(1));
        let names: Vec<_> = world.tree.snapshot().await.actors.into_iter().map(|actor| actor.name).collect();
        assert_eq!(names, ["Counter/2", "Parent"], "an ended child leaves the tree");
        assert_eq!(ask(&begin, StartChild(uid(1))).await, Ok(2), "a new one of the same name may come");
        assert_eq!(outside.born(), 3);
    });
}

async fn crash_until_dormant(world: &Sandbox, parent: &Supervised<Parent>, child: u64, place: u8) {
    let name = format!("Counter/{child}");
    assert!(ask(&parent.asked::<supervision::Outside, StartChild>(), StartChild(uid(child))).await.is_ok());
    while world.report(&name).await.state != State::Dormant {
        parent.address::<PoisonChild>().tell(PoisonChild(uid(child), place)).unwrap();
        world.pass(Duration::from_secs(2)).await;
    }
}

#[test]
fn g7_a_crash_looping_child_is_its_own_problem_until_many_are() {
    let hour = Duration::from_secs(3600);
    let policy = Policy { dormant_retry: hour, dormant_children_max: 3, ..Policy::default() };
    sandbox(policy, async |world| {
        world.expect_crashes();
        let (parent, _) = start(world);
        let begin = parent.asked::<supervision::Outside, StartChild>();
        assert_eq!(ask(&begin, StartChild(uid(100))).await, Ok(1));
        let mut failed = Box::pin(world.tree.failed());
        for place in 0..3 {
            crash_until_dormant(world, &parent, place.into(), place).await;
            assert!(futures::poll!(&mut failed).is_pending(), "{} dormant children are borne", place + 1);
        }
        let report = world.report("Parent").await;
        assert_eq!(
            (report.restarts, report.state),
            (0, State::Running),
            "children's crashes are not its own"
        );
        assert_eq!(world.report("Counter/100").await.restarts, 0);
        crash_until_dormant(world, &parent, 3, 3).await;
        let failure = failed.await;
        assert_eq!(failure.actor, "Parent", "the parent is named");
        assert!(failure.reason.starts_with("4 of its workers are above their restart limit"), "{failure:?}");
        assert!(
            failure.reason.contains("Poison of pod 3: poison at a fourth place at "),
            "with the last crash: {failure:?}"
        );
    });
}

#[test]
fn g7_one_cause_in_many_children_is_told_and_ends_no_process() {
    let policy = Policy { dormant_retry: Duration::from_secs(3600), ..Policy::default() };
    sandbox(policy, async |world| {
        world.expect_crashes();
        let (parent, _) = start(world);
        let told = async || {
            let events = world.events_of("Parent").await.into_iter();
            let of_children = |what: &EventKind| {
                matches!(what, EventKind::ChildrenDormant { .. } | EventKind::ChildrenAwake)
            };
            events.filter(of_children).collect::<Vec<_>>()
        };
        let mut failed = Box::pin(world.tree.failed());
        for child in 0..=10 {
            assert_eq!(told().await, [], "{child} are not worth a word");
            crash_until_dormant(world, &parent, child, 0).await;
        }
        let dormant = told().await;
        let [EventKind::ChildrenDormant { dormant: 11, reason }] = &dormant[..] else {
            panic!("{dormant:?}")
        };
        assert!(reason.contains("Poison of pod 10: poison at "), "{reason}");
        crash_until_dormant(world, &parent, 11, 0).await;
        assert_eq!(told().await, dormant, "it is said once");
        assert!(futures::poll!(&mut failed).is_pending(), "replicas of one template are one cause");
        world.tree.revive("Counter/0").unwrap();
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(told().await, dormant, "eleven are left");
        world.tree.revive("Counter/1").unwrap();
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(told().await.last(), Some(&EventKind::ChildrenAwake));
        assert_eq!(world.report("Parent").await.state, State::Running);
    });
}

#[test]
fn g7_a_child_has_a_budget_of_its_own_and_is_tried_again() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (parent, outside) = start(world);
        crash_until_dormant(world, &parent, 1, 0).await;
        assert_eq!(outside.born(), 6, "one start and five restarts");
        world.pass(Duration::from_secs(300)).await;
        assert_eq!(world.report("Counter/1").await.state, State::Running);
        assert_eq!(outside.born(), 7);
    });
}

#[test]
fn a_childs_poison_counts_against_the_child_since_it_is_one_pod_already() {
    sandbox(Policy::default(), async |world| {
        world.expect_crashes();
        let (parent, _) = start(world);
        assert_eq!(ask(&parent.asked::<supervision::Outside, StartChild>(), StartChild(uid(1))).await, Ok(1));
        for _ in 0..6 {
            world.tree.inject("Counter/1", Fault::PanicNow).unwrap();
            world.pass(Duration::from_secs(2)).await;
        }
        assert_eq!(world.report("Counter/1").await.state, State::Dormant);
        let events = world.events_of("Counter/1").await;
        assert!(!events.iter().any(|what| matches!(what, EventKind::Quarantined { .. })));
    });
}
