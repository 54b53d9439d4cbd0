//! Reads a configuration file as YAML or JSON, refusing what a lenient reader would let pass.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value as Json};

use super::error::ConfigError;

/// Largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads `file` as one object of `kind` in `api_version`, and takes those two fields out of it.
///
/// # Errors
/// The file is unreadable, empty, too large, malformed, names a key twice, or is of another kind or version.
pub(super) fn read_document(
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
    let json = bridge_text::strict_value(text)
        .map_err(|reason| ConfigError::Syntax { file: file.into(), reason })?;
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
