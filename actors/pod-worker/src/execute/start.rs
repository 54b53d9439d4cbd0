//! Starts containers, one after another (rows 5.7, 5.9, 5.22, 5.23, 30.3).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::wire::{ContainerConfig, ContainerState, ContainerStatusRequest, ImageSpec, container_state};
use bridge_cri::{EnsureError, Ensured};
use bridge_io::compute::computed;
use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Container;
use messages::facts::WaitingReason;
use messages::image_manager::PresentImage;
use pod_rules::reasons::ERR_IMAGE_PULL;

use super::images::{Images, step as image_step};
use super::prepare::{Prepared, prepare};
use super::release::remove_container;
use super::sandbox::{ATTEMPTS_MAX, SandboxContext};
use super::sync::{ImageWait, StartFailure, SyncOutcome, SyncTask};
use super::{Executor, few_at_once};
use crate::container_config::{ContainerSetting, container_config};
use crate::hooks::Hook;
use crate::plan::StartContainer;
use crate::pod_images::{ImageNeed, PodImage};
use crate::retry::AFTER_LOST_ANSWER;
use crate::spec::{ContainerKind, PodView};
use crate::texts::{self, CREATE_CONTAINER_CONFIG_ERROR, CREATE_CONTAINER_ERROR, RUN_CONTAINER_ERROR};

/// How long a sync waits for an image; then the worker waits for that image on its own, and the sync goes on
/// with the other containers.
const IMAGE_PATIENCE: Duration = Duration::from_secs(1);
/// What is in the runtime's answer when it cannot mount an image volume. Upstream looks for it at the beginning, where containerd
/// does not put it.
const IMAGE_VOLUME_MOUNT_FAILED: &str = "ImageVolumeMountFailed";

/// Starts the containers of the plan in order. One whose image is still on its way holds up those after it, but for restarts. An
/// init container that does not start holds up all after it; a sidecar or a regular container does not.
pub(super) async fn start_all(
    task: &SyncTask,
    sandbox_context: &SandboxContext,
    images: &mut Images,
    outcome: &mut SyncOutcome,
) {
    let mut links = Vec::new();
    let mut awaits_image = false;
    let named = PodView::of(&task.desired.pod).by_name();
    for start in &task.plan.start {
        if awaits_image && !start.why.is_restart() {
            continue;
        }
        let Some((kind, container)) = named.find(&start.name) else { continue };
        let done = start_one(task, sandbox_context, start, kind, &container, images, outcome).await;
        match done {
            Done::Started(link) => links.push(link),
            // The containers after it wait for its postStart hook, which the worker runs apart from the sync.
            Done::Hooked(link) => {
                links.push(link);
                break;
            }
            Done::Runs => {}
            Done::AwaitsImage if kind == ContainerKind::Init => break,
            Done::AwaitsImage => awaits_image |= kind != ContainerKind::Ephemeral,
            Done::NotStarted if kind == ContainerKind::Init => break,
            Done::NotStarted => {}
        }
    }
    few_at_once(links).collect::<()>().await;
}

