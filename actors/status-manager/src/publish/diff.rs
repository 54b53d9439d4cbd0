//! PURE: the patch that gives the API server the kubelet's part of a pod's status; the parts of other writers stay as
//! they are.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use pod_spec::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::conditions::{DISRUPTION_TARGET, OWNED, READY};

/// The fields of a status that the kubelet alone writes, besides its conditions.
const FIELDS: [&str; 15] = [
    "observedGeneration",
    "phase",
    "message",
    "reason",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "qosClass",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "allocatedResources",
    "resources",
];
/// Lists that a strategic merge would merge by key rather than replace.
const MERGED_LISTS: [&str; 2] = ["hostIPs", "podIPs"];

/// The kubelet's part of a status, in one form for all that Kubernetes takes to be equal. `==` minds the order of
/// conditions, [`Part::patch_from`] does not.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Part {
    fields: Map<String, Value>,
    /// By type, in the order of the status.
    conditions: Vec<(String, Value)>,
}

impl Part {
    /// The part of a status as computed here or as the API server has it.
    pub(crate) fn of(status: Option<&PodStatus>) -> Self {
        let json = status.map(|status| {
            serde_json::to_value(status).expect("a PodStatus has string keys only, hence is JSON")
        });
        let Some(Value::Object(mut json)) = json else { return Self::default() };
        let mut part = Self::default();
        for field in FIELDS {
            if let Some(mut value) = json.remove(field).filter(says_something) {
                settle(&mut value, None);
                part.fields.insert(field.to_owned(), value);
            }
        }
        let Some(Value::Array(conditions)) = json.remove("conditions") else { return part };
        for condition in conditions {
            let name = condition.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            if OWNED.contains(&name.as_str()) || name == DISRUPTION_TARGET {
                part.conditions.push((name, condition));
            }
        }
        part
    }

    fn ready(&self) -> Option<&str> {
        self.condition(READY)?.get("status")?.as_str()
    }

    fn condition(&self, name: &str) -> Option<&Value> {
        self.conditions.iter().find(|(type_, _)| type_ == name).map(|(_, condition)| condition)
    }

    /// Whether endpoints and others wait for the change: the pod has become ready or has ceased to be, or has ended.
    pub(crate) fn is_urgent_after(&self, known: &Self) -> bool {
        let not_ready = pod_rules::conditions::status(false);
        self.ready().unwrap_or(not_ready) != known.ready().unwrap_or(not_ready)
            || self.fields.get("phase") != known.fields.get("phase")
    }

    /// The patch that turns `known` into this; `None` if they are equal.
    pub(crate) fn patch_from(&self, known: &Self, uid: &str) -> Option<Value> {
        let mut status = Map::new();
        for field in FIELDS {
            let (new, old) = (self.fields.get(field), known.fields.get(field));
            if new != old {
                status.insert(field.to_owned(), replaced(field, new));
            }
        }
        let conditions = self.conditions_from(known);
        if !conditions.is_empty() {
            status.insert("conditions".to_owned(), Value::Array(conditions));
        }
        (!status.is_empty()).then(|| json!({ "metadata": { "uid": uid }, "status": status }))
    }

    fn conditions_from(&self, known: &Self) -> Vec<Value> {
        let known_as = |name: &str| known.condition(name);
        let changed = self.conditions.iter().filter(|(name, new)| known_as(name) != Some(new));
        let mut changed: Vec<Value> = changed.map(|(name, new)| with_nulls(new, known_as(name))).collect();
        // DisruptionTarget is never taken away: another writer may have set it.
        let gone = known.conditions.iter().map(|(name, _)| name);
        let gone = gone.filter(|name| self.condition(name).is_none() && *name != DISRUPTION_TARGET);
        changed.extend(gone.map(|name| json!({ "$patch": "delete", "type": name })));
        changed
    }
}

