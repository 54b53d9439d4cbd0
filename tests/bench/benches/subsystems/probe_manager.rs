//! ProbeManager alone: every pod's container is another one again and again, and its probes begin anew.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Looks, Stage, Subject, desired, pods, seen, wait};
use bridge_http::probes::FakeProber;
use bridge_io::clock::Clock;
use messages::facts::{DesiredPodsChanged, PodObserved};
use messages::pleg::ResendObserved;
use messages::pod_manager::ResendDesired;
use messages::probe_manager::GetVerdicts;
use probe_manager::{Backends, ProbeLimits, ProbeManager, ProbeManagerDeps, ProbeMetrics};
use supervision::{Address, Outside, Place, Supervised, Vitality};

const DEADLINE: Duration = Duration::from_secs(60);

struct Alone {
    actor: Supervised<ProbeManager>,
    looks: Looks,
    pods: usize,
}

impl Alone {
    async fn verdicts(&self) -> usize {
        let verdicts = self.actor.asked::<Outside, GetVerdicts>().ask(GetVerdicts, DEADLINE).await;
        verdicts.map_or(0, |verdicts| verdicts.len())
    }
}

impl Subject for Alone {
    const NAME: &'static str = "ProbeManager";

    async fn start(stage: &Stage, count: usize) -> Self {
        let seat = stage.tree.seat::<ProbeManager>(Vitality::Degradable);
        let sinks = Count::default();
        let seen_by = Looks::default();
        let all = seen_by.clone();
        let (facts, looks): (Address<DesiredPodsChanged>, Address<PodObserved>) =
            (seat.address(), seat.address());
        let deps = ProbeManagerDeps {
            backends: Backends { exec: stage.operations.clone(), prober: Arc::new(FakeProber::new()) },
            checkpoints: stage.checkpoints.clone(),
            kubelet_started: stage.clock.now(),
            clock: stage.clock.clone(),
            node_ip: Arc::from("192.0.2.10"),
            limits: ProbeLimits::default(),
            metrics: ProbeMetrics::new(),
            verdicts: vec![sinks.sink(), sinks.sink()],
            events: sinks.sink(),
            resend_desired: Address::sink("PodManager", move |_: ResendDesired| {
                facts.tell(desired(count)).expect("there is room");
            }),
            resend_observed: Address::sink("Pleg", move |_: ResendObserved| {
                pods(count).iter().for_each(|pod| drop(all.at(seen(pod, 1))));
                looks.tell(all.all()).expect("there is room");
            }),
            resend_reports: sinks.sink(),
            node: None,
        };
        let actor = seat.start(&Place::Here, move || ProbeManager::new(deps.clone()));
        let alone = Self { actor, looks: seen_by, pods: count };
        wait("a verdict on every pod", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, round: u64) -> u64 {
        let looks = self.actor.address::<PodObserved>();
        for pod in pods(self.pods) {
            looks.tell(self.looks.at(seen(pod, round + 1))).expect("there is room");
        }
        assert!(self.ask().await, "it answers");
        self.pods as u64
    }

    async fn ask(&self) -> bool {
        self.actor.asked::<Outside, GetVerdicts>().ask(GetVerdicts, DEADLINE).await.is_ok()
    }

    async fn whole(&self) -> bool {
        self.verdicts().await == self.pods
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
