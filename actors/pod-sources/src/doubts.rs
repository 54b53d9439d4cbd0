//! What one incarnation of the actor leaves to the next.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The names under which manifests may be on the disk whose submissions were refused, since the disk has failed. It stands beside
/// the actor, as a later incarnation would otherwise find such a manifest and run its pod.
#[derive(Clone, Debug, Default)]
pub struct Doubts(Arc<Names>);

#[derive(Debug, Default)]
struct Names(Mutex<BTreeSet<String>>);

impl Doubts {
    pub(crate) fn insert(&self, name: &str) {
        self.locked().insert(name.to_owned());
    }

    pub(crate) fn remove(&self, name: &str) {
        self.locked().remove(name);
    }

    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
