//! Images that are being asked for while something else is done.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bridge_cri::wire::PodSandboxConfig;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use messages::image_manager::{EnsureImage, ImageError, PresentImage, PullPolicy};
use supervision::AskError;
use tokio::sync::watch;

use super::Executor;
use crate::spec::ContainerKind;
use k8s_openapi::api::core::v1::{Container, Pod};

/// A pull has no deadline of its own here; this only bounds a question whose answer never comes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// ImageManager's answer about one container's image.
pub(crate) type ImageAnswer = Result<Result<Arc<PresentImage>, ImageError>, AskError>;

/// The step of having a container's image, named for people: whose, which, and by when it is given up.
pub(crate) fn step(container: &Container) -> String {
    let image = container.image.as_deref().unwrap_or_default();
    format!("EnsureImage {} {image}, at most {}h", container.name, ANSWER_DEADLINE.as_secs() / 3600)
}

/// The configuration of the pod's sandbox, once it is made: pulls go with it, and wait for the first one.
#[derive(Clone, Debug)]
pub(crate) struct SandboxMade(Arc<watch::Sender<Option<Arc<[u8]>>>>);

impl Default for SandboxMade {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl SandboxMade {
    /// It is this one now.
    pub fn set(&self, config: &PodSandboxConfig) {
        self.0.send_replace(Some(config.to_bytes().into()));
    }

    async fn known(&self) -> Arc<[u8]> {
        let mut changes = self.0.subscribe();
        let known = changes.wait_for(Option::is_some).await;
        // The sender is ours, so it is there.
        known.ok().and_then(|known| known.clone()).unwrap_or_default()
    }
}

/// Asks for a container's image, once it is known what sandbox it is for.
pub(crate) fn ask(
    exec: &Executor,
    pod: &Pod,
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
        pull_secrets: pull_secrets(pod),
        annotations: Arc::new(pod.metadata.annotations.clone().unwrap_or_default()),
        sandbox_config: Arc::default(),
    };
    let (images, sandbox) = (exec.deps.images.clone(), exec.sandbox_made.clone());
    Box::pin(async move {
        let sandbox_config = sandbox.known().await;
        images.ask(EnsureImage { sandbox_config, ..question }, ANSWER_DEADLINE).await
    })
}

/// Names that are empty are let through by the API's validation, and mean nothing.
fn pull_secrets(pod: &Pod) -> Arc<[Arc<str>]> {
    let named = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    named.map(|secret| secret.name.as_str()).filter(|name| !name.is_empty()).map(Arc::from).collect()
}

/// Questions about images under way, by container name.
pub(super) struct Images {
    asked: FuturesUnordered<BoxFuture<'static, (String, ImageAnswer)>>,
    had: BTreeMap<String, ImageAnswer>,
}

impl Images {
    /// Begins with the answers that are there already.
    pub fn new(had: BTreeMap<String, Arc<PresentImage>>) -> Self {
        let had = had.into_iter().map(|(name, image)| (name, Ok(Ok(image)))).collect();
        Self { asked: FuturesUnordered::new(), had }
    }

    /// Asks for a container's image unless the answer is there.
    pub fn want(&mut self, exec: &Executor, pod: &Pod, kind: ContainerKind, container: &Container) {
        if self.had.contains_key(&container.name) {
            return;
        }
        let (name, answer) = (container.name.clone(), ask(exec, pod, kind, container));
        self.asked.push(Box::pin(async move { (name, answer.await) }));
    }

    /// Does `work`, and takes in answers meanwhile.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.take_in(cx);
            work.as_mut().poll(cx)
        })
        .await
    }

    /// The answer about a container's image, waited for no longer than this.
    pub async fn answer(&mut self, name: &str, patience: Duration) -> Option<ImageAnswer> {
        let arrived = poll_fn(|cx| {
            self.take_in(cx);
            if self.had.contains_key(name) || self.asked.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        // Out of patience: what is not there is not there.
        let _ = tokio::time::timeout(patience, arrived).await;
        self.had.remove(name)
    }

    fn take_in(&mut self, cx: &mut std::task::Context<'_>) {
        while let Poll::Ready(Some((name, answer))) = self.asked.poll_next_unpin(cx) {
            self.had.insert(name, answer);
        }
    }
}
