//! Reads a configuration file as YAML or JSON, refusing what a lenient reader would let pass.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value as Json};

use super::error::ConfigError;
use super::section::join;

/// Largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads `file` as one object of `kind` in `api_version`, and takes those two fields out of it.
///
/// # Errors
/// The file is unreadable, empty, too large, malformed, names a key twice, or is of another kind or version.
pub(crate) fn read_document(
    file: &Path,
    kind: &str,
    api_version: &str,
) -> Result<Map<String, Json>, ConfigError> {
    parse_document(&read_text(file)?, file, kind, api_version)
}

fn read_text(file: &Path) -> Result<String, ConfigError> {
    let failed = |error: std::io::Error| ConfigError::Read { file: file.into(), reason: error.to_string() };
    let mut text = String::new();
    let opened = File::open(file).map_err(failed)?;
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > FILE_BYTES_MAX {
        let reason = format!("the file is larger than {FILE_BYTES_MAX} bytes");
        return Err(ConfigError::Syntax { file: file.into(), reason });
    }
    Ok(text)
}

fn parse_document(
    text: &str,
    file: &Path,
    kind: &str,
    api_version: &str,
) -> Result<Map<String, Json>, ConfigError> {
    if text.is_empty() {
        return Err(ConfigError::Syntax { file: file.into(), reason: "the file is empty".to_owned() });
    }
    let json = parse(text).map_err(|reason| ConfigError::Syntax { file: file.into(), reason })?;
    let Json::Object(mut object) = json else {
        let reason = format!("expected an object of kind {kind}");
        return Err(ConfigError::Kind { file: file.into(), reason });
    };
    let found_kind = object.remove("kind").unwrap_or(Json::Null);
    let found_version = object.remove("apiVersion").unwrap_or(Json::Null);
    if found_kind != kind || found_version != api_version {
        let reason = format!(
            "found kind {found_kind} and apiVersion {found_version}, expected {kind:?} and {api_version:?}"
        );
        return Err(ConfigError::Kind { file: file.into(), reason });
    }
    Ok(object)
}

/// Parses one YAML (and so also JSON) document.
fn parse(text: &str) -> Result<Json, String> {
    StrictJson { path: String::new() }
        .deserialize(serde_yaml_ng::Deserializer::from_str(text))
        .map_err(|error| error.to_string())
}

/// Builds JSON and refuses a key that an object already has, which `serde_json::Value` would overwrite.
struct StrictJson {
    path: String,
}

impl<'de> DeserializeSeed<'de> for StrictJson {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJson {
    type Value = Json;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a YAML or JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Json, E> {
        Number::from_f64(value)
            .map(Json::Number)
            .ok_or_else(|| E::custom(format!("field {:?}: {value} is not a number in JSON", self.path)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_none<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) =
            items.next_element_seed(StrictJson { path: format!("{}[{}]", self.path, list.len()) })?
        {
            list.push(item);
        }
        Ok(Json::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = join(&self.path, &key);
            let value = entries.next_value_seed(StrictJson { path: path.clone() })?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("field {path:?} is set twice (second value {value})")));
            }
            object.insert(key, value);
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::parse;

    #[test]
    fn yaml_and_json_give_the_same_value() {
        let expected = json!({"a": {"b": [1, true, null, "x", 0.5]}});
        assert_eq!(parse("a:\n  b: [1, true, null, x, 0.5]\n"), Ok(expected.clone()));
        assert_eq!(parse(&expected.to_string()), Ok(expected));
    }

    #[test]
    fn a_key_set_twice_is_named_with_its_path() {
        let refused = parse("authentication:\n  webhook:\n    enabled: true\n    enabled: false\n");
        let text = refused.expect_err("a duplicate");
        assert!(text.contains("authentication.webhook.enabled"), "{text}");
        assert!(text.contains("set twice"), "{text}");
        assert!(parse(r#"{"port": 1, "port": 2}"#).is_err());
    }

    #[test]
    fn a_second_document_is_refused() {
        assert!(parse("a: 1\n---\nb: 2\n").is_err());
    }
}
