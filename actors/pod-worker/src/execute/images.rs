//! Asks for images that run while the worker's other steps go on.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bridge_cri::wire::PodSandboxConfig;
use bridge_io::watch;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::{Container, Pod};
use messages::image_manager::{EnsureImage, ImageError, PresentImage};
use supervision::AskError;
use tokio::sync::Semaphore;

use super::Executor;
use crate::pod_images::{ImageNeed, ImageVolumes, PodImage};
use crate::spec::ContainerKind;

/// The worker sets no deadline for a pull; this only bounds an ask whose answer never comes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// The most asks of one pod that ImageManager has at the same time: its mailbox is for every pod of the node.
const ASKS_AT_ONCE: usize = 16;

/// The places of a pod's asks. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct AskPlaces(Arc<Semaphore>);

impl Default for AskPlaces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ASKS_AT_ONCE)))
    }
}

/// ImageManager's answer about one image.
pub(crate) type ImageAnswer = Result<Result<Arc<PresentImage>, ImageError>, AskError>;

/// The name of the step that waits for an image, for people: what needs it, the image, and the deadline.
pub(crate) fn step(need: &ImageNeed) -> String {
    let ImageNeed { needed_by, reference, .. } = need;
    format!("EnsureImage {needed_by} {reference}, at most {}h", ANSWER_DEADLINE.as_secs() / 3600)
}

/// What asks for images carry of the pod's sandbox.
#[derive(Clone, Debug, Default)]
struct SandboxFacts {
    config: Arc<[u8]>,
    /// The runtime's handler; empty while images are the same for all.
    handler: Arc<str>,
}

/// The configuration of the pod's sandbox, once the sandbox is made. Asks for images carry it, and wait until
/// it is set.
#[derive(Clone, Debug)]
pub(crate) struct SandboxMade(Arc<watch::Sender<Option<SandboxFacts>>>);

impl Default for SandboxMade {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl SandboxMade {
    /// Sets the configuration of the sandbox that was made, and the handler for which its images are asked for.
    pub fn set(&self, config: &PodSandboxConfig, handler: &str) {
        let facts = SandboxFacts { config: config.to_bytes().into(), handler: Arc::from(handler) };
        self.0.send_replace(Some(facts));
    }

    async fn known(&self) -> SandboxFacts {
        let mut changes = self.0.subscribe();
        let known = changes.wait_for(Option::is_some).await;
        // The sender lives in `self`, so the channel is open.
        known.ok().and_then(|known| known.clone()).unwrap_or_default()
    }
}

/// What every ask for an image of a pod carries. A step makes it once for all of the pod's containers: it may be long, and
/// there may be thousands of them.
#[derive(Clone, Debug)]
pub(crate) struct PullContext {
    pull_secrets: Arc<[Arc<str>]>,
    service_account: Arc<str>,
    annotations: Arc<BTreeMap<String, String>>,
}

impl PullContext {
    /// The pod's part of its asks. The API's validation lets secrets with empty names through; they are left out.
    pub fn of(pod: &Pod) -> Self {
        let named = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
        let named = named.map(|secret| secret.name.as_str()).filter(|name| !name.is_empty());
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        Self {
            pull_secrets: named.map(Arc::from).collect(),
            service_account: Arc::from(account.unwrap_or_default()),
            annotations: Arc::new(pod.metadata.annotations.clone().unwrap_or_default()),
        }
    }
}

/// Asks ImageManager for an image, once the sandbox's configuration is known.
pub(crate) fn ask(
    exec: &Executor,
    context: &PullContext,
    need: &ImageNeed,
) -> BoxFuture<'static, ImageAnswer> {
    let question = EnsureImage {
        pod: exec.pod.clone(),
        container: need.needed_by.clone(),
        field_path: Arc::from(need.field_path.as_str()),
        image: need.reference.clone(),
        policy: need.policy,
        pull_secrets: context.pull_secrets.clone(),
        service_account: context.service_account.clone(),
        annotations: context.annotations.clone(),
        sandbox_config: Arc::default(),
        runtime_handler: Arc::default(),
    };
    let (images, sandbox) = (exec.deps.images.clone(), exec.sandbox_made.clone());
    let (pulls, places) = (exec.pulls.clone(), exec.asks.clone());
    Box::pin(async move {
        let SandboxFacts { config: sandbox_config, handler: runtime_handler } = sandbox.known().await;
        let _waits = pulls.begin();
        // The places are never closed. They go to the asks in their order, which is the order of the containers.
        let _place = places.0.acquire().await;
        images.ask(EnsureImage { sandbox_config, runtime_handler, ..question }, ANSWER_DEADLINE).await
    })
}

