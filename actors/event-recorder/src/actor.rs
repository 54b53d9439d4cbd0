//! The actor: judges events, keeps and logs them.

use std::sync::Arc;

use actix::{Actor, Handler, MessageResult};
use messages::event_recorder::{self, EventObject, EventType, GetEvents, RecordEvent, RecordedEvent};
use runtime_bridge::clock::Clock;
use supervision::{Ctx, Subsystem};
use tokio::time::Instant;

use crate::correlate::{Correlator, Verdict};
use crate::metrics::EventMetrics;
use crate::ring::Ring;

/// What EventRecorder is given.
#[derive(Clone)]
pub struct EventRecorderDeps {
    /// Wall time, for first and last times.
    pub clock: Arc<dyn Clock>,
    /// Counts.
    pub metrics: EventMetrics,
}

/// The node's events.
pub struct EventRecorder {
    deps: EventRecorderDeps,
    began: Instant,
    correlator: Correlator,
    ring: Ring,
    dropped: u64,
}

impl EventRecorder {
    /// An incarnation that knows of no event.
    pub fn new(deps: EventRecorderDeps) -> Self {
        Self {
            deps,
            began: Instant::now(),
            correlator: Correlator::default(),
            ring: Ring::default(),
            dropped: 0,
        }
    }
}

impl Actor for EventRecorder {
    type Context = Ctx<Self>;
}

impl Subsystem for EventRecorder {
    const NAME: &'static str = event_recorder::RECEIVER;
    type Timer = ();

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "events": self.ring.len(), "dropped": self.dropped })
    }
}

impl Handler<RecordEvent> for EventRecorder {
    type Result = ();
    fn handle(&mut self, event: RecordEvent, _ctx: &mut Ctx<Self>) {
        match self.correlator.judge(&event, self.deps.clock.now(), self.began.elapsed()) {
            Verdict::Keep { key, event } => {
                self.deps.metrics.recorded.with_label_values(&[type_of(&event)]).inc();
                // A repeated one is in the log already; its count is in the answer to GetEvents.
                if event.count == 1 {
                    log(&event);
                }
                self.ring.keep(key, *event);
            }
            Verdict::Drop => {
                self.deps.metrics.dropped.inc();
                self.dropped += 1;
            }
        }
    }
}

impl Handler<GetEvents> for EventRecorder {
    type Result = MessageResult<GetEvents>;
    fn handle(&mut self, _: GetEvents, _ctx: &mut Ctx<Self>) -> Self::Result {
        MessageResult(self.ring.all())
    }
}

fn type_of(event: &RecordedEvent) -> &'static str {
    match event.event_type {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

fn log(event: &RecordedEvent) {
    let (kind, name, field_path) = match &event.object {
        EventObject::Pod { pod, field_path } => ("Pod", pod.to_string(), &**field_path),
        EventObject::Node => ("Node", String::new(), ""),
        EventObject::Manifest { path } => ("Manifest", path.to_string(), ""),
    };
    tracing::info!(
        kind,
        object = name,
        field_path,
        r#type = type_of(event),
        reason = &*event.reason,
        "{}",
        event.message
    );
}
