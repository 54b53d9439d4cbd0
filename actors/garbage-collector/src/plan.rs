//! PURE: which containers and sandboxes are garbage.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_node::host::PodLogDir;
use jiff::Timestamp;
use messages::facts::{WorkerReport, WorkerState};
use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod};
use messages::{PodRef, PodUid};
use supervision::blame;

/// How many dead containers may stay (row 19.12). `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// Containers younger than this stay in any case.
    pub min_age: Duration,
    /// Dead instances that may stay of one container.
    pub per_container_max: Option<usize>,
    /// Dead containers that may stay on the whole node.
    pub containers_max: Option<usize>,
}

impl Default for GcPolicy {
    fn default() -> Self {
        Self { min_age: Duration::ZERO, per_container_max: Some(1), containers_max: None }
    }
}

/// A container to remove, with its log and the link to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadContainer {
    /// Its pod.
    pub pod: PodRef,
    /// The runtime's ID.
    pub id: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its restart count.
    pub attempt: u32,
    /// Whether the runtime cannot tell if it runs: it is stopped before it is removed.
    pub unknown: bool,
}

/// A sandbox to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadSandbox {
    /// Its pod.
    pub pod: PodRef,
    /// The runtime's ID.
    pub id: Arc<str>,
}

/// Things to remove, in this order. Every step is idempotent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Dead containers.
    pub containers: Vec<DeadContainer>,
    /// Sandboxes: dead, and empty once the containers above are gone.
    pub sandboxes: Vec<DeadSandbox>,
    /// Directories of logs of pods that are gone.
    pub log_dirs: Vec<PodLogDir>,
}

/// What is to be removed of each pod, with the pod's namespace.
pub type GarbageOfPods = BTreeMap<PodUid, (Arc<str>, Garbage)>;

impl Garbage {
    /// The same, pod by pod.
    pub fn of_pods(self) -> GarbageOfPods {
        fn of<'a>(pods: &'a mut GarbageOfPods, uid: &PodUid, namespace: &str) -> &'a mut Garbage {
            let new = || (Arc::from(namespace), Garbage::default());
            &mut pods.entry(uid.clone()).or_insert_with(new).1
        }
        let mut pods = GarbageOfPods::new();
        for one in self.containers {
            of(&mut pods, &one.pod.uid, &one.pod.namespace).containers.push(one.clone());
        }
        for one in self.sandboxes {
            of(&mut pods, &one.pod.uid, &one.pod.namespace).sandboxes.push(one.clone());
        }
        for one in self.log_dirs {
            of(&mut pods, &PodUid::new(&one.uid), &one.namespace).log_dirs.push(one.clone());
        }
        pods
    }
}

/// The state of a pod's worker, as far as garbage depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerStanding {
    /// The worker syncs the pod, and itself limits the instances of each container, as soon as one dies.
    Runs,
    /// The worker is ending the pod.
    Ends,
    /// The pod has ended, by itself or at its deadline: the last instances are kept for their logs. If it was evicted,
    /// its worker has removed them.
    Finished,
    /// The pod was deleted and its worker has released everything: whatever is still there is a leftover.
    Gone,
}

fn standing(report: &WorkerReport) -> WorkerStanding {
    match report.state {
        WorkerState::Syncing => WorkerStanding::Runs,
        WorkerState::Terminated if report.released && report.deleted => WorkerStanding::Gone,
        WorkerState::Terminated if report.released => WorkerStanding::Finished,
        WorkerState::Terminating | WorkerState::Terminated => WorkerStanding::Ends,
    }
}

/// A dead container that counts towards the limits.
struct Candidate<'a> {
    pod: &'a RuntimePod,
    container: &'a RuntimeContainer,
    /// Whether it stays although it counts: the newest instance of a running pod's container. Without it the worker
    /// would take the container for one that never ran, and run it again.
    stays: bool,
}

/// The dead instances of one container of one pod, newest first.
type Units<'a> = BTreeMap<(&'a PodUid, &'a str), Vec<Candidate<'a>>>;

/// All dead containers of pods that have ended, and all but the newest dead instance of running pods' containers: for a
/// full disk.
pub fn dead_of_all(
    observed: &BTreeMap<PodUid, Arc<RuntimePod>>,
    reports: &BTreeMap<PodUid, Arc<WorkerReport>>,
    now: Timestamp,
) -> Garbage {
    let nothing = GcPolicy { min_age: Duration::ZERO, per_container_max: Some(0), containers_max: Some(0) };
    garbage(observed, reports, &nothing, now)
}

