//! Answers that many callers ask for: the text of one reading is written once, and exists once as long as it is being sent.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use messages::stats::{Family, Summary};

/// The answers about usage that are being sent; clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct SharedAnswers {
    pub(crate) summaries: Arc<SharedTexts<Summary>>,
    pub(crate) pages: Arc<SharedTexts<Vec<Family>>>,
}

/// The texts of values that are being sent. A text that no answer holds any longer is gone.
#[derive(Debug)]
pub(crate) struct SharedTexts<T>(Mutex<Vec<Sent<T>>>);

#[derive(Debug)]
struct Sent<T> {
    of: Weak<T>,
    text: Weak<Vec<u8>>,
}

impl<T> Default for SharedTexts<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> SharedTexts<T> {
    /// The text of a value, which `write` writes unless it is being sent already.
    pub(crate) fn text<E>(
        &self,
        of: &Arc<T>,
        write: impl FnOnce(&Arc<T>) -> Result<Vec<u8>, E>,
    ) -> Result<Arc<Vec<u8>>, E> {
        if let Some(text) = self.sent(of) {
            return Ok(text);
        }
        // Written without the lock: at most as many at once as there are threads that serve.
        let text = Arc::new(write(of)?);
        let sent = Sent { of: Arc::downgrade(of), text: Arc::downgrade(&text) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
        Ok(text)
    }

    fn sent(&self, of: &Arc<T>) -> Option<Arc<Vec<u8>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|sent| sent.text.strong_count() > 0);
        let sent = all.iter().find(|sent| std::ptr::eq(sent.of.as_ptr(), Arc::as_ptr(of)))?;
        sent.text.upgrade()
    }
}

/// A body that other answers may have as well.
struct SharedBody(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedBody {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// An answer of this text, or of the reason why there is none.
pub(crate) fn shared(text: Result<Arc<Vec<u8>>, String>, content_type: &'static str) -> Response {
    match text {
        Ok(text) => {
            ([(header::CONTENT_TYPE, content_type)], Bytes::from_owner(SharedBody(text))).into_response()
        }
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, why).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_written_once_for_all_that_hold_it() {
        let texts = SharedTexts::default();
        let (one, other) = (Arc::new(1), Arc::new(2));
        let text = |of: &Arc<u8>| texts.text(of, |of| Ok::<_, ()>(vec![**of])).unwrap();
        let first = text(&one);
        assert!(Arc::ptr_eq(&first, &text(&one)) && !Arc::ptr_eq(&first, &text(&other)));
        drop(first);
        let again = text(&one);
        assert_eq!((again.as_slice(), texts.0.lock().unwrap().len()), (&[1][..], 1), "the others are gone");
    }
}
