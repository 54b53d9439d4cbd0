//! Durations of the configuration, in Go's form.

use serde_json::Value as Json;

pub use pod_rules::durations::GoDuration;

use super::error::FieldError;
use super::section::FieldValue;

impl FieldValue for GoDuration {
    fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        let parsed = match json.as_str() {
            Some(text) => Self::parse(text),
            None => Err("a duration such as \"1m30s\"".to_owned()),
        };
        parsed
            .map_err(|why| {
                let expected = if json.is_string() { format!("a duration ({why})") } else { why };
                errors.push(FieldError::wrong_type(path, &json, expected));
            })
            .ok()
    }

    fn encode(&self) -> Json {
        Json::String(self.to_string())
    }

    fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    fn omitted(&self) -> bool {
        false
    }
}
