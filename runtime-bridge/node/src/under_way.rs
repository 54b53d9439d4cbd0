//! Looks at file systems, any of which may hang: a look that has not ended is not begun again beside itself, so that one that
//! hangs takes one thread and no more.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The looks that have not ended, by what is looked at.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay<K>(Arc<Mutex<BTreeSet<K>>>);

impl<K> Default for UnderWay<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Ord + Clone> UnderWay<K> {
    /// Begins a look; `None` if the one before it has not ended.
    pub(crate) fn begin(&self, what: K) -> Option<Turn<K>> {
        let begins = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(what.clone());
        begins.then(|| Turn { what, all: self.clone() })
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<K> {
        self.0.lock().unwrap().iter().cloned().collect()
    }
}

/// A look that has not ended; it ends when this is dropped, by the thread that looks or before the look has begun.
pub(crate) struct Turn<K: Ord + Clone> {
    what: K,
    all: UnderWay<K>,
}

impl<K: Ord + Clone> Turn<K> {
    /// What is looked at.
    pub(crate) fn what(&self) -> &K {
        &self.what
    }
}

impl<K: Ord + Clone> Drop for Turn<K> {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.what);
    }
}
