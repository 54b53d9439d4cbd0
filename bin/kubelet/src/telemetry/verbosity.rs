//! Decides which events are written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use crate::config::logging::VModuleItem;

/// The V level of `debug!`.
const DEBUG_LEVEL: u32 = 4;
/// The V level of `trace!`.
const TRACE_LEVEL: u32 = 6;
/// The V level of everything below a warning that comes from the crates in [`WIRE_TARGETS`].
const WIRE_LEVEL: u32 = 8;
/// Crates that log every frame.
const WIRE_TARGETS: [&str; 10] =
    ["actix_rt", "h2", "hyper", "hyper_util", "mio", "rustls", "tokio_util", "tonic", "tower", "want"];

/// The verbosity in force. Clones share it, so that it can be changed while the process runs.
#[derive(Debug, Clone)]
pub struct Verbosity {
    level: Arc<AtomicU32>,
    modules: Arc<[VModuleItem]>,
}

impl Verbosity {
    /// V level `level` everywhere, and at least the levels of `modules` in the files that they match.
    pub fn new(level: u32, modules: &[VModuleItem]) -> Self {
        Self { level: Arc::new(AtomicU32::new(level)), modules: modules.into() }
    }

    /// The V level of all files.
    pub fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// The V level of all files, which `/debug/flags/v` changes.
    pub fn shared(&self) -> Arc<AtomicU32> {
        self.level.clone()
    }

    /// Whether an event of V level `level` at `metadata`'s place is written.
    pub(super) fn allows(&self, metadata: &Metadata<'_>, level: u32) -> bool {
        self.level() >= level
            || self.modules.iter().any(|item| item.verbosity >= level && item_matches(item, metadata))
    }
}

impl<S: Subscriber> Filter<S> for Verbosity {
    fn enabled(&self, metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        // Spans carry fields for the events inside them, which have levels of their own; so every span is kept, except
        // for those that a connection makes for every frame.
        if metadata.is_span() {
            return !is_wire(metadata) || self.allows(metadata, WIRE_LEVEL);
        }
        self.allows(metadata, level_of(metadata))
    }
}

/// The V level of an event without a field `v`.
pub(super) fn level_of(metadata: &Metadata<'_>) -> u32 {
    let level = match *metadata.level() {
        Level::ERROR | Level::WARN => return 0,
        Level::INFO => 0,
        Level::DEBUG => DEBUG_LEVEL,
        Level::TRACE => TRACE_LEVEL,
    };
    if is_wire(metadata) { level.max(WIRE_LEVEL) } else { level }
}

fn is_wire(metadata: &Metadata<'_>) -> bool {
    WIRE_TARGETS.contains(&metadata.target().split("::").next().unwrap_or_default())
}

fn item_matches(item: &VModuleItem, metadata: &Metadata<'_>) -> bool {
    let stem = metadata.file().map(|file| {
        let name = file.rsplit('/').next().unwrap_or(file);
        name.strip_suffix(".rs").unwrap_or(name)
    });
    let pattern = item.file_pattern.replace('-', "_");
    let modules = metadata.module_path().unwrap_or_default().split("::");
    stem.into_iter().chain(modules).any(|name| glob_matches(pattern.as_bytes(), name.as_bytes()))
}

/// Whether `name` matches `pattern`, in which `*` stands for any number of characters and `?` for one.
fn glob_matches(pattern: &[u8], name: &[u8]) -> bool {
    // Greedy with one step back: the last `*` takes one character more whenever the rest of the pattern fails to match.
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((star, taken)) => {
                    retry = Some((star, taken + 1));
                    p = star + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::glob_matches;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, matches) in [
            ("actor", "actor", true),
            ("actor", "actors", false),
            ("pod_*", "pod_worker", true),
            ("*_worker", "pod_worker", true),
            ("*o*r*", "pod_worker", true),
            ("p?d*", "pod", true),
            ("p?d", "pd", false),
            ("*", "", true),
            ("", "a", false),
        ] {
            assert_eq!(glob_matches(pattern.as_bytes(), name.as_bytes()), matches, "{pattern} {name}");
        }
    }
}
