//! Makes the surroundings that containers start in: volumes, directories, and a sandbox with its addresses
//! (rows 5.4, 5.5, 30.3).
//!
//! Volumes come first: a pod that waits for a volume gets no sandbox, no address and no image. Its
//! directories and its cgroup are made at the same time as the volumes, and images are asked for while the
//! runtime makes the sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::wire::{DnsConfig, PodSandboxConfig, PodSandboxStatusRequest};
use bridge_cri::{EnsureError, Ensured};
use futures::future::{join, try_join};
use futures::stream::TryStreamExt;
use messages::object_cache::GetRuntimeClass;
use messages::resource_manager::{EnsurePodCgroup, PodCgroup};
use messages::runtime::RuntimeSandbox;
use messages::volume_manager::{MountVolumes, MountedVolumes, VolumeError, VolumesNotReady};

use super::few_at_once;
use super::images::Images;
use super::kill::stop_sandbox;
use super::release::{CGROUP_DEADLINE, remove_sandbox};
use super::sync::{SyncOutcome, SyncTask};
use crate::dns::{check_resolv_conf, pod_dns};
use crate::hostname::{self, Names, kernel_hostname};
use crate::hosts::{etc_hosts, host_network_hosts};
use crate::plan::NewSandbox;
use crate::sandbox_config::{SandboxSetting, sandbox_config};
use crate::spec::PodView;
use crate::texts;

/// Longest wait for a pod's volumes; VolumeManager answers sooner.
const MOUNT_DEADLINE: Duration = Duration::from_secs(130);
/// Longest wait for a runtime class; ObjectCache answers sooner.
const CLASS_DEADLINE: Duration = Duration::from_secs(10);
/// How often one sync tries to create a sandbox or a container whose name turns out to be taken.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// The surroundings that a pod's containers are started in.
pub(super) struct SandboxContext {
    pub sandbox_id: String,
    pub sandbox_config: PodSandboxConfig,
    /// The runtime's handler that made the sandbox; empty for the default one.
    pub runtime_handler: String,
    /// The handler for which the pod's images were asked for; empty while images are the same for all.
    pub image_handler: String,
    pub volumes: Arc<MountedVolumes>,
    /// The pod's addresses; for a pod on the node's network the node's. Empty if nothing is to be started.
    pub pod_ips: Vec<String>,
    /// The path on the host of the managed hosts file, if the pod has one.
    pub etc_hosts: Option<String>,
    /// The attempt of each container that is to be started, by name.
    pub attempts: BTreeMap<String, u32>,
}

/// Makes volumes, directories, cgroup and sandbox ready. Events about failures have been recorded when it
/// returns.
pub(super) async fn sandbox_context(
    task: &SyncTask,
    images: &mut Images,
    outcome: &mut SyncOutcome,
) -> Result<SandboxContext, String> {
    let beside = try_join(parts(task), attempts(task));
    let (volumes, beside) = join(volumes(task, &mut outcome.unmounted), beside).await;
    let volumes = volumes?;
    let (parts, attempts) = beside?;
    let image_handler = image_handler(task).await?;
    let config = config(task, parts, &image_handler)?;
    let named = PodView::of(&task.desired.pod).by_name();
    for start in &task.plan.start {
        if let Some((kind, container)) = named.find(&start.name) {
            images.want_first(&task.exec, kind, &container);
        }
    }
    let made = async {
        let (id, config, handler) = sandbox(task, config, outcome).await?;
        let pod_ips = pod_ips(task, &id).await?;
        let hosts = hosts_file(task, &pod_ips).await?;
        Ok::<_, String>((id, config, handler, pod_ips, hosts))
    };
    let (sandbox_id, sandbox_config, runtime_handler, pod_ips, etc_hosts) = images.during(made).await?;
    Ok(SandboxContext {
        sandbox_id,
        sandbox_config,
        runtime_handler,
        image_handler,
        volumes,
        pod_ips,
        etc_hosts,
        attempts,
    })
}