enum Done {
    /// The container was started; the future makes the link to its log.
    Started(BoxFuture<'static, ()>),
    /// The container was started and has a postStart hook; the future makes the link to its log.
    Hooked(BoxFuture<'static, ()>),
    /// The container was running already.
    Runs,
    /// The worker waits for the container's image, apart from the sync.
    AwaitsImage,
    NotStarted,
}

async fn start_one(
    task: &SyncTask,
    sandbox_context: &SandboxContext,
    start: &StartContainer,
    kind: ContainerKind,
    container: &Container,
    images: &mut Images,
    outcome: &mut SyncOutcome,
) -> Done {
    let exec = &task.exec;
    exec.deps.metrics.started_containers.with_label_values(&[kind.metric_label()]).inc();
    let failure = match had_images(task, sandbox_context, kind, container, images).await {
        Err(NoImages::Awaited(image)) => {
            outcome.image_waits.push(ImageWait { kind, container: start.name.clone(), image });
            return Done::AwaitsImage;
        }
        Ok(had) => {
            match create_and_start(task, sandbox_context, start, kind, container, &had, outcome).await {
                Ok(done) => return done,
                Err(failure) => failure,
            }
        }
        Err(NoImages::Failed(failure)) => failure,
    };
    let labels = [kind.metric_label(), failure.waiting.reason.as_str()];
    exec.deps.metrics.started_containers_errors.with_label_values(&labels).inc();
    let text = match failure.waiting.reason.as_str() {
        CREATE_CONTAINER_CONFIG_ERROR | CREATE_CONTAINER_ERROR | RUN_CONTAINER_ERROR => {
            &failure.waiting.message
        }
        // About an image ImageManager has recorded an event with the details already.
        reason => reason,
    };
    exec.record(texts::failed(text), &kind.field_path(&start.name));
    outcome.failures.insert(start.name.clone(), failure);
    Done::NotStarted
}

/// The images that a container is created from.
struct HadImages {
    own: Arc<PresentImage>,
    /// The images of its volumes, by the volume's name.
    volumes: Arc<BTreeMap<String, ImageSpec>>,
}

/// Why the images are not all there.
enum NoImages {
    /// The worker waits for this one, apart from the sync.
    Awaited(PodImage),
    Failed(StartFailure),
}

/// The container's images: those of its volumes, then its own.
async fn had_images(
    task: &SyncTask,
    sandbox_context: &SandboxContext,
    kind: ContainerKind,
    container: &Container,
    images: &mut Images,
) -> Result<HadImages, NoImages> {
    let mut of_volumes = BTreeMap::new();
    for need in images.needs_of_volumes(container) {
        let present = had_image(task, &need, images).await?;
        of_volumes.insert(need.image, present);
    }
    let own = had_image(task, &ImageNeed::of_container(kind, container), images).await?;
    let volumes = images.volumes().mounts_of(container).filter_map(|(name, need)| {
        let spec = ImageSpec {
            image: of_volumes.get(&need.image)?.image_ref.clone(),
            user_specified_image: need.reference.to_string(),
            runtime_handler: sandbox_context.image_handler.clone(),
            ..ImageSpec::default()
        };
        Some((name.to_owned(), spec))
    });
    let volumes = Arc::new(volumes.collect());
    Ok(HadImages { own, volumes })
}

async fn had_image(
    task: &SyncTask,
    need: &ImageNeed,
    images: &mut Images,
) -> Result<Arc<PresentImage>, NoImages> {
    images.want(&task.exec, need);
    let step = task.exec.step(image_step(need)).await;
    let answer = images.answer(&need.image, IMAGE_PATIENCE).await;
    drop(step);
    match answer {
        None => Err(NoImages::Awaited(need.image.clone())),
        Some(Ok(Ok(image))) => Ok(image),
        Some(Ok(Err(error))) => Err(NoImages::Failed(image_failure(&error))),
        Some(Err(error)) => Err(NoImages::Failed(StartFailure {
            waiting: waiting(ERR_IMAGE_PULL, &error.to_string()),
            retry_after: Some(AFTER_LOST_ANSWER),
        })),
    }
}

/// The failure that the worker keeps for an image that ImageManager could not provide.
pub(crate) fn image_failure(error: &messages::image_manager::ImageError) -> StartFailure {
    StartFailure {
        waiting: waiting(&error.reason, &error.message),
        // Without a time from ImageManager only a change of the pod helps: the worker tries again with the
        // next resync.
        retry_after: Some(error.retry_after_ms.map_or(Duration::from_secs(60), Duration::from_millis)),
    }
}

fn waiting(reason: &str, message: &str) -> WaitingReason {
    texts::waiting(reason, message.to_owned())
}

fn failure(reason: &str, message: &str) -> StartFailure {
    StartFailure { waiting: waiting(reason, message), retry_after: None }
}

async fn create_and_start(
    task: &SyncTask,
    sandbox_context: &SandboxContext,
    start: &StartContainer,
    kind: ContainerKind,
    container: &Container,
    had: &HadImages,
    outcome: &mut SyncOutcome,
) -> Result<Done, StartFailure> {
    let exec = &task.exec;
    let made = create(task, sandbox_context, start, container, had, outcome).await;
    count_image_volumes(exec, container, had, made.as_ref().err());
    let (id, attempt, adopted) = made?;
    outcome.created.push(start.name.clone());
    let field_path = kind.field_path(&start.name);
    exec.record(texts::created(), &field_path);
    if adopted && runs(task, &id).await? {
        return Ok(Done::Runs);
    }
    let step = exec.step(format!("StartContainer {}", start.name)).await;
    let answer = exec.deps.pods.start_container(exec.uid(), &id).await;
    drop(step);
    answer.map_err(|error| failure(RUN_CONTAINER_ERROR, &error.message.replace(&id, &start.name)))?;
    outcome.started.push(start.name.clone());
    exec.record(texts::started(), &field_path);
    let link = link(task, sandbox_context, &start.name, attempt, &id);
    let pod_ip =
        sandbox_context.pod_ips.first().or(exec.deps.config.host_ips.first()).map_or("", String::as_str);
    match Hook::post_start(&exec.pod, kind, container, &id, pod_ip) {
        Some(hook) => {
            outcome.hooks.push(hook);
            Ok(Done::Hooked(link))
        }
        None => Ok(Done::Started(link)),
    }
}

/// Counts the image volumes of a container that was to be created.
fn count_image_volumes(
    exec: &Executor,
    container: &Container,
    had: &HadImages,
    failure: Option<&StartFailure>,
) {
    let metrics = &exec.deps.metrics;
    metrics.image_volumes_requested.inc_by(had.volumes.len() as u64);
    let mounts = container.volume_mounts.iter().flatten();
    let mounts = mounts.filter(|mount| had.volumes.contains_key(&mount.name)).count() as u64;
    match failure {
        None => metrics.image_volumes_mounted.inc_by(mounts),
        Some(failure) if failure.waiting.message.contains(IMAGE_VOLUME_MOUNT_FAILED) => {
            metrics.image_volumes_errors.inc_by(mounts);
        }
        Some(_) => {}
    }
}

/// Creates the container, under a higher attempt if an unusable container has the name. Returns the ID, the
/// attempt, and whether the container existed already.
async fn create(
    task: &SyncTask,
    sandbox_context: &SandboxContext,
    start: &StartContainer,
    container: &Container,
    had: &HadImages,
    outcome: &mut SyncOutcome,
) -> Result<(String, u32, bool), StartFailure> {
    let exec = &task.exec;
    let prepared = Arc::new(prepare(task, sandbox_context, container).await?);
    let mut attempt = sandbox_context.attempts.get(&start.name).copied().unwrap_or(0);
    let mut tries = 0;
    let target = target_id(task, start).map_err(|error| failure(CREATE_CONTAINER_CONFIG_ERROR, &error))?;
    // Each instance has a file of its own, so that the message of the one before it can still be read.
    let suffix = format!("{:08x}", exec.deps.clock.random_u64() >> 32);
    let log = exec.deps.dirs.create_termination_log(exec.uid(), &start.name, &suffix).await;
    let log = log.map_err(|error| failure(CREATE_CONTAINER_ERROR, &error.to_string()))?.display().to_string();
    let inputs = Inputs { container, had, prepared, log, target };
    loop {
        let config = configured(task, sandbox_context, &inputs, attempt).await?;
        let step = exec.step(format!("CreateContainer {}", start.name)).await;
        let answer = exec
            .deps
            .pods
            .ensure_container(
                exec.uid(),
                &sandbox_context.sandbox_id,
                attempt,
                config,
                sandbox_context.sandbox_config.clone(),
            )
            .await;
        drop(step);
        match answer {
            Ok(Ensured::Created(id)) => return Ok((id, attempt, false)),
            Ok(Ensured::Adopted(id)) => return Ok((id, attempt, true)),
            Err(EnsureError::RaiseAttempt { error, unusable }) => {
                let tried = attempt;
                attempt = attempt.saturating_add(1);
                outcome.floors.containers.insert(start.name.clone(), attempt);
                if let Some(id) = unusable {
                    let removed = remove_container(exec, &id, &start.name, tried).await;
                    removed.map_err(|error| failure(CREATE_CONTAINER_ERROR, &error))?;
                }
                tries += 1;
                if tries == ATTEMPTS_MAX {
                    return Err(failure(CREATE_CONTAINER_ERROR, &error.message));
                }
            }
            Err(error) => return Err(failure(CREATE_CONTAINER_ERROR, &error.cri().message)),
        }
    }
}

/// The inputs of a container's configuration that are the same for each attempt.
struct Inputs<'a> {
    container: &'a Container,
    had: &'a HadImages,
    prepared: Arc<Prepared>,
    /// The path on the host of the termination log.
    log: String,
    target: Option<Arc<str>>,
}

/// The configuration of a container at this attempt.
async fn configured(
    task: &SyncTask,
    sandbox_context: &SandboxContext,
    inputs: &Inputs<'_>,
    attempt: u32,
) -> Result<ContainerConfig, StartFailure> {
    let exec = &task.exec;
    let made = computed(&exec.deps.compute, exec.uid(), {
        let (desired, pod, config) = (task.desired.clone(), exec.pod.clone(), exec.deps.config.clone());
        let (volumes, etc_hosts) = (sandbox_context.volumes.clone(), sandbox_context.etc_hosts.clone());
        let Inputs { container, had, prepared, log, target } = inputs;
        let (container, prepared) = ((*container).clone(), prepared.clone());
        let (image, image_volumes) = (had.own.clone(), had.volumes.clone());
        let (log, target) = (log.clone(), target.clone());
        move || {
            let setting = ContainerSetting {
                attempt,
                image: &image,
                volumes: &volumes,
                environment: &prepared.environment,
                sub_paths: &prepared.sub_paths,
                image_volumes: &image_volumes,
                image_sub_paths: &prepared.image_sub_paths,
                recursive_read_only: prepared.recursive_read_only,
                etc_hosts: etc_hosts.as_deref(),
                termination_log: Some(log.as_str()),
                target: target.as_deref(),
                node: &config.node,
                rules: &config.rules,
            };
            container_config(&desired.pod, &pod, &container, &setting).map_err(|error| error.to_string())
        }
    });
    let lost = |error: String| StartFailure {
        waiting: waiting(CREATE_CONTAINER_CONFIG_ERROR, &error),
        retry_after: Some(AFTER_LOST_ANSWER),
    };
    let made = made.await.map_err(|error| lost(error.to_string()))?;
    made.map_err(|error| failure(CREATE_CONTAINER_CONFIG_ERROR, &error))
}

/// The ID of the container whose processes an ephemeral one is to see. The error says that there is no such
/// container.
fn target_id(task: &SyncTask, start: &StartContainer) -> Result<Option<Arc<str>>, String> {
    if start.kind != ContainerKind::Ephemeral {
        return Ok(None);
    }
    let container = PodView::of(&task.desired.pod).ephemeral().get(start.index);
    let container = container.filter(|container| container.name == start.name);
    let target = container.and_then(|container| container.target_container_name.as_deref());
    match target.filter(|target| !target.is_empty()) {
        None => Ok(None),
        Some(target) => {
            let instance = task.runtime.latest(target);
            instance.map(|instance| Some(instance.id.clone())).ok_or_else(|| texts::target_missing(target))
        }
    }
}

/// Whether an adopted container runs already: an earlier call may have started it.
async fn runs(task: &SyncTask, id: &str) -> Result<bool, StartFailure> {
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let answer = task.exec.deps.runtime.container_status(request).await;
    let status = answer.map_err(|error| failure(RUN_CONTAINER_ERROR, &error.message))?.status;
    Ok(status.is_some_and(|status| container_state(status.state) == ContainerState::ContainerRunning))
}

fn link(
    task: &SyncTask,
    sandbox_context: &SandboxContext,
    name: &str,
    attempt: u32,
    id: &str,
) -> BoxFuture<'static, ()> {
    let (dirs, pod) = (task.exec.deps.dirs.clone(), task.exec.pod.clone());
    let log = PathBuf::from(&sandbox_context.sandbox_config.log_directory)
        .join(bridge_node::host::Layout::container_log_path(name, attempt));
    let made = dirs.create_legacy_link(&pod.namespace, &pod.name, name, id, &log);
    Box::pin(async move {
        if let Err(error) = made.await {
            tracing::warn!(%error, pod = %pod, "Log link was not made");
        }
    })
}
