//! The probes of one pod: which ones it has, when each is due, and the verdicts so far. A value that facts and answers
//! change, without effects or messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, Probe};
use messages::facts::{ContainerVerdict, DesiredPod, ProbeKind};
use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod};
use pod_rules::restart::is_sidecar;

use crate::checkpoint::{SavedPod, SavedVerdict};
use crate::schedule::{self, Blocked, LastRun, Running, ScheduleInput, Timing};
use crate::target::{self, Target};
use crate::verdict::{Streak, Thresholds};

/// Defaults of row 7.1, for pods that no API server has defaulted.
const PERIOD_S: i32 = 10;
const TIMEOUT_S: i32 = 1;
const SUCCESSES: i32 = 1;
const FAILURES: i32 = 3;

/// How long a pod's changed verdicts rest for each of its containers after some were told: what they cost grows with their number.
const REST: Duration = Duration::from_millis(1);

/// The moment at which a fact or an answer arrives.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Time since one fixed moment; only differences count.
    pub now: Duration,
    /// Wall time, from which the age of containers follows.
    pub wall: Timestamp,
    /// When the kubelet's process began, in wall time.
    pub kubelet_started: Timestamp,
    /// 64 random bits, to spread first probes.
    pub random: u64,
}

impl At {
    fn age_of(&self, since: Timestamp) -> Duration {
        Duration::try_from(self.wall.duration_since(since)).unwrap_or_default()
    }
}

/// One probe of the pod: container and kind.
pub type ProbeName = (String, ProbeKind);

/// A run of a probe that begins.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeRun {
    /// The container instance.
    pub container_id: Arc<str>,
    /// The probe, from the container's spec.
    pub probe: Arc<Probe>,
    /// The container's spec.
    pub container: Arc<Container>,
    /// Field path for events.
    pub field_path: String,
    /// `timeoutSeconds`.
    pub timeout: Duration,
    /// When it should have begun.
    pub due: Duration,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// When it should have begun.
    pub due: Duration,
    /// When it had ended.
    pub at: Duration,
    /// Whether the container passed; `None` if it could not be asked.
    pub passed: Option<bool>,
}

/// The effect of an ended run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunChange {
    /// The run was about an instance that is gone or is being stopped, and does not count.
    Dropped,
    /// The run counts, and the verdicts are as before.
    Unchanged,
    /// The run counts, and a verdict has changed.
    Changed,
}

/// One pod's probes.
#[derive(Debug)]
pub struct PodProbes {
    desired: Arc<DesiredPod>,
    added: Duration,
    terminating: bool,
    /// Containers whose postStart hook runs: they count as not running yet (row 5.19).
    starting: Arc<BTreeSet<String>>,
    /// The pod's addresses in the order of the runtime.
    pod_ips: Vec<Arc<str>>,
    restored: SavedPod,
    containers: BTreeMap<String, ContainerProbes>,
    /// Changes of the verdicts are not told before this moment.
    rests_until: Duration,
}

#[derive(Debug)]
struct ContainerProbes {
    spec: Arc<Container>,
    /// When the pod's probes were made.
    added: Duration,
    field_path: String,
    instance: Option<Instance>,
    /// See [`ScheduleInput::freed`].
    freed: Duration,
    probes: BTreeMap<ProbeKind, ProbeState>,
}

/// The newest instance of a container and its verdict.
#[derive(Debug)]
struct Instance {
    verdict: ContainerVerdict,
    running: Option<Running>,
}

#[derive(Debug)]
struct ProbeState {
    spec: Arc<Probe>,
    timing: Timing,
    thresholds: Thresholds,
    streak: Streak,
    last: Option<LastRun>,
    under_way: bool,
    on_hold: bool,
    spread: Duration,
    brought_forward: Option<Duration>,
}

impl ProbeState {
    fn new(spec: Arc<Probe>) -> Self {
        let at_least_one =
            |given: Option<i32>, default: i32| given.filter(|given| *given > 0).unwrap_or(default);
        let seconds = |given: i32| Duration::from_secs(u64::try_from(given).unwrap_or(0));
        let count = |given: i32| u32::try_from(given).unwrap_or(1);
        Self {
            timing: Timing {
                initial_delay: seconds(spec.initial_delay_seconds.unwrap_or(0)),
                period: seconds(at_least_one(spec.period_seconds, PERIOD_S)),
            },
            thresholds: Thresholds {
                success: count(at_least_one(spec.success_threshold, SUCCESSES)),
                failure: count(at_least_one(spec.failure_threshold, FAILURES)),
            },
            spec,
            streak: Streak::default(),
            last: None,
            under_way: false,
            on_hold: false,
            spread: Duration::ZERO,
            brought_forward: None,
        }
    }