async fn volumes(
    task: &SyncTask,
    unmounted: &mut Option<VolumesNotReady>,
) -> Result<Arc<MountedVolumes>, String> {
    let exec = &task.exec;
    let has_volumes = PodView::of(&task.desired.pod)
        .spec()
        .and_then(|spec| spec.volumes.as_ref())
        .is_some_and(|volumes| !volumes.is_empty());
    if !has_volumes {
        return Ok(Arc::new(MountedVolumes::default()));
    }
    let _step = exec.step("MountVolumes".to_owned()).await;
    // VolumeManager records the events about what went wrong.
    match exec.deps.mount.ask(MountVolumes { pod: task.desired.clone() }, MOUNT_DEADLINE).await {
        Ok(Ok(mounted)) => Ok(mounted),
        Ok(Err(not_ready)) => {
            let VolumeError { volume, message } = &not_ready.error;
            let gap = if volume.is_empty() { "" } else { " " };
            let error = format!("MountVolumes{gap}{volume}: {message}");
            *unmounted = Some(not_ready);
            Err(error)
        }
        Err(error) => Err(format!("MountVolumes: {error}")),
    }
}

/// The inputs of a sandbox's configuration.
struct Parts {
    /// The text of the node's resolver configuration, or why it cannot be read; no text if `resolvConf` is
    /// empty.
    resolv_conf: Result<Option<String>, String>,
    cgroup: Arc<PodCgroup>,
}

/// Makes the pod's directories and its cgroup, and reads the node's resolver configuration.
async fn parts(task: &SyncTask) -> Result<Parts, String> {
    let exec = &task.exec;
    let _step = exec.step("PreparePod".to_owned()).await;
    let resolv_conf = async {
        match &exec.deps.resolv_conf {
            Some(read) => read().await.map(Some),
            None => Ok(None),
        }
    };
    let dirs = async {
        exec.deps.dirs.ensure_pod_dirs(exec.uid()).await.map_err(|error| {
            exec.record(texts::failed_directories(&error.to_string()), "");
            error.to_string()
        })
    };
    let (resolv_conf, made) = join(resolv_conf, try_join(dirs, cgroup(task))).await;
    let (_, cgroup) = made?;
    Ok(Parts { resolv_conf, cgroup })
}

/// The configuration of the sandbox, for the attempt that exists or is to be made. Asks for images go on with it.
fn config(
    task: &SyncTask,
    Parts { resolv_conf, cgroup }: Parts,
    image_handler: &str,
) -> Result<PodSandboxConfig, String> {
    let (exec, pod) = (&task.exec, &task.desired.pod);
    let resolv_conf = resolv_conf.map_err(|error| format!("resolvConf: {error}"));
    let named = resolv_conf.and_then(|text| named(task, text.as_deref()));
    let (hostname, dns) = named.inspect_err(|error| {
        if task.plan.create_sandbox.is_some() {
            exec.record(texts::failed_create_sandbox(error), "");
        }
    })?;
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
        hostname,
        dns,
    };
    sandbox_config(pod, pod_ref, setting, &exec.deps.config.rules)
        .inspect(|config| exec.sandbox_made.set(config, image_handler))
        .map_err(|error| {
            exec.record(texts::failed_create_sandbox(&error.to_string()), "");
            error.to_string()
        })
}

