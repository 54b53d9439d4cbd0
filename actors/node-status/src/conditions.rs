//! PURE: the Node's conditions (row 13.7), and the runtime's health over time, on which Ready depends (row 3.3).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use messages::facts::Pressure;
use messages::node_status::Degradation;
use messages::runtime::{RuntimeHandler, RuntimeHealth};
use pod_rules::conditions::{DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE, READY, status as word};
use pod_rules::durations::GoDuration;
use pod_rules::reasons::{KUBELET_NOT_READY, PODS_LEFT_ALONE, SUBSYSTEM_DORMANT};

/// Understudy's own condition: a subsystem has given up and sleeps, or leaves several pods alone.
pub const KUBELET_DEGRADED: &str = "KubeletDegraded";
/// A runtime that has not been ready for this long counts as down.
const DOWN_AFTER: Duration = Duration::from_secs(30);
/// A runtime that has not answered a list of everything for longer than this counts as unhealthy.
const LISTED_WITHIN: Duration = Duration::from_secs(180);

/// The state of the runtime. Times are durations since one fixed moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeState {
    ready_last: Option<Duration>,
    /// The age of the newest answered list of everything, and when Pleg told it.
    listed: Option<(Duration, Duration)>,
    runtime_problem: String,
    network_problem: String,
    /// Name and version, `containerd://2.3.0`; `Unknown` as the version while it is unknown.
    pub version: String,
    /// The runtime's handlers, as it last told while it was ready.
    pub handlers: Vec<RuntimeHandler>,
    /// Whether it supports supplementalGroupsPolicy, as it last told while it was ready; `None` before.
    pub supplemental_groups_policy: Option<bool>,
}

impl Default for RuntimeState {
    fn default() -> Self {
        Self {
            ready_last: None,
            listed: None,
            runtime_problem: String::new(),
            network_problem: "network state unknown".to_owned(),
            version: "://Unknown".to_owned(),
            handlers: Vec::new(),
            supplemental_groups_policy: None,
        }
    }
}

impl RuntimeState {
    /// Takes Pleg's news of the runtime's health. Pleg tells it after every answer: a runtime that is silent for long
    /// is down.
    pub fn learn(&mut self, health: &RuntimeHealth, now: Duration) {
        self.listed = health.listed_ago.map(|ago| (ago, now));
        if !health.answered {
            // The last health told counts on until the runtime is down.
            return;
        }
        self.runtime_problem = health.runtime_problem.clone();
        self.network_problem = health.network_problem.clone();
        self.version = format!("{}://{}", health.name, plain_version(&health.version));
        if health.ready {
            self.ready_last = Some(now);
            self.handlers = health.handlers.clone();
            self.supplemental_groups_policy = Some(health.supplemental_groups_policy);
        }
    }

    /// The reasons why the node is not ready, in upstream's words.
    pub fn errors(&self, now: Duration) -> Vec<String> {
        let check = match self.ready_last {
            None => Some("container runtime status check may not have completed yet"),
            Some(last) => (now.saturating_sub(last) >= DOWN_AFTER).then_some("container runtime is down"),
        };
        let lists = self.lists_problem(now).map(|problem| format!("PLEG is not healthy: {problem}"));
        let problems = [&self.runtime_problem, &self.network_problem];
        let problems = problems.into_iter().filter(|problem| !problem.is_empty()).cloned();
        check.map(str::to_owned).into_iter().chain(lists).chain(problems).collect()
    }

    /// The error of lists that do not return: they are no single pod's problem, since the runtime itself does not work.
    fn lists_problem(&self, now: Duration) -> Option<String> {
        let Some((ago, told)) = self.listed else { return Some("pleg has yet to be successful".to_owned()) };
        let elapsed = ago.saturating_add(now.saturating_sub(told));
        let (seen, threshold) = (GoDuration::whole_millis(elapsed), GoDuration::whole_millis(LISTED_WITHIN));
        (elapsed > LISTED_WITHIN)
            .then(|| format!("pleg was last seen active {seen} ago; threshold is {threshold}"))
    }
}

/// A version as upstream shows it: a semantic version without `v`, else the numbers at its beginning.
fn plain_version(version: &str) -> &str {
    let trimmed = version.trim();
    let plain = trimmed.strip_prefix('v').unwrap_or(trimmed);
    let numbers = plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len());
    let (head, rest) = plain.split_at(numbers);
    let is_semantic = head.split('.').count() == 3
        && (rest.is_empty() || rest.starts_with(['-', '+']))
        && rest.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
    let head = head.trim_end_matches('.');
    match (head.is_empty(), is_semantic) {
        (true, _) => version,
        (false, true) => plain,
        (false, false) => head,
    }
}

