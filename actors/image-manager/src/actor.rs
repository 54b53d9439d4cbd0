//! The actor: looks for an image before it pulls, lets askers of one image with the same credentials share a
//! pull, and answers each asker with the outcome.

mod access;
mod before;
mod collecting;
mod providing;
mod reading;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::wire::Image;
use bridge_cri::{CriError, Deadlines, Images, RuntimeReads, Stats};
use bridge_io::clock::Clock;
use bridge_io::compute::Compute;
use bridge_node::host::{CredentialPlugins, DockerConfigs, PullRecords};
use bridge_node::stats::NodeStats;
use bridge_text::image;
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::{EventObject, RecordEvent};
use messages::image_manager::{EnsureImage, ImageError, ImageRules, ImagesConfigured, PresentImage};
use messages::object_cache::{GetSecret, GetServiceAccount, GetToken};
use supervision::{Address, AskPort, Ctx, EffectId, Reply, ReplyLater, Subsystem, blame, reply_later};
use tokio::time::Instant;

use self::collecting::Collecting;
use self::reading::Reading;
use crate::backoff::{BackoffKey, Backoffs, USUAL};
use crate::collection::CollectionPolicy;
use crate::credentials::providers::{CredentialProviders, KeptAnswers};
use crate::credentials::{self, Credential};
use crate::execute::{self, PullEnded, Pulled};
use crate::history::ImageHistory;
use crate::metrics::ImageMetrics;
use crate::names::Names;
use crate::policy::{self, Action, Event, FailedAsk};
use crate::pulls::{Asked, Owner, PullFate, PullKey, PullLimits, Pulls, QueueFull};
use crate::records::{Intents, Recorded, Verification, full_name};
use crate::throttle::{Throttle, ThrottlePolicy};

type Answer = Result<Arc<PresentImage>, ImageError>;

/// How often, while there are pulls, ImageManager checks whether they are still wanted.
const SWEEP: Duration = Duration::from_secs(5);
/// A pull that no asker has waited for during this time is cancelled. A worker that goes from its sync to
/// waiting, or that has crashed, asks again sooner.
const UNWANTED: Duration = Duration::from_secs(10);
/// The most pulls, and askers of one pull, that `/supervision` shows.
const SHOWN_MAX: usize = 64;

/// Settings of images from KubeletConfiguration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageSettings {
    /// `registryPullQPS` and `registryBurst`.
    pub throttle: ThrottlePolicy,
    /// `serializeImagePulls` and `maxParallelImagePulls`.
    pub limits: PullLimits,
    /// Which pods may use an image that is on the node already: `imagePullCredentialsVerificationPolicy`.
    pub verification: Verification,
    /// When unused images are deleted.
    pub collection: CollectionPolicy,
    /// The node's credential providers: `--image-credential-provider-config`.
    pub providers: CredentialProviders,
}

impl ImageSettings {
    /// These settings with those that a changed configuration has.
    #[must_use]
    pub fn configured(&self, now: &ImageRules) -> Self {
        Self {
            throttle: ThrottlePolicy { pulls_per_second: now.pulls_per_second, burst: now.burst },
            limits: PullLimits { parallel: now.parallel, ..self.limits },
            collection: CollectionPolicy {
                high_percent: now.high_percent,
                low_percent: now.low_percent,
                min_age: now.min_age,
                max_age: now.max_age,
            },
            ..self.clone()
        }
    }
}

