//! Facts that the wiring itself states to an actor, kept as levels and told all at once, so that an end is told as a level is: when
//! one changes, every minute again, since a message may be lost after a mailbox has taken it, to a new incarnation of the
//! receiver, and after a refusal.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_io::{Io, lasting};

/// How often all levels are sent again.
const EVERY: Duration = Duration::from_secs(60);

/// The present levels by subject; a subject without a level is in order.
pub(super) struct Levels<K, V, T> {
    /// Sends all levels; returns whether the receiver has accepted them.
    tell: T,
    stated: Mutex<Stated<K, V>>,
}

struct Stated<K, V> {
    holds: Arc<BTreeMap<K, V>>,
    /// Whether there was a level ever: before, nothing is told.
    has_begun: bool,
    /// The receiver has not accepted the present levels yet.
    is_owed: bool,
}

impl<K: Ord + Clone, V: Clone + PartialEq, T: Fn(Arc<BTreeMap<K, V>>) -> bool> Levels<K, V, T> {
    pub(super) fn new(tell: T) -> Self {
        let stated = Stated { holds: Arc::new(BTreeMap::new()), has_begun: false, is_owed: false };
        Self { tell, stated: Mutex::new(stated) }
    }

    /// Sets a subject's level, or clears it with `None`, and sends all levels if that is news or they were refused before.
    pub(super) fn state(&self, subject: K, level: Option<V>) {
        let mut stated = self.stated.lock().unwrap_or_else(PoisonError::into_inner);
        if stated.holds.get(&subject) != level.as_ref() {
            let holds = Arc::make_mut(&mut stated.holds);
            match level {
                Some(level) => drop(holds.insert(subject, level)),
                None => drop(holds.remove(&subject)),
            }
            (stated.has_begun, stated.is_owed) = (true, true);
        }
        self.tell_owed(&mut stated);
    }

    /// Sends all levels again: the receiver may have lost them, or begun anew.
    pub(super) fn tell_again(&self) {
        let mut stated = self.stated.lock().unwrap_or_else(PoisonError::into_inner);
        stated.is_owed = stated.has_begun;
        self.tell_owed(&mut stated);
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

    fn tell_owed(&self, stated: &mut Stated<K, V>) {
        stated.is_owed = stated.is_owed && !(self.tell)(stated.holds.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    type Told = RefCell<Vec<String>>;

    fn note(told: &Told, levels: &BTreeMap<&str, &str>) {
        let all: Vec<String> = levels.iter().map(|(subject, level)| format!("{subject}={level}")).collect();
        told.borrow_mut().push(all.join(" "));
    }

    #[test]
    fn all_that_holds_is_told_with_each_change_and_again_however_often_an_end_was_lost() {
        let told = Told::default();
        let levels = Levels::new(|all: Arc<BTreeMap<&'static str, &'static str>>| {
            note(&told, &all);
            true
        });
        levels.tell_again();
        levels.state("a", None);
        assert!(told.take().is_empty(), "nothing was stated yet");
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

    #[test]
    fn what_is_refused_is_told_with_the_next_event() {
        let (told, room) = (Told::default(), Cell::new(false));
        let levels = Levels::new(|all: Arc<BTreeMap<&'static str, &'static str>>| {
            if room.get() {
                note(&told, &all);
            }
            room.get()
        });
        levels.state("a", Some("bad"));
        levels.state("b", Some("bad"));
        levels.state("b", None);
        room.set(true);
        levels.state("c", None);
        levels.state("c", None);
        assert_eq!(told.take(), ["a=bad"]);
    }
}
