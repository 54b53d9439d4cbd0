//! PURE: the PodLists that `/pods` and `/runningpods/` show.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use messages::PodUid;
use messages::facts::DesiredPods;
use messages::runtime::{ContainerState, RuntimePod, RuntimePods};
use serde::Serialize;

/// A `v1` `PodList`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodList<T> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    items: Vec<T>,
}

#[derive(Serialize)]
struct Empty {}

/// A pod with its current status, neither of them copied: together they may be as large as the pods' authors made them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNow<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: &'a ObjectMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a PodSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a PodStatus>,
}

/// Every desired pod with its current status.
pub fn pod_list<'a>(
    desired: &'a DesiredPods,
    statuses: &'a BTreeMap<PodUid, Arc<PodStatus>>,
) -> PodList<PodNow<'a>> {
    let items = desired.pods.iter().map(|(uid, desired)| {
        let Pod { metadata, spec, status } = &*desired.pod;
        let status = statuses.get(uid).map(|status| &**status).or(status.as_ref());
        PodNow { api_version: "v1", kind: "Pod", metadata, spec: spec.as_ref(), status }
    });
    list(items.collect())
}

fn list<T>(items: Vec<T>) -> PodList<T> {
    PodList { kind: "PodList", api_version: "v1", metadata: Empty {}, items }
}

/// Every pod of which a container runs, as the runtime has it: names and images, and nothing else of a spec.
pub fn running_list(held: &RuntimePods) -> PodList<Pod> {
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
        let desired = DesiredPod {
            pod_ref: PodRef::of(&pod),
            pod,
            source: Source::File,
            rejected: None,
            made_anew: None,
        };
        let uid = PodUid::new("u");
        let desired =
            DesiredPods { pods: Arc::new([(uid.clone(), Arc::new(desired))].into()), sources_ready: true };
        let shown = serde_json::to_value(pod_list(&desired, &BTreeMap::new())).unwrap()["items"].take();
        assert_eq!(shown, serde_json::json!([&*desired.pods[&uid].pod]), "as the API shows pods");
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
