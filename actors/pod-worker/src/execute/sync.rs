//! One sync: kill what must go, have a sandbox, start what is to run (row 5.3).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use messages::facts::{DesiredPod, WaitingReason};
use messages::image_manager::PresentImage;
use messages::runtime::RuntimePod;
use messages::volume_manager::VolumesNotReady;

use super::hook::PreStops;
use super::images::Images;
use super::kill::{failed, stop_all, stop_one, stop_sandbox};
use super::release::{remove_container, remove_container_only, remove_sandbox};
use super::{Executor, sandbox, start};
use crate::hooks::Hook;
use crate::plan::{KillContainer, KillReason, PodPlan};
use crate::spec::{ContainerKind, PodView};
use crate::termination::{kill_grace_seconds, terminate};
use crate::texts;

/// More dead instances than this are removed before anything is started.
const PRUNE_LATER_MAX: usize = 5;

/// Everything one sync works from.
pub(crate) struct SyncTask {
    pub exec: Executor,
    pub desired: Arc<DesiredPod>,
    pub runtime: Arc<RuntimePod>,
    pub plan: PodPlan,
    /// Images that ImageManager has answered for already.
    pub images: BTreeMap<String, Arc<PresentImage>>,
    pub floors: Floors,
    /// Of what this sync may stop.
    pub pre_stops: PreStops,
}

/// The least attempts whose names are free, learnt when the runtime held a name without anything usable behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floors {
    pub sandbox: u32,
    pub containers: BTreeMap<String, u32>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct SyncOutcome {
    /// Containers that were created, by name.
    pub created: Vec<String>,
    /// postStart hooks of containers that run now.
    pub hooks: Vec<Hook>,
    /// Containers that could not be started.
    pub failures: BTreeMap<String, StartFailure>,
    /// Containers whose image takes long: they are asked for again, and nothing else waits.
    pub image_waits: Vec<(ContainerKind, String)>,
    /// What concerns the whole pod: volumes, directories, the sandbox.
    pub pod_error: Option<String>,
    /// Volumes that the pod waits for, if that is what is wrong with it.
    pub unmounted: Option<VolumesNotReady>,
    /// Something could not be stopped.
    pub kill_error: Option<String>,
    /// A dead instance could not be removed.
    pub prune_failed: bool,
    /// What was learnt of free names.
    pub floors: Floors,
}

/// Why a container did not start, and after which time it is worth another try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartFailure {
    pub waiting: WaitingReason,
    /// The usual time if absent.
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
        for gone in &self.plan.purge {
            if let Err(error) = remove_container(&self.exec, &gone.id, &gone.name, gone.attempt).await {
                // The attempt that is started next has another name: nothing waits for this.
                tracing::warn!(error, pod = %self.exec.pod, "Init container was not removed");
            }
        }
        // So many are left only if no sync comes to its end.
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
        for kill in &self.plan.kill {
            let container = PodView::of(pod).find(&kill.name).map(|(_, container)| container);
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

    /// Kills and removes what is restarted as a whole; its logs stay.
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
                // Without grace, and so without hooks.
                stop_one(&self.exec, &kill, 0, &self.pre_stops).await?;
            }
            let removed = remove_container_only(&self.exec, &reset.id, &reset.name).await;
            removed
                .map_err(|error| failed("RemoveContainer", &reset.name, "RemoveContainerError", &error))?;
        }
        Ok(())
    }

    async fn start(&self, outcome: &mut SyncOutcome) {
        let mut images = Images::new(self.images.clone());
        match sandbox::ground(self, &mut images, outcome).await {
            Ok(ground) => start::start_all(self, &ground, &mut images, outcome).await,
            Err(error) => outcome.pod_error = Some(error),
        }
    }
}
