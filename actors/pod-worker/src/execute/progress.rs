//! The steps that are under way, so that the status of a pod that hangs can name the step (row 30.2).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The steps of one worker's running task. Clones share the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    steps: BTreeMap<u64, (String, Instant)>,
}

impl Progress {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(&self, what: String) -> StepGuard {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.steps.insert(number, (what, Instant::now()));
        StepGuard { progress: self.clone(), number }
    }

    /// The oldest step that is under way, and for how long.
    pub fn longest(&self) -> Option<(String, Duration)> {
        self.table().steps.values().next().map(|(what, since)| (what.clone(), since.elapsed()))
    }
}

/// Ends its step when it is dropped.
#[must_use = "the step ends with it"]
pub(crate) struct StepGuard {
    progress: Progress,
    number: u64,
}

impl Drop for StepGuard {
    fn drop(&mut self) {
        self.progress.table().steps.remove(&self.number);
    }
}
