//! PURE: reads the texts that people write for a kubelet, as Kubernetes reads them: manifests, configuration files and
//! kubeconfigs become trees, and image names their parts.
//!
//! A text that opens with a brace is JSON, except for a kubeconfig; every other text is YAML 1.1, in which `no` is
//! false, `0644` is octal and `<<` merges. Repeated keys are reported, and each reader decides: manifests are accepted
//! with a warning, configuration files are refused. A bound keeps aliases from expanding a short text to gigabytes.
//!
//! This crate depends on none of our other crates; bin, actors and bridges use it.

pub mod image;
mod json;
mod lenient;
mod node;
mod scalar;
#[cfg(test)]
mod tests;
mod yaml;

use serde_json::Value;

pub use node::{Node, Number, Path};

/// A text that has been read.
#[derive(Debug, PartialEq)]
pub struct Text {
    /// The first document; null if the text holds nothing but comments.
    pub document: Node,
    /// How many documents with content follow the first one.
    pub further: usize,
    /// The fields that are set more than once, in the order of the text; at most 100.
    pub twice: Vec<Twice>,
}

/// A field that is set again. The last value counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twice {
    /// The field's path in the document, such as `spec.containers[0].image`.
    pub path: String,
    /// The later value in a few words.
    pub value: String,
}

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// A sentence for people with line and column, without the file's name.
    pub reason: String,
    /// Whether the text ends before its value is complete.
    pub unfinished: bool,
}

/// Reads a text's first document and counts the later ones, which Kubernetes does not read either.
///
/// # Errors
/// The text is neither JSON nor YAML, or exceeds a bound on depth, values or bytes.
pub fn parse(text: &str) -> Result<Text, TextError> {
    if text.trim_start().starts_with('{') { json::parse(text) } else { yaml::parse(text) }
}

/// Reads a text as JSON values; the last value of a repeated field counts. The text is YAML even when it opens with a
/// brace, as Go's client reads a kubeconfig.
///
/// # Errors
/// The same as [`parse`], or a number that JSON does not have; the text is for people.
pub fn value(text: &str) -> Result<Value, String> {
    let text = yaml::parse(text).map_err(|error| error.reason)?;
    text.document.into_json()
}

/// Reads a text as JSON values, and refuses two things that [`value`] accepts: a repeated field and a second document.
///
/// # Errors
/// The same as [`value`], a repeated field, or a second document.
pub fn strict_value(text: &str) -> Result<Value, String> {
    let text = parse(text).map_err(|error| error.reason)?;
    if let Some(Twice { path, value }) = text.twice.first() {
        return Err(format!("field {path:?} is set twice (second value {value})"));
    }
    if text.further > 0 {
        return Err("the file holds more than one document".to_owned());
    }
    text.document.into_json()
}
