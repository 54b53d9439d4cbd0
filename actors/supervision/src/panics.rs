//! Where a panic happened, and for which pod. The panic hook notes both on the panicking thread; [`catch`]
//! takes the note after the unwind.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

use bridge_pace::panics as places;
use messages::PodUid;
use serde::Serialize;

use crate::blame;

thread_local! {
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
    /// How long the code had run before: the deadline of an effect that has passed it, otherwise zero.
    #[serde(skip)]
    pub after: Duration,
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
            places::note(place);
            blame::note(blame::current());
            if !SUPERVISED.with(Cell::get) {
                previous(info);
            }
        }));
    });
}

/// Runs `f` and turns a panic into a report; actors run steps so that foreign bytes may make panic before they can be put down to
/// a pod.
///
/// # Errors
/// The panic, with its place.
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, PanicReport> {
    let outer = SUPERVISED.with(|flag| flag.replace(true));
    // Notes of a panic that others caught on this thread, as tokio does for its tasks, are not of this one.
    forget();
    // The actor that panicked is dropped by the caller without a look at its broken state.
    let result = catch_unwind(AssertUnwindSafe(f));
    SUPERVISED.with(|flag| flag.set(outer));
    result.map_err(|payload| report(&*payload))
}

fn forget() {
    places::take();
    blame::take_noted();
}

fn report(payload: &(dyn Any + Send)) -> PanicReport {
    let message = places::text(payload);
    let place = places::take().unwrap_or_else(|| "unknown".to_owned());
    let pod = blame::take_noted();
    PanicReport { place, message, pod, after: Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use super::*;

    const AT: u32 = line!() + 4;

    /// Work that another thread does; its panic goes on in the task that polls.
    async fn elsewhere() {
        let done = std::thread::spawn(|| places::catch(|| panic!("in the work"))).join();
        done.expect("the panic is caught there").unwrap_or_else(|panic: places::Carried| panic.resume())
    }

    #[test]
    fn a_panic_of_another_thread_is_put_down_to_the_pod_that_waits_at_the_place_where_it_began() {
        install();
        let (outer, inner) = (PodUid::new("outer"), PodUid::new("inner"));
        let work = blame::work_for_pod(&outer, blame::work_for_pod(&inner, elsewhere()));
        let report = catch(|| futures::FutureExt::now_or_never(work)).unwrap_err();
        assert_eq!((report.message.as_str(), report.pod), ("in the work", Some(inner)));
        assert!(report.place.contains(&format!("panics.rs:{AT}:")), "{}, not {AT}", report.place);
    }

    #[test]
    fn a_panic_that_others_have_caught_leaves_no_note() {
        install();
        let caught = PodUid::new("caught");
        let _ = catch_unwind(|| blame::for_pod(&caught, || panic!("caught by others")));
        let report = catch(|| resume_unwind(Box::new("without a hook"))).unwrap_err();
        assert_eq!((report.place.as_str(), report.pod), ("unknown", None));
    }
}
