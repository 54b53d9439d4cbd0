//! The files that a kubeconfig names.

use std::path::Path;

use super::super::error::ConnectError;
use super::Pem;

/// The most bytes of a token or PEM file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

impl Pem {
    /// The file's path; `None` for inline text.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Inline(_) => None,
        }
    }

    /// The PEM bytes; `field` is the kubeconfig's field, for errors.
    pub(crate) fn bytes(&self, field: &str) -> Result<Vec<u8>, ConnectError> {
        match self {
            Self::Inline(bytes) => Ok(bytes.clone()),
            Self::File(path) => read_file(path).map_err(|reason| self.wrong(field, reason)),
        }
    }

    /// The error of unusable PEM, which names the file and the field.
    pub(crate) fn wrong(&self, field: &str, reason: impl std::fmt::Display) -> ConnectError {
        match self {
            Self::Inline(_) => ConnectError::file(Path::new(&format!("{field}-data")), reason.to_string()),
            Self::File(path) => ConnectError::file(path, format!("{field}: {reason}")),
        }
    }
}

/// Reads a file, at most as many bytes as a token or PEM file may have.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let failed = |error: std::io::Error| error.to_string();
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
