//! One sync: kills the containers that must go, makes a sandbox, starts the containers that are to run (row
//! 5.3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use messages::facts::{DesiredPod, WaitingReason};
use messages::image_manager::PresentImage;
use messages::runtime::RuntimePod;
use messages::volume_manager::VolumesNotReady;

use super::hook::PreStops;
use super::images::Images;
use super::kill::{failed, stop_all, stop_one, stop_sandbox};
use super::release::{remove_container, remove_container_only, remove_logs, remove_sandbox};
use super::{Executor, sandbox, start};
use crate::hooks::Hook;
use crate::plan::{KillContainer, KillReason, PodPlan};
use crate::pod_images::PodImage;
use crate::spec::{ContainerKind, PodView};
use crate::termination::{kill_grace_seconds, terminate};
use crate::texts;

/// More dead instances than this are removed before any container is started, fewer afterwards.
const PRUNE_LATER_MAX: usize = 5;

/// The inputs of one sync.
pub(crate) struct SyncTask {
    pub exec: Executor,
    pub desired: Arc<DesiredPod>,
    pub runtime: Arc<RuntimePod>,
    pub plan: PodPlan,
    /// Images that ImageManager has provided already.
    pub images: BTreeMap<PodImage, Arc<PresentImage>>,
    pub floors: Floors,
    /// The preStop hooks of the containers that this sync may stop.
    pub pre_stops: PreStops,
}

/// The least attempts that have a free name, learnt when the runtime held a name without a usable sandbox or
/// container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floors {
    pub sandbox: u32,
    pub containers: BTreeMap<String, u32>,
}

/// The result of one sync.
#[derive(Debug, Default)]
pub(crate) struct SyncOutcome {
    /// The names of the containers that were created.
    pub created: Vec<String>,
    /// The names of the containers that were started.
    pub started: Vec<String>,
    /// The postStart hooks of the containers that were started.
    pub hooks: Vec<Hook>,
    /// The containers that could not be started, by name.
    pub failures: BTreeMap<String, StartFailure>,
    /// The containers for which an image takes long: the worker asks for the image apart from the sync.
    pub image_waits: Vec<ImageWait>,
    /// The images of volumes that were had for containers that are still to be started.
    pub images: BTreeMap<PodImage, Arc<PresentImage>>,
    /// An error that concerns the whole pod: of volumes, directories or the sandbox.
    pub pod_error: Option<String>,
    /// The volumes that the pod waits for, if volumes caused the error.
    pub unmounted: Option<VolumesNotReady>,
    /// Why a container or sandbox could not be stopped.
    pub kill_error: Option<String>,
    /// Whether a dead instance could not be removed.
    pub prune_failed: bool,
    /// Whether all containers were removed to be started anew.
    pub reset: bool,
    /// The least attempts that have a free name, as of the end of the sync.
    pub floors: Floors,
}

/// A container that waits for an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageWait {
    pub kind: ContainerKind,
    pub container: String,
    pub image: PodImage,
}

/// Why a container did not start, and when to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartFailure {
    pub waiting: WaitingReason,
    /// The time until the next try; the usual one if absent.
    pub retry_after: Option<Duration>,
}

impl SyncTask {
    pub async fn run(self) -> SyncOutcome {
        let mut outcome = SyncOutcome { floors: self.floors.clone(), ..SyncOutcome::default() };
        if self.plan.create_sandbox.as_ref().is_some_and(|new| new.replaces) {
            self.exec.record(texts::sandbox_changed(), "");
        }
        if let Err(error) = self.kill().await {
            outcome.kill_error = Some(error);
            return outcome;
        }
        outcome.reset = !self.plan.reset.is_empty();
        for gone in &self.plan.purge {
            if let Err(error) = remove_container(&self.exec, &gone.id, &gone.name, gone.attempt).await {
                // The next attempt of the container has another name, so the start need not wait for this
                // removal.
                tracing::warn!(error, pod = %self.exec.pod, "Init container was not removed");
            }
        }
        // So many dead instances are left only if earlier syncs did not come to their end.
        let first = self.plan.prune.len() > PRUNE_LATER_MAX;
        if first {
            self.prune(&mut outcome).await;
        }
        if self.plan.create_sandbox.is_some() || !self.plan.start.is_empty() {
            self.start(&mut outcome).await;
        }
        if !first {
            self.prune(&mut outcome).await;
        }
        outcome
    }

