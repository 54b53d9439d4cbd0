//! What the wiring itself states to an actor, kept as levels: told when it changes, told again to a new incarnation of the
//! receiver, and tried again after a refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// What holds, by subject; a subject that is absent is as it should be.
pub(super) struct Levels<K, T> {
    /// Says whether the receiver has taken it.
    tell: T,
    stated: Mutex<Stated<K>>,
}

struct Stated<K> {
    holds: BTreeMap<K, Arc<str>>,
    /// Subjects of which the receiver does not know how they are.
    untold: BTreeSet<K>,
}

impl<K: Ord + Clone, T: Fn(&K, Option<&Arc<str>>) -> bool> Levels<K, T> {
    pub(super) fn new(tell: T) -> Self {
        Self { tell, stated: Mutex::new(Stated { holds: BTreeMap::new(), untold: BTreeSet::new() }) }
    }

    /// The subject is so from now on, or as it should be. What was refused before is told with it.
    pub(super) fn state(&self, subject: K, level: Option<Arc<str>>) {
        let mut stated = self.stated.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = match level {
            Some(level) => stated.holds.insert(subject.clone(), level.clone()) != Some(level),
            None => stated.holds.remove(&subject).is_some(),
        };
        if is_news {
            stated.untold.insert(subject);
        }
        self.tell_untold(&mut stated);
    }

    /// The receiver begins anew: it is told everything that holds.
    pub(super) fn tell_again(&self) {
        let mut stated = self.stated.lock().unwrap_or_else(PoisonError::into_inner);
        let Stated { holds, untold } = &mut *stated;
        untold.extend(holds.keys().cloned());
        self.tell_untold(&mut stated);
    }

    fn tell_untold(&self, stated: &mut Stated<K>) {
        let Stated { holds, untold } = stated;
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
        assert_eq!(told.take(), ["a=bad", "b=worse", "a=bad", "b=worse", "a=", "b=worse"]);
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
