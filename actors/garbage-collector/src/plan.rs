//! PURE: what may go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use messages::PodUid;
use messages::facts::WorkerReport;
use messages::runtime::RuntimePod;

/// Things to remove. Every step is idempotent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Sandboxes, by pod: dead, superseded by a newer one and empty.
    pub sandboxes: Vec<(PodUid, Arc<str>)>,
}

/// What the runtime holds and nobody needs. A pod with a worker keeps its newest sandbox and every sandbox
/// that still has containers; pods without a worker are the pool's orphans, not ours.
pub fn garbage(
    observed: &BTreeMap<PodUid, Arc<RuntimePod>>,
    reports: &BTreeMap<PodUid, Arc<WorkerReport>>,
) -> Garbage {
    let mut garbage = Garbage::default();
    for (uid, pod) in observed.iter().filter(|(uid, _)| reports.contains_key(*uid)) {
        let used: BTreeSet<&str> = pod.containers.iter().map(|c| &*c.sandbox_id).collect();
        let superseded = pod.sandboxes.iter().skip(1).filter(|s| !s.ready && !used.contains(&*s.id));
        garbage.sandboxes.extend(superseded.map(|sandbox| (uid.clone(), sandbox.id.clone())));
    }
    garbage
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use messages::PodRef;
    use messages::facts::WorkerState;
    use messages::runtime::{ContainerState, RuntimeContainer, RuntimeSandbox};

    use super::*;

    fn sandbox(id: &str, ready: bool) -> RuntimeSandbox {
        RuntimeSandbox {
            id: Arc::from(id),
            attempt: 0,
            ready,
            created_at: Timestamp::UNIX_EPOCH,
            ips: Vec::new(),
            host_network: false,
            runtime_handler: Arc::from(""),
        }
    }

    fn container(sandbox: &str) -> RuntimeContainer {
        RuntimeContainer {
            id: Arc::from("c"),
            sandbox_id: Arc::from(sandbox),
            name: Arc::from("main"),
            attempt: 0,
            state: ContainerState::Exited,
            created_at: Timestamp::UNIX_EPOCH,
            started_at: None,
            finished_at: None,
            exit_code: 0,
            reason: Arc::from(""),
            message: Arc::from(""),
            image: Arc::from(""),
            image_ref: Arc::from(""),
            hash: None,
            annotations: Arc::default(),
            log_path: Arc::from(""),
            effective: None,
        }
    }

    #[test]
    fn only_dead_empty_superseded_sandboxes_of_pods_with_a_worker_go() {
        let uid = PodUid::new("u");
        let pod_ref = PodRef { uid: uid.clone(), namespace: Arc::from("n"), name: Arc::from("p") };
        let mut pod = RuntimePod::absent(pod_ref.clone());
        pod.sandboxes = vec![
            sandbox("newest", false),
            sandbox("used", false),
            sandbox("ready", true),
            sandbox("dead", false),
        ];
        pod.containers = vec![container("used")];
        let observed = BTreeMap::from([(uid.clone(), Arc::new(pod))]);
        let report = WorkerReport {
            pod: pod_ref,
            state: WorkerState::Syncing,
            released: false,
            waiting: Arc::default(),
            failed: None,
            deleted: false,
            blocked_on: None,
        };
        let reports = BTreeMap::from([(uid.clone(), Arc::new(report))]);
        assert_eq!(garbage(&observed, &reports).sandboxes, [(uid, Arc::from("dead"))]);
        assert_eq!(garbage(&observed, &BTreeMap::new()), Garbage::default());
    }
}
