//! PodWorkerPool with a worker for every pod: each pod is observed anew, and its worker has nothing to do.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Looks, Stage, Subject, desired, pods, seen, wait};
use bridge_http::probes::FakeProber;
use messages::facts::{DesiredPod, DesiredPodsChanged, PodObserved, SeenPod};
use messages::pleg::PodTouched;
use messages::pod_manager::ResendDesired;
use messages::pod_worker::{GetWorkers, ResendPod};
use pod_worker::hash::container_hash;
use pod_worker::{PodWorkerConfig, PodWorkerDeps, PodWorkerMetrics, PodWorkerPool, PodWorkerPoolDeps};
use supervision::{Address, AskPort, Outside, Place, Supervised, Tree, Vitality};

const DEADLINE: Duration = Duration::from_secs(60);

struct Alone {
    tree: Tree,
    actor: Supervised<PodWorkerPool>,
    looks: Looks,
    pods: usize,
}

/// A look that finds the pod running as it is desired.
fn running(pod: &DesiredPod, look: u64) -> SeenPod {
    let mut seen = seen(pod, look);
    let hash = pod.pod.spec.as_ref().map(|spec| container_hash(&spec.containers[0]));
    let state = Arc::make_mut(&mut seen.state);
    state.containers[0].hash = hash;
    state.containers[0].attempt = 0;
    seen
}

impl Subject for Alone {
    const NAME: &'static str = "PodWorkerPool";

    async fn start(stage: &Stage, count: usize) -> Self {
        let seat = stage.tree.seat::<PodWorkerPool>(Vitality::Vital);
        let sinks = Count::default();
        let facts: Address<DesiredPodsChanged> = seat.address();
        let looks: Address<PodObserved> = seat.address();
        let seen_by = Looks::default();
        let (one, all) = (seen_by.clone(), seen_by.clone());
        let look = move |touched: PodTouched| {
            let number = usize::from_str_radix(touched.uid.as_str(), 16).expect("the UID is a number");
            let mut seen = running(&pods(count)[number], 1);
            seen.touch = touched.token;
            looks.tell(one.at(seen)).expect("there is room");
        };
        let again: Address<PodObserved> = seat.address();
        let deps = PodWorkerPoolDeps {
            worker: PodWorkerDeps {
                pleg: Address::sink("Pleg", look),
                prepare_subpaths: AskPort::answering("VolumeManager", |_| None),
                mount: AskPort::answering("VolumeManager", |_| None),
                unmount: AskPort::answering("VolumeManager", |_| None),
                secrets: AskPort::answering("ObjectCache", |_| None),
                config_maps: AskPort::answering("ObjectCache", |_| None),
                runtime_classes: AskPort::answering("ObjectCache", |_| None),
                services: AskPort::answering("ObjectCache", |_| None),
                images: AskPort::answering("ImageManager", |_| None),
                ensure_cgroup: AskPort::answering("ResourceManager", |_| None),
                remove_cgroup: AskPort::answering("ResourceManager", |_| None),
                status: AskPort::answering("StatusManager", |_| Some(None)),
                resend: seat.address::<ResendPod>(),
                reports: seat.address(),
                events: sinks.sink(),
                runtime: stage.operations.clone(),
                pods: stage.operations.clone(),
                exec: stage.operations.clone(),
                dirs: stage.dirs.clone(),
                prober: Arc::new(FakeProber::new()),
                epoch: tokio::time::Instant::now(),
                clock: stage.clock.clone(),
                compute: stage.compute.clone(),
                resolv_conf: None,
                config: Arc::new(PodWorkerConfig::default()),
                metrics: PodWorkerMetrics::new().expect("metrics are defined once"),
                fault_point: None,
            },
            resend_desired: Address::sink("PodManager", move |_: ResendDesired| {
                facts.tell(desired(count)).expect("there is room");
            }),
            resend_observed: Address::sink("Pleg", move |_| {
                pods(count).iter().for_each(|pod| drop(all.at(running(pod, 1))));
                again.tell(all.all()).expect("there is room");
            }),
            report_followers: vec![sinks.sink(), sinks.sink(), sinks.sink(), sinks.sink()],
            resend_verdicts: sinks.sink(),
            resend_node: None,
            configuration: sinks.sink(),
        };
        let actor = seat.start(&Place::Here, move || PodWorkerPool::new(deps.clone()));
        let alone = Self { tree: stage.tree.clone(), actor, looks: seen_by, pods: count };
        wait("a report of every worker", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, round: u64) -> u64 {
        let looks = self.actor.address::<PodObserved>();
        for pod in pods(self.pods) {
            looks.tell(self.looks.at(running(pod, (round + 2) << 40))).expect("there is room");
        }
        wait("the workers to come to rest", async || {
            assert!(self.ask().await, "it answers");
            self.tree.snapshot().await.actors.iter().all(|actor| actor.mailbox_depth == 0)
        })
        .await;
        self.pods as u64
    }

    async fn ask(&self) -> bool {
        self.actor.asked::<Outside, GetWorkers>().ask(GetWorkers, DEADLINE).await.is_ok()
    }

    async fn whole(&self) -> bool {
        let workers = self.actor.asked::<Outside, GetWorkers>().ask(GetWorkers, DEADLINE).await;
        workers.is_ok_and(|workers| workers.len() == self.pods)
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
