//! Releases what a stopped pod had on the node: mounts, containers, cgroup, logs (row 4.5).

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use messages::resource_manager::RemovePodCgroup;
use messages::runtime::{RuntimeContainer, RuntimePod};
use messages::volume_manager::UnmountVolumes;

use super::{AT_ONCE, Executor};
use crate::step::Release;

/// Longest wait for a pod's volumes to be unmounted; after it the release is tried again.
const UNMOUNT_DEADLINE: Duration = Duration::from_secs(120);

/// Longest wait for a cgroup to be made or removed.
pub(super) const CGROUP_DEADLINE: Duration = Duration::from_secs(30);

/// Unmounts the pod's volumes and removes its cgroup, and the containers and logs if `what` says so. The logs of a pod
/// that comes back stay.
///
/// An error names its step. A retry repeats all steps, which are idempotent.
pub(crate) async fn release(
    exec: Executor,
    held: Arc<RuntimePod>,
    what: Release,
    comes_back: bool,
) -> Result<(), String> {
    let runtime =
        async { if what.containers { remove_from_runtime(&exec, &held, comes_back).await } else { Ok(()) } };
    // Both only need that no container runs, and do not depend on each other.
    let (unmounted, removed) = join(unmount(&exec), runtime).await;
    unmounted?;
    // The cgroup is removed also when the runtime refused: it does not remove a container whose process it
    // has lost before that process is killed, and the removal of the cgroup kills it.
    let cgroup = remove_cgroup(&exec).await;
    removed.and(cgroup)?;
    if what.logs && !comes_back {
        let _step = exec.step("RemovePodLogs".to_owned()).await;
        let pod = &exec.pod;
        let removed = exec.deps.dirs.remove_pod_log_dir(&pod.namespace, &pod.name, exec.uid()).await;
        removed.map_err(|error| error.to_string())?;
    }
    Ok(())
}

async fn remove_cgroup(exec: &Executor) -> Result<(), String> {
    let _step = exec.step("RemovePodCgroup".to_owned()).await;
    let remove = RemovePodCgroup { pod: exec.pod.clone() };
    let removed = exec.deps.remove_cgroup.ask(remove, CGROUP_DEADLINE).await;
    let removed = removed.map_err(|error| format!("RemovePodCgroup: {error}"))?;
    removed.map_err(|error| format!("RemovePodCgroup: {}", error.message))
}

async fn unmount(exec: &Executor) -> Result<(), String> {
    let _step = exec.step("UnmountVolumes".to_owned()).await;
    match exec.deps.unmount.ask(UnmountVolumes { pod: exec.pod.clone() }, UNMOUNT_DEADLINE).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.volume.is_empty() => Err(format!("UnmountVolumes: {}", error.message)),
        Ok(Err(error)) => Err(format!("UnmountVolumes {}: {}", error.volume, error.message)),
        Err(error) => Err(format!("UnmountVolumes: {error}")),
    }
}

async fn remove_from_runtime(exec: &Executor, held: &RuntimePod, keeps_logs: bool) -> Result<(), String> {
    let remove = |container: &RuntimeContainer| {
        let (id, name, attempt) = (container.id.clone(), container.name.clone(), container.attempt);
        async move {
            match keeps_logs {
                true => remove_container_only(exec, &id, &name).await,
                false => remove_container(exec, &id, &name, attempt).await,
            }
        }
    };
    for few in held.containers.chunks(AT_ONCE) {
        for removed in join_all(few.iter().map(remove)).await {
            removed?;
        }
    }
    for sandbox in &held.sandboxes {
        remove_sandbox(exec, &sandbox.id).await?;
    }
    Ok(())
}

/// Removes a container, its log and the link to the log.
pub(super) async fn remove_container(
    exec: &Executor,
    id: &str,
    name: &str,
    attempt: u32,
) -> Result<(), String> {
    remove_logs(exec, name, attempt).await;
    remove_container_only(exec, id, name).await
}

/// Removes the log of a container's instance, if there is one.
pub(super) async fn remove_logs(exec: &Executor, name: &str, attempt: u32) {
    let pod = &exec.pod;
    let removed =
        exec.deps.dirs.remove_container_logs(&pod.namespace, &pod.name, exec.uid(), name, attempt).await;
    if let Err(error) = removed {
        tracing::warn!(%error, pod = %pod, container = name, "Log was not removed");
    }
}

/// Removes a container and the link to its log. The log stays, because restarts are counted by it.
pub(super) async fn remove_container_only(exec: &Executor, id: &str, name: &str) -> Result<(), String> {
    let _step = exec.step(format!("RemoveContainer {name}")).await;
    let pod = &exec.pod;
    let unlinked = exec.deps.dirs.remove_legacy_link(&pod.namespace, &pod.name, name, id).await;
    if let Err(error) = unlinked {
        tracing::warn!(%error, pod = %pod, container = name, "Log link was not removed");
    }
    exec.deps.pods.remove_container(exec.uid(), id).await.map_err(|error| error.to_string())
}

/// Removes a sandbox, with the containers that are left in it.
pub(super) async fn remove_sandbox(exec: &Executor, id: &str) -> Result<(), String> {
    let _step = exec.step("RemovePodSandbox".to_owned()).await;
    exec.deps.pods.remove_pod_sandbox(exec.uid(), id).await.map_err(|error| error.to_string())
}
