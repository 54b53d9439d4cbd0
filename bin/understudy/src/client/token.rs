//! The bearer token of a request.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;

use super::file;

/// How long a token of a file is used before the file is read again: those of service accounts are replaced there.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A bearer token; it is never printed.
#[derive(Debug)]
pub struct Token {
    /// The file with the token; `None` for one that does not change.
    path: Option<PathBuf>,
    /// The header's value, and when it was read.
    read: Mutex<(Instant, HeaderValue)>,
}

impl Token {
    /// A token that does not change.
    ///
    /// # Errors
    /// The text is no token.
    pub fn text(text: &str) -> Result<Self, String> {
        Ok(Self { path: None, read: Mutex::new((Instant::now(), bearer(text)?)) })
    }

    /// The token of a file.
    ///
    /// # Errors
    /// The file cannot be read, or holds no token.
    pub fn file(path: &Path) -> Result<Self, String> {
        let value = of_file(path)?;
        // A pipe can be read only once.
        let again = path.is_file().then(|| path.to_owned());
        Ok(Self { path: again, read: Mutex::new((Instant::now(), value)) })
    }

    /// The value of the header `Authorization`. A file that cannot be read any more leaves the last token in use.
    pub fn header(&self) -> HeaderValue {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &self.path
            && read.0.elapsed() >= READ_AGAIN_AFTER
        {
            let value = of_file(path).unwrap_or_else(|_| read.1.clone());
            *read = (Instant::now(), value);
        }
        read.1.clone()
    }
}

fn of_file(path: &Path) -> Result<HeaderValue, String> {
    let bytes = file::read(path)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{}: it holds no token", path.display()))?;
    bearer(text).map_err(|why| format!("{}: {why}", path.display()))
}

fn bearer(text: &str) -> Result<HeaderValue, String> {
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("it holds no token: one word of visible ASCII letters".to_owned());
    }
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| "it holds no token".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_again_and_the_last_token_outlives_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "one\n").unwrap();
        let token = Token::file(&path).unwrap();
        std::fs::write(&path, "two").unwrap();
        assert_eq!(token.header(), "Bearer one");
        tokio::time::advance(READ_AGAIN_AFTER).await;
        assert_eq!(token.header(), "Bearer two");
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(READ_AGAIN_AFTER).await;
        assert_eq!(token.header(), "Bearer two");
        assert!(!format!("{token:?}").contains("two"), "{token:?}");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for wrong in ["", " \n", "a b", "a\nb", "é", "a\u{7f}"] {
            assert!(Token::text(wrong).is_err(), "{wrong:?}");
        }
    }
}
