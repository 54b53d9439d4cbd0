//! The actor: follows the configuration's files, has them read anew, and tells each actor its part of what has changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler, MessageResult};
use bridge_node::host::StaticFiles;
use messages::config_manager::{
    self, Configured, GetConfiguration, ReloadConfiguration, ResendConfiguration,
};
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::eviction_manager::EvictionConfigured;
use messages::facts::NodeResourcesConfigured;
use messages::image_manager::ImagesConfigured;
use messages::log_manager::LogRotationConfigured;
use messages::node_status::NodeStatusConfigured;
use pod_rules::errors;
use pod_set::Level;
use supervision::{Address, Ctx, Subsystem};

use crate::configuration::{Configuration, ConfigurationSource};
use crate::differences::differences;
use crate::metrics::ConfigMetrics;

/// The pause between a change, or the order to read, and the reading: several changes are read once, and files that are
/// written one after the other are read together.
const SETTLE: Duration = Duration::from_secs(1);
/// How often the files are read in any case: a link that leads elsewhere, or a file in a directory below, makes no event.
const EVERY: Duration = Duration::from_secs(30);
/// The most bytes of a log line or an event that names fields or errors.
const WORDS_BYTES_MAX: usize = 1024;

/// ConfigManager's source, effects and addresses.
#[derive(Clone)]
pub struct ConfigManagerDeps {
    /// The configuration, and its reading.
    pub source: Arc<dyn ConfigurationSource>,
    /// Watches files.
    pub files: Arc<dyn StaticFiles>,
    /// The files and directories that the configuration is read from; if there are none, it is read only by order.
    pub watched: Vec<PathBuf>,
    /// LogManager.
    pub rotation: Address<LogRotationConfigured>,
    /// EvictionManager.
    pub eviction: Address<EvictionConfigured>,
    /// ImageManager.
    pub images: Address<ImagesConfigured>,
    /// PodManager, PodWorkerPool, VolumeManager, and NodeStatus if there is one.
    pub resources: Vec<Address<NodeResourcesConfigured>>,
    /// NodeStatus, if there is one.
    pub node_status: Option<Address<NodeStatusConfigured>>,
    /// EventRecorder.
    pub events: Address<RecordEvent>,
    /// Metrics, which outlive the incarnation.
    pub metrics: ConfigMetrics,
}

/// ConfigManager's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Read what has changed.
    Read,
    /// Read what may have changed without an event.
    Look,
    /// Tell LogManager again.
    TellRotation,
    /// Tell EvictionManager again.
    TellEviction,
    /// Tell ImageManager again.
    TellImages,
    /// Tell PodManager, PodWorkerPool, VolumeManager and NodeStatus again.
    TellResources,
    /// Tell NodeStatus again.
    TellNodeStatus,
}

/// ConfigManager: has changed configurations read, and tells of them.
pub struct ConfigManager {
    deps: ConfigManagerDeps,
    in_force: Arc<Configuration>,
    rotation: Level<LogRotationConfigured, Timer>,
    eviction: Level<EvictionConfigured, Timer>,
    images: Level<ImagesConfigured, Timer>,
    resources: Level<NodeResourcesConfigured, Timer>,
    node_status: Level<NodeStatusConfigured, Timer>,
    /// Whether the timer of the next reading is set.
    due: bool,
    reading: bool,
    /// Whether something has changed since the reading under way began.
    again: bool,
    /// Whether the next reading answers an order: what comes of it is logged even if it is no news.
    ordered: bool,
    /// Why the newest configuration is refused; empty if it is not.
    refused: String,
}

impl ConfigManager {
    /// An incarnation that goes on with the configuration in force.
    pub fn new(deps: ConfigManagerDeps) -> Self {
        Self {
            in_force: deps.source.in_force(),
            rotation: Level::new([deps.rotation.clone()], Timer::TellRotation),
            eviction: Level::new([deps.eviction.clone()], Timer::TellEviction),
            images: Level::new([deps.images.clone()], Timer::TellImages),
            resources: Level::new(deps.resources.iter().cloned(), Timer::TellResources),
            node_status: Level::new(deps.node_status.iter().cloned(), Timer::TellNodeStatus),
            deps,
            due: false,
            reading: false,
            again: false,
            ordered: false,
            refused: String::new(),
        }
    }

    /// Reads after a pause, in which further changes may come; what comes while a reading is under way is read after it.
    fn read_soon(&mut self, ctx: &mut Ctx<Self>) {
        if self.reading {
            self.again = true;
        } else if !std::mem::replace(&mut self.due, true) {
            ctx.set_timer(Timer::Read, SETTLE);
        }
    }

    fn read(&mut self, ctx: &mut Ctx<Self>) {
        self.due = false;
        if std::mem::replace(&mut self.reading, true) {
            self.again = true;
            return;
        }
        // An order that comes from now on is answered by a further reading: this one may have seen the files before it.
        let ordered = std::mem::take(&mut self.ordered);
        ctx.effect("read configuration", None, self.deps.source.read(), move |actor, outcome, ctx| {
            actor.was_read(outcome, ordered, ctx);
        });
    }

    fn was_read(
        &mut self,
        outcome: Result<Arc<Configuration>, Vec<String>>,
        ordered: bool,
        ctx: &mut Ctx<Self>,
    ) {
        self.reading = false;
        match outcome {
            Ok(configuration) => self.accept(configuration, ordered, ctx),
            Err(problems) => self.refuse(problems, ordered),
        }
        if std::mem::take(&mut self.again) {
            self.read_soon(ctx);
        }
    }

