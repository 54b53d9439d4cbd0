//! The lifecycle of each kind of objects: the fields set at creation, the fields kept at updates, and deletion.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::resources::Resource;

/// A time in whole seconds, as `metav1.Time` has it.
pub(super) fn time(at: Timestamp) -> Value {
    Timestamp::from_second(at.as_second()).map_or(Value::Null, |at| at.to_string().into())
}

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Sets `metadata.FIELD`, or removes it.
pub(super) fn set_meta(object: &mut Value, field: &str, value: Option<Value>) {
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    match value {
        Some(value) => object["metadata"][field] = value,
        None => {
            if let Some(fields) = object["metadata"].as_object_mut() {
                fields.remove(field);
            }
        }
    }
}

fn has_finalizers(object: &Value) -> bool {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// Whether a name is a DNS subdomain, as the names of most objects must be.
fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        label.bytes().all(|byte| plain(byte) || byte == b'-')
            && label.bytes().next().is_some_and(plain)
            && label.bytes().next_back().is_some_and(plain)
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Whether an object's content is accepted.
pub(super) fn validate(resource: &Resource, object: &Value) -> Result<(), Refusal> {
    let name = text(object, "/metadata/name");
    let invalid = |why: &str| Err(Refusal::invalid(resource, name, why));
    if name.is_empty() {
        return invalid("metadata.name: Required value: name or generateName is required");
    }
    // The names of certificate signing requests are free.
    if !is_name(name) && resource.plural != "certificatesigningrequests" {
        let why = format!(
            "metadata.name: Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case \
             alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        );
        return invalid(&why);
    }
    match resource.plural {
        "pods" => {
            let containers = object.pointer("/spec/containers").and_then(Value::as_array);
            if containers.is_none_or(Vec::is_empty) {
                return invalid("spec.containers: Required value");
            }
        }
        "leases" => {
            let seconds = object.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64);
            if let Some(seconds) = seconds.filter(|seconds| *seconds <= 0) {
                return invalid(&format!(
                    "spec.leaseDurationSeconds: Invalid value: {seconds}: must be greater than 0"
                ));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Sets the fields of a new object that its creator leaves out.
pub(super) fn born(resource: &Resource, object: &mut Value, now: Timestamp, uid: String) {
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind.into();
    set_meta(object, "uid", Some(uid.into()));
    set_meta(object, "creationTimestamp", Some(time(now)));
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        set_meta(object, field, None);
    }
    match resource.plural {
        "pods" => {
            super::defaults::pod(object);
            set_meta(object, "generation", Some(1.into()));
            object["status"] = json!({"phase": "Pending"});
        }
        "nodes" => super::defaults::node(object),
        "certificatesigningrequests" => object["status"] = json!({}),
        "namespaces" => object["status"] = json!({"phase": "Active"}),
        // Other kinds keep the status that they are created with: a node registers with its own.
        _ => {}
    }
}

/// Undoes the parts of `new` that an update of `old` may not change.
pub(super) fn updated(
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    subresource: Option<&str>,
    patched: bool,
) -> Result<(), Refusal> {
    let name = text(old, "/metadata/name");
    let uid = text(old, "/metadata/uid");
    let other = text(new, "/metadata/uid");
    if !other.is_empty() && other != uid {
        // The server treats another UID in a patch as a change of the UID, and in a replacement as another object.
        if patched {
            let why = format!("metadata.uid: Invalid value: {other:?}: field is immutable");
            return Err(Refusal::invalid(resource, name, &why));
        }
        let why = format!("Precondition failed: UID in precondition: {other}, UID in object meta: {uid}");
        return Err(Refusal::conflict(resource, name, &why));
    }
    object_kind(resource, new);
    let kept = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ];
    for field in kept {
        set_meta(new, field, old["metadata"].get(field).cloned());
    }
    let keep = |new: &mut Value, part: &str| match old.get(part) {
        Some(value) => new[part] = value.clone(),
        None => {
            if let Some(fields) = new.as_object_mut() {
                fields.remove(part);
            }
        }
    };
    match subresource {
        // A status update may change labels and annotations, too.
        Some("status") => {
            keep(new, "spec");
            set_meta(new, "ownerReferences", old["metadata"].get("ownerReferences").cloned());
        }
        Some("approval") => {
            let conditions = new.pointer("/status/conditions").cloned();
            keep(new, "spec");
            keep(new, "status");
            if let Some(conditions) = conditions {
                new["status"]["conditions"] = conditions;
            }
        }
        Some(_) => return Err(Refusal::unknown_path()),
        None if resource.status => keep(new, "status"),
        None => {}
    }
    if resource.plural == "nodes" {
        super::defaults::node(new);
    }
    if resource.plural == "pods" && subresource.is_none() && old.get("spec") != new.get("spec") {
        pod_spec_updated(resource, old, new)?;
    }
    Ok(())
}

fn object_kind(resource: &Resource, object: &mut Value) {
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind.into();
}

/// Checks an update of a pod's spec: only few fields may change, and each change makes a new generation.
fn pod_spec_updated(resource: &Resource, old: &Value, new: &mut Value) -> Result<(), Refusal> {
    let without = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            for field in [
                "activeDeadlineSeconds",
                "terminationGracePeriodSeconds",
                "tolerations",
                "ephemeralContainers",
            ] {
                fields.remove(field);
            }
            for list in ["containers", "initContainers"] {
                for container in fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    container["image"] = Value::Null;
                }
            }
        }
        spec
    };
    if without(old) != without(new) {
        let why = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                   existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        return Err(Refusal::invalid(resource, text(old, "/metadata/name"), why));
    }
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
    set_meta(new, "generation", Some((generation + 1).into()));
    Ok(())
}