/// The effects and neighbours of ImageManager.
#[derive(Clone)]
pub struct ImageManagerDeps {
    /// The runtime's image calls.
    pub images: Arc<dyn Images>,
    /// The runtime's containers: their images are in use.
    pub runtime: Arc<dyn RuntimeReads>,
    /// The runtime's word of where its images lie.
    pub usage: Arc<dyn Stats>,
    /// Measures their disk.
    pub stats: Arc<dyn NodeStats>,
    /// The node's credential files.
    pub configs: Arc<dyn DockerConfigs>,
    /// Runs the plugins of the node's credential providers.
    pub plugins: Arc<dyn CredentialPlugins>,
    /// The records of pulls on disk.
    pub records: Arc<dyn PullRecords>,
    /// The wall clock, for the times in records.
    pub clock: Arc<dyn Clock>,
    /// ObjectCache: the secrets that pods name for their pulls.
    pub secrets: AskPort<ImageManager, GetSecret>,
    /// ObjectCache: the service accounts of pods, for credential providers.
    pub accounts: AskPort<ImageManager, GetServiceAccount>,
    /// ObjectCache: tokens of them.
    pub tokens: AskPort<ImageManager, GetToken>,
    /// Where secrets are parsed.
    pub compute: Arc<dyn Compute>,
    /// The recorder of events.
    pub events: Address<RecordEvent>,
    /// ConfigManager, asked after a restart for settings that have changed.
    pub configuration: Address<ResendConfiguration>,
    /// Settings from KubeletConfiguration.
    pub settings: ImageSettings,
    /// The times of images, which outlive the incarnation.
    pub history: ImageHistory,
    /// The answers of credential providers, which outlive the incarnation.
    pub answers: KeptAnswers,
    /// Metrics, which outlive the incarnation.
    pub metrics: ImageMetrics,
}

/// An ask for an image, with its credentials and the reply that is owed.
struct ImageAsker {
    ask: EnsureImage,
    since: Instant,
    reply: Reply<Answer>,
    /// When ImageManager first saw that the asker has given up.
    gone: Option<Instant>,
    /// The credentials of the pod's secrets that fit the image, or why credentials cannot be had.
    credentials: Result<Arc<[Credential]>, String>,
    /// What the node's providers gave; `None` while they were not asked.
    provided: Option<Arc<[Credential]>>,
}

/// A pull under way.
struct Running {
    effect: EffectId,
    /// The image's name as the intent has it: as the first asker's container spells it.
    spelled: Arc<str>,
    /// Whether its intent has begun; before that the pull looks whether the image is there already.
    intended: bool,
    since: Instant,
}

/// ImageManager's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Check whether pulls are still wanted.
    Sweep,
    /// Remove the records of images that are gone.
    Prune,
    /// There is a token for the pull whose turn it is.
    Token,
    /// Look at the images, and delete those that are not to stay.
    Collect,
}

/// Ensures images for pods, and deletes unused ones.
pub struct ImageManager {
    deps: ImageManagerDeps,
    origin: Instant,
    throttle: Throttle,
    backoffs: Backoffs,
    pulls: Pulls<ImageAsker>,
    running: BTreeMap<PullKey, Running>,
    sweeping: bool,
    /// The problems of the node's credential files that were logged last, so that each is logged once.
    warnings: Vec<String>,
    collecting: Collecting,
    /// The pulls whose outcome is not recorded.
    intents: Intents,
    recorded: Recorded,
    names: Names,
    /// How many lists of images have begun, but for those before pulls.
    lists: u64,
    before: before::Lists,
    /// The asks that came before the records of earlier processes were read; `None` once they are read.
    early: Option<Vec<(ImageAsker, String)>>,
    reading: Reading,
}

impl ImageManager {
    /// A fresh incarnation.
    pub fn new(deps: ImageManagerDeps) -> Self {
        let settings = deps.settings.clone();
        Self {
            intents: Intents::default(),
            recorded: Recorded::default(),
            names: Names::default(),
            lists: 0,
            before: before::Lists::default(),
            early: Some(Vec::new()),
            reading: Reading::default(),
            deps,
            origin: Instant::now(),
            throttle: Throttle::new(settings.throttle, Duration::ZERO),
            backoffs: Backoffs::new(USUAL),
            pulls: Pulls::new(settings.limits),
            running: BTreeMap::new(),
            sweeping: false,
            warnings: Vec::new(),
            collecting: Collecting::default(),
        }
    }

