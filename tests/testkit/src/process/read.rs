//! What tests read about processes and about what the scripts of `tests/env` have started.

use std::path::Path;

/// Whether a process has ended; one that its parent has not been told of has ended, too.
#[must_use]
pub fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
}

/// The values of these names in a file of `NAME=value` lines, as `tests/env/containerd up` writes one.
///
/// # Panics
/// The file cannot be read, or lacks one of them.
#[must_use]
#[track_caller]
pub fn values<const N: usize>(file: &Path, names: [&str; N]) -> [String; N] {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    names.map(|name| {
        let of = |line: &str| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
        text.lines().find_map(of).unwrap_or_else(|| panic!("{}: no {name} in {text}", file.display()))
    })
}
