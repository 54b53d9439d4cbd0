//! PodManager alone: a source sends all its pods again in one message, and PodManager tells all observers.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Stage, Subject, pods, wait};
use messages::facts::{Source, SourcePod};
use messages::pod_manager::{GetPods, PodsChanged};
use messages::pod_sources::ResendPods;
use pod_manager::admission::NodeView;
use pod_manager::{PodManager, PodManagerConfig, PodManagerDeps, PodManagerMetrics};
use supervision::{Address, AskPort, Outside, Place, Supervised, Vitality};

const DEADLINE: Duration = Duration::from_secs(60);
/// Messages of one round: each has all pods, with one of them changed.
const CHANGES: u64 = 50;

struct Alone {
    actor: Supervised<PodManager>,
    pods: usize,
}

/// All pods; the annotations of one pod have the number of the change.
fn changed(count: usize, change: u64) -> PodsChanged {
    let mut all: Vec<SourcePod> = pods(count)
        .iter()
        .map(|desired| SourcePod { pod: desired.pod.clone(), refused: None, made_anew: None })
        .collect();
    let place = usize::try_from(change).unwrap_or(0) % count;
    let mut pod = (*all[place].pod).clone();
    pod.metadata.annotations.get_or_insert_default().insert("change".to_owned(), change.to_string());
    all[place].pod = Arc::new(pod);
    PodsChanged { source: Source::File, pods: Arc::new(all) }
}

impl Subject for Alone {
    const NAME: &'static str = "PodManager";

    async fn start(stage: &Stage, count: usize) -> Self {
        let seat = stage.tree.seat::<PodManager>(Vitality::Vital);
        let sinks = Count::default();
        let source: Address<PodsChanged> = seat.address();
        let deps = PodManagerDeps {
            config: PodManagerConfig {
                sources: [Source::File].into_iter().collect(),
                node: NodeView { pods_max: count, ..NodeView::default() },
            },
            observers: (0..7).map(|_| sinks.sink()).collect(),
            status_observer: sinks.sink(),
            sources: Address::sink("PodSources", move |_: ResendPods| {
                source.tell(changed(count, 0)).expect("there is room");
            }),
            workers: AskPort::answering("PodWorkerPool", |_| Some(Default::default())),
            reports: sinks.sink(),
            statuses: AskPort::answering("StatusManager", |_| Some(Default::default())),
            held_pods: AskPort::answering("Pleg", |_| Some(Default::default())),
            observed: sinks.sink(),
            node: None,
            pressure: sinks.sink(),
            configuration: sinks.sink(),
            evict: sinks.sink(),
            mirrors: sinks.sink(),
            api: None,
            events: sinks.sink(),
            metrics: PodManagerMetrics::new().expect("metrics are defined once"),
        };
        let actor = seat.start(&Place::Here, move || PodManager::new(deps.clone()));
        let alone = Self { actor, pods: count };
        wait("all pods", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, round: u64) -> u64 {
        let source = self.actor.address::<PodsChanged>();
        for change in 0..CHANGES {
            source.tell(changed(self.pods, round * CHANGES + change)).expect("there is room");
            // Only the latest message of a source counts: each is handled before the next is sent.
            assert!(self.ask().await, "it answers");
        }
        CHANGES
    }

    async fn ask(&self) -> bool {
        self.actor.asked::<Outside, GetPods>().ask(GetPods, DEADLINE).await.is_ok()
    }

    async fn whole(&self) -> bool {
        let pods = self.actor.asked::<Outside, GetPods>().ask(GetPods, DEADLINE).await;
        pods.is_ok_and(|pods| pods.pods.len() == self.pods)
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