    async fn prune(&self, outcome: &mut SyncOutcome) {
        for gone in &self.plan.prune {
            if let Err(error) = remove_container(&self.exec, &gone.id, &gone.name, gone.attempt).await {
                tracing::warn!(error, pod = %self.exec.pod, "Dead container was not removed");
                outcome.prune_failed = true;
            }
        }
    }

    async fn kill(&self) -> Result<(), String> {
        let pod = &self.desired.pod;
        if self.plan.kill_pod {
            let grace = kill_grace_seconds(pod, None, KillReason::Other);
            let all = terminate(Some(pod), &self.runtime, grace, &Default::default());
            return stop_all(self.exec.clone(), all, self.pre_stops.clone()).await.error.map_or(Ok(()), Err);
        }
        let named = PodView::of(pod).by_name();
        for kill in &self.plan.kill {
            let container = named.find(&kill.name).map(|(_, container)| container);
            let grace = kill_grace_seconds(pod, container.as_deref(), kill.reason);
            stop_one(&self.exec, kill, grace, &self.pre_stops).await?;
        }
        self.reset().await?;
        for id in &self.plan.discard_sandboxes {
            stop_sandbox(&self.exec, id).await?;
            remove_sandbox(&self.exec, id).await?;
        }
        Ok(())
    }

    /// Kills and removes the instances of a restart of all containers. Of each container the newest log stays.
    async fn reset(&self) -> Result<(), String> {
        for reset in &self.plan.reset {
            if reset.kill {
                let kill = KillContainer {
                    id: reset.id.clone(),
                    name: reset.name.clone(),
                    kind: reset.kind,
                    message: texts::RESTARTING_ALL.to_owned(),
                    reason: KillReason::Other,
                };
                // Without a grace period, and so without a preStop hook.
                stop_one(&self.exec, &kill, 0, &self.pre_stops).await?;
            }
            // The restart before this one has left its log.
            let older = if reset.newest { reset.attempt.checked_sub(1) } else { Some(reset.attempt) };
            if let Some(attempt) = older {
                remove_logs(&self.exec, &reset.name, attempt).await;
            }
            let removed = remove_container_only(&self.exec, &reset.id, &reset.name).await;
            removed
                .map_err(|error| failed("RemoveContainer", &reset.name, "RemoveContainerError", &error))?;
        }
        Ok(())
    }

    async fn start(&self, outcome: &mut SyncOutcome) {
        let mut images = Images::new(&self.desired.pod, self.images.clone());
        match sandbox::sandbox_context(self, &mut images, outcome).await {
            Ok(sandbox_context) => start::start_all(self, &sandbox_context, &mut images, outcome).await,
            Err(error) => outcome.pod_error = Some(error),
        }
        outcome.images = self.images_left(&images, outcome);
    }

    /// The images of volumes for the containers that were neither created nor failed: these wait for another image, or for a
    /// container before them, and ask for no image a second time.
    fn images_left(&self, images: &Images, outcome: &SyncOutcome) -> BTreeMap<PodImage, Arc<PresentImage>> {
        let named = PodView::of(&self.desired.pod).by_name();
        let created: BTreeSet<&str> = outcome.created.iter().map(String::as_str).collect();
        let waits = |name: &str| !created.contains(name) && !outcome.failures.contains_key(name);
        let left = self.plan.start.iter().filter(|start| waits(&start.name));
        images.of_volumes(left.filter_map(|start| named.find(&start.name)).map(|(_, container)| container))
    }
}
