//! ResourceManager alone: every pod's cgroup is asked for again, all at the same time.

use std::time::Duration;

use bench::alone::{Count, Stage, Subject, Traffic, desired, pods};
use futures::future::join_all;
use messages::facts::DesiredPodsChanged;
use messages::pod_manager::ResendDesired;
use messages::resource_manager::EnsurePodCgroup;
use resource_manager::{ResourceManager, ResourceManagerConfig, ResourceManagerDeps, ResourceMetrics};
use supervision::{Address, AskPort, Outside, Place, Supervised, Vitality};

const DEADLINE: Duration = Duration::from_secs(60);

struct Alone {
    actor: Supervised<ResourceManager>,
    pods: usize,
}

impl Alone {
    async fn ensure(&self, number: usize) -> bool {
        let pod = pods(self.pods)[number].clone();
        let there =
            self.actor.asked::<Outside, EnsurePodCgroup>().ask(EnsurePodCgroup { pod }, DEADLINE).await;
        there.is_ok_and(|there| there.is_ok())
    }
}

impl Subject for Alone {
    const NAME: &'static str = "ResourceManager";
    const TRAFFIC: Traffic = Traffic::Asks;

    async fn start(stage: &Stage, count: usize) -> Self {
        let seat = stage.tree.seat::<ResourceManager>(Vitality::Degradable);
        let facts: Address<DesiredPodsChanged> = seat.address();
        let deps = ResourceManagerDeps {
            config: ResourceManagerConfig::default(),
            cgroups: stage.cgroups.clone(),
            held_pods: AskPort::answering("Pleg", |_| Some(Default::default())),
            resend_desired: Address::sink("PodManager", move |_: ResendDesired| {
                facts.tell(desired(count)).expect("there is room");
            }),
            events: Count::default().sink(),
            metrics: ResourceMetrics::new().expect("metrics are defined once"),
        };
        let actor = seat.start(&Place::Here, move || ResourceManager::new(deps.clone()));
        let alone = Self { actor, pods: count };
        alone.round(0).await;
        alone
    }

    async fn round(&self, _: u64) -> u64 {
        let all = join_all((0..self.pods).map(|number| self.ensure(number))).await;
        assert!(all.into_iter().all(|there| there), "every cgroup is there");
        self.pods as u64
    }

    async fn ask(&self) -> bool {
        self.ensure(0).await
    }

    async fn whole(&self) -> bool {
        self.ensure(self.pods - 1).await
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