    /// Notes that a pod is about to create a container from the image.
    fn give(&self, image_ref: &str) {
        self.deps.history.give(image_ref, self.collecting.began());
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn record(&self, ask: &EnsureImage, event: Event) {
        self.tell_event(ask, ask.field_path.clone(), event);
    }

    fn record_about_pod(&self, ask: &EnsureImage, event: Event) {
        self.tell_event(ask, Arc::from(""), event);
    }

    fn tell_event(&self, ask: &EnsureImage, field_path: Arc<str>, event: Event) {
        let object = EventObject::Pod { pod: ask.pod.clone(), field_path };
        // A full recorder counts what it drops; no image waits for an event.
        self.deps.events.tell_or_count(RecordEvent {
            object,
            event_type: event.event_type,
            reason: event.reason.into(),
            message: event.message.into(),
        });
    }

    fn refuse(&self, asker: ImageAsker, failed: FailedAsk) {
        self.record(&asker.ask, failed.event);
        asker.reply.send(Err(failed.error));
    }

    fn look(&mut self, asker: ImageAsker, image: String, ctx: &mut Ctx<Self>) {
        if let Some(early) = &mut self.early {
            return early.push((asker, image));
        }
        let Some((asker, image)) = self.hold(asker, image) else { return };
        if !policy::must_look(asker.ask.policy) {
            return self.looked(asker, image, Ok(None), ctx);
        }
        let pod = asker.ask.pod.uid.clone();
        let handler = asker.ask.runtime_handler.clone();
        let look =
            execute::look(self.deps.images.clone(), image.clone(), asker.ask.annotations.clone(), handler);
        let since = self.deps.history.now();
        ctx.effect("look for image", Some(pod), look, move |actor, seen, ctx| {
            actor.seen(asker, image, (seen, since), ctx);
        });
    }

    fn looked(
        &mut self,
        asker: ImageAsker,
        image: String,
        seen: Result<Option<Image>, CriError>,
        ctx: &mut Ctx<Self>,
    ) {
        let (metrics, policy) = (self.deps.metrics.clone(), asker.ask.policy);
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                metrics.asked(policy, None, None);
                let failed = policy::inspect_failed(&asker.ask.image, &error.status_text());
                return self.refuse(asker, failed);
            }
        };
        let present = seen.is_some();
        match (policy::decide(policy, present), seen) {
            (Action::Use, Some(seen)) => self.verify(asker, image, seen, ctx),
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

    /// An asker that asked before and gave up takes its earlier place again, so that people see one wait. Any
    /// other asker is returned.
    fn resume(&mut self, asker: ImageAsker, key: &PullKey) -> Option<ImageAsker> {
        let same = |other: &&mut ImageAsker| {
            other.ask.pod.uid == asker.ask.pod.uid
                && other.ask.field_path == asker.ask.field_path
                && other.ask.container == asker.ask.container
                && !other.reply.is_wanted()
        };
        let Some(before) = self.pulls.askers_mut(key).iter_mut().find(same) else { return Some(asker) };
        before.reply = asker.reply;
        before.gone = None;
        None
    }

    /// Queues a pull of the image for this asker, or lets the asker join one.
    fn want(&mut self, mut asker: ImageAsker, image: String, ctx: &mut Ctx<Self>) {
        if self.has_providers(&image) && self.needs_providers(&asker) {
            asker.provided = self.provided_before(&asker, &image);
            if asker.provided.is_none() {
                return self.provide(asker, image, ctx, Self::want);
            }
        }
        let share = match &asker.credentials {
            Ok(credentials) => {
                let provided = asker.provided.as_deref().unwrap_or_default();
                let (namespace, handler) = (&asker.ask.pod.namespace, &asker.ask.runtime_handler);
                credentials::share_with_provided(namespace, handler, credentials, provided)
            }
            Err(error) => {
                let failed = policy::secret_broken(&asker.ask.image, error);
                return self.refuse(asker, failed);
            }
        };
        let key = PullKey { image, share };
        let Some(asker) = self.resume(asker, &key) else { return };
        if let Some(waiting) = self.backoffs.waiting(&backoff_key(&asker.ask), self.now()) {
            let failed = policy::backing_off(&asker.ask.image, &waiting);
            return self.refuse(asker, failed);
        }
        self.record(&asker.ask, policy::pulling(&asker.ask.image));
        self.sweep_later(ctx);
        let pod = &asker.ask.pod;
        let owner = Owner { namespace: pod.namespace.clone(), pod: pod.uid.clone() };
        let refused = match self.pulls.ask(&key, owner, asker) {
            Ok(Asked::Joined | Asked::Waits) => Vec::new(),
            Ok(Asked::InPlaceOf(displaced)) => displaced,
            Err(QueueFull(asker)) => vec![asker],
        };
        for asker in refused {
            let failed = policy::queue_full(&asker.ask.image);
            self.refuse(asker, failed);
        }
        self.begin(ctx);
    }

    fn pulled(&mut self, key: &PullKey, ended: PullEnded, ctx: &mut Ctx<Self>) {
        if let Some(running) = self.running.remove(key) {
            self.end_intent(&running.spelled, Self::outcome_known(&ended.pulled), ctx);
        }
        if !matches!(ended.pulled, Pulled::Failed { known: true, .. } | Pulled::NotIntended(_)) {
            self.before.discard();
        }
        if let Some(image_ref) = ended.recorded {
            self.recorded.note(image_ref, self.lists);
        }
        self.names.note(&full_name(&key.image), self.lists);
        self.warn(ended.warnings);
        self.answer_all(key, &ended.pulled);
        self.begin(ctx);
    }

    /// Logs the problems of the credential files that are new.
    fn warn(&mut self, warnings: Vec<String>) {
        for warning in warnings.iter().filter(|warning| !self.warnings.contains(warning)) {
            tracing::warn!("Credentials for registries: {warning}");
        }
        self.warnings = warnings;
    }

    fn sweep_later(&mut self, ctx: &mut Ctx<Self>) {
        if !self.sweeping {
            self.sweeping = true;
            ctx.set_timer(Timer::Sweep, SWEEP);
        }
    }

    /// Cancels pulls that no asker wants any more: those of pods that are gone, and those that an earlier
    /// incarnation began and no pod has asked for again.
    fn sweep(&mut self, ctx: &mut Ctx<Self>) {
        self.sweeping = false;
        let now = Instant::now();
        let keys: Vec<PullKey> = self.pulls.all().map(|(key, _)| key.clone()).collect();
        for key in keys {
            for asker in self.pulls.askers_mut(&key) {
                asker.gone = if asker.reply.is_wanted() { None } else { asker.gone.or(Some(now)) };
            }
            let waits =
                |asker: &ImageAsker| asker.gone.is_none_or(|gone| now.duration_since(gone) < UNWANTED);
            if self.pulls.keep(&key, waits) == PullFate::Cancel {
                tracing::info!(image = key.image, "Nobody wants this image any more: its pull is cancelled");
                self.cancel(&key, ctx);
            }
        }
        self.make_room(ctx);
        self.begin(ctx);
        let mut left = false;
        for (image, share) in self.deps.images.pulls_in_flight() {
            let key = PullKey { image, share };
            // One whose asker waits for a place is joined when it has one.
            if self.running.contains_key(&key) || self.pulls.has(&key) {
                continue;
            }
            if self.now() >= UNWANTED {
                tracing::info!(image = key.image, "Nobody has asked for this pull again: it is cancelled");
                self.deps.images.cancel_pull(&key.image, key.share);
            } else {
                left = true;
            }
        }
        if self.before.forget_stale() || left || self.pulls.all().next().is_some() {
            self.sweep_later(ctx);
        }
    }

    /// The pulls as `/supervision` shows them: image, state, times in seconds, and the containers that wait.
    fn shown(&self) -> Vec<serde_json::Value> {
        let deadline = Deadlines::default().pull;
        let pull = |(key, askers): (&PullKey, &[ImageAsker])| {
            let running = self.running.get(key);
            let waiting = askers.iter().take(SHOWN_MAX).map(|asker| {
                serde_json::json!({
                    "pod": asker.ask.pod.to_string(),
                    "container": asker.ask.container,
                    "seconds": asker.since.elapsed().as_secs(),
                })
            });
            serde_json::json!({
                "image": key.image,
                "state": if running.is_some() { "pulling" } else { "queued" },
                "pullingSeconds": running.map(|pull| pull.since.elapsed().as_secs()),
                "deadlineSeconds": running.map(|pull| deadline.saturating_sub(pull.since.elapsed()).as_secs()),
                "waiting": waiting.collect::<Vec<_>>(),
            })
        };
        self.pulls.all().take(SHOWN_MAX).map(pull).collect()
    }

    /// Answers every asker that waited for the pull.
    fn answer_all(&mut self, key: &PullKey, pulled: &Pulled) {
        for asker in self.pulls.finished(key) {
            let _named = blame::name(&asker.ask.pod.uid.clone());
            self.answer(asker, pulled);
        }
        self.backoffs.forget_stale(self.now());
    }

    fn answer(&mut self, asker: ImageAsker, pulled: &Pulled) {
        let image = &asker.ask.image;
        match pulled {
            Pulled::Done { image: present, bytes, took, .. } => {
                let waited = asker.since.elapsed();
                self.record(&asker.ask, policy::pulled(image, *took, waited, *bytes));
                self.deps.metrics.pulled(*bytes, waited);
                self.give(&present.image_ref);
                asker.reply.send(Ok(Arc::new(present.clone())));
            }
            Pulled::Failed { error, .. } => {
                let (reason, message) = policy::classify(image, error);
                let remembered = policy::remembered(reason, &message);
                let wait = self.backoffs.failed(backoff_key(&asker.ask), remembered, self.now());
                let failed = policy::pull_failed(image, error, wait);
                self.refuse(asker, failed);
            }
            Pulled::NotInspected { error, .. } => {
                let failed = policy::inspect_failed(image, error);
                self.refuse(asker, failed);
            }
            Pulled::NotIntended(error) => {
                let failed = policy::not_intended(image, error);
                self.refuse(asker, failed);
            }
        }
    }
}

fn backoff_key(ask: &EnsureImage) -> BackoffKey {
    (ask.pod.uid.clone(), ask.image.to_string())
}

impl actix::Actor for ImageManager {
    type Context = Ctx<Self>;
}

impl Subsystem for ImageManager {
    const NAME: &'static str = messages::image_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        if !self.deps.images.pulls_in_flight().is_empty() {
            self.sweep_later(ctx);
        }
        if ctx.incarnation() > 1 {
            self.deps.configuration.tell_level(ResendConfiguration { receiver: Self::NAME });
        }
        self.read_records(ctx);
        self.collect_when_due(ctx);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Sweep => self.sweep(ctx),
            Timer::Prune => self.prune(ctx),
            Timer::Token => self.begin(ctx),
            Timer::Collect => self.collect(ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pullsRunning": self.pulls.running(),
            "pullsWaiting": self.pulls.waiting(),
            "pullIntents": self.intents.len(),
            "failedLately": self.backoffs.failed_lately(),
            "collecting": self.collecting.began().is_some(),
            "pulls": self.shown(),
            "credentialFiles": self.warnings,
        })
    }
}

