//! EventRecorder alone: an event about every pod, each round another one.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Stage, Subject, pods};
use event_recorder::{EventMetrics, EventRecorder, EventRecorderDeps};
use messages::event_recorder::{EventObject, EventType, GetEvents, RecordEvent};
use supervision::{Outside, Place, Supervised, Vitality};

const DEADLINE: Duration = Duration::from_secs(60);

struct Alone {
    actor: Supervised<EventRecorder>,
    pods: usize,
}

impl Subject for Alone {
    const NAME: &'static str = "EventRecorder";

    async fn start(stage: &Stage, count: usize) -> Self {
        let metrics = EventMetrics::new().expect("metrics are defined once");
        let deps = EventRecorderDeps { clock: stage.clock.clone(), post: None, metrics };
        let seat = stage.tree.seat::<EventRecorder>(Vitality::Degradable);
        let alone =
            Self { actor: seat.start(&Place::Here, move || EventRecorder::new(deps.clone())), pods: count };
        alone.round(0).await;
        alone
    }

    async fn round(&self, round: u64) -> u64 {
        let recorder = self.actor.address::<RecordEvent>();
        for pod in pods(self.pods) {
            let event = RecordEvent {
                object: EventObject::Pod {
                    pod: pod.pod_ref.clone(),
                    field_path: Arc::from("spec.containers{web}"),
                },
                event_type: EventType::Normal,
                reason: Arc::from("Started"),
                message: Arc::from(format!("Container started, round {round}")),
            };
            recorder.tell(event).expect("there is room");
        }
        assert!(self.ask().await, "it answers");
        self.pods as u64
    }

    async fn ask(&self) -> bool {
        self.actor.asked::<Outside, GetEvents>().ask(GetEvents, DEADLINE).await.is_ok()
    }

    /// Events from before a crash are not told again.
    async fn whole(&self) -> bool {
        self.ask().await
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
