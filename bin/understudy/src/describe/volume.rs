//! PURE: what is known of a volume, whatever kind it is: the fields of its source.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Volume;
use serde::Serialize;
use serde_json::Value;

use crate::view::text::neutralised;

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// Where it comes from, as the spec's field is called: `emptyDir`, `configMap` …; empty if it comes from nowhere.
    pub kind: String,
    /// The fields of its source; those that are no plain values are JSON.
    pub fields: BTreeMap<String, String>,
}

/// What is known of a volume.
pub fn volume(volume: &Volume) -> Described {
    let value = serde_json::to_value(volume).unwrap_or_default();
    let source = value.as_object().into_iter().flatten().find(|(field, _)| field.as_str() != "name");
    let (kind, fields) = match source {
        Some((kind, source)) => (neutralised(kind), source.as_object().cloned().unwrap_or_default()),
        None => Default::default(),
    };
    let fields = fields.iter().map(|(field, value)| (neutralised(field), neutralised(&shown(value))));
    Described { name: neutralised(&volume.name), kind, fields: fields.collect() }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
