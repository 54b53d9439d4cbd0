//! Removes garbage through the bridge. A step that fails is reported, and the others go on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::PodRemoval;
use bridge_node::host::{PodDirs, PodLogDir};
use messages::PodUid;

use crate::plan::{DeadContainer, Garbage};

/// The grace period in seconds of a container that may still run: upstream's least.
const GRACE_SECONDS: i64 = 2;
/// At most so many errors are named in [`problem`].
const ERRORS_MAX: usize = 5;
/// How long the removal of a pod's garbage may hold its place: somewhat longer than a call to the runtime takes by default, so
/// that such a call's own error is told.
const REMOVAL_MAX: Duration = Duration::from_secs(150);

/// The effects of collections.
#[derive(Clone)]
pub struct Backends {
    /// Removes containers and sandboxes in the runtime.
    pub pods: Arc<dyn PodRemoval>,
    /// Log directories and links.
    pub dirs: Arc<dyn PodDirs>,
}

/// What became of the garbage of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Number of things removed.
    pub count: u64,
    /// Whether something was taken from the runtime.
    pub touched: bool,
    /// The steps that failed, with their errors.
    pub errors: Vec<String>,
}

impl Removed {
    fn failed(&mut self, what: &str, error: &dyn std::fmt::Display) {
        self.errors.push(stays(what, error));
    }
}

fn stays(what: &str, error: &dyn std::fmt::Display) -> String {
    tracing::warn!(%error, "Garbage stays: {what}");
    format!("{what}: {error}")
}

/// Errors as one text; `None` without errors.
pub fn problem(errors: &[String]) -> Option<String> {
    let told = errors.iter().take(ERRORS_MAX).cloned().collect::<Vec<_>>().join(", ");
    match errors.len() {
        0 => None,
        1 => Some(told),
        all if all > ERRORS_MAX => Some(format!("[{told}, and {} more]", all - ERRORS_MAX)),
        _ => Some(format!("[{told}]")),
    }
}

/// Removes the garbage of one pod, as far as there is time for it. What the runtime or the disk has begun goes on in the
/// bridge, and a later collection finds what is left.
pub async fn remove(backends: Backends, pod: PodUid, garbage: Garbage) -> Removed {
    let mut removed = Removed::default();
    let all = remove_all(&backends, &garbage, &mut removed);
    if tokio::time::timeout(REMOVAL_MAX, all).await.is_err() {
        removed.failed(&format!("garbage of pod {pod}"), &format!("not removed within {REMOVAL_MAX:?}"));
    }
    removed
}

async fn remove_all(backends: &Backends, garbage: &Garbage, removed: &mut Removed) {
    let mut is_empty = true;
    for container in &garbage.containers {
        match remove_container(backends, container).await {
            Ok(()) => {
                removed.count += 1;
                removed.touched = true;
            }
            Err(error) => {
                removed.failed(&format!("container {} of {}", container.name, container.pod), &error);
                // The pod's sandbox may still hold this container.
                is_empty = false;
            }
        }
    }
    for sandbox in garbage.sandboxes.iter().filter(|_| is_empty) {
        let uid = sandbox.pod.uid.as_str();
        // The sandbox usually is stopped already; removing one that is not would leave its network behind.
        let removal = async {
            backends.pods.stop_pod_sandbox(uid, &sandbox.id).await?;
            backends.pods.remove_pod_sandbox(uid, &sandbox.id).await
        };
        match removal.await {
            Ok(()) => {
                removed.count += 1;
                removed.touched = true;
            }
            Err(error) => removed.failed(&format!("sandbox {} of pod {uid}", sandbox.id), &error),
        }
    }
    for dir in &garbage.log_dirs {
        match backends.dirs.remove_pod_log_dir(&dir.namespace, &dir.name, &dir.uid).await {
            Ok(()) => removed.count += 1,
            Err(error) => removed.failed("log directory of a pod that is gone", &error),
        }
    }
}

async fn remove_container(backends: &Backends, dead: &DeadContainer) -> Result<(), String> {
    let (pod, uid) = (&dead.pod, dead.pod.uid.as_str());
    if dead.unknown {
        let stopped = backends.pods.stop_container(uid, &dead.id, GRACE_SECONDS).await;
        stopped.map_err(|error| error.to_string())?;
    }
    let unlinked = backends.dirs.remove_legacy_link(&pod.namespace, &pod.name, &dead.name, &dead.id).await;
    unlinked.map_err(|error| error.to_string())?;
    let (namespace, name) = (&pod.namespace, &pod.name);
    let logs = backends.dirs.remove_container_logs(namespace, name, uid, &dead.name, dead.attempt).await;
    logs.map_err(|error| error.to_string())?;
    backends.pods.remove_container(uid, &dead.id).await.map_err(|error| error.to_string())
}

/// The log directories on disk, whosever they are, and what was done beside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogsFound {
    /// The directories.
    pub dirs: Vec<PodLogDir>,
    /// Number of links to lost logs that were removed.
    pub links: u64,
    /// The steps that failed, with their errors.
    pub errors: Vec<String>,
}

/// Lists the log directories, and removes links to lost logs but for these containers, which have not exited: their logs
/// may be about to be rotated.
pub async fn look_at_logs(dirs: Arc<dyn PodDirs>, alive: BTreeSet<String>) -> LogsFound {
    let mut found = LogsFound::default();
    let look = async {
        match dirs.list_pod_log_dirs().await {
            Ok(listed) => found.dirs = listed,
            Err(error) => found.errors.push(stays("log directories", &error)),
        }
        match dirs.prune_legacy_links(alive).await {
            Ok(links) => found.links = links as u64,
            Err(error) => found.errors.push(stays("links to lost logs", &error)),
        }
    };
    if tokio::time::timeout(REMOVAL_MAX, look).await.is_err() {
        let late = format!("not looked through within {REMOVAL_MAX:?}");
        found.errors.push(stays("logs", &late));
    }
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn errors_are_told_together_and_bounded() {
        let problem = |count: usize| {
            let errors: Vec<_> = (0..count).map(|number| format!("e{number}")).collect();
            super::problem(&errors)
        };
        assert_eq!(problem(0), None);
        assert_eq!(problem(1).as_deref(), Some("e0"));
        assert_eq!(problem(2).as_deref(), Some("[e0, e1]"));
        assert_eq!(problem(7).as_deref(), Some("[e0, e1, e2, e3, e4, and 2 more]"));
    }
}
