//! A panic that goes on in another thread than the one that panicked: its place goes along.
//!
//! The panic hook runs on the thread that panics, and [`std::panic::resume_unwind`] runs no hook. So a hook notes the place
//! here ([`note`]), the thread that did the work takes the note along with the panic's text ([`catch`]), and the thread that waited
//! for the work has the note again before it goes on ([`Carried::resume`]). Supervision, which installs the hook, and the
//! bridge, which owns the threads, know no crate in common but this one.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes where the panic happened that this thread unwinds from, as `file:line:column`.
pub fn note(place: String) {
    PLACE.with(|last| *last.borrow_mut() = Some(place));
}

/// The place that was noted last on this thread; it is noted no longer.
pub fn take() -> Option<String> {
    PLACE.with(|last| last.borrow_mut().take())
}

/// A panic on its way to the threads that wait for the work: its text and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    text: String,
    place: Option<String>,
}

impl std::fmt::Display for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.text, self.place.as_deref().unwrap_or("unknown"))
    }
}

impl Carried {
    /// Goes on with the panic on this thread, at the place where it began.
    pub fn resume(self) -> ! {
        if let Some(place) = self.place {
            note(place);
        }
        resume_unwind(Box::new(self.text))
    }
}

/// Does one piece of work; a panic is caught to be carried over. The caller looks at nothing that the work left half done.
///
/// # Errors
/// The panic of the work.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Carried> {
    // Of an earlier panic that others caught.
    take();
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Carried { text: text(&*payload), place: take() })
}

/// The text of a panic.
pub fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without text".to_owned())
}

/// What the work returned; a panic that was carried over goes on in the caller, at its place.
pub fn resumed<T>(done: Result<T, Carried>) -> T {
    done.unwrap_or_else(|panic| panic.resume())
}

/// The same as [`catch`] for asynchronous work, such as a task of another runtime.
///
/// # Errors
/// The panic of the work.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Carried> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|cx| match catch(|| work.as_mut().poll(cx)) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => std::task::Poll::Ready(Err(panic)),
    })
    .await
}
