//! What containers stand on: volumes, directories, and a sandbox with its addresses (rows 5.4, 5.5, 30.3).
//!
//! Volumes, directories and images are seen to while the runtime makes the sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, try_join, try_join_all, try_join3};
use messages::resource_manager::{EnsurePodCgroup, PodCgroup};
use messages::volume_manager::{MountVolumes, MountedVolumes};
use runtime_bridge::cri::wire::{PodSandboxConfig, PodSandboxStatusRequest};
use runtime_bridge::cri::{EnsureError, Ensured};

use super::images::Images;
use super::kill::stop_sandbox;
use super::release::{CGROUP_DEADLINE, remove_sandbox};
use super::sync::{SyncOutcome, SyncTask};
use crate::dns::pod_dns;
use crate::hosts::etc_hosts;
use crate::plan::NewSandbox;
use crate::sandbox_config::{SandboxSetting, hostname, sandbox_config};
use crate::spec::PodView;
use crate::texts;

/// Longest wait for the volumes of a pod; then the sync ends and is tried again.
const MOUNT_DEADLINE: Duration = Duration::from_secs(123);
/// Attempts of one sync, when names turn out to be taken.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// What containers are started on.
pub(super) struct Ground {
    pub sandbox_id: String,
    pub sandbox_config: PodSandboxConfig,
    pub volumes: Arc<MountedVolumes>,
    /// The managed hosts file, if the pod has one.
    pub etc_hosts: Option<String>,
    /// The pod's own addresses; none if it is on the node's network.
    pub ips: Vec<String>,
    /// The attempt of each container to start, by name.
    pub attempts: BTreeMap<String, u32>,
}

/// Sees to all of it. Events about what failed have been recorded.
pub(super) async fn ground(
    task: &SyncTask,
    images: &mut Images,
    outcome: &mut SyncOutcome,
) -> Result<Ground, String> {
    let made = async {
        let (config, attempts) = try_join(config(task), attempts(task)).await?;
        let (id, config) = sandbox(task, config, outcome).await?;
        let (hosts, ips) = hosts_file(task, &id).await?;
        Ok::<_, String>((id, config, attempts, hosts, ips))
    };
    let (volumes, made) = images.during(join(volumes(task), made)).await;
    let (sandbox_id, sandbox_config, attempts, etc_hosts, ips) = made?;
    Ok(Ground { sandbox_id, sandbox_config, volumes: volumes?, etc_hosts, ips, attempts })
}

async fn volumes(task: &SyncTask) -> Result<Arc<MountedVolumes>, String> {
    let exec = &task.exec;
    let has_volumes = PodView::of(&task.desired.pod)
        .spec()
        .and_then(|spec| spec.volumes.as_ref())
        .is_some_and(|volumes| !volumes.is_empty());
    if !has_volumes {
        return Ok(Arc::new(MountedVolumes { host_paths: BTreeMap::new() }));
    }
    let _step = exec.step("MountVolumes".to_owned()).await;
    // VolumeManager has told of what went wrong.
    match exec.deps.mount.ask(MountVolumes { pod: task.desired.clone() }, MOUNT_DEADLINE).await {
        Ok(Ok(mounted)) => Ok(mounted),
        Ok(Err(error)) if error.volume.is_empty() => Err(format!("MountVolumes: {}", error.message)),
        Ok(Err(error)) => Err(format!("MountVolumes {}: {}", error.volume, error.message)),
        Err(error) => Err(format!("MountVolumes: {error}")),
    }
}

/// The sandbox's configuration, for the attempt that is there or is to be made; its directories are there.
async fn config(task: &SyncTask) -> Result<PodSandboxConfig, String> {
    let (exec, pod) = (&task.exec, &task.desired.pod);
    let _step = exec.step("PreparePod".to_owned()).await;
    let resolv_conf = async {
        match &exec.deps.resolv_conf {
            Some(read) => read().await.map(Some).map_err(|error| format!("resolvConf: {error}")),
            None => Ok(None),
        }
    };
    let dirs = async {
        exec.deps.dirs.ensure_pod_dirs(exec.uid()).await.map_err(|error| {
            exec.record(texts::failed_directories(&error.to_string()), "");
            error.to_string()
        })
    };
    let (resolv_conf, _, cgroup) = try_join3(resolv_conf, dirs, cgroup(task)).await?;
    let dns = pod_dns(pod, resolv_conf.as_deref(), &exec.deps.config.cluster_dns);
    if dns.missing_cluster && task.plan.create_sandbox.is_some() {
        exec.record(texts::missing_cluster_dns(&exec.pod), "");
    }
    let pod_ref = &exec.pod;
    let logs = exec.deps.dirs.layout().pod_log_dir(&pod_ref.namespace, &pod_ref.name, exec.uid());
    let logs = logs.map_err(|error| error.to_string())?;
    let attempt = match &task.plan.create_sandbox {
        Some(new) => new.attempt.max(task.floors.sandbox),
        None => task.runtime.sandboxes.iter().find(|sandbox| sandbox.ready).map_or(0, |found| found.attempt),
    };
    let setting = SandboxSetting {
        attempt,
        log_directory: logs.to_string_lossy().into_owned(),
        cgroup_parent: cgroup.name.to_string(),
        dns: dns.config,
    };
    Ok(sandbox_config(pod, pod_ref, setting))
}

