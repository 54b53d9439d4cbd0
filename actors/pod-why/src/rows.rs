//! PURE: a pod in a row: kubectl's words, and its computation for each.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pod_rules::{conditions, phases, reasons, restart};
use serde::Serialize;

use crate::parts::ended_as;
use crate::text::neutralised;

/// A pod's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// How many of its containers and sidecars are ready.
    pub ready_containers: usize,
    /// How many containers and sidecars it has.
    pub containers: usize,
    /// Its status, as `kubectl get pods` names it.
    pub status: String,
    /// The restarts of its containers and sidecars; while it initialises, those of its init containers.
    pub restarts: i64,
    /// How long ago the last of those was.
    pub restarted_seconds: Option<i64>,
    /// Its age.
    pub age_seconds: Option<i64>,
    /// Its IP; empty while it has none.
    pub ip: String,
}

impl Row {
    /// The row of a pod that is not desired any more, while its worker ends it.
    pub fn leaving(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            namespace: neutralised(namespace),
            name: neutralised(name),
            uid: neutralised(uid),
            ready_containers: 0,
            containers: 0,
            status: "Terminating".to_owned(),
            restarts: 0,
            restarted_seconds: None,
            age_seconds: None,
            ip: String::new(),
        }
    }
}

/// What kubectl counts while it walks over a pod's containers.
#[derive(Default)]
struct Walk {
    reason: String,
    ready: usize,
    restarts: i64,
    restarted: Option<Timestamp>,
}

impl Walk {
    fn restarted(&mut self, status: &ContainerStatus) {
        self.restarts += i64::from(status.restart_count);
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let at = last.and_then(|last| last.finished_at.as_ref()).map(|at| at.0);
        self.restarted = self.restarted.max(at);
    }
}

/// The rows of all pods of this namespace, sorted by namespace and name.
pub fn rows(pods: &[Pod], namespace: Option<&str>, now: Timestamp) -> Vec<Row> {
    let within = |pod: &&Pod| namespace.is_none() || pod.metadata.namespace.as_deref() == namespace;
    let mut rows: Vec<Row> = pods.iter().filter(within).map(|pod| row(pod, now)).collect();
    rows.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    rows
}

/// The row of a pod.
pub fn row(pod: &Pod, now: Timestamp) -> Row {
    let text = |field: &Option<String>| neutralised(field.as_deref().unwrap_or_default());
    let (meta, status) = (&pod.metadata, pod.status.as_ref());
    let walk = walk(pod);
    let spec = pod.spec.as_ref();
    let sidecars = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let sidecars = sidecars.iter().filter(|container| restart::is_sidecar(container)).count();
    // A static pod has no time of creation.
    let born = meta.creation_timestamp.as_ref();
    let born = born.or(status.and_then(|status| status.start_time.as_ref()));
    let seconds = |at: Timestamp| now.duration_since(at).as_secs().max(0);
    let ips = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let ip = ips.first().map(|ip| ip.ip.as_str()).or(status.and_then(|status| status.pod_ip.as_deref()));
    Row {
        namespace: text(&meta.namespace),
        name: text(&meta.name),
        uid: text(&meta.uid),
        ready_containers: walk.ready,
        containers: spec.map_or(0, |spec| spec.containers.len()) + sidecars,
        status: walk.reason,
        restarts: walk.restarts,
        restarted_seconds: walk.restarted.filter(|_| walk.restarts > 0).map(seconds),
        age_seconds: born.map(|Time(at)| seconds(*at)),
        ip: neutralised(ip.unwrap_or_default()),
    }
}

