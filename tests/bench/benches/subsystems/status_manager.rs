//! StatusManager alone: every pod's container restarts, again and again, and every status is computed anew.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Looks, Stage, Subject, desired, pods, runtime_well, seen, wait};
use messages::facts::{DesiredPodsChanged, PodObserved, RuntimeObserved};
use messages::pleg::ResendObserved;
use messages::pod_manager::ResendDesired;
use messages::status_manager::{GetPodStatus, GetPodStatuses};
use status_manager::{StatusManager, StatusManagerDeps, StatusMetrics};
use supervision::{Address, Outside, Place, Supervised, Vitality};

const DEADLINE: Duration = Duration::from_secs(60);

struct Alone {
    actor: Supervised<StatusManager>,
    looks: Looks,
    pods: usize,
}

impl Alone {
    /// How many statuses show the container's restart of this round.
    async fn shown(&self, round: u64) -> usize {
        let all = self.actor.asked::<Outside, GetPodStatuses>().ask(GetPodStatuses, DEADLINE).await;
        let restarted = |status: &Arc<k8s_openapi::api::core::v1::PodStatus>| {
            let count = status.container_statuses.iter().flatten().map(|c| c.restart_count).sum::<i32>();
            u64::try_from(count).is_ok_and(|count| count >= round)
        };
        all.map_or(0, |all| all.values().filter(|status| restarted(status)).count())
    }
}

impl Subject for Alone {
    const NAME: &'static str = "StatusManager";

    async fn start(stage: &Stage, count: usize) -> Self {
        let seat = stage.tree.seat::<StatusManager>(Vitality::Vital);
        let sinks = Count::default();
        let seen_by = Looks::default();
        let all = seen_by.clone();
        let (facts, looks): (Address<DesiredPodsChanged>, Address<PodObserved>) =
            (seat.address(), seat.address());
        let runtime: Address<RuntimeObserved> = seat.address();
        let deps = StatusManagerDeps {
            host_ips: vec!["192.0.2.10".to_owned()],
            ready_to_start_condition: true,
            stop_signals: false,
            image_volume_digests: false,
            checkpoints: stage.checkpoints.clone(),
            clock: stage.clock.clone(),
            desired: Address::sink("PodManager", move |_: ResendDesired| {
                facts.tell(desired(count)).expect("there is room");
            }),
            reports: sinks.sink(),
            observed: Address::sink("Pleg", move |_: ResendObserved| {
                runtime.tell(RuntimeObserved(runtime_well())).expect("there is room");
                pods(count).iter().for_each(|pod| drop(all.at(seen(pod, 1))));
                looks.tell(all.all()).expect("there is room");
            }),
            touched: sinks.sink(),
            node: None,
            api: None,
            verdicts: sinks.sink(),
            events: sinks.sink(),
            metrics: StatusMetrics::new().expect("metrics are defined once"),
        };
        let actor = seat.start(&Place::Here, move || StatusManager::new(deps.clone()));
        let alone = Self { actor, looks: seen_by, pods: count };
        wait("all statuses", async || alone.shown(1).await == count).await;
        alone
    }

    async fn round(&self, round: u64) -> u64 {
        let looks = self.actor.address::<PodObserved>();
        for pod in pods(self.pods) {
            looks.tell(self.looks.at(seen(pod, round + 1))).expect("there is room");
        }
        wait("statuses of the round", async || self.shown(round + 1).await == self.pods).await;
        self.pods as u64
    }

    async fn ask(&self) -> bool {
        let uid = pods(self.pods)[0].pod_ref.uid.clone();
        let status = self
            .actor
            .asked::<Outside, GetPodStatus>()
            .ask(GetPodStatus { uid, made_anew: None }, DEADLINE)
            .await;
        status.is_ok_and(|status| status.is_some())
    }

    async fn whole(&self) -> bool {
        self.shown(1).await == self.pods
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
