//! Pods and events as the kubelet's read-only port shows them.

use serde_json::Value;

/// A pod as `/pods` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView(pub Value);

impl PodView {
    pub fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub fn phase(&self) -> &str {
        self.text("/status/phase")
    }

    pub fn ip(&self) -> &str {
        self.text("/status/podIP")
    }

    pub fn status(&self) -> &Value {
        &self.0["status"]
    }

    /// `name_namespace(uid)`, the form of events and messages.
    pub fn reference(&self) -> String {
        format!("{}_{}({})", self.name(), self.namespace(), self.uid())
    }

    /// A condition; null if there is none of this type.
    pub fn condition(&self, kind: &str) -> &Value {
        let conditions = self.status()["conditions"].as_array();
        conditions.and_then(|all| all.iter().find(|one| one["type"] == kind)).unwrap_or(&Value::Null)
    }

    pub fn is_ready(&self) -> bool {
        self.condition("Ready")["status"] == "True"
    }

    /// The status of a container, init or not; null if there is none.
    pub fn container(&self, name: &str) -> &Value {
        let lists = ["containerStatuses", "initContainerStatuses"];
        let mut all = lists.iter().filter_map(|list| self.status()[list].as_array()).flatten();
        all.find(|status| status["name"] == name).unwrap_or(&Value::Null)
    }

    pub fn restarts(&self, name: &str) -> i64 {
        self.container(name)["restartCount"].as_i64().unwrap_or(-1)
    }

    /// The runtime's ID of a container's newest instance, without `containerd://`.
    pub fn container_id(&self, name: &str) -> &str {
        let id = self.container(name)["containerID"].as_str().unwrap_or_default();
        id.strip_prefix("containerd://").unwrap_or(id)
    }

    /// Reason and message with which a container waits.
    pub fn waiting(&self, name: &str) -> (&str, &str) {
        let waiting = &self.container(name)["state"]["waiting"];
        (waiting["reason"].as_str().unwrap_or_default(), waiting["message"].as_str().unwrap_or_default())
    }

    /// The terminated state of a container; null if it has not ended.
    pub fn terminated(&self, name: &str) -> &Value {
        &self.container(name)["state"]["terminated"]
    }

    pub fn is_running(&self, name: &str) -> bool {
        self.container(name)["state"]["running"].is_object()
    }
}

/// An event as `/events` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The UID of the pod that the event is about, or empty.
    pub pod: String,
    /// The field of the pod.
    pub field: String,
    /// The file that the event is about, or empty.
    pub manifest: String,
    /// Normal or Warning.
    pub kind: String,
    pub reason: String,
    pub message: String,
}

impl Event {
    pub fn of(event: &Value) -> Self {
        let text =
            |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            pod: text("/object/pod/pod/uid"),
            field: text("/object/pod/fieldPath"),
            manifest: text("/object/manifest/path"),
            kind: text("/type"),
            reason: text("/reason"),
            message: text("/message"),
        }
    }
}