    fn timeout(&self) -> Duration {
        let seconds = self.spec.timeout_seconds.filter(|given| *given > 0).unwrap_or(TIMEOUT_S);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(1))
    }
}

/// The containers that may have probes, with their field paths: ordinary ones and sidecars.
fn probed_containers(spec: &PodSpec) -> impl Iterator<Item = (&Container, &'static str)> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| is_sidecar(container));
    let ordinary = spec.containers.iter().map(|container| (container, "spec.containers"));
    ordinary.chain(sidecars.map(|container| (container, "spec.initContainers")))
}

impl ContainerProbes {
    fn new(spec: &Container, list: &str, added: Duration) -> Self {
        let kinds = [
            (ProbeKind::Startup, &spec.startup_probe),
            (ProbeKind::Liveness, &spec.liveness_probe),
            (ProbeKind::Readiness, &spec.readiness_probe),
        ];
        let probes = kinds
            .into_iter()
            .filter_map(|(kind, probe)| Some((kind, ProbeState::new(Arc::new(probe.clone()?)))))
            .collect();
        let field_path = format!("{list}{{{}}}", spec.name);
        let spec = Arc::new(spec.clone());
        Self { spec, added, field_path, instance: None, freed: Duration::ZERO, probes }
    }

    fn started(&self, verdict: &ContainerVerdict) -> bool {
        !self.probes.contains_key(&ProbeKind::Startup) || verdict.startup == Some(true)
    }

    fn situation(&self, kind: ProbeKind, probe: &ProbeState, terminating: bool) -> ScheduleInput {
        let instance = self.instance.as_ref();
        ScheduleInput {
            kind,
            timing: probe.timing,
            running: instance.and_then(|instance| instance.running),
            started: instance.is_some_and(|instance| self.started(&instance.verdict)),
            on_hold: probe.on_hold,
            terminating,
            under_way: probe.under_way,
            last: probe.last,
            spread: probe.spread,
            added: self.added,
            freed: self.freed,
        }
    }

    /// Takes a new instance: its probes begin anew, and are on hold where the verdict is already settled for good.
    fn begin_instance(&mut self, verdict: ContainerVerdict, at: At) {
        let kubelet_age = at.age_of(at.kubelet_started);
        for (kind, probe) in &mut self.probes {
            let on_hold = match kind {
                ProbeKind::Startup => verdict.startup.is_some(),
                ProbeKind::Liveness => verdict.liveness == Some(false),
                ProbeKind::Readiness => false,
            };
            let spread = schedule::spread(probe.timing.period, kubelet_age, at.random);
            *probe = ProbeState { on_hold, spread, ..ProbeState::new(probe.spec.clone()) };
        }
        self.instance = Some(Instance { verdict, running: None });
        self.freed = Duration::ZERO;
    }

    /// The verdict on an instance whose probes have not settled anything yet.
    fn initial(&self, container_id: &Arc<str>) -> ContainerVerdict {
        let readiness = self.probes.contains_key(&ProbeKind::Readiness).then_some(false);
        ContainerVerdict { container_id: container_id.clone(), startup: None, liveness: None, readiness }
    }

    fn bring_readiness_forward(&mut self, terminating: bool, now: Duration) {
        let Some(probe) = self.probes.get(&ProbeKind::Readiness) else { return };
        let ready = self.instance.as_ref().is_some_and(|instance| instance.verdict.readiness == Some(true));
        let situation = self.situation(ProbeKind::Readiness, probe, terminating);
        let due = schedule::next_on_fact(&situation, ready, now).ok();
        if let Some(probe) = self.probes.get_mut(&ProbeKind::Readiness) {
            probe.brought_forward = match (due, probe.brought_forward) {
                (Some(due), Some(before)) => Some(due.min(before)),
                (due, _) => due,
            };
        }
    }
}

