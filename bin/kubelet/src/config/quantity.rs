//! Kubernetes quantities, as far as configuration needs them: well-formed or not, zero or not.

use std::fmt;

use serde_json::Value as Json;

use super::error::FieldError;
use super::section::FieldValue;

/// A well-formed `resource.Quantity`, kept in the words it was written in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    text: String,
    is_zero: bool,
}

const SUFFIXES: [&str; 16] =
    ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// The quantity zero.
    pub fn zero() -> Self {
        Self { text: "0".to_owned(), is_zero: true }
    }

    /// Reads `[+-]digits[.digits][suffix or exponent]`.
    ///
    /// # Errors
    /// Upstream's text when the form is not that of a quantity.
    pub fn parse(text: &str) -> Result<Self, String> {
        let malformed =
            || "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        if text.is_empty() {
            return Err(malformed().to_owned());
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let number_end = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_end);
        let digits = number.bytes().filter(u8::is_ascii_digit).count();
        if digits == 0 || number.len() - digits > 1 {
            return Err(malformed().to_owned());
        }
        let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|power| {
            let power = power.strip_prefix(['+', '-']).unwrap_or(power);
            !power.is_empty() && power.bytes().all(|byte| byte.is_ascii_digit())
        });
        if !exponent && !SUFFIXES.contains(&suffix) {
            return Err("unable to parse quantity's suffix".to_owned());
        }
        let is_zero = number.bytes().all(|byte| byte == b'0' || byte == b'.');
        Ok(Self { text: text.to_owned(), is_zero })
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
