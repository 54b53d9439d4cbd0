//! Merge patches (RFC 7396) and strategic merge patches, as pure changes of JSON.

use serde_json::{Map, Value};

/// What a strategic merge patch does to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListRule {
    /// The patch's list replaces the old one.
    Atomic,
    /// Items are merged with those that have the same value of this field.
    Keyed(&'static str),
    /// The list is a set of plain values, and the patch adds to it.
    Set,
}

/// The rule of the list at `field` within `parent`, for an object of `kind`.
fn rule(kind: &str, parent: &str, field: &str) -> ListRule {
    use ListRule::{Atomic, Keyed, Set};
    match (kind, parent, field) {
        (_, "metadata", "ownerReferences") => Keyed("uid"),
        (_, "metadata", "finalizers") | ("Node", "spec", "podCIDRs") => Set,
        ("Pod" | "Node" | "Service" | "PersistentVolumeClaim", "status", "conditions")
        | ("Node", "status", "addresses") => Keyed("type"),
        ("Pod", "status", "podIPs" | "hostIPs") | ("Pod", "spec", "hostAliases") => Keyed("ip"),
        ("Pod", "status", "resourceClaimStatuses") => Keyed("name"),
        (
            "Pod",
            "spec",
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "imagePullSecrets"
            | "resourceClaims"
            | "schedulingGates",
        ) => Keyed("name"),
        ("Pod", "spec", "topologySpreadConstraints") => Keyed("topologyKey"),
        ("Pod", _, "env") | ("ServiceAccount", _, "secrets" | "imagePullSecrets") => Keyed("name"),
        ("Pod", _, "ports") => Keyed("containerPort"),
        ("Service", "spec", "ports") => Keyed("port"),
        ("Pod", _, "volumeMounts") => Keyed("mountPath"),
        ("Pod", _, "volumeDevices") => Keyed("devicePath"),
        _ => Atomic,
    }
}