impl PodProbes {
    /// The probes of a pod. `restored` are verdicts of an earlier kubelet or incarnation; `added` is the present time.
    pub fn new(desired: Arc<DesiredPod>, restored: SavedPod, added: Duration) -> Self {
        let mut probes = Self {
            desired: desired.clone(),
            added,
            terminating: false,
            starting: Arc::default(),
            pod_ips: Vec::new(),
            restored,
            containers: BTreeMap::new(),
            rests_until: Duration::ZERO,
        };
        probes.take_spec();
        probes
    }

    /// Takes the changed pod. Probes of containers that stay keep their schedule and verdicts. Whether the change can be one for
    /// probes.
    pub fn set_desired(&mut self, desired: Arc<DesiredPod>) -> bool {
        let ends = |pod: &DesiredPod| pod.pod.metadata.deletion_timestamp.is_some();
        let is_same = self.desired.pod.spec == desired.pod.spec && ends(&self.desired) == ends(&desired);
        self.desired = desired;
        if !is_same {
            self.take_spec();
        }
        !is_same
    }

    fn take_spec(&mut self) {
        let desired = self.desired.clone();
        let mut before = std::mem::take(&mut self.containers);
        for (spec, list) in desired.pod.spec.iter().flat_map(probed_containers) {
            let mut container = ContainerProbes::new(spec, list, self.added);
            if container.probes.is_empty() {
                continue;
            }
            if let Some(mut old) = before.remove(&spec.name) {
                container.instance = old.instance.take();
                container.freed = old.freed;
                for (kind, probe) in &mut container.probes {
                    if let Some(old) = old.probes.remove(kind).filter(|old| old.spec == probe.spec) {
                        *probe = old;
                    }
                }
            }
            self.containers.insert(spec.name.clone(), container);
        }
        self.set_terminating(self.terminating);
    }

    /// Whether the pod has at least one probe.
    pub fn has_probes(&self) -> bool {
        !self.containers.is_empty()
    }

    /// The pod as it was last desired.
    pub fn desired(&self) -> &Arc<DesiredPod> {
        &self.desired
    }

    /// The pod's first address in its status, which is of the node's family if there is such an address (row 8.8);
    /// empty while the pod has no address of its own.
    pub fn pod_ip(&self, node_ip: &str) -> &str {
        let is_v6 = |ip: &str| ip.contains(':');
        let same = self.pod_ips.iter().find(|ip| is_v6(ip) == is_v6(node_ip));
        same.or(self.pod_ips.first()).map_or("", |ip| ip)
    }

    /// Where this probe goes, on a node with this address.
    ///
    /// # Errors
    /// Why it goes nowhere.
    pub fn target(&self, run: &ProbeRun, node_ip: &str) -> Result<Target, String> {
        let pod = &self.desired;
        let host_network = pod.pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
        let ip = if host_network { node_ip } else { self.pod_ip(node_ip) };
        let target = target::target(&run.probe, &run.container, &pod.pod_ref.to_string(), ip)
            .map_err(|error| error.to_string())?;
        // An empty host would mean this machine itself.
        match &target {
            Target::Http { host, .. } | Target::Tcp { host, .. } | Target::Grpc { host, .. }
                if host.is_empty() =>
            {
                Err("the pod has no IP address yet".to_owned())
            }
            _ => Ok(target),
        }
    }

    /// Sets whether the pod is being stopped: then startup and liveness probes end, and readiness goes on (row 7.9). A
    /// pod that is deleted in the API is being stopped, whatever `terminating` says.
    pub fn set_terminating(&mut self, terminating: bool) {
        self.terminating = terminating || self.desired.pod.metadata.deletion_timestamp.is_some();
    }

    /// Sets the containers whose postStart hook runs. None of their probes is due before the hook has ended.
    pub fn set_starting(&mut self, starting: &Arc<BTreeSet<String>>, now: Duration) {
        for started in self.starting.difference(starting) {
            if let Some(container) = self.containers.get_mut(started) {
                container.freed = now;
            }
        }
        self.starting.clone_from(starting);
    }

    /// Whether a container of this pod runs or may run.
    pub fn may_run(&self) -> bool {
        self.containers
            .values()
            .any(|container| container.instance.as_ref().is_some_and(|instance| instance.running.is_some()))
    }

