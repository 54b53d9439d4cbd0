//! Pods that are submitted to the kubelet's server (row 1.8): each is told to PodManager, and its sender answered, when its
//! manifest is safe on the disk. An incarnation begins with what is there.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use actix::Handler;
use bridge_io::compute::computed;
use bridge_node::checkpoint::{ANSWER_WITHIN, CheckpointError, in_time};
use bridge_node::host::{MANIFESTS_BYTES_MAX, MANIFESTS_MAX};
use k8s_openapi::api::core::v1::Pod;
use messages::PodRef;
use messages::facts::{Source, SourcePod};
use messages::pod_set::Generation;
use messages::pod_sources::{
    SUBMISSION_BYTES_MAX, SubmissionRefused, SubmitPod, SubmittedPod, WhyRefused, WithdrawPod,
};
use serde_json::Value;
use supervision::{Ctx, Effect, Reply, ReplyLater, reply_later};

use super::{PodSources, SubmissionPorts, Timer};
use crate::manifest_pods::{Place, one_pod};
use crate::manifests::{GoodManifest, Problem, cut};
use crate::pod_security::PodSecurity;
use crate::static_pod;
use crate::submitted::{
    Held, POD_BYTES_MAX, PREFIX, Size, kept_content, kept_manifest, kept_name, kept_tenant, may_be_kept,
    refused, short_tenant, why_not_kept,
};

/// What errors call a manifest that was just submitted.
const ORIGIN: &str = "/pods";

/// Manifests are read one after the other, on one thread at most.
const READING: &str = "submitted pods";

/// A pod that may run.
struct GoodPod {
    manifest: GoodManifest<SourcePod>,
    held: Held,
}

/// The answer to a submission.
type Submission = Result<SubmittedPod, SubmissionRefused>;
/// A pod, or why its manifest is refused.
type Decoded = Result<GoodPod, SubmissionRefused>;
/// A pod that was submitted, what is to be kept, and what the pod counts for; or why its manifest is refused.
type Taken = Result<(GoodManifest<SourcePod>, Value, Size), SubmissionRefused>;
/// The answer to a withdrawal.
type Withdrawal = Result<(), SubmissionRefused>;

/// What reading a kept manifest comes to.
enum Found {
    /// Its pod, and the tenant for which it counts.
    Pod(GoodPod, Arc<str>),
    /// There is no such manifest any more.
    Nothing,
    /// It is wrong.
    Wrong(String),
    /// It was damaged, and was set aside.
    Damaged(String),
    /// It cannot be read now.
    Unread(String),
}

/// Reads kept manifests, all of them unless some are named, but for those that are left out. Each step, of the disk and of the
/// computing, has a deadline, and reading all of them has none. What is beyond the bounds of all pods, of which so many bytes are
/// left, gives no pod.
async fn read_kept(
    ports: SubmissionPorts,
    names: Option<Vec<String>>,
    left_out: BTreeSet<String>,
    place: Place,
    mut left: u64,
) -> Result<Vec<(String, Found)>, CheckpointError> {
    let names = match names {
        Some(names) => names,
        None => in_time(ANSWER_WITHIN, PREFIX, "list", ports.kept.list(PREFIX)).await?,
    };
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| !left_out.contains(name)).take(MANIFESTS_MAX) {
        let one = read_one(&ports, &name, place.clone(), &mut left).await;
        found.push((name, one));
    }
    Ok(found)
}

/// Removes a manifest, in time or not at all as far as is known.
fn remove_kept(
    ports: &SubmissionPorts,
    name: &str,
) -> impl Future<Output = Result<(), CheckpointError>> + Send + use<> {
    let (name, remove) = (name.to_owned(), ports.kept.remove(name));
    async move { in_time(ANSWER_WITHIN, &name, "remove", remove).await }
}