/// The pod's host name and its resolver configuration. Events about entries that do not fit are recorded only
/// when a sandbox is made.
fn named(task: &SyncTask, resolv_conf: Option<&str>) -> Result<(String, DnsConfig), String> {
    let (exec, pod) = (&task.exec, &task.desired.pod);
    let config = &exec.deps.config;
    let dns = pod_dns(pod, resolv_conf, &config.cluster_dns, &config.host_ips);
    if task.plan.create_sandbox.is_some() {
        let checked = resolv_conf
            .and_then(|text| check_resolv_conf(&config.resolv_conf, text, &config.cluster_dns.domain));
        if let Some(problem) = checked {
            exec.deps.events.tell_or_count(texts::check_limits_for_resolv_conf(&problem));
        }
        if let Ok(dns) = &dns {
            if dns.missing_cluster {
                exec.deps.events.tell_or_count(texts::node_misses_cluster_dns());
                exec.record(texts::missing_cluster_dns(&exec.pod), "");
            }
            for message in &dns.exceeded {
                exec.record(texts::dns_config_forming(message), "");
            }
        }
    }
    let dns = dns.map_err(|error| error.to_string())?.config;
    if PodView::of(pod).host_network() {
        return Ok((String::new(), dns));
    }
    let hostname = kernel_hostname(pod, &names(task)?).map_err(|error| error.to_string())?;
    Ok((hostname, dns))
}

fn names(task: &SyncTask) -> Result<Names, String> {
    let config = &task.exec.deps.config;
    let domain = &config.cluster_dns.domain;
    hostname::names(&task.desired.pod, domain, config.hostname_override).map_err(|error| error.to_string())
}

/// Has ResourceManager make the pod's cgroup, with its values.
async fn cgroup(task: &SyncTask) -> Result<Arc<PodCgroup>, String> {
    let ensure = EnsurePodCgroup { pod: task.desired.clone() };
    let ensured = task.exec.deps.ensure_cgroup.ask(ensure, CGROUP_DEADLINE).await;
    let ensured = ensured.map_err(|error| format!("EnsurePodCgroup: {error}"))?;
    ensured.map_err(|error| format!("EnsurePodCgroup: {}", error.message))
}

/// Makes the log directories, and gives the attempt of each container to start: after the logs that are
/// there.
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
    few_at_once(starts.collect()).try_collect().await
}

/// The ready sandbox, or a new one: its ID, its configuration and the runtime's handler that made it.
async fn sandbox(
    task: &SyncTask,
    config: PodSandboxConfig,
    outcome: &mut SyncOutcome,
) -> Result<(String, PodSandboxConfig, String), String> {
    let exec = &task.exec;
    let Some(new) = &task.plan.create_sandbox else {
        let ready = ready_sandbox(task).ok_or("the pod has no ready sandbox")?;
        return Ok((ready.id.to_string(), config, ready.runtime_handler.to_string()));
    };
    exec.deps.metrics.started_pods.inc();
    exec.deps.metrics.containers_per_pod.observe(PodView::of(&task.desired.pod).regular().len() as f64);
    create(task, new, config, outcome).await.inspect_err(|error| {
        exec.deps.metrics.started_pods_errors.inc();
        exec.record(texts::failed_create_sandbox(error), "");
    })
}

/// The sandbox that goes on, if there is one.
fn ready_sandbox(task: &SyncTask) -> Option<&RuntimeSandbox> {
    let discarded = &task.plan.discard_sandboxes;
    task.runtime.sandboxes.iter().find(|sandbox| sandbox.ready && !discarded.contains(&sandbox.id))
}

/// The handler for which the pod's images are asked for: that of its sandbox, or of the one to be made; empty while the gate
/// RuntimeClassInImageCriApi is off (row 5.26).
async fn image_handler(task: &SyncTask) -> Result<String, String> {
    let exec = &task.exec;
    if !exec.deps.config.rules.images_by_handler {
        return Ok(String::new());
    }
    match ready_sandbox(task) {
        Some(ready) if task.plan.create_sandbox.is_none() => Ok(ready.runtime_handler.to_string()),
        _ => runtime_handler(task).await.inspect_err(|error| {
            exec.record(texts::failed_create_sandbox(error), "");
        }),
    }
}