/// The pod's cgroup, with its values.
async fn cgroup(task: &SyncTask) -> Result<Arc<PodCgroup>, String> {
    let ensure = EnsurePodCgroup { pod: task.desired.clone() };
    let ensured = task.exec.deps.ensure_cgroup.ask(ensure, CGROUP_DEADLINE).await;
    let ensured = ensured.map_err(|error| format!("EnsurePodCgroup: {error}"))?;
    ensured.map_err(|error| format!("EnsurePodCgroup: {}", error.message))
}

/// Log directories, and the attempts that come after the logs that are in them.
async fn attempts(task: &SyncTask) -> Result<BTreeMap<String, u32>, String> {
    let (dirs, pod, uid) = (&task.exec.deps.dirs, &task.exec.pod, task.exec.uid());
    let starts = task.plan.start.iter().map(|start| async move {
        let attempt = match start.attempt {
            Some(attempt) => attempt,
            None => {
                let counted = dirs.restart_count_from_logs(&pod.namespace, &pod.name, uid, &start.name).await;
                counted.unwrap_or_else(|error| {
                    tracing::warn!(%error, pod = %pod, "Restarts cannot be counted from logs");
                    0
                })
            }
        };
        let made = dirs.ensure_log_dirs(&pod.namespace, &pod.name, uid, &start.name).await;
        made.map_err(|error| error.to_string())?;
        let floor = task.floors.containers.get(&start.name).copied().unwrap_or(0);
        Ok::<_, String>((start.name.clone(), attempt.max(floor)))
    });
    Ok(try_join_all(starts).await?.into_iter().collect())
}

/// The sandbox that is there, or a new one.
async fn sandbox(
    task: &SyncTask,
    config: PodSandboxConfig,
    outcome: &mut SyncOutcome,
) -> Result<(String, PodSandboxConfig), String> {
    let exec = &task.exec;
    let Some(new) = &task.plan.create_sandbox else {
        let ready = task
            .runtime
            .sandboxes
            .iter()
            .find(|sandbox| sandbox.ready && !task.plan.discard_sandboxes.contains(&sandbox.id));
        let id = ready.map(|sandbox| sandbox.id.to_string()).ok_or("the pod has no ready sandbox")?;
        return Ok((id, config));
    };
    exec.deps.metrics.started_pods.inc();
    exec.deps.metrics.containers_per_pod.observe(PodView::of(&task.desired.pod).regular().len() as f64);
    create(task, new, config, outcome).await.inspect_err(|error| {
        exec.deps.metrics.started_pods_errors.inc();
        exec.record(texts::failed_create_sandbox(error), "");
    })
}

async fn create(
    task: &SyncTask,
    new: &NewSandbox,
    mut config: PodSandboxConfig,
    outcome: &mut SyncOutcome,
) -> Result<(String, PodSandboxConfig), String> {
    let exec = &task.exec;
    let mut attempt = new.attempt.max(task.floors.sandbox);
    let mut tries = 0;
    loop {
        config.metadata.get_or_insert_default().attempt = attempt;
        let step = exec.step("RunPodSandbox".to_owned()).await;
        let answer =
            exec.deps.operations.ensure_sandbox(exec.uid(), attempt, config.clone(), String::new()).await;
        drop(step);
        match answer {
            Ok(Ensured::Created(id) | Ensured::Adopted(id)) => return Ok((id, config)),
            Err(EnsureError::RaiseAttempt { error, unusable }) => {
                attempt = attempt.saturating_add(1);
                outcome.floors.sandbox = attempt;
                if let Some(id) = unusable {
                    // Its network must not stay behind.
                    stop_sandbox(exec, &id).await?;
                    remove_sandbox(exec, &id).await?;
                }
                tries += 1;
                if tries == ATTEMPTS_MAX {
                    return Err(error.message);
                }
            }
            Err(error) => return Err(error.cri().message.clone()),
        }
    }
}

/// Writes the hosts file of a pod that has a network of its own, and gives its addresses.
async fn hosts_file(task: &SyncTask, sandbox_id: &str) -> Result<(Option<String>, Vec<String>), String> {
    let (exec, pod) = (&task.exec, &task.desired.pod);
    if PodView::of(pod).host_network() || task.plan.start.is_empty() {
        return Ok((None, Vec::new()));
    }
    let ips: Vec<String> = match task.runtime.sandboxes.iter().find(|sandbox| &*sandbox.id == sandbox_id) {
        Some(seen) => seen.ips.iter().map(ToString::to_string).collect(),
        None => addresses(task, sandbox_id).await?,
    };
    let _step = exec.step("WriteHosts".to_owned()).await;
    let text = etc_hosts(pod, &hostname(pod), &ips);
    let path = exec.deps.dirs.write_etc_hosts(exec.uid(), text.as_bytes()).await;
    let path = path.map_err(|error| error.to_string())?.to_string_lossy().into_owned();
    Ok((Some(path), ips))
}

async fn addresses(task: &SyncTask, sandbox_id: &str) -> Result<Vec<String>, String> {
    let exec = &task.exec;
    let _step = exec.step("PodSandboxStatus".to_owned()).await;
    let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox_id.to_owned(), verbose: false };
    let answer = exec.deps.operations.pod_sandbox_status(request).await.map_err(|error| {
        exec.record(texts::failed_sandbox_status(&error.message), "");
        error.message
    })?;
    let network = answer.status.and_then(|status| status.network).unwrap_or_default();
    let others = network.additional_ips.into_iter().map(|ip| ip.ip);
    Ok(std::iter::once(network.ip).chain(others).filter(|ip| !ip.is_empty()).collect())
}
