//! Asks for images that run while the worker's other steps go on.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bridge_cri::wire::PodSandboxConfig;
use bridge_io::watch;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use messages::image_manager::{EnsureImage, ImageError, PresentImage, PullPolicy};
use supervision::AskError;
use tokio::sync::Semaphore;

use super::Executor;
use crate::spec::ContainerKind;
use k8s_openapi::api::core::v1::{Container, Pod};

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

/// ImageManager's answer about one container's image.
pub(crate) type ImageAnswer = Result<Result<Arc<PresentImage>, ImageError>, AskError>;

/// The name of the step that waits for a container's image, for people: container, image, and the deadline.
pub(crate) fn step(container: &Container) -> String {
    let image = container.image.as_deref().unwrap_or_default();
    format!("EnsureImage {} {image}, at most {}h", container.name, ANSWER_DEADLINE.as_secs() / 3600)
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

/// Asks ImageManager for a container's image, once the sandbox's configuration is known.
pub(crate) fn ask(
    exec: &Executor,
    context: &PullContext,
    kind: ContainerKind,
    container: &Container,
) -> BoxFuture<'static, ImageAnswer> {
    let image = container.image.as_deref().unwrap_or_default();
    let policy = match container.image_pull_policy.as_deref() {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        _ => PullPolicy::IfNotPresent,
    };
    let question = EnsureImage {
        pod: exec.pod.clone(),
        container: Arc::from(container.name.as_str()),
        field_path: Arc::from(kind.field_path(&container.name)),
        image: Arc::from(image),
        policy,
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

/// The asks for images that are under way, and the answers, by container name.
pub(super) struct Images {
    asked: FuturesUnordered<BoxFuture<'static, (String, ImageAnswer)>>,
    had: BTreeMap<String, ImageAnswer>,
}

impl Images {
    /// Starts with the images that the worker has been answered already.
    pub fn new(had: BTreeMap<String, Arc<PresentImage>>) -> Self {
        let had = had.into_iter().map(|(name, image)| (name, Ok(Ok(image)))).collect();
        Self { asked: FuturesUnordered::new(), had }
    }

    /// Asks for a container's image, unless its answer is there.
    pub fn want(
        &mut self,
        exec: &Executor,
        context: &PullContext,
        kind: ContainerKind,
        container: &Container,
    ) {
        if self.had.contains_key(&container.name) {
            return;
        }
        let (name, answer) = (container.name.clone(), ask(exec, context, kind, container));
        self.asked.push(Box::pin(async move { (name, answer.await) }));
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

    /// The answer about a container's image, waited for no longer than `patience`.
    pub async fn answer(&mut self, name: &str, patience: Duration) -> Option<ImageAnswer> {
        let arrived = poll_fn(|cx| {
            self.take_in(cx);
            if self.had.contains_key(name) || self.asked.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        // After the timeout the result is the answer if it came, else none.
        let _ = tokio::time::timeout(patience, arrived).await;
        self.had.remove(name)
    }

    fn take_in(&mut self, cx: &mut std::task::Context<'_>) {
        while let Poll::Ready(Some((name, answer))) = self.asked.poll_next_unpin(cx) {
            self.had.insert(name, answer);
        }
    }
}
