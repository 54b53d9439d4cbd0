//! The actor: looks before it pulls, puts askers of one image together, and tells each what became of it.

use std::sync::Arc;
use std::time::Duration;

use messages::event_recorder::{EventObject, RecordEvent};
use messages::image_manager::{EnsureImage, ImageError, PresentImage};
use runtime_bridge::cri::wire::Image;
use runtime_bridge::cri::{CriError, Operations};
use supervision::{Address, Ctx, Reply, ReplyLater, Subsystem, reply_later};
use tokio::time::Instant;

use crate::backoff::{BackoffKey, BackoffPolicy, Backoffs};
use crate::execute::{self, Pulled};
use crate::metrics::ImageMetrics;
use crate::name;
use crate::policy::{self, Action, Event, Failed};
use crate::pulls::{Asked, PullLimits, Pulls, QueueFull};
use crate::throttle::{self, Throttle, ThrottlePolicy};

type Answer = Result<Arc<PresentImage>, ImageError>;

/// What KubeletConfiguration says about pulls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImageSettings {
    /// `registryPullQPS` and `registryBurst`.
    pub throttle: ThrottlePolicy,
    /// Waits after failed pulls.
    pub backoff: BackoffPolicy,
    /// `serializeImagePulls` and `maxParallelImagePulls`.
    pub limits: PullLimits,
}

/// What the actor works with.
#[derive(Clone)]
pub struct ImageManagerDeps {
    /// The runtime.
    pub operations: Operations,
    /// Where events go.
    pub events: Address<RecordEvent>,
    /// Configuration.
    pub settings: ImageSettings,
    /// Counters that outlive the incarnation.
    pub metrics: ImageMetrics,
}

/// Somebody who waits for an image.
struct Asker {
    ask: EnsureImage,
    since: Instant,
    reply: Reply<Answer>,
}

/// The actor.
pub struct ImageManager {
    deps: ImageManagerDeps,
    origin: Instant,
    throttle: Throttle,
    backoffs: Backoffs,
    pulls: Pulls<Asker>,
}

impl ImageManager {
    /// A fresh incarnation.
    pub fn new(deps: ImageManagerDeps) -> Self {
        let settings = deps.settings;
        Self {
            deps,
            origin: Instant::now(),
            throttle: Throttle::new(settings.throttle, Duration::ZERO),
            backoffs: Backoffs::new(settings.backoff),
            pulls: Pulls::new(settings.limits),
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn record(&self, ask: &EnsureImage, event: Event) {
        let object = EventObject::Pod { pod: ask.pod.clone(), field_path: ask.field_path.clone() };
        // A full recorder counts what it drops; no image waits for an event.
        let _ = self.deps.events.tell(RecordEvent {
            object,
            event_type: event.event_type,
            reason: event.reason.into(),
            message: event.message.into(),
        });
    }

    fn refuse(&self, asker: Asker, failed: Failed) {
        self.record(&asker.ask, failed.event);
        asker.reply.send(Err(failed.error));
    }

    fn looked(
        &mut self,
        asker: Asker,
        image: String,
        seen: Result<Option<Image>, CriError>,
        ctx: &mut Ctx<Self>,
    ) {
        let (metrics, policy) = (self.deps.metrics.clone(), asker.ask.policy);
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                metrics.asked(policy, None, None);
                let failed = policy::inspect_failed(&asker.ask.image, &error.message);
                return self.refuse(asker, failed);
            }
        };
        let present = seen.is_some();
        match (policy::decide(policy, present), seen) {
            (Action::Use, Some(seen)) => {
                metrics.asked(policy, Some(true), Some(false));
                self.record(&asker.ask, policy::present(&asker.ask.image));
                asker.reply.send(Ok(Arc::new(execute::present(seen))));
            }
            (Action::Refuse, _) => {
                metrics.asked(policy, Some(false), None);
                let failed = policy::never_pull(&asker.ask.image);
                self.refuse(asker, failed);
            }
            (Action::Pull | Action::Use, _) => {
                let looked = policy::must_look(policy);
                metrics.asked(policy, looked.then_some(present), Some(true));
                self.want(asker, image, ctx);
            }
        }
    }

