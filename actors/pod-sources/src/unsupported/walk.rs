//! The walk over a pod's fields.

use pod_rules::errors::cut;
use serde_json::{Map, Value};

use super::{Rule, Supported, UnsupportedField};

/// At most so many unsupported fields of a pod are told: its author chooses how many there are.
const FIELDS_MAX: usize = 256;
/// The most bytes of a value that are told.
const VALUE_BYTES_MAX: usize = 1024;
const NOT_DONE: &str = "is not supported by this version of the kubelet";

/// Adds the unsupported fields of `pod` to `found`.
pub(super) fn check(pod: &Value, supported: &Supported, found: &mut Vec<UnsupportedField>) {
    if let Value::Object(fields) = pod {
        object(fields, &Place::default(), supported, found);
    }
}

/// The place of the walk: the path with indexes, which people see, and the path without, for the table.
#[derive(Clone, Debug, Default)]
struct Place {
    shown: String,
    row: String,
}

impl Place {
    fn field(&self, name: &str) -> Self {
        let dot = if self.shown.is_empty() { "" } else { "." };
        Self { shown: format!("{}{dot}{name}", self.shown), row: format!("{}{dot}{name}", self.row) }
    }

    fn index(&self, index: usize) -> Self {
        Self { shown: format!("{}[{index}]", self.shown), row: self.row.clone() }
    }

    fn report(&self, reason: impl Into<String>, found: &mut Vec<UnsupportedField>) {
        if found.len() >= FIELDS_MAX {
            return;
        }
        found.push(UnsupportedField { path: self.shown.clone(), reason: reason.into() });
    }
}

fn object(
    fields: &Map<String, Value>,
    place: &Place,
    supported: &Supported,
    found: &mut Vec<UnsupportedField>,
) {
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        field(value, &place.field(name), supported, found);
    }
}

fn field(value: &Value, place: &Place, supported: &Supported, found: &mut Vec<UnsupportedField>) {
    match supported.rule(&place.row) {
        Some(Rule::Yes | Rule::NotOurs) => {}
        Some(Rule::Only(allowed)) => {
            let mut text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if !allowed.contains(&text.as_str()) {
                cut(&mut text, VALUE_BYTES_MAX);
                let list = allowed.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ");
                place.report(format!("{text:?} {NOT_DONE}, which knows {list}"), found);
            }
        }
        Some(Rule::Empty) => not_empty(value, place, found),
        Some(Rule::Within) => within(value, place, supported, found),
        None => place.report(NOT_DONE, found),
    }
}

/// Reports the innermost fields that are not empty.
fn not_empty(value: &Value, place: &Place, found: &mut Vec<UnsupportedField>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if !is_empty(value) || !matches!(value, Value::Object(_) | Value::Array(_)) {
                    place.field(name).report(NOT_DONE, found);
                }
            }
        }
        value if is_empty(value) => {}
        _ => place.report(NOT_DONE, found),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn within(value: &Value, place: &Place, supported: &Supported, found: &mut Vec<UnsupportedField>) {
    match value {
        Value::Object(fields) => object(fields, place, supported, found),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                within(item, &place.index(index), supported, found);
            }
        }
        // The table has rules for fields here; a plain value fits none of them.
        _ => place.report(NOT_DONE, found),
    }
}
