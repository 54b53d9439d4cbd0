//! Facts that the wiring itself states to an actor, kept as levels: sent when they change, every minute again, since a message
//! may be lost after a mailbox has taken it, to a new incarnation of the receiver, and after a refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_io::{Io, lasting};

/// How often all levels are sent again.
const EVERY: Duration = Duration::from_secs(60);

/// The present levels by subject; a subject without a level is in order.
pub(super) struct Levels<K, T> {
    /// Sends a level; returns whether the receiver has accepted it.
    tell: T,
    stated: Mutex<Stated<K>>,
}

struct Stated<K> {
    holds: BTreeMap<K, Arc<str>>,
    /// Subjects whose present level the receiver has not accepted yet.
    untold: BTreeSet<K>,
    /// Subjects that came in order since all levels were sent: that is sent again, too, once.
    over: BTreeSet<K>,
}

impl<K: Ord + Clone, T: Fn(&K, Option<&Arc<str>>) -> bool> Levels<K, T> {
    pub(super) fn new(tell: T) -> Self {
        let stated = Stated { holds: BTreeMap::new(), untold: BTreeSet::new(), over: BTreeSet::new() };
        Self { tell, stated: Mutex::new(stated) }
    }

    /// Sets a subject's level, or clears it with `None`, and sends it together with all levels that were refused
    /// before.
    pub(super) fn state(&self, subject: K, level: Option<Arc<str>>) {
        let mut stated = self.stated.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = match level {
            Some(level) => stated.holds.insert(subject.clone(), level.clone()) != Some(level),
            None => stated.holds.remove(&subject).is_some(),
        };
        if is_news {
            if !stated.holds.contains_key(&subject) {
                stated.over.insert(subject.clone());
            }
            stated.untold.insert(subject);
        }
        self.tell_untold(&mut stated);
    }

    /// Sends every level again: the receiver may have lost it, or begun anew.
    pub(super) fn tell_again(&self) {
        let mut stated = self.stated.lock().unwrap_or_else(PoisonError::into_inner);
        let Stated { holds, untold, over } = &mut *stated;
        untold.extend(holds.keys().cloned().chain(std::mem::take(over)));
        self.tell_untold(&mut stated);
    }

    /// Sends every level again each minute, as long as an event may change one.
    pub(super) fn tell_each_minute(self: &Arc<Self>, io: &Io)
    where
        K: Send + 'static,
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

    fn tell_untold(&self, stated: &mut Stated<K>) {
        let Stated { holds, untold, .. } = stated;
        untold.retain(|subject| !(self.tell)(subject, holds.get(subject)));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[test]
    fn what_holds_is_told_once_and_again_to_who_begins_anew() {
        let told = RefCell::new(Vec::new());
        let levels = Levels::new(|subject: &&str, level: Option<&Arc<str>>| {
            told.borrow_mut().push(format!("{subject}={}", level.map_or("", |level| level)));
            true
        });
        levels.state("a", None);
        levels.state("a", Some(Arc::from("bad")));
        levels.state("a", Some(Arc::from("bad")));
        levels.state("b", Some(Arc::from("worse")));
        levels.tell_again();
        levels.state("a", None);
        levels.tell_again();
        levels.tell_again();
        let again = ["a=", "a=", "b=worse", "b=worse"];
        assert_eq!(told.take(), [&["a=bad", "b=worse", "a=bad", "b=worse"], &again[..]].concat());
    }

    #[test]
    fn what_is_refused_is_told_with_the_next_news() {
        let (told, room) = (RefCell::new(Vec::new()), Cell::new(false));
        let levels = Levels::new(|subject: &&str, level: Option<&Arc<str>>| {
            told.borrow_mut().extend(room.get().then(|| (*subject, level.is_some())));
            room.get()
        });
        levels.state("a", Some(Arc::from("bad")));
        levels.state("b", Some(Arc::from("bad")));
        levels.state("b", None);
        room.set(true);
        levels.state("c", None);
        assert_eq!(told.take(), [("a", true), ("b", false)]);
    }
}