/// Several errors as one text.
fn together(errors: Vec<String>) -> Option<String> {
    let mut distinct: Vec<String> = Vec::new();
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match distinct.len() {
        0 => None,
        1 => distinct.pop(),
        _ => Some(format!("[{}]", distinct.join(", "))),
    }
}

/// Type, then event, reason and message with pressure and without pressure.
type Row = (&'static str, [&'static str; 3], [&'static str; 3]);

const PRESSURES: [Row; 3] = [
    (
        MEMORY_PRESSURE,
        [
            "NodeHasInsufficientMemory",
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
        ],
        ["NodeHasSufficientMemory", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"],
    ),
    (
        DISK_PRESSURE,
        ["NodeHasDiskPressure", "KubeletHasDiskPressure", "kubelet has disk pressure"],
        ["NodeHasNoDiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
    ),
    (
        PID_PRESSURE,
        ["NodeHasInsufficientPID", "KubeletHasInsufficientPID", "kubelet has insufficient PID available"],
        ["NodeHasSufficientPID", "KubeletHasSufficientPID", "kubelet has sufficient PID available"],
    ),
];

/// Sets conditions at a given time, and keeps the events that follow.
struct Setter<'a> {
    status: &'a mut NodeStatus,
    now: Time,
    events: Vec<&'static str>,
}

impl Setter<'_> {
    fn find(&mut self, kind: &str) -> Option<&mut NodeCondition> {
        self.status.conditions.iter_mut().flatten().find(|condition| condition.type_ == kind)
    }

    /// Sets a condition. Returns whether its status has changed; `None` if the Node did not have the condition.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) -> Option<bool> {
        let now = self.now.clone();
        let mut new = NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: Some(now),
        };
        if let Some(old) = self.find(kind) {
            let same = old.status == new.status;
            if same && old.last_transition_time.is_some() {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
            return Some(!same);
        }
        self.status.conditions.get_or_insert_default().push(new);
        None
    }

    /// Sets a condition of pressure. While pressure has not been measured, the Node's condition stays.
    fn pressure(&mut self, row: &Row, measured: Option<bool>) {
        let (kind, with, without) = row;
        let held = self.find(kind).is_some_and(|condition| condition.status == word(true));
        let holds = measured.unwrap_or(held);
        let [event, reason, message] = if holds { with } else { without };
        let same = self.find(kind).is_some_and(|condition| condition.status == word(holds));
        if same {
            // Reason and message stay as they are, as upstream.
            let now = self.now.clone();
            if let Some(condition) = self.find(kind) {
                condition.last_heartbeat_time = Some(now);
            }
        } else {
            self.set(kind, word(holds), reason, message);
            self.events.push(event);
        }
    }

    fn ready(&mut self, problem: Option<String>) {
        let changed = match &problem {
            None => self.set(READY, word(true), "KubeletReady", "kubelet is posting ready status"),
            Some(problem) => self.set(READY, word(false), KUBELET_NOT_READY, problem),
        };
        if changed == Some(true) {
            self.events.push(if problem.is_none() { "NodeReady" } else { "NodeNotReady" });
        }
    }

    /// Sets KubeletDegraded. Only a node on which a subsystem ever was degraded has it: other nodes look like upstream's.
    fn degraded(&mut self, degraded: &BTreeMap<Arc<str>, (Degradation, Arc<str>)>) {
        if degraded.is_empty() {
            if self.find(KUBELET_DEGRADED).is_some() {
                self.set(
                    KUBELET_DEGRADED,
                    word(false),
                    "SubsystemsRunning",
                    "all subsystems of the kubelet run",
                );
            }
            return;
        }
        let is_dormant = degraded.values().any(|(how, _)| *how == Degradation::Dormant);
        let reason = if is_dormant { SUBSYSTEM_DORMANT } else { PODS_LEFT_ALONE };
        let told: Vec<String> = degraded.iter().map(|(name, (_, why))| format!("{name}: {why}")).collect();
        self.set(KUBELET_DEGRADED, word(true), reason, &told.join("; "));
    }
}

