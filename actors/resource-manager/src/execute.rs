//! Has cgroups made, changed and removed, tells what this machine cannot hold, and measures how long it took.

use std::sync::Arc;
use std::time::Duration;

use bridge_node::cgroups::{CgroupError, CgroupValues, Cgroups, Ensured};
use messages::PodUid;
use pod_spec::resources::QosClass;
use tokio::time::Instant;

use crate::metrics::{Operation, ResourceMetrics};

/// How long killed processes may take to leave their cgroup: the waits before each further attempt to remove it.
const KILLED_WAITS: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(1000),
];

/// The machine's cgroups, measured.
#[derive(Clone)]
pub(crate) struct Executor {
    pub cgroups: Arc<dyn Cgroups>,
    pub metrics: ResourceMetrics,
}

impl Executor {
    /// Has a cgroup there with its values.
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

    /// Has a cgroup of the administrator's hold its values.
    pub(crate) async fn update(&self, cgroup: &str, values: CgroupValues) -> Result<Ensured, CgroupError> {
        let began = Instant::now();
        let updated = self.cgroups.update(cgroup, values).await?;
        self.metrics.done(Operation::Update, began.elapsed());
        Ok(updated)
    }

    /// Removes a pod's cgroup.
    async fn remove(&self, uid: &PodUid) -> Result<(), CgroupError> {
        let began = Instant::now();
        self.cgroups.remove_pod_cgroup(uid.as_str()).await?;
        self.metrics.done(Operation::Destroy, began.elapsed());
        Ok(())
    }

    /// Removes the cgroup of a pod of which nothing may run any more. Processes in it are killed, as upstream does: the
    /// runtime has lost them, for example when the call that made a sandbox or started a container was broken off.
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

    /// Has the cgroups of both classes hold their values; whether they do.
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

    /// Removes the cgroup of a pod that nobody knows; whether it is gone. Processes in it are killed if not even the runtime
    /// knows the pod.
    pub(crate) async fn remove_orphan(&self, uid: &PodUid, in_runtime: bool) -> bool {
        let removed = if in_runtime { self.remove(uid).await } else { self.kill_and_remove(uid).await };
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

/// A machine without a controller runs pods all the same, as upstream has it; it says so.
pub(crate) fn tell(cgroup: &str, ensured: &Ensured) {
    for what in &ensured.not_held {
        tracing::warn!(cgroup, "Not held by this machine: {what}");
    }
}
