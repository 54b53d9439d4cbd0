//! The actor: reads when told or when it is time, and sends on what has changed.

mod large;
mod room;
mod submission;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_http::manifest_url::{ManifestUrl, ManifestUrlError};
use bridge_io::clock::Clock;
use bridge_io::compute::Compute;
use bridge_kube::{Follow, Said, Select, Unreadable};
use bridge_node::checkpoint::CheckpointStore;
use bridge_node::host::{FilesChanged, ManifestFile, StaticFiles, StaticFilesError};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::{NodeObserved, Source, SourcePod};
use messages::node_status::ResendNode;
use messages::pod_manager::{ApiPodsChanged, PodsChanged};
use messages::pod_set::{Generation, GonePod, PodSetUpdate};
use messages::pod_sources::{self, ResendPods};
use messages::{PodRef, PodUid};
use pod_rules::reasons::FAILED_VALIDATION;
use pod_set::{Followers, Level};
use supervision::{Address, Ctx, EffectId, Subsystem, blame};

use self::large::UnderWay;
use crate::api_pods::{ApiPods, News};
use crate::doubts::Doubts;
use crate::fetched::{FetchOutcome, Fetched};
use crate::manifest_pods::{Place, contained, one_pod, pods_of};
use crate::manifests::{GoodManifest, Manifests, Problem, ReadReason, cut};
use crate::pod_security::PodSecurity;
use crate::restart_rules::RestartRules;
use crate::static_pod;
use crate::submitted::Submitted;

/// So many failures in a row of one URL are logged as warnings.
const FAILURES_LOGGED: u32 = 3;

/// Period of asking for the Node until NodeStatus has told of it (row 1.5).
const ASK_FOR_NODE: Duration = Duration::from_secs(1);

/// Pause before following the API server's pods again after the stream has ended.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// PodSources' configuration.
#[derive(Clone, Debug)]
pub struct PodSourcesConfig {
    /// `staticPodPath`; `None` for no file source.
    pub path: Option<PathBuf>,
    /// `fileCheckFrequency`.
    pub check: Duration,
    /// `httpCheckFrequency`.
    pub url_check: Duration,
    /// The node's name.
    pub node: String,
    /// The standard that pods of manifests have to meet.
    pub security: PodSecurity,
    /// Which restart rules of containers apply, by feature gates.
    pub restart_rules: RestartRules,
}

/// The effects for pods that are submitted to the kubelet's server.
#[derive(Clone, Debug)]
pub struct SubmissionPorts {
    /// Keeps the manifests over restarts.
    pub kept: Arc<dyn CheckpointStore>,
    /// Reads manifests, whose size their authors choose, beside the actors' thread.
    pub compute: Arc<dyn Compute>,
    /// What was refused and may be on the disk; the same for every incarnation.
    pub doubts: Doubts,
}

/// PodSources' configuration, effects and addresses.
#[derive(Clone)]
pub struct PodSourcesDeps {
    /// Configuration.
    pub config: PodSourcesConfig,
    /// Reads and watches the static-pod path.
    pub files: Arc<dyn StaticFiles>,
    /// `staticPodURL`; `None` for no such source.
    pub url: Option<Arc<dyn ManifestUrl>>,
    /// The API server's pods; `None` for no such source.
    pub api: Option<Arc<dyn Follow<Pod>>>,
    /// For submitted pods; `None` if pods cannot be submitted.
    pub submissions: Option<SubmissionPorts>,
    /// NodeStatus, which tells of the Node: the API server's pods are only asked for after that. `None` if no Node is
    /// kept.
    pub node: Option<Address<ResendNode>>,
    /// Judges large pods of the API server beside the actors' thread.
    pub compute: Arc<dyn Compute>,
    /// Wall time, for `kubernetes.io/config.seen`.
    pub clock: Arc<dyn Clock>,
    /// PodManager: told of static pods, and of the API server's.
    pub manager: Address<PodsChanged>,
    /// Likewise.
    pub api_pods: Address<ApiPodsChanged>,
    /// Events.
    pub events: Address<RecordEvent>,
}

