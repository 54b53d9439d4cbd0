//! PURE: what is known of a pod without a control plane, as a document.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, Toleration};
use pod_why::model::Event;
use serde::Serialize;

use super::container::{self, text, time};
use super::volume;
use crate::view::text::neutralised;

/// What is known of a pod. Texts of others are harmless on a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Its priority.
    pub priority: Option<i32>,
    /// The name of that; empty if it has none.
    pub priority_class: String,
    /// The runtime class; empty for the runtime's own.
    pub runtime_class: String,
    /// The account of its processes; empty if it has none.
    pub service_account: String,
    /// The node's name.
    pub node: String,
    /// The node's address; empty until the pod has a status.
    pub host_ip: String,
    /// When the kubelet took it up.
    pub start_time: Option<String>,
    /// When it is to have ended.
    pub deletion_timestamp: Option<String>,
    /// How long it may take to end.
    pub deletion_grace_seconds: Option<i64>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its phase.
    pub phase: String,
    /// Why it is in that, in a word; mostly empty.
    pub reason: String,
    /// The same at length.
    pub message: String,
    /// Its addresses.
    pub ips: Vec<String>,
    /// The object that made it, as `ReplicaSet/web`; empty if none did.
    pub controlled_by: String,
    /// Its init containers and sidecars.
    pub init_containers: Vec<container::Described>,
    /// Its containers.
    pub containers: Vec<container::Described>,
    /// Its ephemeral containers.
    pub ephemeral_containers: Vec<container::Described>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its volumes.
    pub volumes: Vec<volume::Described>,
    /// Its class of service.
    pub qos_class: String,
    /// The labels that its node has to have.
    pub node_selector: BTreeMap<String, String>,
    /// The taints that it tolerates.
    pub tolerations: Vec<String>,
    /// Its events, oldest first.
    pub events: Vec<Happened>,
    /// Which answers of the kubelet are missing, and why.
    pub unread: Vec<String>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// Its status.
    pub status: String,
    /// The reason in a word.
    pub reason: String,
    /// The same at length.
    pub message: String,
    /// Since when.
    pub last_transition_time: Option<String>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Happened {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The reason in a word.
    pub reason: String,
    /// The same at length.
    pub message: String,
    /// How often it was recorded.
    pub count: u32,
    /// When it was recorded last.
    pub last_seen: String,
}

/// What is known of a pod. `unread` names the answers that are missing.
pub fn describe(pod: &Pod, events: &[Event], unread: &[String]) -> Description {
    let (meta, spec, status) = (&pod.metadata, pod.spec.as_ref(), pod.status.as_ref());
    let of_spec = |field: Option<&Option<String>>| field.map(text).unwrap_or_default();
    let ips = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let ips: Vec<String> = match status.map(|status| text(&status.pod_ip)) {
        Some(ip) if ips.is_empty() && !ip.is_empty() => vec![ip],
        _ => ips.iter().map(|ip| neutralised(&ip.ip)).collect(),
    };
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true));
    let uid = meta.uid.as_deref().unwrap_or_default();
    let events = events.iter().filter(|event| event.pod_uid() == Some(uid));
    let account = spec.map(|spec| spec.service_account_name.as_ref().or(spec.service_account.as_ref()));
    let described = Description {
        name: text(&meta.name),
        namespace: text(&meta.namespace),
        uid: text(&meta.uid),
        priority: spec.and_then(|spec| spec.priority),
        priority_class: of_spec(spec.map(|spec| &spec.priority_class_name)),
        runtime_class: of_spec(spec.map(|spec| &spec.runtime_class_name)),
        service_account: account.flatten().map(|name| neutralised(name)).unwrap_or_default(),
        node: of_spec(spec.map(|spec| &spec.node_name)),
        host_ip: of_spec(status.map(|status| &status.host_ip)),
        start_time: status.and_then(|status| time(&status.start_time)),
        deletion_timestamp: time(&meta.deletion_timestamp),
        deletion_grace_seconds: meta.deletion_grace_period_seconds,
        labels: pairs(meta.labels.as_ref()),
        annotations: pairs(meta.annotations.as_ref()),
        phase: of_spec(status.map(|status| &status.phase)),
        reason: of_spec(status.map(|status| &status.reason)),
        message: of_spec(status.map(|status| &status.message)),
        ips,
        controlled_by: owner
            .map(|owner| neutralised(&format!("{}/{}", owner.kind, owner.name)))
            .unwrap_or_default(),
        qos_class: of_spec(status.map(|status| &status.qos_class)),
        node_selector: pairs(spec.and_then(|spec| spec.node_selector.as_ref())),
        tolerations: spec
            .into_iter()
            .flat_map(|spec| spec.tolerations.iter().flatten())
            .map(tolerated)
            .collect(),
        conditions: conditions(pod),
        volumes: spec
            .into_iter()
            .flat_map(|spec| spec.volumes.iter().flatten())
            .map(volume::volume)
            .collect(),
        events: events.map(happened).collect(),
        unread: unread.iter().map(|why| neutralised(why)).collect(),
        ..Description::default()
    };
    with_containers(pod, described)
}

fn with_containers(pod: &Pod, described: Description) -> Description {
    let Some(spec) = &pod.spec else { return described };
    let status = pod.status.as_ref();
    let each = |specs: &[Container], statuses: Option<&Vec<ContainerStatus>>| {
        let of = |name: &str| statuses.into_iter().flatten().find(|status| status.name == name);
        specs.iter().map(|spec| container::container(spec, of(&spec.name))).collect()
    };
    // An ephemeral container has the fields of a container, and one more.
    let later = spec.ephemeral_containers.iter().flatten();
    let later = later.filter_map(|later| serde_json::from_value(serde_json::to_value(later).ok()?).ok());
    let later: Vec<Container> = later.collect();
    Description {
        init_containers: each(
            spec.init_containers.as_deref().unwrap_or_default(),
            status.and_then(|status| status.init_container_statuses.as_ref()),
        ),
        containers: each(&spec.containers, status.and_then(|status| status.container_statuses.as_ref())),
        ephemeral_containers: each(
            &later,
            status.and_then(|status| status.ephemeral_container_statuses.as_ref()),
        ),
        ..described
    }
}

fn pairs(of: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    of.into_iter().flatten().map(|(key, value)| (neutralised(key), neutralised(value))).collect()
}

fn conditions(pod: &Pod) -> Vec<Condition> {
    let status = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let condition = status.map(|condition| Condition {
        type_: neutralised(&condition.type_),
        status: neutralised(&condition.status),
        reason: text(&condition.reason),
        message: text(&condition.message),
        last_transition_time: time(&condition.last_transition_time),
    });
    condition.collect()
}

/// A toleration in the words of kubectl.
fn tolerated(toleration: &Toleration) -> String {
    let mut said = text(&toleration.key);
    let mut add = |mark: &str, part: String| {
        if !part.is_empty() {
            said = format!("{said}{mark}{part}");
        }
    };
    add("=", text(&toleration.value));
    add(":", text(&toleration.effect));
    // The operator Equal is the usual one, and does without a word.
    let exists = toleration.operator.as_deref().filter(|operator| *operator != "Equal");
    add(" op=", exists.map(neutralised).unwrap_or_default());
    add(" for ", toleration.toleration_seconds.map(|seconds| format!("{seconds}s")).unwrap_or_default());
    said.trim().to_owned()
}

fn happened(event: &Event) -> Happened {
    Happened {
        event_type: neutralised(&event.event_type),
        reason: neutralised(&event.reason),
        message: neutralised(&event.message),
        count: event.count,
        last_seen: event.last_seen.to_string(),
    }
}
