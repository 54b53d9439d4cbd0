//! Pleg alone: it is told to look at every pod; the runtime answers at once.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Stage, Subject, pods, wait};
use messages::facts::PodObserved;
use messages::pleg::{GetRuntimePods, PodTouched};
use messages::pod_set::{PodLevel, PodSetUpdate};
use pleg::{Pleg, PlegConfig, PlegDeps, PlegMetrics};
use supervision::{Address, Outside, Place, Supervised, Vitality};

const DEADLINE: Duration = Duration::from_secs(60);

struct Alone {
    actor: Supervised<Pleg>,
    pods: usize,
    looked: Count,
}

impl Subject for Alone {
    const NAME: &'static str = "Pleg";

    async fn start(stage: &Stage, count: usize) -> Self {
        for pod in pods(count) {
            stage.run(pod).await;
        }
        let (looked, sinks) = (Count::default(), Count::default());
        let counted = looked.clone();
        let deps = PlegDeps {
            config: PlegConfig::default(),
            runtime: stage.operations.clone(),
            exits: Arc::new(stage.runtime.exit_watcher()),
            dirs: stage.dirs.clone(),
            clock: stage.clock.clone(),
            observers: vec![
                Address::sink("count", move |observed: PodObserved| {
                    let PodSetUpdate::Pod { level: PodLevel::Is(seen), .. } = observed.0 else { return };
                    counted.add(u64::from(seen.touch > 0));
                }),
                sinks.sink(),
                sinks.sink(),
                sinks.sink(),
            ],
            runtime_watchers: Vec::new(),
            events: sinks.sink(),
            runtime_observers: vec![sinks.sink(), sinks.sink()],
            metrics: PlegMetrics::new().expect("metrics are defined once"),
        };
        let seat = stage.tree.seat::<Pleg>(Vitality::Vital);
        let actor = seat.start(&Place::Here, move || Pleg::new(deps.clone()));
        let alone = Self { actor, pods: count, looked };
        wait("the first relist", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, round: u64) -> u64 {
        let touch = self.actor.address::<PodTouched>();
        let before = self.looked.get();
        for pod in pods(self.pods) {
            touch.tell(PodTouched { uid: pod.pod_ref.uid.clone(), token: round + 1 }).expect("there is room");
        }
        let all = before + self.pods as u64;
        wait("a look at every pod", async || self.looked.get() >= all).await;
        self.pods as u64
    }

    async fn ask(&self) -> bool {
        self.actor.asked::<Outside, GetRuntimePods>().ask(GetRuntimePods, DEADLINE).await.is_ok()
    }

    async fn whole(&self) -> bool {
        let pods = self.actor.asked::<Outside, GetRuntimePods>().ask(GetRuntimePods, DEADLINE).await;
        pods.is_ok_and(|pods| pods.is_some_and(|pods| pods.len() == self.pods))
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