/// Reads one kept manifest.
async fn read_one(ports: &SubmissionPorts, name: &str, place: Place, left: &mut u64) -> Found {
    let content = match in_time(ANSWER_WITHIN, name, "load", ports.kept.load(name)).await {
        Ok(None) => return Found::Nothing,
        Err(error @ CheckpointError::Corrupt { .. }) => return Found::Damaged(error.to_string()),
        Err(error) => return Found::Unread(error.to_string()),
        Ok(Some(content)) => content,
    };
    let Some(manifest) = kept_manifest(&content) else {
        return Found::Wrong(format!("{name}: it has no manifest"));
    };
    let (origin, manifest) = (name.to_owned(), manifest.to_owned());
    match worked(ports, name, move || allowed(origin, manifest.as_bytes(), &place)).await {
        Ok(good) if good.held.bytes > *left => {
            Found::Wrong(format!("{name}: all together hold more than {MANIFESTS_BYTES_MAX} bytes"))
        }
        Ok(good) => {
            *left -= good.held.bytes;
            Found::Pod(good, kept_tenant(&content))
        }
        Err(refusal) if refusal.why == WhyRefused::Busy => Found::Unread(refusal.message),
        Err(refusal) if matches!(refusal.why, WhyRefused::Forbidden | WhyRefused::TooLarge) => {
            Found::Wrong(format!("{name}: {}", refusal.message))
        }
        Err(refusal) => Found::Wrong(refusal.message),
    }
}

/// What such work on a manifest comes to, done beside the actors' thread; busy if that was not done in time. A manifest over
/// which the work panics has no pod yet that could be quarantined: it counts as wrong, and nothing else ends.
async fn worked<T: Send + 'static>(
    ports: &SubmissionPorts,
    origin: &str,
    work: impl FnOnce() -> Result<T, SubmissionRefused> + Send + 'static,
) -> Result<T, SubmissionRefused> {
    let mut done = pin!(tokio::time::timeout(ANSWER_WITHIN, computed(&ports.compute, READING, work)));
    let contained = poll_fn(|cx| match supervision::contained(|| done.as_mut().poll(cx)) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    });
    match contained.await {
        Ok(Ok(Ok(judged))) => judged,
        Ok(Ok(Err(not_run))) => Err(refused(WhyRefused::Busy, not_run.to_string())),
        Ok(Err(_)) => {
            Err(refused(WhyRefused::Busy, format!("the manifest was not read within {ANSWER_WITHIN:?}")))
        }
        Err(panic) => {
            tracing::error!(origin, %panic, "The reading of a submitted manifest panicked");
            Err(refused(WhyRefused::Invalid, format!("{origin}: cannot be read: {panic}")))
        }
    }
}

/// The pod of a manifest that was submitted, with what is to be kept.
fn taken(manifest: &[u8], tenant: Arc<str>, place: &Place) -> Taken {
    let GoodPod { manifest: good, held } = allowed(ORIGIN.to_owned(), manifest, place)?;
    // A manifest that was decoded is a text.
    let content = kept_content(manifest, &tenant).unwrap_or_default();
    Ok((good, content, Size { tenant, held }))
}

/// The pod of a manifest. What is wrong is told before what is forbidden.
fn allowed(origin: String, manifest: &[u8], place: &Place) -> Decoded {
    let source = static_pod::Source::Submission(origin);
    let any = Place { security: PodSecurity::default(), ..place.clone() };
    let good = one_pod(&source, manifest, &any);
    let manifest = good.map_err(|message| refused(WhyRefused::Invalid, message))?;
    let pod = &manifest.pods.pod;
    let held = Held::by(pod);
    let bytes = held.bytes;
    if bytes > POD_BYTES_MAX {
        let PodRef { namespace, name, .. } = PodRef::of(pod);
        let text =
            format!("pod {namespace}/{name} has {bytes} bytes as JSON, at most {POD_BYTES_MAX} can be kept");
        return Err(refused(WhyRefused::TooLarge, text));
    }
    match place.security.violation(pod) {
        Some(violation) => {
            let name = PodRef::of(pod).name;
            Err(refused(WhyRefused::Forbidden, format!("pods {name:?} is forbidden: {violation}")))
        }
        None => Ok(GoodPod { manifest, held }),
    }
}

