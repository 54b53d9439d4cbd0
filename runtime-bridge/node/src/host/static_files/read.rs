use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::{
    MANIFEST_BYTES_MAX, MANIFESTS_BYTES_MAX, MANIFESTS_MAX, ManifestFile, ReadError, StaticFilesError,
};

pub(super) fn read(path: &Path) -> Result<Vec<ManifestFile>, StaticFilesError> {
    let failed = |operation| {
        move |error: io::Error| StaticFilesError::Io {
            path: path.to_path_buf(),
            operation,
            reason: error.to_string(),
        }
    };
    let kind = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        metadata => metadata.map_err(failed("look at it"))?,
    };
    if kind.is_file() {
        let content = match read_file(path, MANIFESTS_BYTES_MAX) {
            Ok(None) => return Ok(Vec::new()),
            Ok(Some(content)) => Ok(content),
            Err(error) => Err(error),
        };
        return Ok(vec![ManifestFile { path: path.to_path_buf(), content }]);
    }
    if !kind.is_dir() {
        return Err(StaticFilesError::NotFileOrDirectory { path: path.to_path_buf() });
    }

    let mut left = MANIFESTS_BYTES_MAX;
    let mut files = Vec::new();
    for path in manifest_paths(path)
        .map_err(failed("list it"))?
        .ok_or_else(|| StaticFilesError::TooMany { path: path.to_path_buf() })?
    {
        let content = match read_file(&path, left) {
            // The file is a sub-directory, or was removed after it was listed.
            Ok(None) => continue,
            Ok(Some(content)) => Ok(content),
            Err(error) => Err(error),
        };
        left -= content.as_ref().map_or(0, |bytes| bytes.len() as u64);
        files.push(ManifestFile { path, content });
    }
    Ok(files)
}

/// The sorted paths of a directory's entries without the dot-files; `None` when there are too many.
fn manifest_paths(dir: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if paths.len() == MANIFESTS_MAX {
            return Ok(None);
        }
        paths.push(entry.path());
    }
    paths.sort();
    Ok(Some(paths))
}

/// The file's bytes; `None` when it is a directory or does not exist.
fn read_file(path: &Path, left: u64) -> Result<Option<Vec<u8>>, ReadError> {
    let io = |error: io::Error| ReadError::Io(error.to_string());
    // Checked before it is opened: opening a device can have effects, opening a FIFO can block.
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
        Ok(metadata) if metadata.is_dir() => return Ok(None),
        Ok(metadata) if !metadata.is_file() => return Err(ReadError::NotRegular),
        Ok(_) => {}
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(io)?,
    };
    // Another file may have replaced it meanwhile.
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(ReadError::NotRegular);
    }
    if metadata.len() >= MANIFEST_BYTES_MAX {
        return Err(ReadError::TooLarge);
    }
    if metadata.len() > left {
        return Err(ReadError::TotalTooLarge);
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 >= MANIFEST_BYTES_MAX {
        return Err(ReadError::TooLarge);
    }
    if bytes.len() as u64 > left {
        return Err(ReadError::TotalTooLarge);
    }
    Ok(Some(bytes))
}
