//! What can be wrong with a configuration, each error naming its operation, file, field and value.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

/// Why the kubelet refuses its command line or configuration. Each variant is one problem; loading reports all of
/// them that it can see at once.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ConfigError {
    /// The command line does not parse; the text is pflag's.
    #[error("failed to parse kubelet flag: {0}")]
    Flag(String),
    /// A word that is neither a flag nor a flag's value.
    #[error("unknown command {0}")]
    Positional(String),
    /// A flag's value parses but is not allowed.
    #[error("failed to validate kubelet flags: {0}")]
    FlagValue(String),
    /// A file or directory cannot be read.
    #[error("failed to read configuration {}: {reason}", file.display())]
    Read {
        /// The file or directory, as an absolute path.
        file: PathBuf,
        /// The operating system's reason.
        reason: String,
    },
    /// A file is not well-formed YAML or JSON, is empty, too large, or names a key twice.
    #[error("failed to parse configuration {}: {reason}", file.display())]
    Syntax {
        /// The file, as an absolute path.
        file: PathBuf,
        /// What is malformed, with line and column where known.
        reason: String,
    },
    /// A file is of another kind or version.
    #[error("failed to load configuration {}: {reason}", file.display())]
    Kind {
        /// The file, as an absolute path.
        file: PathBuf,
        /// Found and expected kind.
        reason: String,
    },
    /// A field is unknown or has the wrong type.
    #[error("failed to decode configuration {}: {error}", file.display())]
    Field {
        /// The file, as an absolute path.
        file: PathBuf,
        /// The field and what is wrong with it.
        error: FieldError,
    },
    /// A feature gate is unknown, locked, or lacks another gate that it needs.
    #[error("failed to set feature gates: {0}")]
    Gate(String),
    /// The configuration decodes but breaks a rule.
    #[error("failed to validate kubelet configuration: {0}")]
    Invalid(String),
    /// The log cannot be set up as configured.
    #[error("initialize logging: {0}")]
    Logging(String),
}

/// One field's problem, independent of the file it came from.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum FieldError {
    /// No field of this name exists at this place.
    #[error("unknown field {path:?} (value {value})")]
    Unknown {
        /// The field's full path.
        path: String,
        /// The value that was given, shortened.
        value: String,
    },
    /// The value has another type than the field.
    #[error("field {path:?}: invalid value {value}: expected {expected}")]
    Type {
        /// The field's full path.
        path: String,
        /// The value that was given, shortened.
        value: String,
        /// What the field takes.
        expected: String,
    },
}

/// A configured value that the subsystems cannot take, naming the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: Invalid value: {value:?}: {reason}")]
pub struct SettingError {
    /// The field's name.
    pub field: &'static str,
    /// The field's value.
    pub value: String,
    /// The reason.
    pub reason: String,
}

/// The problems of one file's fields, with the file.
pub(crate) fn field_errors(file: &Path, errors: Vec<FieldError>) -> Vec<ConfigError> {
    errors.into_iter().map(|error| ConfigError::Field { file: file.into(), error }).collect()
}

/// Longest piece of a rejected value that an error shows, in bytes.
const SHOWN_VALUE_BYTES_MAX: usize = 120;

impl FieldError {
    /// An unknown field at `path`.
    pub fn unknown(path: &str, value: &Json) -> Self {
        FieldError::Unknown { path: path.to_owned(), value: shown(value) }
    }

    /// A value at `path` that is not `expected`.
    pub fn wrong_type(path: &str, value: &Json, expected: impl Into<String>) -> Self {
        FieldError::Type { path: path.to_owned(), value: shown(value), expected: expected.into() }
    }
}

/// A rejected value as an error shows it, shortened.
pub(crate) fn shown(value: &Json) -> String {
    let mut text = value.to_string();
    if text.len() > SHOWN_VALUE_BYTES_MAX {
        let cut = (0..=SHOWN_VALUE_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}
