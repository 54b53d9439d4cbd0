//! EvictionManager alone: it is told of every pod's worker; the node has enough of everything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Reports, Stage, Subject, desired, pods, wait};
use bridge_node::stats::FakeStats;
use eviction_manager::{
    Backends, EvictionConfig, EvictionManager, EvictionManagerDeps, EvictionMetrics, Thresholds,
};
use messages::facts::{DesiredPodsChanged, WorkerReported, WorkerState};
use messages::pod_manager::ResendDesired;
use messages::pod_worker::ResendReports;
use supervision::{Address, AskPort, Place, Supervised, Tree, Vitality};

struct Alone {
    tree: Tree,
    actor: Supervised<EvictionManager>,
    reports: Reports,
    pods: usize,
}

fn config() -> EvictionConfig {
    let thresholds = Thresholds {
        hard: &[("memory.available".to_owned(), "100Mi".to_owned())].into(),
        soft: &BTreeMap::new(),
        soft_grace: &BTreeMap::new(),
        min_reclaim: &BTreeMap::new(),
        pods_enforced: false,
    };
    EvictionConfig {
        thresholds: thresholds.parse().expect("a threshold"),
        transition: Duration::from_secs(300),
        soft_grace_seconds_max: 0,
        local_storage: true,
    }
}

impl Subject for Alone {
    const NAME: &'static str = "EvictionManager";

    async fn start(stage: &Stage, count: usize) -> Self {
        let seat = stage.tree.seat::<EvictionManager>(Vitality::Degradable);
        let (facts, reports): (Address<DesiredPodsChanged>, Address<WorkerReported>) =
            (seat.address(), seat.address());
        let sinks = Count::default();
        let writer = Reports::complete();
        let all = writer.clone();
        let deps = EvictionManagerDeps {
            config: Arc::new(config()),
            backends: Backends {
                stats: Arc::new(FakeStats::default()),
                runtime: stage.operations.clone(),
                dirs: stage.dirs.clone(),
                cgroups: stage.cgroups.clone(),
                containers: AskPort::answering("GarbageCollector", |_| Some(())),
                images: AskPort::answering("ImageManager", |_| Some(0)),
            },
            observers: vec![sinks.sink(), sinks.sink()],
            pressure: AskPort::answering("PodManager", |_| Some(None)),
            evict: sinks.sink(),
            manager: Address::sink("PodManager", move |_: ResendDesired| {
                facts.tell(desired(count)).expect("there is room");
            }),
            pool: Address::sink("PodWorkerPool", move |_: ResendReports| {
                pods(count).iter().for_each(|pod| drop(all.of(pod, WorkerState::Syncing, false)));
                reports.tell(all.all()).expect("there is room");
            }),
            configuration: sinks.sink(),
            events: sinks.sink(),
            annotated: sinks.sink(),
            metrics: EvictionMetrics::new().expect("metrics are defined once"),
        };
        let actor = seat.start(&Place::Here, move || EvictionManager::new(deps.clone()));
        let alone = Self { tree: stage.tree.clone(), actor, reports: writer, pods: count };
        wait("the first measurement", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, round: u64) -> u64 {
        let state = if round.is_multiple_of(2) { WorkerState::Syncing } else { WorkerState::Terminating };
        let reports = self.actor.address::<WorkerReported>();
        for pod in pods(self.pods) {
            reports.tell(self.reports.of(pod, state, false)).expect("there is room");
        }
        wait("an empty mailbox", async || {
            let actors = self.tree.snapshot().await.actors;
            actors.iter().all(|actor| actor.mailbox_depth == 0)
        })
        .await;
        self.pods as u64
    }

    /// EvictionManager answers no asks but the one for its report.
    async fn ask(&self) -> bool {
        self.whole().await
    }

    async fn whole(&self) -> bool {
        let actors = self.tree.snapshot().await.actors;
        let report = actors.into_iter().find(|actor| actor.name == Self::NAME);
        report.is_some_and(|report| report.mailbox_depth == 0 && report.observed["pressure"].is_object())
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