    /// Tells of a configuration and puts it in force, in one step: an incarnation that ends before has done neither, and the
    /// next one reads it again.
    fn accept(&mut self, now: Arc<Configuration>, ordered: bool, ctx: &mut Ctx<Self>) {
        let before = std::mem::replace(&mut self.in_force, now.clone());
        let was_refused = !std::mem::take(&mut self.refused).is_empty();
        let (is_changed, waits_for_more) = (now.generation != before.generation, now.waits != before.waits);
        if is_changed {
            let fields = shown(differences(&before.shown, &now.shown));
            tracing::info!(
                generation = now.generation,
                fields,
                "The configuration has changed, and is in force"
            );
            let message =
                format!("Configuration of generation {} is in force; changed: {fields}", now.generation);
            self.event(EventType::Normal, "ConfigurationChanged", &message);
        }
        if waits_for_more && !now.waits.is_empty() {
            let fields = shown(now.waits.clone());
            tracing::warn!(fields, "Changed fields of the configuration wait for a restart of the kubelet");
            let message =
                format!("These fields of the configuration wait for a restart of the kubelet: {fields}");
            self.event(EventType::Warning, "ConfigurationNeedsRestart", &message);
        }
        if !is_changed && (was_refused || ordered || waits_for_more && now.waits.is_empty()) {
            tracing::info!(
                generation = now.generation,
                "The configuration was read, and is the one in force"
            );
        }
        self.deps.source.put_in_force(now);
        if is_changed {
            self.tell(ctx);
        }
    }

    fn refuse(&mut self, problems: Vec<String>, ordered: bool) {
        let mut why = errors::aggregate(problems);
        errors::cut(&mut why, WORDS_BYTES_MAX);
        if self.refused == why && !ordered {
            return;
        }
        self.deps.metrics.errors.inc();
        tracing::error!(err = why, "The changed configuration is refused; the one in force stays");
        self.event(
            EventType::Warning,
            "ConfigurationRefused",
            &format!("The configuration in force stays: {why}"),
        );
        self.refused = why;
    }

    fn event(&self, event_type: EventType, reason: &str, message: &str) {
        // A full recorder counts what it drops.
        self.deps.events.tell_or_count(RecordEvent {
            object: EventObject::Node,
            event_type,
            reason: Arc::from(reason),
            message: Arc::from(message),
        });
    }

    /// Tells each actor its part. That of the start each has from its own start.
    fn tell(&mut self, ctx: &mut Ctx<Self>) {
        let now = self.in_force.clone();
        let generation = now.generation;
        self.deps.metrics.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        if generation > 1 {
            self.rotation.set(Configured { settings: now.rotation }, ctx);
            self.eviction.set(Configured { settings: now.eviction.clone() }, ctx);
            self.images.set(Configured { settings: now.images }, ctx);
            self.resources.set(Configured { settings: now.resources.clone() }, ctx);
            self.node_status.set(Configured { settings: now.node_status }, ctx);
        }
    }
}

/// Fields in one text of bounded length.
fn shown(fields: Vec<String>) -> String {
    let mut text = fields.join(", ");
    errors::cut(&mut text, WORDS_BYTES_MAX);
    text
}

impl Actor for ConfigManager {
    type Context = Ctx<Self>;
}

impl Subsystem for ConfigManager {
    const NAME: &'static str = config_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.tell(ctx);
        if ctx.incarnation() > 1 {
            // What an earlier incarnation was ordered to read, or was reading.
            self.read_soon(ctx);
        }
        if self.deps.watched.is_empty() {
            return;
        }
        for path in &self.deps.watched {
            let changes = self.deps.files.watch(path);
            ctx.stream(
                "configuration files",
                changes,
                |actor: &mut Self, _, ctx| actor.read_soon(ctx),
                |_, _| {
                    tracing::warn!("Files of the configuration are no longer watched, only read regularly");
                },
            );
        }
        ctx.set_timer(Timer::Look, EVERY);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Read => self.read(ctx),
            Timer::Look => {
                ctx.set_timer(Timer::Look, EVERY);
                self.read_soon(ctx);
            }
            Timer::TellRotation => self.rotation.due(ctx),
            Timer::TellEviction => self.eviction.due(ctx),
            Timer::TellImages => self.images.due(ctx),
            Timer::TellResources => self.resources.due(ctx),
            Timer::TellNodeStatus => self.node_status.due(ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "generation": self.in_force.generation,
            "waitsForRestart": shown(self.in_force.waits.clone()),
            "refused": self.refused,
        })
    }
}

impl Handler<ReloadConfiguration> for ConfigManager {
    type Result = ();
    fn handle(&mut self, _: ReloadConfiguration, ctx: &mut Ctx<Self>) {
        self.ordered = true;
        self.read_soon(ctx);
    }
}

impl Handler<GetConfiguration> for ConfigManager {
    type Result = MessageResult<GetConfiguration>;
    fn handle(&mut self, _: GetConfiguration, _: &mut Ctx<Self>) -> Self::Result {
        MessageResult(Arc::from(self.in_force.shown.to_string()))
    }
}

impl Handler<ResendConfiguration> for ConfigManager {
    type Result = ();
    fn handle(&mut self, ask: ResendConfiguration, ctx: &mut Ctx<Self>) {
        self.rotation.asked(ask.receiver, ctx);
        self.eviction.asked(ask.receiver, ctx);
        self.images.asked(ask.receiver, ctx);
        self.resources.asked(ask.receiver, ctx);
        self.node_status.asked(ask.receiver, ctx);
    }
}
