//! PURE: the texts that people write for a kubelet, as Kubernetes reads them: manifests, configuration files and kubeconfigs
//! to trees, and names of images to their parts.
//!
//! What opens with a brace is JSON and nothing else, but in a kubeconfig; all other text is YAML 1.1, in which `no` is
//! false, `0644` is octal and `<<` merges. A key that is given again is told, and each reader decides: manifests go on with
//! a warning, configuration files are refused. No text of a few lines can grow to gigabytes by its aliases.
//!
//! This crate knows none of the others, and all may know it: bin, actors and bridges read such texts.

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

/// What a text says.
#[derive(Debug, PartialEq)]
pub struct Text {
    /// The first document; null if there is nothing but comments.
    pub document: Node,
    /// How many documents with content follow it.
    pub further: usize,
    /// The fields that are given more than once, in the order of the text; at most 100.
    pub twice: Vec<Twice>,
}

/// A field that is given again. The last value counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twice {
    /// From the top of the document: `spec.containers[0].image`.
    pub path: String,
    /// The later value in a few words.
    pub value: String,
}

/// Why a text is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// A sentence with the place, without the file's name.
    pub reason: String,
    /// Whether the text ends before it is complete.
    pub unfinished: bool,
}

/// Reads a text's first document and counts those after it, which Kubernetes does not read either.
///
/// # Errors
/// It is neither JSON nor YAML, or exceeds a bound on depth, values or bytes.
pub fn parse(text: &str) -> Result<Text, TextError> {
    if text.trim_start().starts_with('{') { json::parse(text) } else { yaml::parse(text) }
}

/// Reads a text as JSON values, the last of a field that is given again. It is YAML even when it opens with a brace, as
/// Go's client reads a kubeconfig.
///
/// # Errors
/// As [`parse`], or a number that JSON does not have; the text is for people.
pub fn value(text: &str) -> Result<Value, String> {
    let text = yaml::parse(text).map_err(|error| error.reason)?;
    text.document.into_json()
}

/// Reads a text as JSON values, and refuses what [`value`] lets pass: a field that is given again, a second document.
///
/// # Errors
/// As [`value`], and those two.
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
