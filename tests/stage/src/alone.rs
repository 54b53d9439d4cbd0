//! The world of a test in which one actor is alone.

use std::ops::Deref;
use std::time::Duration;

use actix::Handler;
use messages::Delivery;
use messages::supervision::Fault;
use serde_json::Value;
use supervision::{ActorReport, AskError, Outside, Place, Policy, State, Subsystem, Supervised, Vitality};

use crate::fakes::Fakes;
use crate::sandbox::{Sandbox, sandbox};

/// A sandbox with fakes of the outside world.
pub struct Stage<'a> {
    sandbox: &'a Sandbox,
    /// The outside world.
    pub fakes: Fakes,
}

impl Deref for Stage<'_> {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        self.sandbox
    }
}

/// Runs a test on a stage of its own; see [`sandbox`] for what fails it. Restarts are not limited.
pub fn alone<T>(test: impl AsyncFnOnce(&Stage<'_>) -> T) -> T {
    let mut policy = Policy::default();
    policy.restart.restarts_max = u32::MAX;
    alone_under(policy, test)
}

/// The same as [`alone`], with restarts as this policy limits them.
pub fn alone_under<T>(policy: Policy, test: impl AsyncFnOnce(&Stage<'_>) -> T) -> T {
    sandbox(policy, async |sandbox| {
        sandbox.expect_bridge_tasks();
        let stage = Stage { sandbox, fakes: Fakes::new() };
        test(&stage).await
    })
}

/// Asks the actor under test.
pub fn ask<A, M>(
    actor: &Supervised<A>,
    message: M,
    deadline: Duration,
) -> impl Future<Output = Result<M::Result, AskError>> + Send + use<A, M>
where
    A: Subsystem + Handler<M>,
    M: Delivery,
{
    let port = actor.asked::<Outside, M>();
    async move { port.ask(message, deadline).await }
}

impl Stage<'_> {
    /// Seats an actor and starts it. Each incarnation is made of the same dependencies.
    pub fn start<A: Subsystem, D>(
        &self,
        deps: D,
        new: impl Fn(D) -> A + Send + Sync + 'static,
    ) -> Supervised<A>
    where
        D: Clone + Send + Sync + 'static,
    {
        self.tree.seat::<A>(Vitality::Degradable).start(&Place::Here, move || new(deps.clone()))
    }

    /// Makes the actor panic, and waits until its next incarnation has begun, without the facts of the earlier one.
    pub async fn crash<A: Subsystem>(&self) {
        let before = self.actor::<A>().await.incarnation;
        self.inject::<A>(Fault::PanicNow);
        self.until_incarnation::<A>(before + 1).await;
    }

    /// Makes the actor panic when it handles the next message, effect or timer of this name.
    pub fn crash_on<A: Subsystem>(&self, message: &str) {
        self.inject::<A>(Fault::PanicOn { message: message.to_owned(), nth: 1 });
    }

    /// Waits until the actor's incarnation of this number has begun.
    pub async fn until_incarnation<A: Subsystem>(&self, number: u64) {
        for _ in 0..60_000 {
            let report = self.actor::<A>().await;
            if report.incarnation >= number && report.state == State::Running {
                return;
            }
            self.pass(Duration::from_millis(1)).await;
        }
        panic!("{} has not begun its incarnation {number}", A::NAME);
    }

    /// The actor's report.
    pub async fn actor<A: Subsystem>(&self) -> ActorReport {
        self.report(A::NAME).await
    }

    /// The actor's own part of its report.
    pub async fn observed<A: Subsystem>(&self) -> Value {
        self.actor::<A>().await.observed
    }

    /// Orders a fault of the actor.
    pub fn inject<A: Subsystem>(&self, fault: Fault) {
        self.expect_crashes();
        self.tree.inject(A::NAME, fault).expect("the actor is seated");
    }
}