/// PodSources' timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Read the files again.
    Read,
    /// Get the URL again.
    Fetch,
    /// Follow the API server's pods again.
    Follow,
    /// Ask for the Node again.
    AskForNode,
    /// Tell PodManager what it is owed of the API server's pods, or a digest of them.
    Tell,
    /// Tell PodManager again of this source's static pods.
    TellStatic(Source),
    /// Read the manifests of submitted pods again.
    ReadSubmitted,
    /// Remove again the manifests of refused pods that may be on the disk.
    ForgetRefused,
    /// Judge large pods again for which there was no place.
    Judge,
    /// Ask the API server for all pods again, since there is room now for one for which there was none.
    List,
}

/// The pods of every source.
pub struct PodSources {
    deps: PodSourcesDeps,
    manifests: Manifests,
    read: bool,
    /// How many times files have been removed.
    removals: u64,
    /// Why the files are being read, and why they are to be read again after that.
    reading: Option<ReadReason>,
    again: Option<ReadReason>,
    path_problem: Option<String>,
    fetched: Fetched,
    fetch_failures: u32,
    url_problem: Option<String>,
    submitted: Submitted,
    /// Whether the manifests of submitted pods have been read.
    submitted_read: bool,
    submitted_problem: Option<String>,
    api_pods: ApiPods,
    /// The large pods of the API server that are being judged.
    judging: BTreeMap<PodUid, UnderWay>,
    /// How many judgements of large pods have begun.
    judgements: u64,
    api_followers: Followers<SourcePod, ApiPodsChanged, Timer>,
    /// The static pods of each source that has been read.
    static_pods: BTreeMap<Source, Level<PodsChanged, Timer>>,
    following: bool,
    /// The stream of those.
    followed: Option<EffectId>,
    /// All of them are asked for soon.
    lists_soon: bool,
    api_problem: Option<String>,
}

impl PodSources {
    /// An incarnation that has read nothing.
    pub fn new(deps: PodSourcesDeps) -> Self {
        let doubts = deps.submissions.as_ref().map(|ports| ports.doubts.clone()).unwrap_or_default();
        Self {
            manifests: Manifests::default(),
            read: false,
            removals: 0,
            reading: None,
            again: None,
            path_problem: None,
            fetched: Fetched::default(),
            fetch_failures: 0,
            url_problem: None,
            submitted: Submitted::after(doubts),
            submitted_read: false,
            submitted_problem: None,
            api_pods: ApiPods::new(0, deps.config.restart_rules),
            judging: BTreeMap::new(),
            judgements: 0,
            api_followers: Followers::new([deps.api_pods.clone()], ApiPodsChanged, Timer::Tell),
            static_pods: BTreeMap::new(),
            following: false,
            followed: None,
            lists_soon: false,
            api_problem: None,
            deps,
        }
    }

    fn read(&mut self, why: ReadReason, ctx: &mut Ctx<Self>) {
        let Some(path) = &self.deps.config.path else { return };
        if self.reading.is_some() {
            self.again = self.again.max(Some(why));
            return;
        }
        self.reading = Some(why);
        ctx.effect("read manifests", None, self.deps.files.read(path), Self::have_read);
    }

    fn files_changed(&mut self, changed: &FilesChanged, ctx: &mut Ctx<Self>) {
        if !changed.removed.is_empty() {
            self.removals += 1;
            let when = Generation { incarnation: ctx.incarnation(), number: self.removals };
            for path in &changed.removed {
                self.manifests.removed(&path.display().to_string(), when);
            }
        }
        self.read(ReadReason::Written, ctx);
    }