    /// The image has to come from its registry.
    fn want(&mut self, asker: Asker, image: String, ctx: &mut Ctx<Self>) {
        if let Some(waiting) = self.backoffs.waiting(&key(&asker.ask), self.now()) {
            let failed = policy::backing_off(&asker.ask.image, &waiting);
            return self.refuse(asker, failed);
        }
        self.record(&asker.ask, policy::pulling(&asker.ask.image));
        match self.pulls.ask(&image, asker) {
            Ok(Asked::Begin) => self.begin(image, ctx),
            Ok(Asked::Joined | Asked::Waits) => {}
            Err(QueueFull(asker)) => {
                let failed = policy::queue_full(&asker.ask.image);
                self.refuse(asker, failed);
            }
        }
    }

    /// It is the image's turn. Those that the bucket refuses make room for the next at once.
    fn begin(&mut self, image: String, ctx: &mut Ctx<Self>) {
        let mut turn = Some(image);
        while let Some(image) = turn {
            if self.throttle.try_take(self.now()) {
                // Pull secrets and the node's credentials will be looked up here.
                let pull = execute::pull(self.deps.operations.clone(), image.clone(), None);
                ctx.effect("pull image", None, pull, move |actor, pulled, ctx| {
                    actor.pulled(&image, &pulled, ctx)
                });
                return;
            }
            turn = self.answer_all(&image, &Pulled::Failed(throttle::REFUSED.to_owned()));
        }
    }

    fn pulled(&mut self, image: &str, pulled: &Pulled, ctx: &mut Ctx<Self>) {
        if let Some(next) = self.answer_all(image, pulled) {
            self.begin(next, ctx);
        }
    }

    /// Tells everybody who waited for the image, and says whose turn it is.
    fn answer_all(&mut self, image: &str, pulled: &Pulled) -> Option<String> {
        let (askers, next) = self.pulls.finished(image);
        for asker in askers {
            self.answer(asker, pulled);
        }
        self.backoffs.forget_stale(self.now());
        next
    }

    fn answer(&mut self, asker: Asker, pulled: &Pulled) {
        let image = &asker.ask.image;
        match pulled {
            Pulled::Done { image: present, bytes, took } => {
                let waited = asker.since.elapsed();
                self.record(&asker.ask, policy::pulled(image, *took, waited, *bytes));
                self.deps.metrics.pulled(*bytes, waited);
                asker.reply.send(Ok(Arc::new(present.clone())));
            }
            Pulled::Failed(error) => {
                let (reason, message) = policy::classify(image, error);
                let remembered = policy::remembered(reason, &message);
                let wait = self.backoffs.failed(key(&asker.ask), remembered, self.now());
                let failed = policy::pull_failed(image, error, wait);
                self.refuse(asker, failed);
            }
            Pulled::NotInspected(error) => {
                let failed = policy::inspect_failed(image, error);
                self.refuse(asker, failed);
            }
        }
    }
}

fn key(ask: &EnsureImage) -> BackoffKey {
    (ask.pod.uid.clone(), ask.image.to_string())
}

impl actix::Actor for ImageManager {
    type Context = Ctx<Self>;
}

impl Subsystem for ImageManager {
    const NAME: &'static str = messages::image_manager::RECEIVER;
    type Timer = ();

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pullsRunning": self.pulls.running(),
            "imagesWaiting": self.pulls.waiting(),
            "failedLately": self.backoffs.failed_lately(),
        })
    }
}

impl actix::Handler<EnsureImage> for ImageManager {
    type Result = ReplyLater<Answer>;

    fn handle(&mut self, ask: EnsureImage, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let pod = ask.pod.uid.clone();
        let asker = Asker { ask, since: Instant::now(), reply };
        match name::with_default_tag(&asker.ask.image) {
            Err(error) => {
                self.deps.metrics.asked(asker.ask.policy, None, None);
                let failed = policy::invalid_name(&asker.ask.image, &error);
                self.refuse(asker, failed);
            }
            Ok(image) if policy::must_look(asker.ask.policy) => {
                let look = execute::look(self.deps.operations.clone(), image.clone());
                ctx.effect("look for image", Some(pod), look, move |actor, seen, ctx| {
                    actor.looked(asker, image, seen, ctx);
                });
            }
            Ok(image) => self.looked(asker, image, Ok(None), ctx),
        }
        later
    }
}