/// Sets the conditions, the three of pressure first, then Ready. Returns the events that follow.
pub fn set(
    status: &mut NodeStatus,
    now: Timestamp,
    pressure: Option<Pressure>,
    not_ready: Vec<String>,
    degraded: &BTreeMap<Arc<str>, (Degradation, Arc<str>)>,
) -> Vec<&'static str> {
    let mut setter = Setter { status, now: Time(now), events: Vec::new() };
    let of: [fn(Pressure) -> bool; 3] = [|one| one.memory, |one| one.disk, |one| one.pid];
    for (row, of) in PRESSURES.iter().zip(of) {
        setter.pressure(row, pressure.map(of));
    }
    setter.ready(together(not_ready));
    setter.degraded(degraded);
    setter.events
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a timestamp")
    }

    fn well() -> RuntimeHealth {
        RuntimeHealth {
            name: "containerd".into(),
            version: "2.3.0".into(),
            answered: true,
            ready: true,
            network_ready: true,
            listed_ago: Some(SECOND),
            ..RuntimeHealth::default()
        }
    }

    #[test]
    fn a_runtime_has_its_version_as_upstream_shows_it() {
        for (told, shown) in [
            ("v2.3.4", "2.3.4"),
            ("2.3.0", "2.3.0"),
            ("v2.0.0-rc.1+a", "2.0.0-rc.1+a"),
            ("1.6.20~ds1", "1.6.20"),
            ("1.7", "1.7"),
            ("0.0.0+unknown", "0.0.0+unknown"),
            ("unknown", "unknown"),
            ("", ""),
        ] {
            assert_eq!(plain_version(told), shown, "{told}");
        }
    }

    #[test]
    fn a_runtime_is_down_after_thirty_seconds_without_being_ready() {
        let mut state = RuntimeState::default();
        let unknown = [
            "container runtime status check may not have completed yet",
            "PLEG is not healthy: pleg has yet to be successful",
            "network state unknown",
        ];
        assert_eq!(state.errors(SECOND), unknown);
        state.learn(&well(), 5 * SECOND);
        assert_eq!(state.version, "containerd://2.3.0");
        let silent = RuntimeHealth { listed_ago: Some(SECOND), ..RuntimeHealth::default() };
        state.learn(&silent, 25 * SECOND);
        assert!(state.errors(34 * SECOND).is_empty());
        assert_eq!(state.errors(35 * SECOND), ["container runtime is down"]);
        state.learn(&well(), 36 * SECOND);
        assert!(state.errors(37 * SECOND).is_empty());
        let not_ready = RuntimeHealth {
            ready: false,
            runtime_problem: "container runtime not ready: x".into(),
            ..well()
        };
        state.learn(&not_ready, 41 * SECOND);
        assert_eq!(state.errors(41 * SECOND), ["container runtime not ready: x"]);
    }

    #[test]
    fn what_the_runtime_says_of_itself_counts_at_once() {
        let mut state = RuntimeState::default();
        let text =
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no";
        let no_network = RuntimeHealth { network_ready: false, network_problem: text.to_owned(), ..well() };
        state.learn(&no_network, SECOND);
        assert_eq!(state.errors(SECOND), [text]);
        let silent = RuntimeHealth { listed_ago: Some(SECOND), ..RuntimeHealth::default() };
        state.learn(&silent, 2 * SECOND);
        assert_eq!(state.errors(40 * SECOND), ["container runtime is down", text]);
    }

    #[test]
    fn a_runtime_that_lists_nothing_for_three_minutes_is_not_healthy() {
        let mut state = RuntimeState::default();
        state.learn(&well(), SECOND);
        let silent = |ago| RuntimeHealth { listed_ago: Some(ago), ..well() };
        state.learn(&silent(170 * SECOND), 171 * SECOND);
        assert!(state.errors(181 * SECOND).is_empty(), "it was 180 s ago");
        state.learn(&silent(Duration::from_millis(185_250)), 186 * SECOND);
        assert_eq!(
            state.errors(186 * SECOND),
            ["PLEG is not healthy: pleg was last seen active 3m5.25s ago; threshold is 3m0s"]
        );
        state.learn(&silent(3700 * SECOND), 3701 * SECOND);
        let errors = state.errors(3701 * SECOND);
        assert_eq!(errors, ["PLEG is not healthy: pleg was last seen active 1h1m40s ago; threshold is 3m0s"]);
        state.learn(&well(), 3702 * SECOND);
        assert!(state.errors(3702 * SECOND).is_empty());
        let fresh = RuntimeState::default();
        assert!(
            fresh.errors(SECOND).contains(&"PLEG is not healthy: pleg has yet to be successful".to_owned())
        );
    }

    fn shown(status: &NodeStatus) -> Vec<String> {
        let line = |c: &NodeCondition| {
            let since = c.last_transition_time.as_ref().map_or(0, |time| time.0.as_second());
            let beat = c.last_heartbeat_time.as_ref().map_or(0, |time| time.0.as_second());
            let reason = c.reason.as_deref().unwrap_or_default();
            let message = c.message.as_deref().unwrap_or_default();
            format!("{}={} {reason} {message} since {since} beat {beat}", c.type_, c.status)
        };
        status.conditions.iter().flatten().map(line).collect()
    }

    #[test]
    fn conditions_come_in_order_and_keep_the_time_of_their_last_change() {
        let mut status = NodeStatus::default();
        let none = BTreeMap::new();
        let events = set(&mut status, at(10), None, vec!["a".into(), "b".into(), "a".into()], &none);
        let sufficient = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];
        assert_eq!(events, sufficient, "a new Ready condition is no change");
        assert_eq!(
            shown(&status),
            [
                "MemoryPressure=False KubeletHasSufficientMemory kubelet has sufficient memory available since 10 beat 10",
                "DiskPressure=False KubeletHasNoDiskPressure kubelet has no disk pressure since 10 beat 10",
                "PIDPressure=False KubeletHasSufficientPID kubelet has sufficient PID available since 10 beat 10",
                "Ready=False KubeletNotReady [a, b] since 10 beat 10",
            ]
        );
        let pressure = Some(Pressure { disk: true, ..Pressure::default() });
        let events = set(&mut status, at(20), pressure, Vec::new(), &none);
        assert_eq!(events, ["NodeHasDiskPressure", "NodeReady"]);
        let lines = shown(&status);
        assert!(lines[0].ends_with("since 10 beat 20"), "{lines:?}");
        assert_eq!(
            lines[1],
            "DiskPressure=True KubeletHasDiskPressure kubelet has disk pressure since 20 beat 20"
        );
        assert_eq!(lines[3], "Ready=True KubeletReady kubelet is posting ready status since 20 beat 20");
        assert_eq!(
            set(&mut status, at(30), None, vec!["c".into()], &none),
            ["NodeNotReady"],
            "pressure stays until it has been measured again"
        );
        assert!(shown(&status)[1].starts_with("DiskPressure=True"), "{status:?}");
        assert_eq!(
            set(&mut status, at(40), Some(Pressure::default()), vec!["c".into()], &none),
            ["NodeHasNoDiskPressure"]
        );
    }

    #[test]
    fn a_subsystem_that_does_not_run_is_named_until_it_does() {
        let mut status = NodeStatus::default();
        let dormant = (Arc::from("NodeApi"), (Degradation::Dormant, Arc::from("6 restarts in 60 s")));
        set(&mut status, at(1), None, Vec::new(), &BTreeMap::from([dormant.clone()]));
        assert_eq!(
            shown(&status)[4],
            "KubeletDegraded=True SubsystemDormant NodeApi: 6 restarts in 60 s since 1 beat 1"
        );
        let left_alone =
            (Arc::from("Pleg at a.rs:1:2"), (Degradation::PodsLeftAlone, Arc::from("it panics")));
        set(&mut status, at(1), None, Vec::new(), &BTreeMap::from([dormant, left_alone.clone()]));
        assert_eq!(
            shown(&status)[4],
            "KubeletDegraded=True SubsystemDormant NodeApi: 6 restarts in 60 s; Pleg at a.rs:1:2: it panics since 1 beat 1"
        );
        set(&mut status, at(1), None, Vec::new(), &BTreeMap::from([left_alone]));
        assert_eq!(
            shown(&status)[4],
            "KubeletDegraded=True PodsLeftAlone Pleg at a.rs:1:2: it panics since 1 beat 1"
        );
        set(&mut status, at(2), None, Vec::new(), &BTreeMap::new());
        assert!(shown(&status)[4].starts_with("KubeletDegraded=False SubsystemsRunning"));
        assert!(shown(&status)[3].starts_with("Ready=True"), "the node is ready all the same");
    }
}
