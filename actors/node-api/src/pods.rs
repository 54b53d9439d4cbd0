//! PURE: the PodLists that `/pods` and `/runningpods/` show.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use messages::PodUid;
use messages::facts::DesiredPods;
use messages::runtime::{ContainerState, RuntimePod, RuntimePods};
use serde::Serialize;

/// A `v1` `PodList`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodList {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    items: Vec<Pod>,
}

#[derive(Serialize)]
struct Empty {}

/// Every desired pod with its current status.
pub fn pod_list(desired: &DesiredPods, statuses: &BTreeMap<PodUid, Arc<PodStatus>>) -> PodList {
    let item = |(uid, pod): (&PodUid, &Arc<messages::facts::DesiredPod>)| {
        let mut item = Pod::clone(&pod.pod);
        if let Some(status) = statuses.get(uid) {
            item.status = Some(PodStatus::clone(status));
        }
        item
    };
    list(desired.pods.iter().map(item).collect())
}

fn list(items: Vec<Pod>) -> PodList {
    PodList { kind: "PodList", api_version: "v1", metadata: Empty {}, items }
}

/// Every pod of which something runs, as the runtime tells it: names and images, and nothing of a spec.
pub fn running_list(held: &RuntimePods) -> PodList {
    let item = |held: &Arc<RuntimePod>| {
        let running = held.containers.iter().filter(|one| one.state == ContainerState::Running);
        let containers = running.map(|one| Container {
            name: one.name.to_string(),
            image: Some(one.image.to_string()),
            ..Container::default()
        });
        let containers: Vec<Container> = containers.collect();
        if containers.is_empty() && held.ready_sandbox().is_none() {
            return None;
        }
        let mut item = Pod::default();
        item.metadata.name = Some(held.pod.name.to_string());
        item.metadata.namespace = Some(held.pod.namespace.to_string());
        item.metadata.uid = Some(held.pod.uid.to_string());
        item.spec = Some(PodSpec { containers, ..PodSpec::default() });
        Some(item)
    };
    list(held.values().filter_map(item).collect())
}

#[cfg(test)]
mod tests {
    use messages::PodRef;
    use messages::facts::{DesiredPod, Source};

    use super::*;

    #[test]
    fn a_pod_shows_its_current_status() {
        let mut pod = Pod::default();
        pod.metadata.uid = Some("u".to_owned());
        pod.status = Some(PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() });
        let pod = Arc::new(pod);
        let desired = DesiredPod { pod_ref: PodRef::of(&pod), pod, source: Source::File, rejected: None };
        let uid = PodUid::new("u");
        let desired =
            DesiredPods { pods: Arc::new([(uid.clone(), Arc::new(desired))].into()), sources_ready: true };
        let phase = |statuses: &BTreeMap<_, _>| {
            serde_json::to_value(pod_list(&desired, statuses)).unwrap()["items"][0]["status"]["phase"].clone()
        };
        assert_eq!(phase(&BTreeMap::new()), "Pending");
        let running = PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() };
        assert_eq!(phase(&[(uid, Arc::new(running))].into()), "Running");
    }

    #[test]
    fn an_empty_node_has_an_empty_list() {
        let desired = DesiredPods { pods: Arc::default(), sources_ready: false };
        let list = serde_json::to_value(pod_list(&desired, &BTreeMap::new())).unwrap();
        assert_eq!(
            list,
            serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []})
        );
    }
}