    /// Takes the runtime's state of the pod. Returns whether a verdict has changed.
    pub fn observe(&mut self, state: &RuntimePod, at: At) -> bool {
        let before = self.verdicts();
        if let Some(sandbox) = state.ready_sandbox().filter(|sandbox| !sandbox.ips.is_empty()) {
            self.pod_ips.clone_from(&sandbox.ips);
        }
        let statuses = container_statuses(&self.desired);
        for (name, container) in &mut self.containers {
            match state.latest(name) {
                Some(seen) => {
                    let status = statuses.get(name.as_str()).copied();
                    observe_container(container, seen, self.restored.get(name), status, at);
                }
                // If the same instance is observed again, it does not count as new.
                None => {
                    if let Some(gone) = container.instance.take() {
                        self.restored.insert(name.clone(), SavedVerdict::of(&gone.verdict));
                    }
                }
            }
            container.bring_readiness_forward(self.terminating, at.now);
        }
        before != self.verdicts()
    }

    /// When a probe is due.
    ///
    /// # Errors
    /// [`Blocked`], if the probe is not due until a fact changes, or does not exist.
    pub fn due(&self, name: &ProbeName) -> Result<Duration, Blocked> {
        let container = self.containers.get(&name.0).ok_or(Blocked::NotRunning)?;
        let probe = container.probes.get(&name.1).ok_or(Blocked::NotRunning)?;
        if self.starting.contains(&name.0) {
            return Err(Blocked::NotRunning);
        }
        let due = schedule::next(&container.situation(name.1, probe, self.terminating))?;
        Ok(probe.brought_forward.map_or(due, |forward| due.min(forward.max(container.freed))))
    }

    /// Whether the probe runs a command in its container.
    pub fn is_exec(&self, name: &ProbeName) -> bool {
        let probe = self.containers.get(&name.0).and_then(|container| container.probes.get(&name.1));
        probe.is_some_and(|probe| probe.spec.exec.is_some())
    }

    /// All probes of the pod.
    pub fn names(&self) -> Vec<ProbeName> {
        let of = |(name, container): (&String, &ContainerProbes)| -> Vec<ProbeName> {
            container.probes.keys().map(|kind| (name.clone(), *kind)).collect()
        };
        self.containers.iter().flat_map(of).collect()
    }

    /// Begins a run of the probe, if it is due.
    pub fn begin(&mut self, name: &ProbeName) -> Option<ProbeRun> {
        let due = self.due(name).ok()?;
        let container = self.containers.get_mut(&name.0)?;
        let container_id = container.instance.as_ref()?.verdict.container_id.clone();
        let probe = container.probes.get_mut(&name.1)?;
        probe.under_way = true;
        probe.brought_forward = None;
        Some(ProbeRun {
            container_id,
            probe: probe.spec.clone(),
            container: container.spec.clone(),
            field_path: container.field_path.clone(),
            timeout: probe.timeout(),
            due,
        })
    }

    /// Whether the answer of a run of this probe in this instance would count.
    pub fn awaits(&self, name: &ProbeName, container_id: &str) -> bool {
        let Some(container) = self.containers.get(&name.0) else { return false };
        let Some(instance) = &container.instance else { return false };
        let stopped = self.terminating && name.1 != ProbeKind::Readiness;
        !stopped
            && instance.running.is_some()
            && &*instance.verdict.container_id == container_id
            && container.probes.get(&name.1).is_some_and(|probe| probe.under_way)
    }

    /// Notes that a run was ended before its answer.
    pub fn given_up(&mut self, name: &ProbeName) {
        let container = self.containers.get_mut(&name.0);
        if let Some(probe) = container.and_then(|container| container.probes.get_mut(&name.1)) {
            probe.under_way = false;
        }
    }

