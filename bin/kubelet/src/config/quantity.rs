//! Kubernetes quantities, as far as the configuration needs them: whether they are well-formed, and whether they are
//! zero.

use std::fmt;

use serde_json::Value as Json;

use super::error::FieldError;
use super::section::FieldValue;

/// A well-formed `resource.Quantity`, kept as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    text: String,
    is_zero: bool,
}

impl Quantity {
    /// The quantity zero.
    pub fn zero() -> Self {
        Self { text: "0".to_owned(), is_zero: true }
    }

    /// Parses a quantity with the rules of pod specs.
    ///
    /// # Errors
    /// Upstream's text when the form is not that of a quantity.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value = pod_spec::quantity::Quantity::parse(text).map_err(|_| {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned()
        })?;
        Ok(Self { text: text.to_owned(), is_zero: value.signum() == 0 })
    }

    /// The quantity as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl FieldValue for Quantity {
    fn decode(json: Json, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        let parsed = match &json {
            Json::String(text) => Self::parse(text),
            Json::Number(number) => Self::parse(&number.to_string()),
            _ => Err("such as \"1Gi\"".to_owned()),
        };
        parsed
            .map_err(|why| errors.push(FieldError::wrong_type(path, &json, format!("a quantity ({why})"))))
            .ok()
    }

    fn encode(&self) -> Json {
        Json::String(self.text.clone())
    }

    fn is_zero(&self) -> bool {
        self.is_zero
    }

    fn omitted(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{FieldValue, Quantity};

    #[test]
    fn well_formed_quantities_are_taken_and_others_refused() {
        for text in ["0", "1Gi", "100m", "1.5", ".5", "-3k", "1e3", "12E-2", "5E"] {
            assert_eq!(Quantity::parse(text).expect(text).as_str(), text);
        }
        for text in ["", "Gi", "1.2.3", "1gi", "1 Gi", "1e", "--1"] {
            assert!(Quantity::parse(text).is_err(), "{text:?}");
        }
        assert!(Quantity::parse("0.00Gi").expect("well-formed").is_zero());
        assert!(!Quantity::parse("0.01").expect("well-formed").is_zero());
    }
}
