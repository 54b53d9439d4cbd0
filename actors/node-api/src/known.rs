//! PURE: what actors answer, in the form in which `pod-why` reads the kubelet's own answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use messages::PodUid;
use messages::event_recorder::RecordedEvent;
use messages::facts::DesiredPods;
use pod_why::model::{Event, Supervision};
use pod_why::overview::Overview;
use serde::Serialize;

/// What is known of the node; with `only`, of this pod.
pub(crate) struct Known {
    /// Pods with their current statuses.
    pub pods: Vec<Pod>,
    /// Their events, oldest first.
    pub events: Vec<Event>,
    /// The actors.
    pub tree: Supervision,
    /// The answers that are missing, with the reason of each.
    pub unread: Vec<String>,
}

/// The answer of `/why` about all pods.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WhyAll {
    /// The kubelet's own release.
    pub understudy: &'static str,
    /// The release of Kubernetes whose kubelet it is.
    pub kubernetes: &'static str,
    /// The node and its pods.
    #[serde(flatten)]
    pub overview: Overview,
}

/// Pods with their current statuses; with `only`, this one alone.
pub(crate) fn pods_now(
    desired: &DesiredPods,
    statuses: &BTreeMap<PodUid, Arc<PodStatus>>,
    only: Option<&PodUid>,
) -> Vec<Pod> {
    let asked = desired.pods.iter().filter(|(uid, _)| only.is_none_or(|only| only == *uid));
    let now = asked.map(|(uid, desired)| {
        let Pod { metadata, spec, status } = &*desired.pod;
        let status = statuses.get(uid).map(|status| &**status).or(status.as_ref());
        Pod { metadata: metadata.clone(), spec: spec.clone(), status: status.cloned() }
    });
    now.collect()
}

/// Events as `/events` tells them; with `only`, those of this pod alone.
///
/// # Errors
/// An event cannot be written as JSON.
pub(crate) fn events_now(
    recorded: Vec<RecordedEvent>,
    only: Option<&PodUid>,
) -> serde_json::Result<Vec<Event>> {
    let asked = recorded.into_iter().filter(|event| only.is_none() || event.object.pod_uid() == only);
    asked.map(|event| serde_json::from_value(serde_json::to_value(event)?)).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use messages::PodRef;
    use messages::event_recorder::{EventObject, EventType};

    use super::*;

    #[test]
    fn events_are_those_of_the_pod_that_is_asked_for() {
        let event = |object| RecordedEvent {
            object,
            event_type: EventType::Warning,
            reason: "BackOff".into(),
            message: "m".into(),
            count: 2,
            first_seen: Timestamp::UNIX_EPOCH,
            last_seen: "2026-01-01T00:00:00Z".parse().unwrap(),
            annotations: Arc::default(),
        };
        let of = |uid: &str| {
            let pod = PodRef { uid: PodUid::new(uid), namespace: "n".into(), name: "p".into() };
            event(EventObject::Pod { pod, field_path: "spec.containers{c}".into() })
        };
        let all = || vec![of("u-1"), event(EventObject::Node), of("u-2")];
        assert_eq!(events_now(all(), None).unwrap().len(), 3);
        let one = events_now(all(), Some(&PodUid::new("u-2"))).unwrap();
        let [one] = one.as_slice() else { panic!("{one:?}") };
        assert_eq!((one.pod_uid(), one.count, one.event_type.as_str()), (Some("u-2"), 2, "Warning"));
        assert_eq!(one.last_seen.to_string(), "2026-01-01T00:00:00Z");
    }
}
