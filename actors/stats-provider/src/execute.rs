//! Asks Pleg which pods run, and reads what they use through the bridge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::Stats as RuntimeStats;
use bridge_cri::wire::{ImageFsInfoRequest, ListContainerStatsRequest};
use bridge_io::{Io, NotRun, joined};
use bridge_node::stats::usage::{Parts, Reading, UsageReads, Wish};
use bridge_pace::panics;
use messages::PodUid;
use messages::pleg::GetRuntimePods;
use messages::stats::Families;
use messages::volume_manager::{GetVolumeStats, PodVolumeStats};
use supervision::{AskPort, blame};
use tokio::time::Instant;

use crate::actor::StatsProvider;
use crate::cadvisor::{self, Machine};
use crate::images::{self, SandboxImages};
use crate::select::{RunningPod, running_pods, wanted};
use crate::told::{RuntimeTold, told};

/// How long Pleg may take to answer.
const PODS_WITHIN: Duration = Duration::from_secs(2);
/// How long the runtime may take; without its answer, what only the runtime knows is absent.
const TOLD_WITHIN: Duration = Duration::from_secs(4);
/// How long VolumeManager may take, which answers within two seconds.
const VOLUMES_WITHIN: Duration = Duration::from_secs(4);
/// How long an answer of the runtime is good.
const TOLD_FOR: Duration = Duration::from_secs(2);

/// The sources of figures.
#[derive(Clone)]
pub struct Backends {
    /// Asks Pleg which pods the runtime has.
    pub pods: AskPort<StatsProvider, GetRuntimePods>,
    /// Asks VolumeManager what volumes hold.
    pub volumes: AskPort<StatsProvider, GetVolumeStats>,
    /// Reads the machine.
    pub usage: Arc<dyn UsageReads>,
    /// The runtime's own figures.
    pub runtime: Arc<dyn RuntimeStats>,
    /// Makes large pages, off the actors' thread.
    pub io: Io,
}

/// An answer of the runtime, and when it came.
pub(crate) type Told = (Instant, Arc<RuntimeTold>);

/// Everything of one pass.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) pods: Vec<RunningPod>,
    pub(crate) reading: Reading,
    /// The images of the pods' sandboxes, if details were read.
    pub(crate) images: SandboxImages,
    /// What the runtime tells, if it was asked.
    pub(crate) told: Option<Told>,
    /// What the volumes hold; `None` if that is unknown.
    pub(crate) volumes: Option<BTreeMap<PodUid, Arc<PodVolumeStats>>>,
    /// Why the runtime tells nothing, for people.
    pub(crate) problem: Option<String>,
}

/// What a pass is to read, and what is known before it.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) parts: Parts,
    pub(crate) systems: BTreeMap<String, Option<String>>,
    pub(crate) left_alone: BTreeSet<PodUid>,
    pub(crate) told: Option<Told>,
    pub(crate) images: SandboxImages,
}

/// Reads everything once.
///
/// # Errors
/// Which pods run is unknown, or the kubelet is ending; for people.
pub(crate) async fn read(backends: Backends, pass: Pass) -> Result<Facts, String> {
    let held = backends.pods.ask(GetRuntimePods, PODS_WITHIN).await;
    let held =
        held.map_err(|error| format!("failed to list pod stats: {}: {error}", messages::pleg::RECEIVER))?;
    let held = held.ok_or("failed to list pod stats: the runtime has not been looked at yet")?;
    let pods = running_pods(&held, &pass.left_alone, pass.parts.details);
    let known = pass.told.filter(|(at, _)| at.elapsed() < TOLD_FOR);
    let ((mut told, mut problem), volumes) = match pass.parts.storage {
        true => tokio::join!(told_or_asked(&backends, known), volumes(&backends)),
        false => ((known, None), None),
    };
    let wish = Wish {
        parts: pass.parts,
        pods: pods
            .iter()
            .map(|pod| (pod.uid().to_string(), blame::for_pod(pod.uid(), || wanted(pod))))
            .collect(),
        systems: pass.systems,
        spaces: told.as_ref().map(|(_, told)| told.mount_points()).unwrap_or_default(),
    };
    let reading = backends.usage.read(wish).await.map_err(|error| error.to_string())?;
    if told.is_none() && problem.is_none() && lacks(&pods, &reading) {
        (told, problem) = ask_runtime(&backends).await;
    }
    let images = match pass.parts.details {
        true => images::ask(&*backends.runtime, &pods, &pass.images).await,
        false => SandboxImages::new(),
    };
    Ok(Facts { pods, reading, images, told, volumes, problem })
}

/// Makes the page of all cgroups in a task of the bridge.
///
/// # Errors
/// The I/O runtime has shut down.
pub(crate) fn page(
    io: &Io,
    pods: Vec<RunningPod>,
    reading: Reading,
    images: SandboxImages,
    machine: Machine,
) -> impl Future<Output = Result<Families, String>> + use<> {
    let making = async move {
        let subjects = match cadvisor::subjects(&pods, &reading, &images) {
            Ok(subjects) => subjects,
            Err(poisoned) => return Ok::<_, NotRun>(Err(poisoned)),
        };
        let mut page = machine.families(Some(&reading));
        for row in cadvisor::ROWS {
            page.push(cadvisor::family(row, &subjects));
            // Other tasks of the I/O runtime need not wait for the whole page.
            tokio::task::yield_now().await;
        }
        Ok(Ok(cadvisor::finished(page, false)))
    };
    let running = io.spawn(panics::caught(making));
    async move {
        match joined(running).await {
            Ok(Ok(page)) => Ok(page),
            // The panic goes on under the name of the pod that it is about.
            Ok(Err((pod, panic))) => blame::for_pod(&pod, || panic.resume()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A container runs of which there is no cgroup here: another runtime keeps it elsewhere, or in a machine of its own.
fn lacks(pods: &[RunningPod], reading: &Reading) -> bool {
    let known = |pod: &RunningPod| {
        let read = reading.pods.get(pod.uid().as_str());
        pod.containers().all(|one| read.is_some_and(|read| read.containers.contains_key(&*one.id)))
    };
    !pods.iter().all(|pod| blame::for_pod(pod.uid(), || known(pod)))
}

/// What volumes hold; without an answer, nothing is known of any.
async fn volumes(backends: &Backends) -> Option<BTreeMap<PodUid, Arc<PodVolumeStats>>> {
    backends.volumes.ask(GetVolumeStats, VOLUMES_WITHIN).await.ok()
}

async fn told_or_asked(backends: &Backends, known: Option<Told>) -> (Option<Told>, Option<String>) {
    match known {
        Some(told) => (Some(told), None),
        None => ask_runtime(backends).await,
    }
}

async fn ask_runtime(backends: &Backends) -> (Option<Told>, Option<String>) {
    let runtime = &backends.runtime;
    let calls = async {
        let containers = runtime.list_container_stats(ListContainerStatsRequest::default()).await?;
        // A runtime that does not know its file systems still knows its containers.
        Ok((containers, runtime.image_fs_info(ImageFsInfoRequest {}).await.ok()))
    };
    match tokio::time::timeout(TOLD_WITHIN, calls).await {
        Ok(Ok((containers, file_systems))) => {
            let told = told(&containers.stats, file_systems.as_ref());
            (Some((Instant::now(), Arc::new(told))), None)
        }
        Ok(Err(error)) => {
            let error: bridge_cri::CriError = error;
            (None, Some(format!("the runtime does not tell what containers use: {error}")))
        }
        Err(_) => (None, Some("the runtime does not tell in time what containers use".to_owned())),
    }
}
