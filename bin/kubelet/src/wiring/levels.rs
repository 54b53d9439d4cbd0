//! Facts that the wiring itself states to an actor, kept as levels and told all at once, so that an end is told as a level is: when
//! one changes, to a new incarnation of the receiver, and every minute again, since a message may be lost after a mailbox has taken
//! it. A mailbox has room of its own for them, and refuses them only once its actor has ended for good.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_io::{Io, lasting};

/// How often all levels are sent again.
const EVERY: Duration = Duration::from_secs(60);

/// The present levels by subject; a subject without a level is in order.
pub(super) struct Levels<K, V, T> {
    /// Sends all levels.
    tell: T,
    holds: Mutex<Arc<BTreeMap<K, V>>>,
}

impl<K: Ord + Clone, V: Clone + PartialEq, T: Fn(Arc<BTreeMap<K, V>>)> Levels<K, V, T> {
    pub(super) fn new(tell: T) -> Self {
        Self { tell, holds: Mutex::default() }
    }

    /// Sets a subject's level, or clears it with `None`, and sends all levels if that is news.
    pub(super) fn state(&self, subject: K, level: Option<V>) {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        if holds.get(&subject) == level.as_ref() {
            return;
        }
        let changed = Arc::make_mut(&mut holds);
        match level {
            Some(level) => drop(changed.insert(subject, level)),
            None => drop(changed.remove(&subject)),
        }
        // Under the lock, so that the newest are told last.
        (self.tell)(holds.clone());
    }

    /// Sends all levels again: the receiver may have lost them, or begun anew.
    pub(super) fn tell_again(&self) {
        let holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        (self.tell)(holds.clone());
    }

    /// Sends all levels again each minute, as long as an event may change one.
    pub(super) fn tell_each_minute(self: &Arc<Self>, io: &Io)
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
        T: Send + Sync + 'static,
    {
        let levels = Arc::downgrade(self);
        let tell = move || {
            let levels = levels.clone();
            async move {
                loop {
                    tokio::time::sleep(EVERY).await;
                    let Some(levels) = levels.upgrade() else { return };
                    levels.tell_again();
                }
            }
        };
        drop(io.spawn(lasting("tell what was observed of subsystems again", tell)));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    type Told = RefCell<Vec<String>>;

    fn note(told: &Told, levels: &BTreeMap<&str, &str>) {
        let all: Vec<String> = levels.iter().map(|(subject, level)| format!("{subject}={level}")).collect();
        told.borrow_mut().push(all.join(" "));
    }

    #[test]
    fn all_that_holds_is_told_with_each_change_and_again_however_often_an_end_was_lost() {
        let told = Told::default();
        let levels = Levels::new(|all: Arc<BTreeMap<&'static str, &'static str>>| note(&told, &all));
        levels.state("a", None);
        assert!(told.take().is_empty(), "that is no news");
        levels.state("a", Some("bad"));
        levels.state("a", Some("bad"));
        levels.state("b", Some("worse"));
        levels.state("a", None);
        assert_eq!(told.take(), ["a=bad", "a=bad b=worse", "b=worse"]);
        levels.state("b", None);
        for _ in 0..3 {
            levels.tell_again();
        }
        assert_eq!(told.take(), ["", "", "", ""], "that none is left is told as a level is");
    }
}
