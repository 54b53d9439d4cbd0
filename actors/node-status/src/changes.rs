//! PURE: whether a Node's status differs, and the strategic-merge patch from one to the other. A patch only has the
//! fields that the kubelet changes, so that concurrent changes of other writers stay.

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use serde_json::{Map, Value, json};

fn without_heartbeats(status: Option<&NodeStatus>) -> NodeStatus {
    let mut status = status.cloned().unwrap_or_default();
    let conditions = status.conditions.get_or_insert_default();
    conditions.iter_mut().for_each(|condition: &mut NodeCondition| condition.last_heartbeat_time = None);
    conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
    status
}

/// Whether anything differs besides the conditions' heartbeats and order.
pub fn changed(before: &Node, after: &Node) -> bool {
    before.metadata.labels != after.metadata.labels
        || before.metadata.annotations != after.metadata.annotations
        || without_heartbeats(before.status.as_ref()) != without_heartbeats(after.status.as_ref())
}

/// The fields that differ, nested objects likewise; lists as a whole; null for fields that are gone.
fn differences(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, new) in after {
        match (before.get(key), new) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                patch.insert(key.clone(), Value::Object(differences(old, new)));
            }
            _ => {
                patch.insert(key.clone(), new.clone());
            }
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    patch
}

fn object(value: Option<&Value>) -> Map<String, Value> {
    value.and_then(Value::as_object).cloned().unwrap_or_default()
}

fn list(status: &Map<String, Value>, key: &str) -> Vec<Value> {
    status.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The conditions that differ; the server merges them by type.
fn conditions(before: &[Value], after: &[Value]) -> Vec<Value> {
    let patch = |condition: &Value| {
        let old = before.iter().find(|old| old["type"] == condition["type"]);
        let mut fields = differences(&object(old), &object(Some(condition)));
        if fields.is_empty() {
            return None;
        }
        fields.insert("type".to_owned(), condition["type"].clone());
        Some(Value::Object(fields))
    };
    after.iter().filter_map(patch).collect()
}

fn json_of(node: &Node) -> Value {
    serde_json::to_value(node).expect("a Node is made of text, numbers and lists")
}

/// The patch that turns `before` into `after`, without the spec.
pub fn patch(before: &Node, after: &Node) -> Value {
    let (old, new) = (json_of(before), json_of(after));
    let mut metadata = Map::new();
    for key in ["labels", "annotations"] {
        let of = |node: &Value| object(node.pointer(&format!("/metadata/{key}")));
        let changes = differences(&of(&old), &of(&new));
        if !changes.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(changes));
        }
    }
    let (old, new) = (object(old.get("status")), object(new.get("status")));
    let mut status = differences(&old, &new);
    if status.remove("conditions").is_some() {
        let (old, new) = (list(&old, "conditions"), list(&new, "conditions"));
        let order: Vec<Value> = new.iter().map(|condition| json!({ "type": condition["type"] })).collect();
        status.insert("$setElementOrder/conditions".to_owned(), Value::Array(order));
        status.insert("conditions".to_owned(), Value::Array(conditions(&old, &new)));
    }
    if status.contains_key("addresses") {
        // The API declares them to be merged by type, though there may be several of one type; so the list is replaced.
        let mut addresses = list(&new, "addresses");
        addresses.push(json!({ "$patch": "replace" }));
        status.insert("addresses".to_owned(), Value::Array(addresses));
    }
    let mut patch = Map::new();
    for (key, part) in [("metadata", metadata), ("status", status)] {
        if !part.is_empty() {
            patch.insert(key.to_owned(), Value::Object(part));
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NodeAddress;

    use super::*;
    use crate::config::test_config;
    use crate::status::tests::made;

    #[test]
    fn a_heartbeat_only_has_heartbeats() {
        let before = made(&Node::default(), &test_config(), 1).node;
        let after = made(&before, &test_config(), 61).node;
        assert!(!changed(&before, &after));
        let types = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
        let beat = |kind: &str| json!({"type": kind, "lastHeartbeatTime": "1970-01-01T00:01:01Z"});
        assert_eq!(
            patch(&before, &after),
            json!({"status": {
                "$setElementOrder/conditions": types.map(|kind| json!({"type": kind})),
                "conditions": types.map(beat),
            }})
        );
    }

    #[test]
    fn what_others_have_written_is_no_part_of_it() {
        let mut before = made(&Node::default(), &test_config(), 1).node;
        let status = before.status.as_mut().expect("a status");
        status.conditions.as_mut().expect("conditions").insert(
            0,
            NodeCondition { type_: "Theirs".into(), status: "True".into(), ..NodeCondition::default() },
        );
        status.volumes_attached = Some(Vec::new());
        before.metadata.labels.get_or_insert_default().insert("their".into(), "label".into());
        let mut after = made(&before, &test_config(), 1).node;
        assert_eq!(patch(&before, &after), json!({}));
        after.status.as_mut().expect("a status").images = Some(Vec::new());
        assert_eq!(patch(&before, &after), json!({"status": {"images": []}}));
    }

    #[test]
    fn addresses_and_resources_that_are_gone_go() {
        let before = made(&Node::default(), &test_config(), 1).node;
        let mut after = before.clone();
        let status = after.status.as_mut().expect("a status");
        let address = NodeAddress { type_: "InternalIP".into(), address: "10.0.0.2".into() };
        status.addresses = Some(vec![address]);
        status.capacity.as_mut().expect("a capacity").remove("pods");
        after.metadata.labels.get_or_insert_default().remove("kubernetes.io/os");
        assert!(changed(&before, &after));
        assert_eq!(
            patch(&before, &after),
            json!({
                "metadata": {"labels": {"kubernetes.io/os": null}},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}, {"$patch": "replace"}],
                    "capacity": {"pods": null},
                },
            })
        );
    }
}
