//! Makes, changes and removes cgroups, logs what the machine cannot enforce, and measures durations.

use std::sync::Arc;
use std::time::Duration;

use bridge_node::cgroups::{CgroupError, CgroupValues, Cgroups, Ensured};
use messages::PodUid;
use pod_spec::resources::QosClass;
use tokio::time::Instant;

use crate::metrics::{Operation, ResourceMetrics};
use crate::node::ProcessCgroups;

/// Waits before further attempts to remove a cgroup of which the processes have been killed and have to leave first.
const KILLED_WAITS: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(1000),
];

/// How long the removal of an unknown pod's cgroup may take: the next listing finds it again, and others do not wait for one that
/// hangs.
const ORPHAN_MAX: Duration = Duration::from_secs(150);

/// The machine's cgroups, with metrics of the operations.
#[derive(Clone)]
pub(crate) struct Executor {
    pub cgroups: Arc<dyn Cgroups>,
    pub metrics: ResourceMetrics,
}

impl Executor {
    /// Makes a cgroup if it is missing, and writes its values.
    pub(crate) async fn ensure(&self, cgroup: &str, values: CgroupValues) -> Result<Ensured, CgroupError> {
        let began = Instant::now();
        let ensured = self.cgroups.ensure(cgroup, values).await?;
        if ensured.made || !ensured.written.is_empty() {
            let operation = if ensured.made { Operation::Create } else { Operation::Update };
            self.metrics.done(operation, began.elapsed());
            tracing::debug!(cgroup, made = ensured.made, written = ?ensured.written, "Cgroup has its values");
        }
        Ok(ensured)
    }

    /// Writes the values of a cgroup of the administrator's, which must exist.
    pub(crate) async fn update(&self, cgroup: &str, values: CgroupValues) -> Result<Ensured, CgroupError> {
        let began = Instant::now();
        let updated = self.cgroups.update(cgroup, values).await?;
        self.metrics.done(Operation::Update, began.elapsed());
        Ok(updated)
    }

    /// Puts processes that are no pod's into their cgroups. As upstream those of the system come first, since the kubelet may be
    /// one of them. Returns what has failed, for people.
    pub(crate) async fn place(&self, wanted: &ProcessCgroups) -> Vec<String> {
        let mut failed = Vec::new();
        if let Some(cgroup) = &wanted.system {
            match self.cgroups.gather_system(cgroup).await {
                Ok(0) => {}
                Ok(processes) => tracing::info!(cgroup, processes, "Moving non-kernel processes"),
                Err(error) => failed.push(format!("systemCgroups {cgroup:?}: {error}")),
            }
        }
        match self.cgroups.hold_own(wanted.kubelet.as_deref(), wanted.oom_score_adj).await {
            Ok(false) => {}
            Ok(true) => {
                let cgroup = wanted.kubelet.as_deref().unwrap_or_default();
                tracing::info!(cgroup, "The kubelet is moved to its cgroup");
            }
            Err(error) => failed.push(match &wanted.kubelet {
                Some(cgroup) => format!("kubeletCgroups {cgroup:?}: {error}"),
                None => format!("oomScoreAdj {}: {error}", wanted.oom_score_adj),
            }),
        }
        failed
    }

    /// Removes a pod's cgroup.
    async fn remove(&self, uid: &PodUid) -> Result<(), CgroupError> {
        let began = Instant::now();
        self.cgroups.remove_pod_cgroup(uid.as_str()).await?;
        self.metrics.done(Operation::Destroy, began.elapsed());
        Ok(())
    }

    /// Removes the cgroup of a pod of which no process may run any more. Processes in it are killed, as upstream does:
    /// the runtime has lost them, for example when the call that made a sandbox or started a container was broken off.
    pub(crate) async fn kill_and_remove(&self, uid: &PodUid) -> Result<(), CgroupError> {
        let mut removed = self.remove(uid).await;
        if !matches!(removed, Err(CgroupError::ProcessesLeft { .. })) {
            return removed;
        }
        let processes = self.cgroups.kill(uid.as_str()).await?;
        tracing::warn!(pod = %uid, processes, "Processes that the runtime has lost are killed");
        for wait in KILLED_WAITS {
            tokio::time::sleep(wait).await;
            removed = self.remove(uid).await;
            if !matches!(removed, Err(CgroupError::ProcessesLeft { .. })) {
                break;
            }
        }
        removed
    }

    /// Writes the values of both classes' cgroups; returns whether all were written.
    pub(crate) async fn classes(&self, values: &[(QosClass, CgroupValues); 2]) -> bool {
        let mut held = true;
        for (qos, values) in values {
            let cgroup = self.cgroups.names().qos(*qos);
            match self.ensure(&cgroup, values.clone()).await {
                Ok(ensured) => tell(&cgroup, &ensured),
                Err(error) => {
                    held = false;
                    tracing::error!(%error, cgroup, "Failed to update QoS cgroup configuration");
                }
            }
        }
        held
    }

    /// Removes the cgroup of an unknown pod, and returns whether the cgroup is gone. Processes in it are killed if the runtime
    /// does not know the pod either.
    pub(crate) async fn remove_orphan(&self, uid: &PodUid, in_runtime: bool) -> bool {
        let removal =
            async { if in_runtime { self.remove(uid).await } else { self.kill_and_remove(uid).await } };
        let Ok(removed) = tokio::time::timeout(ORPHAN_MAX, removal).await else {
            tracing::warn!(pod = %uid, "Cgroup of an unknown pod is not removed: its removal hangs");
            return false;
        };
        match &removed {
            Ok(()) => tracing::info!(pod = %uid, "Cgroup of an unknown pod is removed"),
            Err(error @ CgroupError::ProcessesLeft { .. }) => {
                tracing::info!(%error, "Cgroup of an unknown pod stays");
            }
            Err(error) => tracing::warn!(%error, pod = %uid, "Cgroup of an unknown pod is not removed"),
        }
        removed.is_ok()
    }
}

/// Logs the values that the machine cannot enforce, for lack of a controller. Pods run all the same, as upstream.
pub(crate) fn tell(cgroup: &str, ensured: &Ensured) {
    for what in &ensured.not_held {
        tracing::warn!(cgroup, "Not held by this machine: {what}");
    }
}
