//! What `/proc` tells of processes: open files, and the interfaces of a network namespace.

use std::fs;
use std::io::Read;
use std::path::Path;

use super::{Interface, ProcessUse, parse};
use crate::tenant_files;

/// Counts open files, as long as there is room: a process may have a million of them.
#[derive(Debug)]
pub(super) struct FileBudget {
    left: usize,
}

impl FileBudget {
    pub(super) fn of(files: usize) -> Self {
        Self { left: files }
    }

    /// The open files of these processes, and how many of them are sockets; `None` when the room does not suffice. A process
    /// that has ended meanwhile has none.
    fn count(&mut self, proc: &Path, pids: &[u32]) -> Option<(u64, u64)> {
        let (mut files, mut sockets) = (0, 0);
        for pid in pids {
            let Ok(open) = fs::read_dir(proc.join(pid.to_string()).join("fd")) else { continue };
            for file in open.flatten() {
                self.left = self.left.checked_sub(1)?;
                files += 1;
                let is_socket = fs::read_link(file.path())
                    .is_ok_and(|to| to.as_os_str().as_encoded_bytes().starts_with(b"socket"));
                sockets += u64::from(is_socket);
            }
        }
        Some((files, sockets))
    }

    /// Adds open files and their limit to what is known of processes.
    pub(super) fn add(&mut self, proc: &Path, pids: &[u32], to: &mut ProcessUse) {
        if let Some((files, sockets)) = self.count(proc, pids) {
            (to.files, to.sockets) = (Some(files), Some(sockets));
        }
        let limits = pids.first().map(|pid| proc.join(pid.to_string()).join("limits"));
        let limits = limits.and_then(|path| tenant_files::kernel_text(&path).ok());
        to.files_max = limits.and_then(|text| parse::files_max(&text));
    }
}

/// The most bytes of a list of interfaces, which has some 120 for each.
const INTERFACES_BYTES_MAX: u64 = 4 << 20;

/// The first interfaces that a process sees; `None` without a list that can be trusted.
pub(super) fn interfaces(proc: &Path, pid: u32, max: usize) -> Option<Vec<Interface>> {
    let file = tenant_files::kernel_read(&proc.join(pid.to_string()).join("net/dev")).ok()?;
    let mut text = String::new();
    file.take(INTERFACES_BYTES_MAX).read_to_string(&mut text).ok()?;
    if text.len() as u64 == INTERFACES_BYTES_MAX {
        // The last line may have been cut.
        text.truncate(text.rfind('\n')?);
    }
    parse::interfaces(&text, max)
}
