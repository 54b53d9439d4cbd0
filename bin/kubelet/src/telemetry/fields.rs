//! The fields of an event or span, rendered once for both formats.

use std::error::Error;
use std::fmt::Debug;

use tracing::field::{Field, Visit};

/// A field's value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Rendered {
    /// Text, which is printed in quotes.
    Text(String),
    /// A number or boolean, which is printed without quotes.
    Bare(String),
}

/// The fields that were recorded.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields {
    /// The message.
    pub(super) message: String,
    /// The event's own V level, if it has one.
    pub(super) level: Option<u32>,
    /// The other fields, in the order they were written.
    pub(super) pairs: Vec<(&'static str, Rendered)>,
}

impl Fields {
    fn push(&mut self, field: &Field, value: Rendered) {
        self.pairs.push((field.name(), value));
    }

    fn number(&mut self, field: &Field, wide: i128) {
        match (field.name(), u32::try_from(wide)) {
            ("v", Ok(level)) => self.level = Some(level),
            _ => self.push(field, Rendered::Bare(wide.to_string())),
        }
    }

    fn text(&mut self, field: &Field, text: String) {
        if field.name() == "message" {
            self.message = text;
        } else {
            self.push(field, Rendered::Text(text));
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        let text = value.to_string();
        self.push(field, if value.is_finite() { Rendered::Bare(text) } else { Rendered::Text(text) });
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field, value.into());
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.number(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.push(field, Rendered::Bare(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, Rendered::Bare(value.to_string()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.text(field, value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        // A text recorded as `?name` arrives already quoted, so its quotes are removed.
        let unquoted = serde_json::from_str::<String>(&text).ok().filter(|_| field.name() != "message");
        self.text(field, unquoted.unwrap_or(text));
    }
}
