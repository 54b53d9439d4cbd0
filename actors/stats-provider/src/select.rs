//! PURE: which pods and containers are read: those that run, as upstream chooses them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bridge_node::stats::usage::WantedPod;
use jiff::Timestamp;
use messages::PodUid;
use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod, RuntimePods};
use supervision::blame;

/// A pod of which a container runs, or at least a sandbox.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunningPod {
    pub(crate) held: Arc<RuntimePod>,
    /// The newest running instance of each container, by its place in `held`.
    running: Vec<usize>,
}

impl RunningPod {
    pub(crate) fn uid(&self) -> &PodUid {
        &self.held.pod.uid
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = &RuntimeContainer> {
        self.running.iter().filter_map(|at| self.held.containers.get(*at))
    }

    /// The ID of its newest sandbox.
    pub(crate) fn sandbox_id(&self) -> Option<&Arc<str>> {
        self.held.sandboxes.first().map(|sandbox| &sandbox.id)
    }

    /// When its newest sandbox was made.
    pub(crate) fn created_at(&self) -> Option<Timestamp> {
        self.held.sandboxes.first().map(|sandbox| sandbox.created_at)
    }
}

fn running(held: &Arc<RuntimePod>, idle_too: bool) -> Option<RunningPod> {
    let mut names = BTreeSet::new();
    let mut running = Vec::new();
    // The newest instance of a name comes first.
    for (at, container) in held.containers.iter().enumerate() {
        if container.state == ContainerState::Running && names.insert(&container.name) {
            running.push(at);
        }
    }
    let is_idle = || idle_too && held.ready_sandbox().is_some();
    (!running.is_empty() || is_idle()).then(|| RunningPod { held: held.clone(), running })
}

/// The pods of which a container runs, with `idle_too` also those that have only a sandbox at the moment, but for those that are
/// left alone. Of several pods of one name, as of a static pod
/// that replaces another one, only that with the newest sandbox is told of, since metrics know pods by name.
pub(crate) fn running_pods(
    held: &RuntimePods,
    left_alone: &BTreeSet<PodUid>,
    idle_too: bool,
) -> Vec<RunningPod> {
    let mut by_name: BTreeMap<(Arc<str>, Arc<str>), RunningPod> = BTreeMap::new();
    for (uid, pod) in held.iter().filter(|(uid, _)| !left_alone.contains(*uid)) {
        let Some(found) = blame::for_pod(uid, || running(pod, idle_too)) else { continue };
        let order = |pod: &RunningPod| (pod.held.ready_sandbox().is_some(), pod.created_at());
        let name = (pod.pod.namespace.clone(), pod.pod.name.clone());
        match by_name.get(&name) {
            Some(other) if order(other) >= order(&found) => {}
            _ => drop(by_name.insert(name, found)),
        }
    }
    by_name.into_values().collect()
}

/// What is to be read of a pod.
pub(crate) fn wanted(pod: &RunningPod) -> WantedPod {
    let logs = pod.containers().filter_map(|container| {
        let dir = Path::new(&*container.log_path).parent().filter(|dir| dir.is_absolute())?;
        Some((container.name.to_string(), dir.to_owned()))
    });
    WantedPod {
        sandbox: pod.held.sandboxes.first().map(|sandbox| sandbox.id.to_string()),
        containers: pod.containers().map(|container| container.id.to_string()).collect(),
        logs: logs.collect(),
    }
}

#[cfg(test)]
mod tests {
    use stage::{pod, runtime_pod};

    use super::*;

    fn held(number: usize, change: impl Fn(&mut RuntimePod)) -> (PodUid, Arc<RuntimePod>) {
        let pod = pod(number).pod_ref.clone();
        let mut held = runtime_pod(&pod, 0);
        change(&mut held);
        (pod.uid, Arc::new(held))
    }

    fn chosen(pods: impl IntoIterator<Item = (PodUid, Arc<RuntimePod>)>) -> Vec<RunningPod> {
        running_pods(&Arc::new(pods.into_iter().collect()), &BTreeSet::new(), false)
    }

    #[test]
    fn only_what_runs_is_read() {
        let ended = |held: &mut RuntimePod| {
            held.containers.iter_mut().for_each(|one| one.state = ContainerState::Exited);
        };
        assert_eq!(chosen([held(0, |_| ()), held(1, ended)]).len(), 1);
        let left_alone = [pod(0).pod_ref.uid.clone()].into();
        let (uid, only) = held(0, |_| ());
        assert_eq!(running_pods(&Arc::new([(uid, only)].into()), &left_alone, true), []);
        let idle = Arc::new([held(1, ended)].into());
        assert_eq!(
            running_pods(&idle, &BTreeSet::new(), true)[0].containers().count(),
            0,
            "its sandbox is there"
        );
    }

    #[test]
    fn of_two_instances_the_newest_and_of_two_pods_of_a_name_the_newest() {
        let twice = |held: &mut RuntimePod| {
            let mut newer = held.containers[0].clone();
            newer.id = "newer".into();
            held.containers.insert(0, newer);
        };
        let found = chosen([held(0, twice)]);
        assert_eq!(found[0].containers().map(|one| &*one.id).collect::<Vec<_>>(), ["newer"]);
        let named = |held: &mut RuntimePod| held.pod.name = "same".into();
        let older = |held: &mut RuntimePod| {
            named(held);
            held.sandboxes[0].created_at = Timestamp::from_second(1).unwrap();
        };
        for (first, second) in [(held(0, named), held(1, older)), (held(1, older), held(0, named))] {
            let found = chosen([first, second]);
            assert_eq!((found.len(), found[0].uid()), (1, &pod(0).pod_ref.uid));
        }
    }

    #[test]
    fn logs_are_beside_the_log_that_the_runtime_names() {
        let with_log =
            |held: &mut RuntimePod| held.containers[0].log_path = "/var/log/pods/a/web/3.log".into();
        let found = wanted(&chosen([held(0, with_log)])[0]);
        assert_eq!(found.logs, [("web".to_owned(), "/var/log/pods/a/web".into())].into());
        assert_eq!((found.containers.len(), found.sandbox.is_some()), (1, true));
        let without = |held: &mut RuntimePod| held.containers[0].log_path = "".into();
        assert!(wanted(&chosen([held(0, without)])[0]).logs.is_empty());
    }
}