/// Applies a JSON merge patch (RFC 7396).
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (field, value) in patch {
        if value.is_null() {
            fields.remove(field);
        } else {
            merge(fields.entry(field.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Applies a strategic merge patch to an object of `kind`.
///
/// # Errors
/// An unknown directive, or an item without its merge key.
pub(super) fn strategic(target: &mut Value, patch: &Value, kind: &str) -> Result<(), String> {
    let (Value::Object(fields), Value::Object(patch)) = (target, patch) else {
        return Err("a patch must be an object".to_owned());
    };
    strategic_map(fields, patch, kind, "")
}

fn directive(patch: &Map<String, Value>) -> Result<Option<&str>, String> {
    match patch.get("$patch") {
        None => Ok(None),
        Some(Value::String(text)) if ["merge", "replace", "delete"].contains(&text.as_str()) => {
            Ok(Some(text))
        }
        Some(other) => Err(format!("Unknown patch type: {other}")),
    }
}

fn strategic_map(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    kind: &str,
    parent: &str,
) -> Result<(), String> {
    match directive(patch)? {
        Some("replace") => {
            *target =
                patch.iter().filter(|(f, _)| *f != "$patch").map(|(f, v)| (f.clone(), v.clone())).collect();
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        _ => {}
    }
    if let Some(Value::Array(kept)) = patch.get("$retainKeys") {
        target.retain(|field, _| kept.iter().any(|kept| kept == field));
    }
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Value::Array(gone)) = (target.get_mut(list), value) {
                items.retain(|item| !gone.contains(item));
            }
        } else if !field.starts_with('$') {
            strategic_field(target, field, value, kind, parent)?;
        }
    }
    Ok(())
}

fn strategic_field(
    target: &mut Map<String, Value>,
    field: &str,
    value: &Value,
    kind: &str,
    parent: &str,
) -> Result<(), String> {
    match value {
        Value::Null => {
            target.remove(field);
        }
        Value::Object(patch) if directive(patch)? == Some("delete") => {
            target.remove(field);
        }
        Value::Object(patch) => {
            let old = target.entry(field.to_owned()).or_insert(Value::Null);
            if !old.is_object() {
                *old = Value::Object(Map::new());
            }
            if let Value::Object(old) = old {
                strategic_map(old, patch, kind, field)?;
            }
        }
        Value::Array(patch) => {
            let old = target.entry(field.to_owned()).or_insert(Value::Array(Vec::new()));
            if !old.is_array() {
                *old = Value::Array(Vec::new());
            }
            if let Value::Array(old) = old {
                strategic_list(old, patch, kind, parent, field)?;
            }
        }
        plain => {
            target.insert(field.to_owned(), plain.clone());
        }
    }
    Ok(())
}

fn strategic_list(
    target: &mut Vec<Value>,
    patch: &[Value],
    kind: &str,
    parent: &str,
    field: &str,
) -> Result<(), String> {
    match rule(kind, parent, field) {
        ListRule::Atomic => *target = patch.to_vec(),
        ListRule::Set => {
            for value in patch {
                if !target.contains(value) {
                    target.push(value.clone());
                }
            }
        }
        ListRule::Keyed(key) => {
            let replaces = |item: &&Value| item.get("$patch") == Some(&Value::from("replace"));
            if patch.iter().any(|item| replaces(&item)) {
                target.clear();
            }
            for item in patch.iter().filter(|item| !replaces(item)) {
                strategic_item(target, item, key, kind, field)?;
            }
        }
    }
    Ok(())
}

fn strategic_item(
    target: &mut Vec<Value>,
    item: &Value,
    key: &str,
    kind: &str,
    field: &str,
) -> Result<(), String> {
    let Value::Object(patch) = item else {
        return Err(format!("{field}: an item must be an object"));
    };
    let Some(name) = patch.get(key) else {
        return Err(format!("map: {item} does not contain declared merge key: {key}"));
    };
    let found = target.iter().position(|old| old.get(key) == Some(name));
    match (directive(patch)?, found) {
        (Some("delete"), found) => {
            if let Some(found) = found {
                target.remove(found);
            }
        }
        (_, Some(found)) => {
            if let Value::Object(old) = &mut target[found] {
                strategic_map(old, patch, kind, field)?;
            }
        }
        (_, None) => {
            let mut new = Map::new();
            strategic_map(&mut new, patch, kind, field)?;
            target.push(Value::Object(new));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(kind: &str, mut target: Value, patch: Value) -> Value {
        strategic(&mut target, &patch, kind).unwrap();
        target
    }

    #[test]
    fn a_merge_patch_sets_removes_and_replaces_lists() {
        let mut target = json!({"a": 1, "b": {"c": 2, "d": 3}, "l": [1, 2]});
        merge(&mut target, &json!({"a": null, "b": {"c": 4}, "l": [3], "n": {"x": null, "y": 1}}));
        assert_eq!(target, json!({"b": {"c": 4, "d": 3}, "l": [3], "n": {"y": 1}}));
    }

    #[test]
    fn conditions_are_merged_by_type_and_deleted_by_directive() {
        let old = json!({"status": {"conditions": [
            {"type": "A", "status": "True", "reason": "r"}, {"type": "B", "status": "True"}]}});
        let patch = json!({"status": {
            "$setElementOrder/conditions": [{"type": "A"}, {"type": "C"}],
            "conditions": [{"type": "A", "status": "False", "reason": null}, {"type": "B", "$patch": "delete"},
                           {"type": "C", "status": "True"}]}});
        let new = json!({"status": {"conditions": [
            {"type": "A", "status": "False"}, {"type": "C", "status": "True"}]}});
        for kind in ["Node", "Pod", "PersistentVolumeClaim"] {
            assert_eq!(patched(kind, old.clone(), patch.clone()), new);
        }
    }

    #[test]
    fn lists_without_a_merge_key_are_replaced() {
        let old = json!({"status": {"images": [{"names": ["a"]}], "addresses": [{"type": "Hostname", "address": "x"}]}});
        let patch = json!({"status": {"images": [{"names": ["b"]}],
            "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}]}});
        let new = patched("Node", old, patch);
        assert_eq!(new.pointer("/status/images"), Some(&json!([{"names": ["b"]}])));
        assert_eq!(new.pointer("/status/addresses").unwrap().as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_whole_keyed_list_can_be_replaced() {
        let old = json!({"status": {"addresses": [{"type": "Hostname", "address": "x"}]}});
        let patch = json!({"status": {"addresses":
            [{"type": "InternalIP", "address": "1.2.3.4"}, {"$patch": "replace"}]}});
        let new = json!({"status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}]}});
        assert_eq!(patched("Node", old, patch), new);
    }

    #[test]
    fn containers_volumes_and_env_are_merged_by_name() {
        let old = json!({"spec": {
            "containers": [{"name": "a", "image": "i", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}],
            "volumes": [{"name": "v", "emptyDir": {}}]}});
        let patch = json!({"spec": {
            "containers": [{"name": "a", "image": "j", "env": [{"name": "Y", "value": "2"}]}],
            "volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}});
        let new = json!({"spec": {
            "containers": [{"name": "a", "image": "j", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
                           {"name": "b"}],
            "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}});
        assert_eq!(patched("Pod", old, patch), new);
    }

    #[test]
    fn maps_are_deleted_and_replaced_and_primitives_leave_sets() {
        let old =
            json!({"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}, "finalizers": ["f", "g"]}});
        let patch = json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}, "annotations": {"$patch": "delete"},
            "finalizers": ["h"], "$deleteFromPrimitiveList/finalizers": ["f"]}});
        let new = patched("Pod", old, patch);
        assert_eq!(new["metadata"]["labels"], json!({"c": "3"}));
        assert_eq!(new["metadata"].get("annotations"), None);
        let finalizers = new["metadata"]["finalizers"].as_array().unwrap();
        assert!(!finalizers.contains(&json!("f")) && finalizers.contains(&json!("h")), "{finalizers:?}");
    }

    #[test]
    fn what_cannot_be_merged_is_an_error() {
        let mut target = json!({});
        assert!(strategic(&mut target, &json!([]), "Pod").is_err());
        assert!(strategic(&mut target, &json!({"$patch": "burn"}), "Pod").is_err());
        let keyless = json!({"status": {"conditions": [{"status": "True"}]}});
        let error = strategic(&mut target, &keyless, "Pod").unwrap_err();
        assert!(error.contains("merge key: type"), "{error}");
    }
}
