//! Small files that the command line or a kubeconfig names.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most bytes of a token, PEM file or kubeconfig.
const BYTES_MAX: u64 = 1 << 20;

/// The content of a small file; a pipe will do.
///
/// # Errors
/// It cannot be read, or is longer than 1 MiB.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(read).is_ok_and(|read| read > BYTES_MAX) {
        return Err(format!("{}: longer than {} MiB", path.display(), BYTES_MAX >> 20));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_bound() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        assert_eq!(read(file.path()), Ok(b"abc".to_vec()));
        std::fs::write(file.path(), vec![b'a'; (1 << 20) + 1]).unwrap();
        assert!(read(file.path()).unwrap_err().ends_with("longer than 1 MiB"));
        assert!(read(Path::new("/nowhere/token")).unwrap_err().starts_with("/nowhere/token: "));
    }
}