/// The garbage in the runtime within the limits of `policy`. Pods without a worker are left to PodWorkerPool, which
/// ends orphans.
pub fn garbage(
    observed: &BTreeMap<PodUid, Arc<RuntimePod>>,
    reports: &BTreeMap<PodUid, Arc<WorkerReport>>,
    policy: &GcPolicy,
    now: Timestamp,
) -> Garbage {
    let pods: Vec<(&PodUid, &RuntimePod, WorkerStanding)> = observed
        .iter()
        .filter_map(|(uid, pod)| Some((uid, &**pod, standing(reports.get(uid)?))))
        .filter(|(_, _, standing)| *standing != WorkerStanding::Ends)
        .collect();
    let mut garbage = Garbage::default();
    let mut units = Units::new();
    for (uid, pod, standing) in &pods {
        let _named = blame::name(uid);
        for container in pod.containers.iter().filter(|c| is_dead(c, *standing) && is_old(c, policy, now)) {
            if *standing == WorkerStanding::Gone {
                garbage.containers.push(dead(pod, container));
                continue;
            }
            let newest = pod.latest(&container.name).is_some_and(|latest| latest.id == container.id);
            let stays = *standing == WorkerStanding::Runs && newest;
            units.entry((uid, &container.name)).or_default().push(Candidate { pod, container, stays });
        }
    }
    for unit in units.values_mut() {
        let age = |one: &Candidate<'_>| Reverse((one.container.attempt, one.container.created_at));
        unit.sort_by_key(age);
    }
    if let Some(max) = policy.per_container_max {
        let finished =
            |uid: &PodUid| reports.get(uid).is_some_and(|r| standing(r) == WorkerStanding::Finished);
        for (_, unit) in units.iter_mut().filter(|((uid, _), _)| finished(uid)) {
            keep_newest(unit, max, &mut garbage);
        }
    }
    if let Some(max) = policy.containers_max {
        hold_node_to(max, units, &mut garbage);
    }
    garbage.sandboxes = sandboxes(&pods, &garbage.containers);
    garbage
}

fn is_dead(container: &RuntimeContainer, standing: WorkerStanding) -> bool {
    match container.state {
        ContainerState::Running => false,
        ContainerState::Exited => true,
        // A running pod's worker may be about to start a created container, and stops one in an unknown state.
        ContainerState::Created | ContainerState::Unknown => standing != WorkerStanding::Runs,
    }
}

fn is_old(container: &RuntimeContainer, policy: &GcPolicy, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(container.created_at)).is_ok_and(|age| age >= policy.min_age)
        || policy.min_age.is_zero()
}

fn dead(pod: &RuntimePod, container: &RuntimeContainer) -> DeadContainer {
    DeadContainer {
        pod: pod.pod.clone(),
        id: container.id.clone(),
        name: container.name.clone(),
        attempt: container.attempt,
        unknown: container.state == ContainerState::Unknown,
    }
}

fn keep_newest(unit: &mut Vec<Candidate<'_>>, max: usize, garbage: &mut Garbage) {
    let mut place = 0;
    unit.retain(|candidate| {
        let keep = place < max || candidate.stays;
        place += 1;
        if !keep {
            garbage.containers.push(dead(candidate.pod, candidate.container));
        }
        keep
    });
}

/// First every container gets an equal share of the limit, at least one instance; then the oldest instances of all go.
fn hold_node_to(max: usize, mut units: Units<'_>, garbage: &mut Garbage) {
    let total = |units: &Units<'_>| units.values().map(Vec::len).sum::<usize>();
    if total(&units) <= max {
        return;
    }
    let share = max.checked_div(units.len()).unwrap_or(0).max(1);
    for unit in units.values_mut() {
        keep_newest(unit, share, garbage);
    }
    let surplus = total(&units).saturating_sub(max);
    let mut all: Vec<Candidate<'_>> = units.into_values().flatten().filter(|one| !one.stays).collect();
    all.sort_by_key(|candidate| candidate.container.created_at);
    garbage.containers.extend(all.iter().take(surplus).map(|one| dead(one.pod, one.container)));
}

/// Dead sandboxes without containers, except the newest one of a pod that is not gone.
fn sandboxes(pods: &[(&PodUid, &RuntimePod, WorkerStanding)], removed: &[DeadContainer]) -> Vec<DeadSandbox> {
    let removed: BTreeSet<&str> = removed.iter().map(|container| &*container.id).collect();
    let mut sandboxes = Vec::new();
    for (_, pod, standing) in pods {
        let left = pod.containers.iter().filter(|container| !removed.contains(&*container.id));
        let used: BTreeSet<&str> = left.map(|container| &*container.sandbox_id).collect();
        let kept = usize::from(*standing != WorkerStanding::Gone);
        let superseded = pod.sandboxes.iter().skip(kept).filter(|s| !s.ready && !used.contains(&*s.id));
        sandboxes.extend(superseded.map(|s| DeadSandbox { pod: pod.pod.clone(), id: s.id.clone() }));
    }
    sandboxes
}

