//! Texts that many files have: YAML, quantities, durations, references to variables, quotes.

use bridge_node::host::node_hostname;
use pod_rules::durations::GoDuration;
use pod_rules::go_json;
use pod_spec::downward::go_quoted;
use pod_spec::expansion::{Budget, expand};
use pod_spec::quantity::Quantity;
use serde_json::Value;

/// The most bytes that an expansion may have.
const EXPANDED_BYTES_MAX: usize = 4096;
/// A longer text may be more than is read: aliases expand.
const WRITTEN_BYTES_MAX: usize = 1 << 20;

/// YAML and JSON.
pub fn yaml(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (strict, lenient) = (bridge_text::strict_value(&text), bridge_text::value(&text));
    for json in [strict, lenient].into_iter().flatten() {
        // The parser of JSON rounds some fractions in another way.
        if !json.is_object() || has_fractions(&json) {
            continue;
        }
        let written = json.to_string();
        if written.len() <= WRITTEN_BYTES_MAX {
            assert_eq!(bridge_text::strict_value(&written), Ok(json), "what was read is read again");
        }
    }
}

fn has_fractions(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fractions),
        Value::Object(fields) => fields.values().any(has_fractions),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Quantities of resources.
pub fn quantity(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(quantity) = Quantity::parse(&text) else { return };
    let written = quantity.to_string();
    assert!(written.len() < 64, "{written}");
    assert_eq!(Quantity::parse(&written), Ok(quantity), "{written}");
    assert!(quantity.rounded_up_to_milli().plus(quantity).minus(quantity).to_string().len() < 64);
    let _ = (quantity.units_rounded_up(), quantity.millis_rounded_up());
}

/// Durations in Go's form.
pub fn duration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(duration) = GoDuration::parse(&text) else { return };
    let written = duration.to_string();
    assert_eq!(GoDuration::parse(&written), Ok(duration), "{written}");
    let _ = duration.as_std();
}

/// References to variables in commands.
pub fn expansion(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let long = "x".repeat(1000);
    let lookup = |name: &str| match name {
        "A" => Some("1"),
        "B" => Some("$(A)"),
        "LONG" => Some(long.as_str()),
        _ => None,
    };
    let Ok(expanded) = expand(&text, lookup, &mut Budget::of(EXPANDED_BYTES_MAX)) else { return };
    assert!(expanded.len() <= EXPANDED_BYTES_MAX);
    assert!(text.contains('$') || expanded == text, "{expanded}");
}

/// Any text in quotes, and as a name of the node.
pub fn texts(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let read: Result<String, _> = serde_json::from_str(&go_json::string(&text));
    assert_eq!(read.ok().as_deref(), Some(&*text));
    let quoted = go_quoted(&text);
    assert!(quoted.len() >= 2 && quoted.starts_with('"') && quoted.ends_with('"'), "{quoted}");
    if let Ok(name) = node_hostname(&text) {
        assert_eq!(node_hostname(&name).ok().as_deref(), Some(&*name));
    }
}
