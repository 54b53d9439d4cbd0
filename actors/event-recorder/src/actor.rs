//! The actor: correlates events, keeps and logs them, and posts them to the API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::{Actor, Handler, MessageResult};
use bridge_io::clock::Clock;
use bridge_kube::Events;
use messages::event_recorder::{
    self, EventObject, EventType, GetEvents, RecordAnnotatedEvent, RecordEvent, RecordedEvent,
};
use supervision::{Ctx, Subsystem};
use tokio::time::Instant;

use crate::correlate::{Correlation, Correlator};
use crate::execute::send;
use crate::metrics::EventMetrics;
use crate::post::{Outbox, Sent};
use crate::ring::Ring;

/// Where events are posted.
#[derive(Clone, Debug)]
pub struct EventSink {
    /// The API server, with a rate limit of its own.
    pub api: Arc<dyn Events>,
    /// The node's name, which is the host of its events.
    pub node: String,
}

/// EventRecorder's settings and effects.
#[derive(Clone)]
pub struct EventRecorderDeps {
    /// Wall time, for first and last times.
    pub clock: Arc<dyn Clock>,
    /// Where events are posted; `None` to keep them here only.
    pub post: Option<EventSink>,
    /// Metrics.
    pub metrics: EventMetrics,
}

type Annotations = Arc<BTreeMap<String, String>>;

/// EventRecorder: keeps the node's events.
pub struct EventRecorder {
    deps: EventRecorderDeps,
    began: Instant,
    correlator: Correlator,
    ring: Ring,
    outbox: Option<Outbox>,
    dropped: u64,
}

/// EventRecorder's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Try to post again.
    Send,
}

impl EventRecorder {
    /// An incarnation without events.
    pub fn new(deps: EventRecorderDeps) -> Self {
        Self {
            began: Instant::now(),
            correlator: Correlator::default(),
            ring: Ring::default(),
            outbox: deps.post.as_ref().map(|post| Outbox::new(post.node.clone())),
            dropped: 0,
            deps,
        }
    }

    fn record(&mut self, event: &RecordEvent, annotations: Annotations, ctx: &mut Ctx<Self>) {
        match self.correlator.judge(event, self.deps.clock.now(), self.began.elapsed()) {
            Correlation::Keep { key, event } => {
                let event = RecordedEvent { annotations, ..*event };
                self.deps.metrics.recorded.with_label_values(&[type_of(&event)]).inc();
                // A repeated event is in the log already; its count is in the answer to GetEvents.
                if event.count == 1 {
                    log(&event);
                }
                if let Some(outbox) = &mut self.outbox {
                    outbox.put(key.clone(), event.clone());
                }
                self.ring.keep(key, event);
                self.count_unsent();
                self.send(ctx);
            }
            Correlation::Drop => {
                self.deps.metrics.dropped.inc();
                self.dropped += 1;
            }
        }
    }

    fn send(&mut self, ctx: &mut Ctx<Self>) {
        let (Some(post), Some(outbox)) = (&self.deps.post, &mut self.outbox) else { return };
        if let Some(next) = outbox.next() {
            ctx.effect("send", next.pod.clone(), send(post.api.clone(), next), Self::sent);
        }
    }

    fn sent(&mut self, sent: Sent, ctx: &mut Ctx<Self>) {
        let Some(outbox) = &mut self.outbox else { return };
        if let Some(pause) = outbox.done(sent) {
            ctx.set_timer(Timer::Send, pause);
        }
        self.count_unsent();
        self.send(ctx);
    }

    fn count_unsent(&mut self) {
        if let Some(outbox) = &mut self.outbox {
            self.deps.metrics.unsent.inc_by(outbox.take_dropped());
        }
    }
}

impl Actor for EventRecorder {
    type Context = Ctx<Self>;
}

impl Subsystem for EventRecorder {
    const NAME: &'static str = event_recorder::RECEIVER;
    type Timer = Timer;

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Send => {
                if let Some(outbox) = &mut self.outbox {
                    outbox.due();
                }
                self.send(ctx);
            }
        }
    }

    fn observe(&self) -> serde_json::Value {
        let unsent = self.outbox.as_ref().map(Outbox::waiting);
        serde_json::json!({ "events": self.ring.len(), "dropped": self.dropped, "unsent": unsent })
    }
}

impl Handler<RecordEvent> for EventRecorder {
    type Result = ();
    fn handle(&mut self, event: RecordEvent, ctx: &mut Ctx<Self>) {
        self.record(&event, Arc::default(), ctx);
    }
}

impl Handler<RecordAnnotatedEvent> for EventRecorder {
    type Result = ();
    fn handle(&mut self, annotated: RecordAnnotatedEvent, ctx: &mut Ctx<Self>) {
        self.record(&annotated.event, annotated.annotations, ctx);
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
        EventObject::Claim { namespace, name, .. } => {
            ("PersistentVolumeClaim", format!("{namespace}/{name}"), "")
        }
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