impl PodSources {
    /// Reads the kept manifests: all that are there, or later those that could not be read.
    pub(super) fn read_submitted(&mut self, ctx: &mut Ctx<Self>) {
        let Some(ports) = self.deps.submissions.clone() else { return };
        let names = self.submitted_read.then(|| self.submitted.to_read());
        let left = MANIFESTS_BYTES_MAX.saturating_sub(self.submitted.bytes());
        let reading = read_kept(ports, names, self.submitted.doubtful(), self.place(), left);
        ctx.effect(Effect::lasting("read submitted pods"), None, reading, Self::have_read_submitted);
    }

    fn have_read_submitted(
        &mut self,
        found: Result<Vec<(String, Found)>, CheckpointError>,
        ctx: &mut Ctx<Self>,
    ) {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                // Nothing is known of the pods, which is not the same as there being none.
                let message = error.to_string();
                if self.submitted_problem.as_ref() != Some(&message) {
                    tracing::error!(err = message, "The manifests of submitted pods cannot be read");
                }
                self.submitted_problem = Some(message);
                return ctx.set_timer(Timer::ReadSubmitted, self.deps.config.check);
            }
        };
        self.submitted_problem = None;
        for (name, one) in found {
            // One that was replaced or withdrawn meanwhile is no longer what was read.
            if !self.submitted_read || self.submitted.waits(&name) {
                self.take_kept(&name, one);
            }
        }
        self.submitted_read = true;
        if !self.submitted.to_read().is_empty() {
            ctx.set_timer(Timer::ReadSubmitted, self.deps.config.check);
        }
        self.tell_submitted(ctx);
    }

    fn take_kept(&mut self, name: &str, one: Found) {
        let problem = match one {
            Found::Pod(GoodPod { manifest, held }, tenant) => {
                if let Some(fields) = manifest.ignored {
                    self.report_ignored(name, &cut(&fields));
                }
                return self.submitted.found(name, manifest.pods, Size { tenant, held });
            }
            Found::Nothing => return self.submitted.vanished(name),
            Found::Damaged(message) => {
                self.submitted.vanished(name);
                message
            }
            Found::Wrong(message) => {
                self.submitted.wrong(name);
                message
            }
            Found::Unread(message) => {
                if !self.submitted.unread(name) {
                    return;
                }
                message
            }
        };
        self.report(&Problem { path: name.to_owned(), message: cut(&problem), kept: false });
    }

    fn tell_submitted(&mut self, ctx: &mut Ctx<Self>) {
        self.tell(Source::Submission, self.submitted.pods(), ctx);
    }

    /// A submission or a withdrawal begins, where pods can be submitted and those of before are known.
    fn begin_change(&mut self) -> Result<SubmissionPorts, SubmissionRefused> {
        let Some(ports) = self.deps.submissions.clone() else {
            return Err(refused(WhyRefused::Off, "pods cannot be submitted on this node"));
        };
        if !self.submitted_read {
            return Err(refused(
                WhyRefused::Busy,
                "the pods that were submitted before have not been read yet",
            ));
        }
        self.submitted.begin()?;
        Ok(ports)
    }

    fn answer<T>(
        &mut self,
        answer: Result<T, SubmissionRefused>,
        reply: Reply<Result<T, SubmissionRefused>>,
    ) {
        self.submitted.end();
        reply.send(answer);
    }

    fn have_decoded(&mut self, decoded: Taken, reply: Reply<Submission>, ctx: &mut Ctx<Self>) {
        let judged = decoded.and_then(|(good, content, size)| {
            self.judge(&good.pods.pod, size).map(|judged| (judged, good, content))
        });
        let (name, good, content) = match judged {
            Ok((Judged::New(name), good, content)) => (name, good, content),
            Ok((Judged::Same(known), ..)) => {
                return self.answer(Ok(SubmittedPod { pod: known, is_new: false }), reply);
            }
            Err(refusal) => return self.answer(Err(refusal), reply),
        };
        let Some(ports) = self.deps.submissions.clone() else { return };
        let save = ports.kept.save(&name, &content);
        let kept_as = name.clone();
        let save = async move { in_time(ANSWER_WITHIN, &kept_as, "save", save).await };
        ctx.effect(Effect::lasting("keep a submitted pod"), None, save, move |actor, saved, ctx| {
            actor.have_saved(name, good, saved, reply, ctx);
        });
    }

    /// What becomes of a manifest that is right.
    fn judge(&mut self, pod: &Pod, size: Size) -> Result<Judged, SubmissionRefused> {
        let pod_ref = PodRef::of(pod);
        let (namespace, name) = (&pod_ref.namespace, &pod_ref.name);
        if let Some(source) = self.taken_by(&pod_ref) {
            let source = source.as_str();
            let text = format!(
                "a pod {namespace}/{name}, or one of its UID, is there already, from source {source:?}"
            );
            return Err(refused(WhyRefused::Conflict, text));
        }
        let name = kept_name(namespace, name);
        match self.submitted.admit(&name, pod, size)? {
            Some(known) => Ok(Judged::Same(known)),
            None => Ok(Judged::New(name)),
        }
    }

    /// The other source that has a pod of this name, or of this UID, which a manifest may give itself. PodManager would run one
    /// of the two alone.
    fn taken_by(&self, pod: &PodRef) -> Option<Source> {
        let is_other = |one: &SourcePod| {
            let one = PodRef::of(&one.pod);
            one.uid == pod.uid || one.full_name() == pod.full_name()
        };
        let of_url =
            || self.fetched.pods().is_some_and(|pods| pods.iter().any(is_other)).then_some(Source::Http);
        // Names of the API server's pods are apart from those of manifests.
        let of_api = || self.api_pods.journal().get(&pod.uid).map(|_| Source::Api);
        let of_file = self.manifests.pods().iter().any(is_other).then_some(Source::File);
        of_file.or_else(of_url).or_else(of_api)
    }

    fn have_saved(
        &mut self,
        name: String,
        good: GoodManifest<SourcePod>,
        saved: Result<(), CheckpointError>,
        reply: Reply<Submission>,
        ctx: &mut Ctx<Self>,
    ) {
        let Err(error) = saved else {
            if let Some(fields) = &good.ignored {
                self.report_ignored(&name, &cut(fields));
            }
            let pod = self.submitted.put(&name, good.pods);
            self.tell_submitted(ctx);
            return self.answer(Ok(SubmittedPod { pod, is_new: true }), reply);
        };
        tracing::error!(name, %error, "The manifest of a submitted pod cannot be kept");
        let refusal = refused(why_not_kept(&error), error.to_string());
        let ports = self.deps.submissions.clone().filter(|_| may_be_kept(&error));
        let Some(ports) = ports else {
            self.submitted.gave_up(&name, false);
            return self.answer(Err(refusal), reply);
        };
        // Neither a later incarnation nor a later kubelet may run what was refused: what may be on the disk is removed.
        self.submitted.doubted(&name);
        let remove = remove_kept(&ports, &name);
        ctx.effect(Effect::lasting("forget a refused pod"), None, remove, move |actor, removed, ctx| {
            actor.have_forgotten(&name, removed, ctx);
            actor.answer(Err(refusal), reply);
        });
    }

    /// A refused manifest is known to be gone, or is removed again later.
    fn have_forgotten(&mut self, name: &str, removed: Result<(), CheckpointError>, ctx: &mut Ctx<Self>) {
        match removed {
            Ok(()) => self.submitted.vanished(name),
            Err(error) => {
                tracing::warn!(name, %error, "The manifest of a refused pod may be on the disk and is removed again later");
                self.submitted.gave_up(name, true);
                ctx.set_timer(Timer::ForgetRefused, self.deps.config.check);
            }
        }
    }

    /// Removes the refused manifests that may be on the disk, until they are known to be gone.
    pub(super) fn forget_refused(&mut self, ctx: &mut Ctx<Self>) {
        let Some(ports) = self.deps.submissions.clone().filter(|_| self.submitted.is_in_doubt()) else {
            return;
        };
        ctx.set_timer(Timer::ForgetRefused, self.deps.config.check);
        for name in self.submitted.forget_doubtful() {
            let remove = remove_kept(&ports, &name);
            ctx.effect(Effect::lasting("forget a refused pod"), None, remove, move |actor, removed, ctx| {
                actor.have_forgotten(&name, removed, ctx);
            });
        }
    }

    fn have_withdrawn(
        &mut self,
        name: &str,
        removed: Result<(), CheckpointError>,
        reply: Reply<Withdrawal>,
        ctx: &mut Ctx<Self>,
    ) {
        if let Err(error) = removed {
            tracing::error!(name, %error, "The manifest of a submitted pod cannot be removed");
            self.submitted.gave_up(name, false);
            return self.answer(Err(refused(why_not_kept(&error), error.to_string())), reply);
        }
        self.removals += 1;
        let when = Generation { incarnation: ctx.incarnation(), number: self.removals };
        self.submitted.remove(name, when);
        self.tell_submitted(ctx);
        self.answer(Ok(()), reply);
    }

    pub(super) fn observe_submitted(&self) -> Option<serde_json::Value> {
        self.deps.submissions.as_ref().map(|_| {
            serde_json::json!({
                "pods": self.submitted.pods().len(),
                "withoutPod": self.submitted.without_pod(),
                "read": self.submitted_read,
                "problem": self.submitted_problem,
            })
        })
    }
}