    /// Takes the result of a run. It counts only for the instance that was asked, while that instance runs.
    pub fn ended(&mut self, name: &ProbeName, container_id: &str, ended: RunEnd) -> RunChange {
        let Some(container) = self.containers.get_mut(&name.0) else { return RunChange::Dropped };
        let Some(instance) = &mut container.instance else { return RunChange::Dropped };
        let Some(probe) = container.probes.get_mut(&name.1) else { return RunChange::Dropped };
        if &*instance.verdict.container_id != container_id || !probe.under_way {
            return RunChange::Dropped;
        }
        probe.under_way = false;
        probe.last = Some(LastRun { due: ended.due, ended: ended.at });
        let stopped = self.terminating && name.1 != ProbeKind::Readiness;
        if stopped || instance.running.is_none() {
            return RunChange::Dropped;
        }
        let settled = ended.passed.and_then(|passed| probe.streak.count(passed, probe.thresholds));
        let Some(settled) = settled else { return RunChange::Unchanged };
        let before = instance.verdict.clone();
        match name.1 {
            ProbeKind::Readiness => instance.verdict.readiness = Some(settled),
            ProbeKind::Liveness => {
                instance.verdict.liveness = (!settled).then_some(false);
                probe.on_hold = !settled;
            }
            ProbeKind::Startup => {
                instance.verdict.startup = Some(settled);
                probe.on_hold = true;
            }
        }
        let changed = before != instance.verdict;
        if name.1 == ProbeKind::Startup && settled {
            container.freed = ended.at;
            container.bring_readiness_forward(self.terminating, ended.at);
        }
        if changed { RunChange::Changed } else { RunChange::Unchanged }
    }

    /// The verdicts by container name.
    pub fn verdicts(&self) -> BTreeMap<String, ContainerVerdict> {
        let of = |(name, container): (&String, &ContainerProbes)| {
            Some((name.clone(), container.instance.as_ref()?.verdict.clone()))
        };
        self.containers.iter().filter_map(of).collect()
    }

    /// A verdict has changed: how long that is not told yet, or `None` if it is told now, and a rest begins.
    pub fn rests(&mut self, now: Duration) -> Option<Duration> {
        let rest = self.rests_until.checked_sub(now).filter(|rest| !rest.is_zero());
        if rest.is_none() {
            let containers = u32::try_from(self.containers.len()).unwrap_or(u32::MAX);
            self.rests_until = now + REST.saturating_mul(containers);
        }
        rest
    }

    /// The part of the verdicts that a later incarnation needs.
    pub fn saved(&self) -> SavedPod {
        self.verdicts().into_iter().map(|(name, verdict)| (name, SavedVerdict::of(&verdict))).collect()
    }
}

/// The container statuses that the API server gave with the pod, by name.
fn container_statuses(desired: &DesiredPod) -> BTreeMap<&str, &ContainerStatus> {
    let status = desired.pod.status.iter();
    let lists = status.flat_map(|status| [&status.init_container_statuses, &status.container_statuses]);
    lists.flatten().flatten().map(|status| (status.name.as_str(), status)).collect()
}

fn observe_container(
    container: &mut ContainerProbes,
    seen: &RuntimeContainer,
    restored: Option<&SavedVerdict>,
    status: Option<&ContainerStatus>,
    at: At,
) {
    let known = container.instance.as_ref().is_some_and(|known| known.verdict.container_id == seen.id);
    if !known {
        let initial = container.initial(&seen.id);
        let taken_over = || verdict_of_earlier_kubelet(&initial, seen, status, at);
        let verdict = restored
            .filter(|restored| *restored.container_id == *seen.id)
            .map(|restored| restored.apply_to(&initial))
            .or_else(taken_over)
            .unwrap_or(initial);
        container.begin_instance(verdict, at);
    }
    let Some(instance) = &mut container.instance else { return };
    match seen.started_at.filter(|_| seen.state == ContainerState::Running) {
        Some(started_at) => {
            instance.running.get_or_insert(Running { seen: at.now, age: at.age_of(started_at) });
        }
        None => {
            instance.running = None;
            if let Some(ready) = &mut instance.verdict.readiness {
                *ready = false;
            }
        }
    }
}

/// The verdict on an instance that an earlier kubelet started and reported: its values stay until probed anew (row
/// 7.11).
fn verdict_of_earlier_kubelet(
    initial: &ContainerVerdict,
    seen: &RuntimeContainer,
    status: Option<&ContainerStatus>,
    at: At,
) -> Option<ContainerVerdict> {
    // Upstream compares times alone and wants ten seconds. Here the ID identifies the instance, so a young container
    // counts, too.
    if seen.started_at? >= at.kubelet_started {
        return None;
    }
    let status = status?;
    let (_, id) = status.container_id.as_deref()?.split_once("://")?;
    let same = id == &*seen.id;
    same.then(|| ContainerVerdict {
        startup: status.started.filter(|started| *started),
        readiness: initial.readiness.map(|_| status.ready),
        ..initial.clone()
    })
}

#[cfg(test)]
mod tests;
