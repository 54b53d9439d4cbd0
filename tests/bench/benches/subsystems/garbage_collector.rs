//! GarbageCollector alone: it is told of every pod's new state, and tidies up once a round.

use bench::alone::{Count, Looks, Stage, Subject, desired, pods, seen, wait};
use garbage_collector::{Backends, GarbageCollector, GarbageCollectorDeps, GcPolicy};
use messages::facts::{DesiredPodsChanged, PodObserved};
use messages::pleg::ResendObserved;
use messages::pod_manager::ResendDesired;
use supervision::{Address, Place, Supervised, Tree, Vitality};

struct Alone {
    tree: Tree,
    actor: Supervised<GarbageCollector>,
    looks: Looks,
    pods: usize,
}

impl Alone {
    async fn known(&self) -> Option<u64> {
        let actors = self.tree.snapshot().await.actors;
        let report = actors.into_iter().find(|actor| actor.name == Self::NAME)?;
        report.observed.get("pods")?.as_u64()
    }
}

impl Subject for Alone {
    const NAME: &'static str = "GarbageCollector";

    async fn start(stage: &Stage, count: usize) -> Self {
        let seat = stage.tree.seat::<GarbageCollector>(Vitality::Degradable);
        let (facts, looks): (Address<DesiredPodsChanged>, Address<PodObserved>) =
            (seat.address(), seat.address());
        let sinks = Count::default();
        let seen_by = Looks::default();
        let all = seen_by.clone();
        let deps = GarbageCollectorDeps {
            backends: Backends { pods: stage.operations.clone(), dirs: stage.dirs.clone() },
            clock: stage.clock.clone(),
            policy: GcPolicy::default(),
            pool: sinks.sink(),
            touched: sinks.sink(),
            events: sinks.sink(),
            manager: Address::sink("PodManager", move |_: ResendDesired| {
                facts.tell(desired(count)).expect("there is room");
            }),
            pleg: Address::sink("Pleg", move |_: ResendObserved| {
                pods(count).iter().for_each(|pod| drop(all.at(seen(pod, 1))));
                looks.tell(all.all()).expect("there is room");
            }),
        };
        let actor = seat.start(&Place::Here, move || GarbageCollector::new(deps.clone()));
        let alone = Self { tree: stage.tree.clone(), actor, looks: seen_by, pods: count };
        wait("all pods", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, round: u64) -> u64 {
        let looks = self.actor.address::<PodObserved>();
        for pod in pods(self.pods) {
            looks.tell(self.looks.at(seen(pod, round + 1))).expect("there is room");
        }
        wait("an empty mailbox", async || {
            let actors = self.tree.snapshot().await.actors;
            actors.iter().all(|actor| actor.mailbox_depth == 0)
        })
        .await;
        self.pods as u64
    }

    /// GarbageCollector answers no asks but the one for its report.
    async fn ask(&self) -> bool {
        self.known().await.is_some()
    }

    async fn whole(&self) -> bool {
        self.known().await == Some(self.pods as u64)
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