/// The result of a deletion.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    /// The object is removed.
    Removed,
    /// The object stays, marked as deleted, in this form.
    Marked(Value),
    /// The object does not change.
    Unchanged,
}

/// Deletes an object with the requested grace, in seconds.
pub(super) fn deleted(resource: &Resource, object: &Value, asked_s: Option<i64>, now: Timestamp) -> End {
    let grace = if resource.plural == "pods" { pod_grace(object, asked_s) } else { 0 };
    let leaving = object["metadata"].get("deletionTimestamp").is_some();
    let before = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    if grace == 0 && !has_finalizers(object) {
        return End::Removed;
    }
    if leaving && before.is_none_or(|before| grace >= before) {
        return End::Unchanged;
    }
    let mut marked = object.clone();
    let asked_at = if leaving {
        // The grace counts from the first deletion, but never ends in the past.
        let end = text(object, "/metadata/deletionTimestamp").parse::<Timestamp>().unwrap_or(now);
        let begun = end.as_second().saturating_sub(before.unwrap_or(0));
        Timestamp::from_second(begun.max(now.as_second().saturating_sub(grace))).unwrap_or(now)
    } else {
        now
    };
    let end = Timestamp::from_second(asked_at.as_second().saturating_add(grace)).unwrap_or(asked_at);
    set_meta(&mut marked, "deletionTimestamp", Some(time(end)));
    set_meta(&mut marked, "deletionGracePeriodSeconds", Some(grace.into()));
    if let Some(generation) = object.pointer("/metadata/generation").and_then(Value::as_i64) {
        set_meta(&mut marked, "generation", Some((generation + 1).into()));
    }
    End::Marked(marked)
}

fn pod_grace(pod: &Value, asked_s: Option<i64>) -> i64 {
    let default = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    let unbound = text(pod, "/spec/nodeName").is_empty();
    let ended = matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
    if unbound || ended {
        return 0;
    }
    match asked_s.unwrap_or(default) {
        negative if negative < 0 => 1,
        grace => grace,
    }
}

/// Whether an object that is being deleted can be removed: nothing holds it any more.
pub(super) fn is_finished(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
        && object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) == 0
        && !has_finalizers(object)
}