/// What becomes of a manifest.
enum Judged {
    /// The pod is there already.
    Same(Arc<Pod>),
    /// The manifest is to be kept under this name.
    New(String),
}

impl Handler<SubmitPod> for PodSources {
    type Result = ReplyLater<Submission>;

    fn handle(&mut self, ask: SubmitPod, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let SubmitPod { manifest, tenant } = ask;
        if manifest.len() > SUBMISSION_BYTES_MAX {
            let text = format!(
                "the manifest has {} bytes, at most {SUBMISSION_BYTES_MAX} can be submitted",
                manifest.len()
            );
            reply.send(Err(refused(WhyRefused::TooLarge, text)));
            return later;
        }
        let ports = match self.begin_change() {
            Ok(ports) => ports,
            Err(refusal) => {
                reply.send(Err(refusal));
                return later;
            }
        };
        let (place, tenant) = (self.place(), short_tenant(&tenant));
        let work = async move { worked(&ports, ORIGIN, move || taken(&manifest, tenant, &place)).await };
        ctx.effect("decode a submitted pod", None, work, move |actor, decoded, ctx| {
            actor.have_decoded(decoded, reply, ctx);
        });
        later
    }
}

impl Handler<WithdrawPod> for PodSources {
    type Result = ReplyLater<Withdrawal>;

    fn handle(&mut self, ask: WithdrawPod, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let WithdrawPod { namespace, name } = ask;
        let ports = match self.begin_change() {
            Ok(ports) => ports,
            Err(refusal) => {
                reply.send(Err(refusal));
                return later;
            }
        };
        let placed = format!("{name}-{}", self.deps.config.node.to_lowercase());
        let names = [kept_name(&namespace, &name), kept_name(&namespace, &placed)];
        match self.submitted.withdraw(&names, &format!("{namespace}/{name}")) {
            Ok(name) => {
                let remove = remove_kept(&ports, &name);
                ctx.effect(
                    Effect::lasting("forget a submitted pod"),
                    None,
                    remove,
                    move |actor, removed, ctx| {
                        actor.have_withdrawn(&name, removed, reply, ctx);
                    },
                );
            }
            Err(refusal) => self.answer(Err(refusal), reply),
        }
        later
    }
}
