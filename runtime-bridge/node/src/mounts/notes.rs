//! Notes about volumes, by which each kubelet undoes what an earlier one has set up.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::MountError;
use super::sys::{failed, mounted_at};
use crate::tenant_files;

/// The most bytes of a note.
pub(super) const NOTE_BYTES_MAX: usize = 64 * 1024;

/// The error of a note that is no small regular file.
pub(super) fn unreadable(note: &Path, reason: &str) -> MountError {
    MountError::Io { operation: "read", path: note.to_path_buf(), reason: reason.to_owned() }
}

pub(super) fn read(note: &Path) -> Result<Option<String>, MountError> {
    let file = match tenant_files::read(note) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", note)(error)),
    };
    let content = tenant_files::content(file, NOTE_BYTES_MAX as u64).map_err(failed("read", note))?;
    let content = content.ok_or_else(|| unreadable(note, "the file is too large"))?;
    String::from_utf8(content).map(Some).map_err(|_| unreadable(note, "it is no text"))
}

pub(super) fn write(note: &Path, text: &str) -> Result<(), MountError> {
    let above = note.parent().unwrap_or(note);
    fs::DirBuilder::new().recursive(true).mode(0o750).create(above).map_err(failed("write", note))?;
    let beside = note.with_extension("new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("write", note)(error)),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options.open(&beside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        // Or a machine that loses its power may have an empty note, by which no kubelet knows the volume's driver.
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&beside, note)).map_err(failed("write", note))
}

fn gone(removed: io::Result<()>, path: &Path) -> Result<(), MountError> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

pub(super) fn forget(target: &Path, note: &Path) -> Result<(), MountError> {
    if let Some(mount) = mounted_at(target)? {
        return Err(super::sys::already_mounted(&mount));
    }
    match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() => gone(fs::remove_dir(target), target)?,
        Ok(_) => gone(fs::remove_file(target), target)?,
        Err(_) => {}
    }
    gone(fs::remove_file(note), note)?;
    let Some(above) = note.parent() else { return Ok(()) };
    match fs::remove_dir(above) {
        // What else is there goes with the pod's directory, or stays for people.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => gone(removed, above),
    }
}
