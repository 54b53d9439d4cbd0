//! Removes garbage through the bridge. A step that fails is reported, and the others go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use bridge_cri::PodRemoval;
use bridge_node::host::PodDirs;
use messages::PodUid;
use supervision::blame;

use crate::plan::{DeadContainer, Garbage};

/// The grace period in seconds of a container that may still run: upstream's least.
const GRACE_SECONDS: i64 = 2;
/// At most so many errors are named in [`Collected::problem`].
const ERRORS_MAX: usize = 5;

/// The effects of a collection.
#[derive(Clone)]
pub struct Backends {
    /// Removes containers and sandboxes in the runtime.
    pub pods: Arc<dyn PodRemoval>,
    /// Log directories and links.
    pub dirs: Arc<dyn PodDirs>,
}

/// The pods and containers that a collection has to spare.
#[derive(Clone, Debug, Default)]
pub struct KnownPods {
    /// The pods whose logs may still be wanted.
    pub pods: BTreeSet<PodUid>,
    /// Containers that have not exited: their logs may be about to be rotated.
    pub containers: BTreeSet<String>,
}

/// The result of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Number of things removed.
    pub removed: u64,
    /// Pods of which something was taken.
    pub touched: BTreeSet<PodUid>,
    /// The steps that failed, with their errors.
    pub errors: Vec<String>,
}

impl Collected {
    fn failed(&mut self, what: &str, error: &dyn std::fmt::Display) {
        tracing::warn!(%error, "Garbage stays: {what}");
        self.errors.push(format!("{what}: {error}"));
    }

    /// The errors as one text; `None` without errors.
    pub fn problem(&self) -> Option<String> {
        let told = self.errors.iter().take(ERRORS_MAX).cloned().collect::<Vec<_>>().join(", ");
        match self.errors.len() {
            0 => None,
            1 => Some(told),
            all if all > ERRORS_MAX => Some(format!("[{told}, and {} more]", all - ERRORS_MAX)),
            _ => Some(format!("[{told}]")),
        }
    }
}

/// Removes the garbage.
pub async fn collect(backends: Backends, garbage: Garbage, known: KnownPods) -> Collected {
    let mut collected = Collected::default();
    let mut kept = BTreeSet::new();
    for container in &garbage.containers {
        match blame::work_for_pod(&container.pod.uid, remove_container(&backends, container)).await {
            Ok(()) => {
                collected.removed += 1;
                collected.touched.insert(container.pod.uid.clone());
            }
            Err(error) => {
                collected.failed(&format!("container {} of {}", container.name, container.pod), &error);
                // The pod's sandbox may still hold this container.
                kept.insert(container.pod.uid.clone());
            }
        }
    }
    for sandbox in garbage.sandboxes.iter().filter(|sandbox| !kept.contains(&sandbox.pod)) {
        let uid = sandbox.pod.as_str();
        // The sandbox usually is stopped already; removing one that is not would leave its network behind.
        let removal = async {
            backends.pods.stop_pod_sandbox(uid, &sandbox.id).await?;
            backends.pods.remove_pod_sandbox(uid, &sandbox.id).await
        };
        match blame::work_for_pod(&sandbox.pod, removal).await {
            Ok(()) => {
                collected.removed += 1;
                collected.touched.insert(sandbox.pod.clone());
            }
            Err(error) => collected.failed(&format!("sandbox {} of pod {uid}", sandbox.id), &error),
        }
    }
    tidy_logs(&*backends.dirs, &known, &mut collected).await;
    collected
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

async fn tidy_logs(dirs: &dyn PodDirs, known: &KnownPods, collected: &mut Collected) {
    match dirs.list_pod_log_dirs().await {
        Ok(found) => {
            for dir in found.into_iter().filter(|dir| !known.pods.contains(&PodUid::new(&dir.uid))) {
                match dirs.remove_pod_log_dir(&dir.namespace, &dir.name, &dir.uid).await {
                    Ok(()) => collected.removed += 1,
                    Err(error) => collected.failed("log directory of a pod that is gone", &error),
                }
            }
        }
        Err(error) => collected.failed("log directories", &error),
    }
    match dirs.prune_legacy_links(known.containers.clone()).await {
        Ok(links) => collected.removed += links as u64,
        Err(error) => collected.failed("links to lost logs", &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_together_and_bounded() {
        let problem = |count: usize| {
            let errors = (0..count).map(|number| format!("e{number}")).collect();
            Collected { errors, ..Collected::default() }.problem()
        };
        assert_eq!(problem(0), None);
        assert_eq!(problem(1).as_deref(), Some("e0"));
        assert_eq!(problem(2).as_deref(), Some("[e0, e1]"));
        assert_eq!(problem(7).as_deref(), Some("[e0, e1, e2, e3, e4, and 2 more]"));
    }
}
