//! Carries out plans through the bridge: each step is idempotent and named, and a fault can be ordered for
//! each.
//!
//! A task of this module may be dropped at any await: calls to the runtime that it has begun go on in the
//! bridge, and the next plan begins with a fresh look.

mod hook;
mod images;
mod kill;
mod prepare;
mod progress;
mod release;
mod sandbox;
mod start;
mod sync;

use futures::stream::{self, Stream, StreamExt};
use messages::PodRef;

pub(crate) use self::hook::{PreStop, PreStops, run as run_hook};
pub(crate) use self::images::{
    AskPlaces, ImageAnswer, PullContext, SandboxMade, ask as ask_image, step as image_step,
};
pub(crate) use self::kill::{StopOutcome, stop_all};
pub(crate) use self::progress::Progress;
use self::progress::StepGuard;
pub(crate) use self::release::release;
pub(crate) use self::start::image_failure;
pub(crate) use self::sync::{Floors, ImageWait, StartFailure, SyncOutcome, SyncTask};
use crate::deps::PodWorkerDeps;
use crate::pull_time::PullTime;
use crate::texts::Text;

/// How many calls of one pod wait at once in a lane or a mailbox that pods share: a pod has as many containers, and these name
/// as many objects, as its author likes.
const AT_ONCE: usize = 8;

/// Does a pod's work part by part, a few at once; the results come in the order of the work.
fn few_at_once<F: Future>(work: Vec<F>) -> impl Stream<Item = F::Output> {
    stream::iter(work).buffered(AT_ONCE)
}

/// The means that every task of one pod needs.
#[derive(Clone)]
pub(crate) struct Executor {
    pub deps: PodWorkerDeps,
    pub pod: PodRef,
    pub progress: Progress,
    /// The configuration of the pod's sandbox, for pulls.
    pub sandbox_made: SandboxMade,
    /// How long the pod has waited for images.
    pub pulls: PullTime,
    /// The places of the pod's asks for images.
    pub asks: AskPlaces,
}

impl Executor {
    fn uid(&self) -> &str {
        self.pod.uid.as_str()
    }

    /// Begins a step. Until the guard is dropped the step is shown as the one that the pod waits for.
    async fn step(&self, what: String) -> StepGuard {
        let guard = self.progress.begin(what.clone());
        if let Some(fault_point) = &self.deps.fault_point {
            fault_point(&what).await;
        }
        guard
    }

    /// Records an event about the pod, or about the container with this field path.
    fn record(&self, text: Text, field_path: &str) {
        // Refused: counted at the recorder; an event is not worth more.
        self.deps.events.tell_or_count(text.about(&self.pod, field_path));
    }
}