/// The asks for images that are under way, and the answers.
pub(super) struct Images {
    context: PullContext,
    volumes: ImageVolumes,
    /// The images that were asked for.
    wanted: BTreeSet<PodImage>,
    asked: FuturesUnordered<BoxFuture<'static, (PodImage, ImageAnswer)>>,
    had: BTreeMap<PodImage, ImageAnswer>,
}

impl Images {
    /// Starts with the images that the worker has been answered already.
    pub fn new(pod: &Pod, had: BTreeMap<PodImage, Arc<PresentImage>>) -> Self {
        let had = had.into_iter().map(|(image, present)| (image, Ok(Ok(present)))).collect();
        Self {
            context: PullContext::of(pod),
            volumes: ImageVolumes::of(pod),
            wanted: BTreeSet::new(),
            asked: FuturesUnordered::new(),
            had,
        }
    }

    /// The pod's image volumes.
    pub fn volumes(&self) -> &ImageVolumes {
        &self.volumes
    }

    /// Asks for an image, unless it was asked for or its answer is there.
    pub fn want(&mut self, exec: &Executor, need: &ImageNeed) {
        if self.had.contains_key(&need.image) || !self.wanted.insert(need.image.clone()) {
            return;
        }
        let (image, answer) = (need.image.clone(), ask(exec, &self.context, need));
        self.asked.push(Box::pin(async move { (image, answer.await) }));
    }

    /// Asks for the images that a container needs first: as upstream, its own only when those of its volumes are there.
    pub fn want_first(&mut self, exec: &Executor, kind: ContainerKind, container: &Container) {
        let of_volumes = self.needs_of_volumes(container);
        if of_volumes.iter().all(|need| self.had.contains_key(&need.image)) {
            self.want(exec, &ImageNeed::of_container(kind, container));
        }
        for need in &of_volumes {
            self.want(exec, need);
        }
    }

    /// The images of the volumes that the container mounts.
    pub fn needs_of_volumes(&self, container: &Container) -> Vec<ImageNeed> {
        self.volumes.mounted_by(container).into_iter().cloned().collect()
    }

    /// Polls `work` to its end, and collects answers meanwhile.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.take_in(cx);
            work.as_mut().poll(cx)
        })
        .await
    }

    /// The answer about an image, waited for no longer than `patience`.
    pub async fn answer(&mut self, image: &PodImage, patience: Duration) -> Option<ImageAnswer> {
        let arrived = poll_fn(|cx| {
            self.take_in(cx);
            if self.had.contains_key(image) || self.asked.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        // After the timeout the result is the answer if it came, else none.
        let _ = tokio::time::timeout(patience, arrived).await;
        // Several containers may have an image of volumes.
        self.had.get(image).cloned()
    }

    /// The images of volumes that were had and that one of these containers mounts.
    pub fn of_volumes<'c>(
        &self,
        containers: impl Iterator<Item = Cow<'c, Container>>,
    ) -> BTreeMap<PodImage, Arc<PresentImage>> {
        let mut kept = BTreeMap::new();
        for container in containers {
            for need in self.volumes.mounted_by(&container) {
                if let Some(Ok(Ok(present))) = self.had.get(&need.image) {
                    kept.insert(need.image.clone(), present.clone());
                }
            }
        }
        kept
    }

    fn take_in(&mut self, cx: &mut std::task::Context<'_>) {
        while let Poll::Ready(Some((image, answer))) = self.asked.poll_next_unpin(cx) {
            self.had.insert(image, answer);
        }
    }
}