/// The pod's UID at the API server.
pub(crate) fn uid_of(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn replaced(field: &str, value: Option<&Value>) -> Value {
    match value {
        None if MERGED_LISTS.contains(&field) => json!([{ "$patch": "replace" }]),
        None => Value::Null,
        Some(Value::Array(items)) if MERGED_LISTS.contains(&field) => {
            let all = std::iter::once(json!({ "$patch": "replace" })).chain(items.iter().cloned());
            Value::Array(all.collect())
        }
        // An object is merged key by key: a key that is gone has to be named, which the marker does for the whole
        // object.
        Some(Value::Object(fields)) => {
            let mut fields = fields.clone();
            fields.insert("$patch".to_owned(), Value::from("replace"));
            Value::Object(fields)
        }
        Some(value) => value.clone(),
    }
}

/// A condition is merged key by key: a field that is gone is set to null.
fn with_nulls(new: &Value, old: Option<&Value>) -> Value {
    let mut new = new.clone();
    if let (Value::Object(new), Some(Value::Object(old))) = (&mut new, old) {
        for key in old.keys() {
            new.entry(key.clone()).or_insert(Value::Null);
        }
    }
    new
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) => true,
    }
}

/// Puts a value in one form: the API server writes quantities in its own way and leaves out what is empty.
fn settle(value: &mut Value, name: Option<&str>) {
    match value {
        Value::Object(fields) => {
            let quantities = matches!(name, Some("allocatedResources" | "limits" | "requests"));
            for (key, value) in fields.iter_mut() {
                match value {
                    Value::String(text) if quantities => {
                        if let Ok(quantity) = Quantity::parse(text) {
                            *text = quantity.to_string();
                        }
                    }
                    _ => settle(value, Some(key)),
                }
            }
            fields.retain(|_, value| !value.is_null() && *value != json!([]) && *value != json!({}));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| settle(item, None)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(json: Value) -> Part {
        Part::of(Some(&serde_json::from_value::<PodStatus>(json).unwrap()))
    }

    fn condition(name: &str, status: &str) -> Value {
        json!({ "type": name, "status": status, "lastTransitionTime": "2026-05-01T12:00:00Z" })
    }

    #[test]
    fn the_same_is_not_sent_again() {
        let ours = part(json!({
            "phase": "Running",
            "conditions": [condition("Ready", "True"), condition("example.com/theirs", "True")],
            "containerStatuses": [{
                "name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "resources": { "limits": { "cpu": "1000m" } }
            }]
        }));
        let theirs = part(json!({
            "phase": "Running",
            "message": "",
            "conditions": [condition("example.com/theirs", "False"), condition("Ready", "True")],
            "containerStatuses": [{
                "name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "lastState": {},
                "resources": { "limits": { "cpu": "1" } }
            }]
        }));
        assert_eq!(ours.patch_from(&theirs, "u"), None);
    }

    #[test]
    fn only_what_has_changed_is_sent_with_the_uid_it_is_meant_for() {
        let old = part(json!({
            "phase": "Pending", "reason": "r", "podIPs": [{ "ip": "10.0.0.1" }],
            "conditions": [
                { "type": "Ready", "status": "False", "reason": "ContainersNotReady" },
                condition("PodScheduled", "True")
            ]
        }));
        let new = part(json!({
            "phase": "Running", "podIPs": [{ "ip": "10.0.0.2" }],
            "conditions": [{ "type": "Ready", "status": "True" }, condition("PodScheduled", "True")]
        }));
        assert!(new.is_urgent_after(&old));
        assert_eq!(
            new.patch_from(&old, "u-1"),
            Some(json!({
                "metadata": { "uid": "u-1" },
                "status": {
                    "phase": "Running",
                    "reason": null,
                    "podIPs": [{ "$patch": "replace" }, { "ip": "10.0.0.2" }],
                    "conditions": [{ "type": "Ready", "status": "True", "reason": null }]
                }
            }))
        );
    }

    #[test]
    fn conditions_of_others_are_left_and_ours_are_taken_back() {
        let old = part(json!({ "conditions": [
            condition("understudy.dev/Quarantined", "True"),
            condition("DisruptionTarget", "True"),
            condition("example.com/gate", "True")
        ] }));
        let patch = Part::default().patch_from(&old, "u").unwrap();
        let deleted = json!([{ "$patch": "delete", "type": "understudy.dev/Quarantined" }]);
        assert_eq!(patch["status"]["conditions"], deleted);
    }

    #[test]
    fn a_container_that_restarts_is_of_the_crowd() {
        let of = |count: i32| {
            part(json!({ "phase": "Running", "containerStatuses": [{
                "name": "a", "image": "i", "imageID": "", "ready": false, "restartCount": count
            }] }))
        };
        assert!(!of(1).is_urgent_after(&of(0)));
        assert!(of(1).patch_from(&of(0), "u").is_some());
    }
}
