//! The actor: reads when told or when it is time, and sends the whole set on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::{Rejection, Source, SourcePod};
use messages::pod_manager::PodsChanged;
use messages::pod_sources::{self, ResendPods};
use runtime_bridge::clock::Clock;
use runtime_bridge::host::{ManifestFile, StaticFiles, StaticFilesError};
use supervision::{Address, Ctx, Subsystem};

use crate::manifests::{Manifests, Problem};
use crate::static_pod::{self, static_pods};
use crate::unsupported::{Supported, unsupported};

/// What PodSources goes by.
#[derive(Clone, Debug)]
pub struct PodSourcesConfig {
    /// `staticPodPath`; none is no file source.
    pub path: Option<PathBuf>,
    /// `fileCheckFrequency`.
    pub check: Duration,
    /// The node's name.
    pub node: String,
}

/// What PodSources is given.
#[derive(Clone)]
pub struct PodSourcesDeps {
    /// Configuration.
    pub config: PodSourcesConfig,
    /// The disk.
    pub files: Arc<dyn StaticFiles>,
    /// Wall time, for `kubernetes.io/config.seen`.
    pub clock: Arc<dyn Clock>,
    /// Who is told.
    pub manager: Address<PodsChanged>,
    /// Events.
    pub events: Address<RecordEvent>,
}

/// PodSources' timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Read again.
    Read,
}

/// The pods of every source.
pub struct PodSources {
    deps: PodSourcesDeps,
    manifests: Manifests,
    read: bool,
    reading: bool,
    again: bool,
    path_problem: Option<String>,
}

impl PodSources {
    /// An incarnation that has read nothing.
    pub fn new(deps: PodSourcesDeps) -> Self {
        Self {
            deps,
            manifests: Manifests::default(),
            read: false,
            reading: false,
            again: false,
            path_problem: None,
        }
    }

    fn read(&mut self, ctx: &mut Ctx<Self>) {
        let Some(path) = &self.deps.config.path else { return };
        if self.reading {
            self.again = true;
            return;
        }
        self.reading = true;
        ctx.effect("read manifests", None, self.deps.files.read(path), Self::have_read);
    }

    fn have_read(&mut self, files: Result<Vec<ManifestFile>, StaticFilesError>, ctx: &mut Ctx<Self>) {
        self.reading = false;
        ctx.set_timer(Timer::Read, self.deps.config.check);
        match files {
            Ok(files) => {
                self.path_problem = None;
                self.take(files);
            }
            Err(error) => {
                // What was known of the pods still holds.
                let message = error.to_string();
                if self.path_problem.as_ref() != Some(&message) {
                    let path = self.deps.config.path.as_ref().map(|path| path.display().to_string());
                    self.report(&Problem {
                        path: path.unwrap_or_default(),
                        message: message.clone(),
                        kept: true,
                    });
                    self.path_problem = Some(message);
                }
            }
        }
        if std::mem::take(&mut self.again) {
            self.read(ctx);
        }
    }

    fn take(&mut self, files: Vec<ManifestFile>) {
        let files = files
            .into_iter()
            .map(|file| (file.path.display().to_string(), file.content.map_err(|error| error.to_string())))
            .collect();
        let (node, seen) = (self.deps.config.node.clone(), self.deps.clock.now());
        let before = self.manifests.pods();
        let reading = self.manifests.read(files, |path, bytes| one_pod(path, bytes, &node, seen));
        for problem in &reading.problems {
            self.report(problem);
        }
        if !self.read || before != reading.pods {
            self.read = true;
            self.tell(reading.pods);
        }
    }

    fn tell(&self, pods: Vec<SourcePod>) {
        // Refused only while PodManager has ended; it asks for a resend when it is back.
        let _ = self.deps.manager.tell(PodsChanged { source: Source::File, pods: Arc::new(pods) });
    }

    fn report(&self, problem: &Problem) {
        let fate = if problem.kept { "the last good version stays" } else { "no pod is run for it" };
        tracing::error!(path = problem.path, err = problem.message, fate, "Static pod manifest is refused");
        let event = RecordEvent {
            object: EventObject::Manifest { path: Arc::from(problem.path.as_str()) },
            event_type: EventType::Warning,
            reason: Arc::from("FailedValidation"),
            message: Arc::from(format!("{} ({fate})", problem.message)),
        };
        let _ = self.deps.events.tell(event);
    }
}

/// The one pod of a manifest file, or everything that is wrong with it.
fn one_pod(path: &str, bytes: &[u8], node: &str, seen: jiff::Timestamp) -> Result<SourcePod, String> {
    let source = static_pod::Source::File(path.to_owned());
    let decoded = static_pods(bytes, &source, node, seen).map_err(|error| error.to_string())?;
    if decoded.ignored_documents > 0 {
        tracing::warn!(
            path,
            ignored = decoded.ignored_documents,
            "Only the first document of a manifest is a static pod"
        );
    }
    let pod = decoded.pods.into_iter().next().ok_or_else(|| format!("{path}: holds no pod"))?;
    let fields = unsupported(&pod, &Supported::this_version());
    let refused = (!fields.is_empty()).then(|| Rejection {
        reason: "PodFeatureUnsupported".to_owned(),
        message: fields.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    });
    Ok(SourcePod { pod: Arc::new(pod), refused })
}

impl Actor for PodSources {
    type Context = Ctx<Self>;
}

impl Subsystem for PodSources {
    const NAME: &'static str = pod_sources::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        if let Some(path) = self.deps.config.path.clone() {
            let changes = self.deps.files.watch(&path);
            ctx.stream(
                "manifests changed",
                changes,
                |actor, (), ctx| actor.read(ctx),
                |_, _| {
                    tracing::warn!(
                        "Static pod manifests are no longer watched; they are read at every check"
                    );
                },
            );
            self.read(ctx);
        }
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Read => self.read(ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "pods": self.manifests.pods().len(), "read": self.read, "problem": self.path_problem })
    }
}

impl Handler<ResendPods> for PodSources {
    type Result = ();
    fn handle(&mut self, _: ResendPods, _ctx: &mut Ctx<Self>) {
        if self.read {
            self.tell(self.manifests.pods());
        }
    }
}