impl actix::Handler<EnsureImage> for ImageManager {
    type Result = ReplyLater<Answer>;

    fn handle(&mut self, ask: EnsureImage, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let credentials = Ok(Arc::default());
        let since = Instant::now();
        let asker = ImageAsker { ask, since, reply, gone: None, credentials, provided: None };
        match image::with_default_tag(&asker.ask.image) {
            Err(error) => {
                self.deps.metrics.asked(asker.ask.policy, None, None);
                let failed = policy::invalid_name(&asker.ask.image, &error);
                self.refuse(asker, failed);
            }
            Ok(image) if asker.ask.pull_secrets.is_empty() => self.look(asker, image, ctx),
            Ok(image) => self.read_secrets(asker, image, ctx),
        }
        later
    }
}

impl actix::Handler<ImagesConfigured> for ImageManager {
    type Result = ();

    fn handle(&mut self, configured: ImagesConfigured, ctx: &mut Ctx<Self>) {
        let before = &self.deps.settings;
        let settings = before.configured(&configured.settings);
        if settings == *before {
            return;
        }
        if settings.throttle != before.throttle {
            self.throttle = Throttle::new(settings.throttle, self.now());
        }
        self.pulls.set_limits(settings.limits);
        // Each next step of a collection under way goes by these.
        self.deps.settings = settings;
        self.begin(ctx);
    }
}