fn walk(pod: &Pod) -> Walk {
    let status = pod.status.as_ref();
    let given = |field: Option<&String>| field.filter(|text| !text.is_empty()).map(|text| neutralised(text));
    let phase = given(status.and_then(|status| status.phase.as_ref())).unwrap_or_default();
    let reason = given(status.and_then(|status| status.reason.as_ref()));
    let inits = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    let mains = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let has = |type_: &str| {
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
    };
    let mut walk = Walk { reason: reason.clone().unwrap_or_else(|| phase.clone()), ..Walk::default() };
    let mut of_sidecars = Walk::default();
    let initialising = walk_inits(pod, inits, &mut walk, &mut of_sidecars);
    if !initialising || has("Initialized") {
        walk.restarts = of_sidecars.restarts;
        walk.restarted = of_sidecars.restarted;
        let running = walk_mains(mains, &mut walk);
        if running && walk.reason == reasons::COMPLETED {
            let ready = has(conditions::READY);
            walk.reason = if ready { phases::RUNNING.to_owned() } else { "NotReady".to_owned() };
        }
    }
    let has_ended = phase == phases::SUCCEEDED || phase == phases::FAILED;
    if pod.metadata.deletion_timestamp.is_some() {
        if reason.as_deref() == Some("NodeLost") {
            walk.reason = "Unknown".to_owned();
        } else if !has_ended {
            walk.reason = "Terminating".to_owned();
        }
    }
    if walk.reason.is_empty() {
        walk.reason = "Unknown".to_owned();
    }
    walk
}

/// Walks over init containers up to the one whose turn it is, and says whether there is one.
fn walk_inits(pod: &Pod, inits: &[ContainerStatus], walk: &mut Walk, of_sidecars: &mut Walk) -> bool {
    let specs = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    for (index, status) in inits.iter().enumerate() {
        walk.restarted(status);
        let spec = specs.iter().find(|container| container.name == status.name);
        let is_sidecar = spec.is_some_and(restart::is_sidecar);
        if is_sidecar {
            of_sidecars.restarted(status);
        }
        let state = status.state.as_ref();
        let ended = state.and_then(|state| state.terminated.as_ref());
        if ended.is_some_and(|ended| ended.exit_code == 0) {
            continue;
        }
        if is_sidecar && status.started == Some(true) {
            walk.ready += usize::from(status.ready);
            continue;
        }
        let waiting = waiting_reason(state).filter(|reason| reason != reasons::POD_INITIALIZING);
        walk.reason = match (ended, waiting) {
            (Some(ended), _) => format!("Init:{}", ended_as(ended)),
            (None, Some(reason)) => format!("Init:{reason}"),
            (None, None) => format!("Init:{index}/{}", specs.len()),
        };
        return true;
    }
    false
}

/// Walks over ordinary containers, the last first, and says whether one of them runs and is ready.
fn walk_mains(mains: &[ContainerStatus], walk: &mut Walk) -> bool {
    let mut running = false;
    for status in mains.iter().rev() {
        walk.restarted(status);
        let state = status.state.as_ref();
        let ended = state.and_then(|state| state.terminated.as_ref());
        if let Some(reason) = waiting_reason(state) {
            walk.reason = reason;
        } else if let Some(ended) = ended {
            walk.reason = ended_as(ended);
        } else if status.ready && state.is_some_and(|state| state.running.is_some()) {
            running = true;
            walk.ready += 1;
        }
    }
    running
}

