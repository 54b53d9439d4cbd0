//! The form of a checkpoint on disk: one line `understudy-checkpoint v1 sha256:<hex> <bytes>`, then that many bytes of
//! JSON. The checksum is over these bytes, so JSON need not be written in a canonical form.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest, Sha256};

const MAGIC: &str = "understudy-checkpoint";
const VERSION: &str = "v1";
/// Longer than any header of this version.
const HEADER_BYTES_MAX: usize = 160;
/// The largest valid file, bytes.
pub(super) const FILE_BYTES_MAX: usize = super::CHECKPOINT_BYTES_MAX + HEADER_BYTES_MAX;

/// The file of this content.
pub fn wrap(json: &[u8]) -> Vec<u8> {
    let mut file = format!("{MAGIC} {VERSION} sha256:{} {}\n", sha256_hex(json), json.len()).into_bytes();
    file.extend_from_slice(json);
    file
}

/// The content of a file.
///
/// # Errors
/// Why the file is invalid.
pub fn unwrap(file: &[u8]) -> Result<Value, String> {
    let head = &file[..file.len().min(HEADER_BYTES_MAX)];
    let end = head.iter().position(|b| *b == b'\n').ok_or("it has no header line")?;
    let header = std::str::from_utf8(&head[..end]).map_err(|_| "its header is not text")?;
    let json = &file[end + 1..];

    let mut words = header.split(' ');
    if words.next() != Some(MAGIC) {
        return Err("its header is not that of a checkpoint".into());
    }
    let version = words.next().unwrap_or_default();
    if version != VERSION {
        return Err(format!("its version {version:?} is not {VERSION:?}"));
    }
    let checksum = words.next().and_then(|word| word.strip_prefix("sha256:")).ok_or("it has no checksum")?;
    let length: usize = words.next().and_then(|word| word.parse().ok()).ok_or("it has no length")?;
    if json.len() != length {
        return Err(format!("it holds {} bytes instead of {length}", json.len()));
    }
    if sha256_hex(json) != checksum {
        return Err("its checksum does not match".into());
    }
    serde_json::from_slice(json).map_err(|error| format!("it is not JSON: {error}"))
}

fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
