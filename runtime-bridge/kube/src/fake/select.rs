//! Field selectors.

use serde_json::Value;

use super::refusal::Refusal;
use super::resources::Resource;

/// A selection of objects of one kind; all its conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    namespace: Option<String>,
    /// Conditions: the field, whether it must be equal, and the value.
    fields: Vec<(String, bool, String)>,
}

/// The fields that a selector may use, besides name and namespace.
fn selectable(resource: &Resource) -> &'static [&'static str] {
    match resource.plural {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "secrets" => &["type"],
        "certificatesigningrequests" => &["spec.signerName"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "reportingComponent",
            "type",
        ],
        _ => &[],
    }
}

impl Selector {
    pub fn read(resource: &Resource, namespace: Option<&str>, text: &str) -> Result<Self, Refusal> {
        let mut fields = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (field, equal, value) = if let Some((field, value)) = part.split_once("!=") {
                (field, false, value)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, true, value)
            } else {
                return Err(Refusal::bad_request(format!(
                    "invalid selector: {text:?}; can't understand {part:?}"
                )));
            };
            let known = matches!(field, "metadata.name" | "metadata.namespace");
            if !known && !selectable(resource).contains(&field) {
                return Err(Refusal::bad_request(format!("field label not supported: {field}")));
            }
            fields.push((field.to_owned(), equal, value.to_owned()));
        }
        Ok(Self { namespace: namespace.map(str::to_owned), fields })
    }

    pub fn matches(&self, object: &Value) -> bool {
        let at = |field: &str| match object.pointer(&format!("/{}", field.replace('.', "/"))) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(value)) => value.to_string(),
            _ => String::new(),
        };
        self.namespace.as_ref().is_none_or(|namespace| at("metadata.namespace") == *namespace)
            && self.fields.iter().all(|(field, equal, value)| (at(field) == *value) == *equal)
    }
}
