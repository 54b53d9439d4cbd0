//! Where a panic happened, and for which pod. The panic hook notes both on the panicking thread; [`catch`]
//! takes the note after the unwind.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Once;

use messages::PodUid;
use serde::Serialize;

use crate::blame;

thread_local! {
    static LAST: RefCell<Option<(String, Option<PodUid>)>> = const { RefCell::new(None) };
    static SUPERVISED: Cell<bool> = const { Cell::new(false) };
}

/// A caught panic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PanicReport {
    /// `file:line:column`, or `unknown`.
    pub place: String,
    /// The panic's message.
    pub message: String,
    /// The pod on whose behalf the panicking code ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodUid>,
}

impl std::fmt::Display for PanicReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.message, self.place)
    }
}

/// Installs the hook, once per process; panics outside supervised code still reach the hook before it.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map_or_else(|| "unknown".to_owned(), ToString::to_string);
            LAST.with(|last| *last.borrow_mut() = Some((place, blame::current())));
            if !SUPERVISED.with(Cell::get) {
                previous(info);
            }
        }));
    });
}

/// Runs `f` and turns a panic into a report.
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, PanicReport> {
    let outer = SUPERVISED.with(|flag| flag.replace(true));
    // The caller drops the actor that panicked, so its broken state is never used.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    SUPERVISED.with(|flag| flag.set(outer));
    result.map_err(|payload| report(&*payload))
}

fn report(payload: &(dyn Any + Send)) -> PanicReport {
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without text".to_owned());
    let noted = LAST.with(|last| last.borrow_mut().take());
    let (place, pod) = noted.unwrap_or_else(|| ("unknown".to_owned(), None));
    PanicReport { place, message, pod }
}

/// Runs a step that foreign bytes may make panic before they can be put down to a pod, and returns the panic.
///
/// # Errors
/// The panic, with its place.
pub fn contained<T>(step: impl FnOnce() -> T) -> Result<T, PanicReport> {
    catch(step)
}
