//! The seeds: the files of `corpus/<target>`. A file that ends in `.hex` has its bytes as hexadecimal digits, with blanks where
//! they help, and remarks behind `#`.

use std::io;
use std::path::{Path, PathBuf};

/// The directory of a target's seeds.
#[must_use]
pub fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The seeds of a target, in the order of their names.
///
/// # Errors
/// A file cannot be read, or is not what its name says.
pub fn seeds(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory(target))? {
        files.push(entry?.path());
    }
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

/// The bytes that a file stands for.
///
/// # Errors
/// The file cannot be read, or is not what its name says.
pub fn read(file: &Path) -> io::Result<Vec<u8>> {
    let bytes = std::fs::read(file)?;
    if file.extension().is_none_or(|end| end != "hex") {
        return Ok(bytes);
    }
    let wrong =
        || io::Error::new(io::ErrorKind::InvalidData, format!("{}: no pairs of digits", file.display()));
    of_hex(&String::from_utf8_lossy(&bytes)).ok_or_else(wrong)
}

fn of_hex(text: &str) -> Option<Vec<u8>> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let letters: Vec<char> = lines.flat_map(str::chars).filter(|letter| !letter.is_whitespace()).collect();
    let byte = |pair: &[char]| match pair {
        [high, low] => u8::try_from(high.to_digit(16)? * 16 + low.to_digit(16)?).ok(),
        _ => None,
    };
    letters.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes() {
        assert_eq!(of_hex("00 ff # remark\n7\n f\n"), Some(vec![0, 255, 0x7f]));
        assert_eq!(of_hex(""), Some(Vec::new()));
        assert_eq!((of_hex("0"), of_hex("0g")), (None, None));
    }
}
