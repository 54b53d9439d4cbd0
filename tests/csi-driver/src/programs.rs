//! Programs of others that tests run, which no test builds.

use std::path::{Path, PathBuf};

/// A program of this machine: the one that the variable names, else that of the cache directory (`UNDERSTUDY_CACHE`, default
/// `~/.cache/understudy/bin`).
///
/// # Errors
/// There is none, and where it was looked for.
pub fn program(variable: &str, file: &str) -> Result<PathBuf, String> {
    let value = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let cache = || {
        let home = value("HOME").unwrap_or_else(|| "/root".to_owned());
        value("UNDERSTUDY_CACHE")
            .map_or_else(|| Path::new(&home).join(".cache/understudy/bin"), PathBuf::from)
    };
    let path = value(variable).map_or_else(|| cache().join(file), PathBuf::from);
    if path.is_file() {
        Ok(path)
    } else {
        Err(format!("no {file}: {variable} names none, and there is none at {}", path.display()))
    }
}
