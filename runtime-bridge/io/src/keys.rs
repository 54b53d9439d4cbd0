//! One piece of work at a time for each key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// The keys of work that runs or waits: one piece of work at a time has a key, in the order of asking.
#[derive(Clone, Debug, Default)]
pub struct Keys(Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>>);

impl Keys {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn are_free(&self) -> bool {
        self.locked().is_empty()
    }

    /// Waits for the key, in the order in which it was asked for.
    pub async fn turn(&self, key: String) -> Turn {
        let line = self.locked().entry(key).or_default().clone();
        Turn { keys: self.clone(), held: Some(line.lock_owned().await) }
    }
}

/// A key that is held.
#[must_use = "the key is held for as long as this is kept"]
pub struct Turn {
    keys: Keys,
    held: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.held.take());
        // A line with another holder or waiter is kept.
        self.keys.locked().retain(|_, line| Arc::strong_count(line) > 1);
    }
}