    fn have_read(&mut self, files: Result<Vec<ManifestFile>, StaticFilesError>, ctx: &mut Ctx<Self>) {
        let why = self.reading.take().unwrap_or(ReadReason::Written);
        if why == ReadReason::Listing {
            ctx.set_timer(Timer::Read, self.deps.config.check);
        }
        match files {
            Ok(files) => {
                self.path_problem = None;
                self.take(files, why, ctx);
            }
            Err(error) => {
                // The last known pods stay.
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
        if let Some(why) = self.again.take() {
            self.read(why, ctx);
        }
    }

    fn take(&mut self, files: Vec<ManifestFile>, why: ReadReason, ctx: &mut Ctx<Self>) {
        // If the path is itself a file, there is no listing: while the file is wrong nothing is known of its pod, and
        // the last one stays.
        let is_file = matches!(&files[..], [file] if Some(&file.path) == self.deps.config.path.as_ref());
        let why = if is_file { ReadReason::Written } else { why };
        let files = files
            .into_iter()
            .map(|file| (file.path.display().to_string(), file.content.map_err(|error| error.to_string())))
            .collect();
        let place = self.place();
        let reading = self.manifests.read(files, why, |path, bytes| {
            contained(path, || one_pod(&static_pod::Source::File(path.to_owned()), bytes, &place))
        });
        for problem in &reading.problems {
            self.report(problem);
        }
        for (path, fields) in &reading.ignored {
            self.report_ignored(path, fields);
        }
        self.read |= !is_file || !reading.pods.is_empty();
        if self.read {
            self.tell(Source::File, reading.pods, ctx);
        }
    }

    /// For what manifests are read now.
    fn place(&self) -> Place {
        let config = &self.deps.config;
        Place { node: config.node.clone(), seen: self.deps.clock.now(), security: config.security }
    }

    fn fetch(&mut self, ctx: &mut Ctx<Self>) {
        let Some(url) = &self.deps.url else { return };
        ctx.effect("fetch manifest", None, url.get(), Self::have_fetched);
    }

    fn have_fetched(&mut self, body: Result<Vec<u8>, ManifestUrlError>, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Fetch, self.deps.config.url_check);
        let Some(url) = self.deps.url.as_ref().map(|url| url.shown()) else { return };
        let body = match body {
            Ok(body) => body,
            Err(error) => {
                let kept = self.fetched.pods().is_some_and(|pods| !pods.is_empty());
                return self.could_not_fetch(&url, error.to_string(), kept);
            }
        };
        let place = self.place();
        let source = static_pod::Source::Http(url.clone());
        match self.fetched.take(body, |bytes| contained(&url, || pods_of(&source, bytes, &place))) {
            FetchOutcome::Unchanged => self.could_fetch(&url),
            FetchOutcome::Pods(GoodManifest { pods, ignored }) => {
                self.could_fetch(&url);
                self.url_problem = None;
                if let Some(fields) = ignored {
                    self.report_ignored(&url, &cut(&fields));
                }
                self.tell(Source::Http, pods, ctx);
            }
            FetchOutcome::Emptied => {
                self.tell(Source::Http, Vec::new(), ctx);
                self.could_not_fetch(&url, format!("zero-length data received from {url}"), false);
            }
            FetchOutcome::Wrong { message, kept } => {
                self.could_fetch(&url);
                let message = cut(&message);
                self.report(&Problem { path: url, message: message.clone(), kept });
                self.url_problem = Some(message);
            }
        }
    }

    fn could_fetch(&mut self, url: &str) {
        if std::mem::take(&mut self.fetch_failures) > 0 {
            tracing::info!(url, "Successfully read pods from URL");
            self.url_problem = None;
        }
    }

    /// The first failure in a row is an event, and only a few are warnings: a failure may last.
    fn could_not_fetch(&mut self, url: &str, message: String, kept: bool) {
        self.fetch_failures = self.fetch_failures.saturating_add(1);
        if self.fetch_failures == 1 {
            self.report(&Problem { path: url.to_owned(), message: message.clone(), kept });
        } else if self.fetch_failures <= FAILURES_LOGGED {
            tracing::warn!(url, err = message, "Failed to read pods from URL");
        } else {
            tracing::debug!(url, err = message, "Failed to read pods from URL");
        }
        self.url_problem = Some(message);
    }

    /// Follows the pods that are bound to this node. The list comes first, so that absence means something.
    fn follow(&mut self, ctx: &mut Ctx<Self>) {
        let Some(api) = &self.deps.api else { return };
        if std::mem::replace(&mut self.following, true) {
            return;
        }
        self.api_pods.list_begins();
        let pods = api.follow(Select::pods_of(&self.deps.config.node));
        let pods = pods.flat_map(|news| stream::iter(News::pieces(news)));
        let stream = ctx.stream("pods of the API server", pods, Self::heard_of_api, |actor, ctx| {
            // The stream ends only with the I/O runtime.
            tracing::warn!("Pods of the API server are no longer followed");
            actor.following = false;
            actor.api_problem = Some("no longer followed".to_owned());
            ctx.set_timer(Timer::Follow, FOLLOW_AGAIN);
        });
        self.followed = Some(stream);
    }

    /// PodManager admits pods by the Node's state, so that has to come first.
    fn ask_for_node(&mut self, ctx: &mut Ctx<Self>) {
        match &self.deps.node {
            Some(_) if self.deps.api.is_none() || self.following => {}
            Some(node) => {
                // Lost: it is asked for again.
                node.tell_level(ResendNode { receiver: Self::NAME });
                ctx.set_timer(Timer::AskForNode, ASK_FOR_NODE);
            }
            None => self.follow(ctx),
        }
    }

    fn heard_of_api(&mut self, news: News, ctx: &mut Ctx<Self>) {
        let now = self.deps.clock.now();
        let update = match news {
            News::AllListed => {
                let (judging, pods) = (&mut self.judging, &self.api_pods);
                judging.retain(|uid, _| pods.is_listed(uid));
                self.api_pods.all_listed(now)
            }
            News::Changed { pod, is_listed } => {
                if is_listed {
                    self.api_pods.note_listed(PodRef::of(&pod).uid);
                }
                self.heard_version(pod, ctx)
            }
            News::Gone(pod) => {
                let uid = PodRef::of(&pod).uid;
                self.judging.remove(&uid);
                let gone = blame::step(&uid, || self.api_pods.gone(&pod));
                gone.unwrap_or_else(|| self.api_pods.forget(&uid, GonePod::default()))
            }
            News::Unreadable(one) => {
                self.say_unreadable(&one);
                let uid = PodUid::new(&one.uid);
                // An earlier version that is being judged says nothing of how the pod is now, such as of its deletion.
                self.judging.remove(&uid);
                match one.said {
                    Said::Listed => return self.api_pods.unreadable(one),
                    Said::Changed => blame::step(&uid, || self.api_pods.unread(&one, now)).flatten(),
                    Said::Gone => {
                        let granted_seconds = one.deletion.deletion_grace_period_seconds;
                        self.api_pods.forget(&uid, GonePod { granted_seconds, superseded: false })
                    }
                }
            }
            News::Trouble(error) => {
                // The last known pods stay.
                if self.api_problem.is_none() {
                    tracing::warn!(%error, "Pods of the API server may be out of date");
                }
                self.api_problem = Some(error.to_string());
                return;
            }
        };
        if self.api_problem.take().is_some() {
            tracing::info!("Pods of the API server are up to date again");
        }
        self.tell_of_api(update, ctx);
    }

    fn say_unreadable(&self, one: &Unreadable) {
        let text = |text: &str| Arc::from(text);
        let pod =
            PodRef { uid: PodUid::new(&one.uid), namespace: text(&one.namespace), name: text(&one.name) };
        self.deps.events.tell_or_count(RecordEvent {
            object: EventObject::Pod { pod, field_path: Arc::from("") },
            event_type: EventType::Warning,
            reason: Arc::from(FAILED_VALIDATION),
            message: Arc::from(format!("The pod cannot be read and is left as it was: {}", one.why)),
        });
    }

    /// Tells PodManager what is new of the API server's pods, if anything is, once the list has been heard.
    fn tell_of_api(&mut self, update: Option<PodSetUpdate<SourcePod>>, ctx: &mut Ctx<Self>) {
        self.list_if_room(ctx);
        let Some(update) = update else { return };
        let journal = self.api_pods.journal();
        self.api_followers.tell(&update, journal);
        if self.api_pods.has_heard() {
            self.api_followers.begin(journal, ctx);
        }
        self.api_followers.wake(ctx);
    }

    /// Tells PodManager of a source's static pods.
    fn tell(&mut self, source: Source, pods: Vec<SourcePod>, ctx: &mut Ctx<Self>) {
        let pods = self.deps.config.restart_rules.of_all(pods);
        let manager = &self.deps.manager;
        let level = || Level::new([manager.clone()], Timer::TellStatic(source));
        self.static_pods
            .entry(source)
            .or_insert_with(level)
            .set(PodsChanged { source, pods: Arc::new(pods) }, ctx);
    }

    fn report(&self, problem: &Problem) {
        let fate =
            if problem.kept { "the last good version goes on for now" } else { "no pod is run for it" };
        tracing::error!(path = problem.path, err = problem.message, fate, "Static pod manifest is refused");
        self.warn(&problem.path, FAILED_VALIDATION, &format!("{} ({fate})", problem.message));
    }

    fn report_ignored(&self, path: &str, fields: &str) {
        tracing::warn!(path, fields, "Fields of a static pod manifest have no effect");
        self.warn(path, "IgnoredFields", fields);
    }

    fn warn(&self, path: &str, reason: &str, message: &str) {
        let event = RecordEvent {
            object: EventObject::Manifest { path: Arc::from(path) },
            event_type: EventType::Warning,
            reason: Arc::from(reason),
            message: Arc::from(message),
        };
        self.deps.events.tell_or_count(event);
    }
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
                |actor, changed, ctx| actor.files_changed(&changed, ctx),
                |_, _| {
                    tracing::warn!(
                        "Static pod manifests are no longer watched; they are read at every check"
                    );
                },
            );
            self.read(ReadReason::Listing, ctx);
        }
        self.api_pods = ApiPods::new(ctx.incarnation(), self.deps.config.restart_rules);
        self.fetch(ctx);
        self.read_submitted(ctx);
        self.forget_refused(ctx);
        self.ask_for_node(ctx);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Read => self.read(ReadReason::Listing, ctx),
            Timer::Fetch => self.fetch(ctx),
            Timer::ReadSubmitted => self.read_submitted(ctx),
            Timer::ForgetRefused => self.forget_refused(ctx),
            Timer::Follow => self.follow(ctx),
            Timer::AskForNode => self.ask_for_node(ctx),
            Timer::Judge => self.judge_again(ctx),
            Timer::List => self.list_again(ctx),
            Timer::Tell => self.api_followers.due(self.api_pods.journal(), ctx),
            Timer::TellStatic(source) => {
                if let Some(pods) = self.static_pods.get_mut(&source) {
                    pods.due(ctx);
                }
            }
        }
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        let Some(newest) = self.api_pods.let_in(pod) else { return };
        let update = self.heard_version(newest, ctx);
        self.tell_of_api(update, ctx);
    }

    fn observe(&self) -> serde_json::Value {
        let url = self.deps.url.as_ref().map(|url| {
            serde_json::json!({
                "url": url.shown(),
                "heard": self.fetched.pods().is_some(),
                "pods": self.fetched.pods().map_or(0, <[SourcePod]>::len),
                "problem": self.url_problem,
            })
        });
        serde_json::json!({
            "pods": self.manifests.pods().len(),
            "read": self.read,
            "problem": self.path_problem,
            "url": url,
            "submission": self.observe_submitted(),
            "api": self.deps.api.as_ref().map(|_| serde_json::json!({
                "pods": self.api_pods.count(),
                "waitsForNode": !self.following,
                "problem": self.api_problem,
            })),
        })
    }
}

impl Handler<ResendPods> for PodSources {
    type Result = ();
    fn handle(&mut self, _: ResendPods, ctx: &mut Ctx<Self>) {
        for pods in self.static_pods.values_mut() {
            pods.asked(self.deps.manager.receiver(), ctx);
        }
        self.api_followers.asked(self.deps.api_pods.receiver(), self.api_pods.journal(), ctx);
    }
}

impl Handler<NodeObserved> for PodSources {
    type Result = ();
    fn handle(&mut self, _: NodeObserved, ctx: &mut Ctx<Self>) {
        ctx.cancel_timer(&Timer::AskForNode);
        self.follow(ctx);
    }
}