/// The handler of the pod's runtime class; empty for the runtime's default one (row 5.25).
async fn runtime_handler(task: &SyncTask) -> Result<String, String> {
    let exec = &task.exec;
    let class = task.desired.pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref());
    let Some(name) = class.filter(|name| !name.is_empty()) else { return Ok(String::new()) };
    let _step = exec.step(format!("GetRuntimeClass {name}")).await;
    let ask = GetRuntimeClass { pod: exec.pod.uid.clone(), name: Arc::from(name) };
    match exec.deps.runtime_classes.ask(ask, CLASS_DEADLINE).await {
        Ok(Ok(class)) => Ok(class.handler.clone()),
        Ok(Err(error)) if error.not_found => Err(error.message),
        Ok(Err(error)) => Err(format!("failed to lookup RuntimeClass {name}: {}", error.message)),
        Err(error) => Err(format!("failed to lookup RuntimeClass {name}: {error}")),
    }
}

async fn create(
    task: &SyncTask,
    new: &NewSandbox,
    mut config: PodSandboxConfig,
    outcome: &mut SyncOutcome,
) -> Result<(String, PodSandboxConfig, String), String> {
    let exec = &task.exec;
    let handler = runtime_handler(task).await?;
    let mut attempt = new.attempt.max(task.floors.sandbox);
    let mut tries = 0;
    loop {
        config.metadata.get_or_insert_default().attempt = attempt;
        let step = exec.step("RunPodSandbox".to_owned()).await;
        let answer =
            exec.deps.pods.ensure_sandbox(exec.uid(), attempt, config.clone(), handler.clone()).await;
        drop(step);
        match answer {
            Ok(Ensured::Created(id) | Ensured::Adopted(id)) => return Ok((id, config, handler)),
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
                    return Err(error.status_text());
                }
            }
            Err(error) => return Err(error.cri().status_text()),
        }
    }
}

/// The pod's addresses, for its hosts file and its variables; empty if nothing is to be started.
async fn pod_ips(task: &SyncTask, sandbox_id: &str) -> Result<Vec<String>, String> {
    if task.plan.start.is_empty() {
        return Ok(Vec::new());
    }
    if PodView::of(&task.desired.pod).host_network() {
        return Ok(task.exec.deps.config.host_ips.clone());
    }
    match task.runtime.sandboxes.iter().find(|sandbox| &*sandbox.id == sandbox_id) {
        Some(seen) => Ok(seen.ips.iter().map(ToString::to_string).collect()),
        None => addresses(task, sandbox_id).await,
    }
}

/// Writes the pod's hosts file and returns its path. A pod with a network of its own but no address gets no
/// file.
async fn hosts_file(task: &SyncTask, pod_ips: &[String]) -> Result<Option<String>, String> {
    let (dirs, pod) = (&task.exec.deps.dirs, &task.desired.pod);
    let host_network = PodView::of(pod).host_network();
    if task.plan.start.is_empty() || (pod_ips.is_empty() && !host_network) {
        return Ok(None);
    }
    let _step = task.exec.step("WriteHosts".to_owned()).await;
    let text = if host_network {
        let node = dirs.read_node_hosts().await.map_err(|error| error.to_string())?;
        host_network_hosts(pod, &node)
    } else {
        etc_hosts(pod, &names(task)?, pod_ips)
    };
    let path = dirs.write_etc_hosts(task.exec.uid(), &text).await;
    Ok(Some(path.map_err(|error| error.to_string())?.to_string_lossy().into_owned()))
}

async fn addresses(task: &SyncTask, sandbox_id: &str) -> Result<Vec<String>, String> {
    let exec = &task.exec;
    let _step = exec.step("PodSandboxStatus".to_owned()).await;
    let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox_id.to_owned(), verbose: false };
    let answer = exec.deps.runtime.pod_sandbox_status(request).await.map_err(|error| {
        let error = error.status_text();
        exec.record(texts::failed_sandbox_status(&error), "");
        error
    })?;
    let network = answer.status.and_then(|status| status.network).unwrap_or_default();
    let others = network.additional_ips.into_iter().map(|ip| ip.ip);
    Ok(std::iter::once(network.ip).chain(others).filter(|ip| !ip.is_empty()).collect())
}
