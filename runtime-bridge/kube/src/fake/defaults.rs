//! The defaults that the API server sets in pods and nodes.

use serde_json::{Map, Value, json};

fn default(fields: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    fields.entry(field.to_owned()).or_insert_with(|| value.into());
}

pub(super) fn pod(pod: &mut Value) {
    let Some(Value::Object(spec)) = pod.get_mut("spec") else { return };
    default(spec, "restartPolicy", "Always");
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "securityContext", json!({}));
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "enableServiceLinks", true);
    default(spec, "preemptionPolicy", "PreemptLowerPriority");
    default(spec, "priority", 0);
    if !spec.contains_key("tolerations") {
        let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        let keys = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
        spec.insert("tolerations".to_owned(), keys.map(toleration).to_vec().into());
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for entry in items(spec, list) {
            container(entry);
        }
    }
    for volume in items(spec, "volumes") {
        for source in ["secret", "configMap", "downwardAPI", "projected"] {
            if let Some(Value::Object(source)) = volume.get_mut(source) {
                default(source, "defaultMode", 0o644);
            }
        }
    }
}

fn items<'a>(
    fields: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let items = fields.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    default(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    default(container, "resources", json!({}));
    for port in items(container, "ports") {
        default(port, "protocol", "TCP");
    }
    for entry in items(container, "env") {
        if let Some(Value::Object(reference)) =
            entry.get_mut("valueFrom").and_then(|from| from.get_mut("fieldRef"))
        {
            default(reference, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(Value::Object(probe)) = container.get_mut(name) else { continue };
        for (field, value) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            default(probe, field, value);
        }
        if let Some(Value::Object(get)) = probe.get_mut("httpGet") {
            default(get, "path", "/");
            default(get, "scheme", "HTTP");
        }
    }
}

/// Sets the defaults of a Node: a runtime handler's name is present even when it is empty.
pub(super) fn node(node: &mut Value) {
    let handlers = node.pointer_mut("/status/runtimeHandlers").and_then(Value::as_array_mut);
    for handler in handlers.into_iter().flatten().filter_map(Value::as_object_mut) {
        handler.entry("name").or_insert_with(|| "".into());
    }
}
