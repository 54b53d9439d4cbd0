//! The kernel's settings that a node needs (row 14.11). There is no trait: only the daemon looks at them, before actors start,
//! in a directory that its caller names, so that a test never touches those of the machine.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Upstream's settings, as files below `/proc/sys`, with the values that a node needs: memory is always granted, the kernel kills
/// processes for want of it instead of panicking, panics at an oops, boots again 10 s after a panic, and root may have a key for
/// each container.
const NEEDED: [(&str, i64); 6] = [
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];
/// The most bytes of a setting that are read.
const BYTES_MAX: u64 = 64;

/// Why one of the kernel's settings is not as a node needs it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelSettingError {
    /// It has another value, and must not be changed.
    #[error("invalid kernel flag: {name}, expected value: {needed}, actual value: {found}")]
    Differs {
        /// The file below `/proc/sys`.
        name: &'static str,
        /// The value that a node needs.
        needed: i64,
        /// The kernel's value.
        found: i64,
    },
    /// It cannot be read or written.
    #[error("cannot {operation} {path}: {reason}", path = path.display())]
    Io {
        /// The operation that failed, with the value that was to be written.
        operation: String,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
}

/// The settings that are not as a node needs them, each with its reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct KernelSettingsError(pub Vec<KernelSettingError>);

/// The kernel's settings in a directory like `/proc/sys`.
#[derive(Debug, Clone)]
pub struct KernelSettings {
    dir: PathBuf,
}

impl KernelSettings {
    /// The settings in `dir`.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Demands the values that a node needs, and writes nothing.
    ///
    /// # Errors
    /// All settings that have other values or cannot be read.
    pub fn demand(&self) -> Result<(), KernelSettingsError> {
        self.each(|_, name, needed, found| Err(KernelSettingError::Differs { name, needed, found }))
    }

    /// Writes the values that a node needs where the kernel has others.
    ///
    /// # Errors
    /// All settings that cannot be read or written; the others are written all the same.
    pub fn set(&self) -> Result<(), KernelSettingsError> {
        self.each(|path, flag, needed, found| {
            tracing::info!(flag, expectedValue = needed, actualValue = found, "Updating kernel flag");
            fs::write(path, needed.to_string())
                .map_err(|error| failed(format!("write {needed} to"), path, &error))
        })
    }

    /// Calls `act` for each setting that has another value, with its file, its name, the needed value and the found one.
    fn each(
        &self,
        act: impl Fn(&Path, &'static str, i64, i64) -> Result<(), KernelSettingError>,
    ) -> Result<(), KernelSettingsError> {
        let one = |(name, needed): (&'static str, i64)| {
            let path = self.dir.join(name);
            let found = read(&path)?;
            if found == needed { Ok(()) } else { act(&path, name, needed, found) }
        };
        let wrong: Vec<KernelSettingError> =
            NEEDED.into_iter().filter_map(|needed| one(needed).err()).collect();
        if wrong.is_empty() { Ok(()) } else { Err(KernelSettingsError(wrong)) }
    }
}

fn read(path: &Path) -> Result<i64, KernelSettingError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text))
        .and_then(|_| {
            text.trim().parse::<i64>().map_err(|_| io::Error::other(format!("{text:?} is no number")))
        })
        .map_err(|error| failed("read".to_owned(), path, &error))
}

fn failed(operation: String, path: &Path, error: &io::Error) -> KernelSettingError {
    KernelSettingError::Io { operation, path: path.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with settings that all differ, as `sysctl` prints them.
    fn settings() -> (tempfile::TempDir, KernelSettings) {
        let dir = tempfile::tempdir().unwrap();
        for (name, needed) in NEEDED {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{}\n", needed + 1)).unwrap();
        }
        let settings = KernelSettings::at(dir.path());
        (dir, settings)
    }

    #[test]
    fn settings_get_the_values_that_a_node_needs() {
        let (dir, settings) = settings();
        settings.set().unwrap();
        let value = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        let found = NEEDED.map(|(name, _)| value(name));
        assert_eq!(found, ["1", "0", "10", "1", "1000000", "25000000"]);
        settings.demand().unwrap();
        // What is right is not written: the directory might be read-only.
        fs::write(dir.path().join("kernel/panic"), " 10\n").unwrap();
        settings.set().unwrap();
        assert_eq!(value("kernel/panic"), " 10\n");
    }

    #[test]
    fn demanded_settings_are_all_named_and_stay() {
        let (dir, settings) = settings();
        fs::write(dir.path().join("kernel/panic"), "10\n").unwrap();
        let error = settings.demand().unwrap_err();
        assert_eq!(error.0.len(), 5);
        let text = error.to_string();
        let first = "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 2; \
                     invalid kernel flag: vm/panic_on_oom, expected value: 0, actual value: 1; ";
        assert!(text.starts_with(first), "{text}");
        assert_eq!(fs::read_to_string(dir.path().join("vm/panic_on_oom")).unwrap(), "1\n");
    }

    #[test]
    fn what_cannot_be_read_or_written_is_named_and_keeps_no_other_back() {
        let (dir, settings) = settings();
        fs::remove_file(dir.path().join("vm/overcommit_memory")).unwrap();
        fs::write(dir.path().join("vm/panic_on_oom"), "much\n").unwrap();
        let text = settings.set().unwrap_err().to_string();
        let missing = format!("cannot read {}/vm/overcommit_memory: No such file", dir.path().display());
        assert!(text.starts_with(&missing), "{text}");
        assert!(text.ends_with("vm/panic_on_oom: \"much\\n\" is no number"), "{text}");
        assert_eq!(fs::read_to_string(dir.path().join("kernel/panic")).unwrap(), "10");
    }
}