#[cfg(test)]
mod tests {
    use messages::facts::Rejection;
    use messages::runtime::RuntimeSandbox;
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

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

    /// An instance with the ID `<name><attempt>`, made at `second`.
    fn instance(name: &str, attempt: u32, second: i64, state: ContainerState) -> RuntimeContainer {
        RuntimeContainer {
            id: Arc::from(format!("{name}{attempt}")),
            sandbox_id: Arc::from("used"),
            name: Arc::from(name),
            attempt,
            state,
            created_at: at(second),
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

    fn exited(name: &str, attempt: u32, second: i64) -> RuntimeContainer {
        instance(name, attempt, second, ContainerState::Exited)
    }

    #[derive(Default)]
    struct World {
        observed: BTreeMap<PodUid, Arc<RuntimePod>>,
        reports: BTreeMap<PodUid, Arc<WorkerReport>>,
        policy: GcPolicy,
    }

    impl World {
        fn pod(mut self, uid: &str, standing: WorkerStanding, containers: Vec<RuntimeContainer>) -> Self {
            let pod = PodRef { uid: PodUid::new(uid), namespace: Arc::from("n"), name: Arc::from(uid) };
            let mut runtime = RuntimePod::absent(pod.clone());
            runtime.sandboxes = vec![
                sandbox("newest", false),
                sandbox("used", false),
                sandbox("ready", true),
                sandbox("dead", false),
            ];
            runtime.containers = containers;
            let state = match standing {
                WorkerStanding::Runs => WorkerState::Syncing,
                WorkerStanding::Ends => WorkerState::Terminating,
                WorkerStanding::Finished | WorkerStanding::Gone => WorkerState::Terminated,
            };
            let report = WorkerReport {
                released: matches!(standing, WorkerStanding::Finished | WorkerStanding::Gone),
                deleted: standing == WorkerStanding::Gone,
                ..stage::report(&pod, state)
            };
            self.observed.insert(pod.uid.clone(), Arc::new(runtime));
            self.reports.insert(pod.uid, Arc::new(report));
            self
        }

        fn garbage(&self) -> Garbage {
            garbage(&self.observed, &self.reports, &self.policy, at(100))
        }

        fn containers(&self) -> Vec<String> {
            let mut ids: Vec<String> =
                self.garbage().containers.iter().map(|container| container.id.to_string()).collect();
            ids.sort();
            ids
        }

        fn sandboxes(&self) -> Vec<String> {
            self.garbage().sandboxes.iter().map(|sandbox| sandbox.id.to_string()).collect()
        }
    }

    #[test]
    fn dead_empty_superseded_sandboxes_go() {
        for (standing, expected) in [
            (WorkerStanding::Runs, vec!["dead"]),
            (WorkerStanding::Finished, vec!["dead"]),
            (WorkerStanding::Gone, vec!["newest", "used", "dead"]),
            (WorkerStanding::Ends, vec![]),
        ] {
            let mut world = World::default().pod("u", standing, vec![exited("a", 0, 1)]);
            assert_eq!(world.sandboxes(), expected, "{standing:?}");
            world.reports.clear();
            assert_eq!(world.garbage(), Garbage::default(), "without a worker it is not ours");
        }
    }

    #[test]
    fn the_logs_of_a_pod_past_its_deadline_stay_until_it_is_deleted() {
        let mut world = World::default().pod("d", WorkerStanding::Finished, vec![exited("a", 0, 1)]);
        let report = Arc::make_mut(world.reports.values_mut().next().unwrap());
        report.failed = Some(Rejection::new("DeadlineExceeded", "too long"));
        assert_eq!(world.containers(), [""; 0]);
        assert_eq!(world.sandboxes(), ["dead"], "not the one of the container that stays");
        let report = Arc::make_mut(world.reports.values_mut().next().unwrap());
        report.deleted = true;
        assert_eq!(world.containers(), ["a0"]);
    }

    #[test]
    fn a_finished_pod_is_held_to_the_limit_per_container_and_its_worker_does_so_before() {
        let instances =
            || vec![exited("a", 2, 30), exited("a", 1, 20), exited("a", 0, 10), exited("b", 0, 10)];
        let mut world = World::default().pod("f", WorkerStanding::Finished, instances());
        assert_eq!(world.containers(), ["a0", "a1"]);
        for (max, expected) in
            [(Some(2), vec!["a0"]), (Some(0), vec!["a0", "a1", "a2", "b0"]), (None, vec![])]
        {
            world.policy.per_container_max = max;
            assert_eq!(world.containers(), expected, "{max:?}");
        }
        for standing in [WorkerStanding::Runs, WorkerStanding::Ends] {
            assert_eq!(
                World::default().pod("r", standing, instances()).containers(),
                [""; 0],
                "{standing:?}"
            );
        }
    }

    #[test]
    fn the_last_attempt_is_the_newest_whatever_the_clock_said() {
        let mut world =
            World::default().pod("f", WorkerStanding::Finished, vec![exited("a", 1, 10), exited("a", 0, 20)]);
        world.policy.per_container_max = Some(1);
        assert_eq!(world.containers(), ["a0"]);
    }

    #[test]
    fn of_what_is_gone_nothing_stays_and_what_may_run_is_stopped() {
        let unknown = instance("b", 0, 1, ContainerState::Unknown);
        let running = instance("c", 0, 1, ContainerState::Running);
        let mut world =
            World::default().pod("g", WorkerStanding::Gone, vec![exited("a", 0, 99), unknown, running]);
        let found = world.garbage().containers;
        assert_eq!(
            found.iter().map(|c| (&*c.id, c.unknown)).collect::<Vec<_>>(),
            [("a0", false), ("b0", true)]
        );
        world.policy.min_age = Duration::from_secs(2);
        assert_eq!(world.containers(), ["b0"], "a0 is one second old");
    }

    #[test]
    fn the_node_is_held_to_its_limit_by_shares_and_then_by_age() {
        let finished = vec![exited("a", 2, 30), exited("a", 1, 20), exited("a", 0, 10), exited("b", 0, 40)];
        let running =
            vec![instance("c", 2, 50, ContainerState::Running), exited("c", 1, 5), exited("d", 0, 1)];
        let mut world = World::default().pod("f", WorkerStanding::Finished, finished).pod(
            "r",
            WorkerStanding::Runs,
            running,
        );
        world.policy.per_container_max = None;
        for (max, expected) in [
            (6, vec![]),
            (5, vec!["a0", "a1"]),
            (4, vec!["a0", "a1"]),
            (3, vec!["a0", "a1", "c1"]),
            (2, vec!["a0", "a1", "a2", "c1"]),
            // d has run to completion, and must not run again while its pod runs.
            (0, vec!["a0", "a1", "a2", "b0", "c1"]),
        ] {
            world.policy.containers_max = Some(max);
            assert_eq!(world.containers(), expected, "{max}");
        }
    }

    proptest! {
        #[test]
        fn nothing_running_goes_and_limits_hold(
            pods in proptest::collection::vec((0u8..4, proptest::collection::vec((0u8..3, 0u8..4, 0i64..100), 0..6)), 0..6),
            per_container in proptest::option::of(0usize..3),
            node in proptest::option::of(0usize..8),
        ) {
            let policy = GcPolicy { min_age: Duration::ZERO, per_container_max: per_container, containers_max: node };
            let mut world = World { policy, ..World::default() };
            for (number, (standing, instances)) in pods.into_iter().enumerate() {
                let standing = [WorkerStanding::Runs, WorkerStanding::Ends, WorkerStanding::Finished, WorkerStanding::Gone][usize::from(standing)];
                let mut containers: Vec<_> = instances.iter().enumerate().map(|(attempt, (name, state, second))| {
                    let state = [ContainerState::Created, ContainerState::Running, ContainerState::Exited, ContainerState::Unknown][usize::from(*state)];
                    instance(&format!("p{number}c{name}-"), u32::try_from(attempt).unwrap(), *second, state)
                }).collect();
                containers.sort_by_key(|c| (c.name.clone(), std::cmp::Reverse(c.created_at)));
                world = world.pod(&format!("p{number}"), standing, containers);
            }
            let removed: BTreeSet<_> = world.garbage().containers.into_iter().map(|c| (c.pod.uid, c.id)).collect();
            prop_assert_eq!(removed.len(), world.garbage().containers.len(), "each once");
            let (mut left, mut newest_of_running) = (0, 0);
            for (uid, pod) in &world.observed {
                let standing = standing(&world.reports[uid]);
                for container in &pod.containers {
                    let gone = removed.contains(&(uid.clone(), container.id.clone()));
                    let newest = pod.latest(&container.name).unwrap().id == container.id;
                    prop_assert!(!gone || container.state != ContainerState::Running);
                    prop_assert!(!gone || standing != WorkerStanding::Ends);
                    prop_assert!(!(gone && standing == WorkerStanding::Runs && newest));
                    if !gone && standing != WorkerStanding::Ends && is_dead(container, standing) {
                        left += 1;
                        newest_of_running += usize::from(standing == WorkerStanding::Runs && newest);
                    }
                }
            }
            if let Some(max) = node { prop_assert!(left <= max.max(newest_of_running)); }
        }
    }
}