fn waiting_reason(state: Option<&ContainerState>) -> Option<String> {
    let reason = state?.waiting.as_ref()?.reason.as_deref()?;
    (!reason.is_empty()).then(|| neutralised(reason))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn pod(spec: Value, status: Value) -> Pod {
        let metadata = json!({
            "namespace": "default", "name": "web", "uid": "u-1", "creationTimestamp": "2026-01-01T11:55:00Z",
        });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
    }

    fn container(name: &str, ready: bool, restarts: i32, state: Value) -> Value {
        json!({ "name": name, "ready": ready, "restartCount": restarts, "image": "", "imageID": "", "state": state })
    }

    /// READY, STATUS and RESTARTS.
    fn said(pod: &Pod) -> (String, String, i64) {
        let row = row(pod, now());
        (format!("{}/{}", row.ready_containers, row.containers), row.status, row.restarts)
    }

    fn expected(ready: &str, status: &str, restarts: i64) -> (String, String, i64) {
        (ready.to_owned(), status.to_owned(), restarts)
    }

    #[test]
    fn the_status_is_kubectls() {
        let one = || json!({ "containers": [{ "name": "a" }] });
        let of = |state: Value, ready: bool| {
            let statuses = [container("a", ready, 2, state)];
            pod(one(), json!({ "phase": "Running", "containerStatuses": statuses }))
        };
        let running = || json!({ "running": {} });
        assert_eq!(said(&of(running(), true)), expected("1/1", "Running", 2));
        assert_eq!(said(&of(running(), false)), expected("0/1", "Running", 2));
        let waiting = |reason: &str| of(json!({ "waiting": { "reason": reason } }), false);
        assert_eq!(said(&waiting("CrashLoopBackOff")), expected("0/1", "CrashLoopBackOff", 2));
        assert_eq!(said(&waiting("ContainerCreating")), expected("0/1", "ContainerCreating", 2));
        let ended = |ended: Value| of(json!({ "terminated": ended }), false);
        assert_eq!(said(&ended(json!({ "exitCode": 1, "reason": "Error" }))), expected("0/1", "Error", 2));
        assert_eq!(said(&ended(json!({ "exitCode": 3 }))), expected("0/1", "ExitCode:3", 2));
        assert_eq!(said(&ended(json!({ "exitCode": 137, "signal": 9 }))), expected("0/1", "Signal:9", 2));
        let failed = pod(one(), json!({ "phase": "Failed", "reason": "Evicted" }));
        assert_eq!(said(&failed), expected("0/1", "Evicted", 0));
        assert_eq!(said(&pod(one(), json!({}))), expected("0/1", "Unknown", 0));
        let mut gone = of(running(), true);
        gone.metadata.deletion_timestamp = Some(Time(now()));
        assert_eq!(said(&gone).1, "Terminating");
    }

    #[test]
    fn one_that_has_ended_beside_one_that_runs_is_not_ready() {
        let spec = || json!({ "containers": [{ "name": "a" }, { "name": "b" }] });
        let with = |ready: &str| {
            let statuses = [
                container("a", false, 0, json!({ "terminated": { "exitCode": 0, "reason": "Completed" } })),
                container("b", true, 0, json!({ "running": {} })),
            ];
            let conditions = [json!({ "type": "Ready", "status": ready })];
            pod(
                spec(),
                json!({ "phase": "Running", "containerStatuses": statuses, "conditions": conditions }),
            )
        };
        assert_eq!(said(&with("False")), expected("1/2", "NotReady", 0));
        assert_eq!(said(&with("True")), expected("1/2", "Running", 0));
    }

    #[test]
    fn a_pod_that_initialises_says_how_far_it_is() {
        let with = |init: Value, sidecar: Value| {
            let spec = json!({
                "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }],
                "containers": [{ "name": "a" }],
            });
            let main = container("a", false, 0, json!({ "waiting": { "reason": "PodInitializing" } }));
            let status = json!({
                "phase": "Pending", "initContainerStatuses": [init, sidecar], "containerStatuses": [main],
            });
            said(&pod(spec, status))
        };
        let waits = || container("s", false, 0, json!({ "waiting": { "reason": "PodInitializing" } }));
        let runs = container("i", false, 1, json!({ "running": {} }));
        assert_eq!(with(runs, waits()), expected("0/2", "Init:0/2", 1));
        let pulls = container("i", false, 0, json!({ "waiting": { "reason": "ErrImagePull" } }));
        assert_eq!(with(pulls, waits()), expected("0/2", "Init:ErrImagePull", 0));
        let fails = container("i", false, 3, json!({ "terminated": { "exitCode": 1, "reason": "Error" } }));
        assert_eq!(with(fails, waits()), expected("0/2", "Init:Error", 3));
        let done = || container("i", true, 1, json!({ "terminated": { "exitCode": 0 } }));
        assert_eq!(with(done(), waits()), expected("0/2", "Init:1/2", 1));
        let mut beside = container("s", true, 4, json!({ "running": {} }));
        beside["started"] = json!(true);
        // The restarts of init containers count no more.
        assert_eq!(with(done(), beside), expected("1/2", "PodInitializing", 4));
    }
}
