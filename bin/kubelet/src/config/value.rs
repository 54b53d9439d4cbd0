//! The types of configuration fields: scalars, lists and maps, decoded without conversion between types.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::error::FieldError;
use super::section::{FieldValue, join};

impl FieldValue for bool {
    fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        let decoded = json.as_bool();
        if decoded.is_none() {
            errors.push(FieldError::wrong_type(path, &json, "a boolean"));
        }
        decoded
    }

    fn encode(&self) -> Json {
        Json::Bool(*self)
    }

    fn is_zero(&self) -> bool {
        !self
    }
}

impl FieldValue for String {
    fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        match json {
            Json::String(text) => Some(text),
            other => {
                errors.push(FieldError::wrong_type(path, &other, "a string"));
                None
            }
        }
    }

    fn encode(&self) -> Json {
        Json::String(self.clone())
    }

    fn is_zero(&self) -> bool {
        self.is_empty()
    }
}

macro_rules! integer {
    ($type:ty, $words:literal) => {
        impl FieldValue for $type {
            fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
                let decoded = json
                    .as_i64()
                    .map(i128::from)
                    .or_else(|| json.as_u64().map(i128::from))
                    .and_then(|wide| <$type>::try_from(wide).ok());
                if decoded.is_none() {
                    errors.push(FieldError::wrong_type(path, &json, $words));
                }
                decoded
            }

            fn encode(&self) -> Json {
                Json::from(*self)
            }

            fn is_zero(&self) -> bool {
                *self == 0
            }
        }
    };
}

integer!(i32, "a 32-bit integer");
integer!(i64, "a 64-bit integer");
integer!(u32, "an unsigned 32-bit integer");
integer!(u64, "an unsigned 64-bit integer");

impl FieldValue for f64 {
    fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        let decoded = json.as_f64();
        if decoded.is_none() {
            errors.push(FieldError::wrong_type(path, &json, "a number"));
        }
        decoded
    }

    fn encode(&self) -> Json {
        Json::from(*self)
    }

    fn is_zero(&self) -> bool {
        *self == 0.0
    }
}

impl<T: FieldValue> FieldValue for Option<T> {
    fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        if json.is_null() { Some(None) } else { T::decode(json, path, errors).map(Some) }
    }

    fn encode(&self) -> Json {
        self.as_ref().map_or(Json::Null, FieldValue::encode)
    }

    fn is_zero(&self) -> bool {
        self.is_none()
    }
}

impl<T: FieldValue> FieldValue for Vec<T> {
    fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        let items = match json {
            Json::Array(items) => items,
            other => {
                errors.push(FieldError::wrong_type(path, &other, "a list"));
                return None;
            }
        };
        let decoded: Vec<Option<T>> = items
            .into_iter()
            .enumerate()
            .map(|(index, item)| T::decode(item, &format!("{path}[{index}]"), errors))
            .collect();
        decoded.into_iter().collect()
    }

    fn encode(&self) -> Json {
        Json::Array(self.iter().map(FieldValue::encode).collect())
    }

    fn is_zero(&self) -> bool {
        self.is_empty()
    }
}

impl<T: FieldValue> FieldValue for BTreeMap<String, T> {
    fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        let entries = match json {
            Json::Object(entries) => entries,
            other => {
                errors.push(FieldError::wrong_type(path, &other, "a map"));
                return None;
            }
        };
        let decoded: Vec<Option<(String, T)>> = entries
            .into_iter()
            .map(|(key, item)| T::decode(item, &join(path, &key), errors).map(|value| (key, value)))
            .collect();
        decoded.into_iter().collect()
    }

    fn encode(&self) -> Json {
        Json::Object(self.iter().map(|(key, value)| (key.clone(), value.encode())).collect())
    }

    fn is_zero(&self) -> bool {
        self.is_empty()
    }
}
