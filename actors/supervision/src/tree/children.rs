//! When many children of one actor are above their restart limit: whether that is the actor's failure.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use super::{Tree, last_words};
use crate::cell::{Cell, State, Vitality};
use crate::events::{EventKind, Failure};

/// The dormant children of one actor.
struct Dormant {
    parent: String,
    count: usize,
    /// The different ways in which they crashed last.
    causes: BTreeSet<String>,
}

impl Tree {
    /// Looks at an actor's children when one of them has gone to sleep, begun or ended. As with poison pods one cause in
    /// many children is one: replicas of one template crash at one place. More causes than are borne are the actor's failure;
    /// otherwise the actor says how many children are dormant, and says when they no longer are.
    pub(super) fn judge_children(&self, child: &Cell, what: &EventKind) {
        if child.vitality != Vitality::Child {
            // What it said of its children is withdrawn with the incarnation that said it, and said again if it holds.
            self.crowded().remove(&child.name);
            return;
        }
        let slept = matches!(what, EventKind::Dormant { .. });
        if !slept && self.crowded().is_empty() {
            return;
        }
        let Some(Dormant { parent, count, causes }) = self.dormant_siblings(child) else { return };
        let max = self.0.policy.dormant_children_max;
        let last = || last_words(child);
        if slept && causes.len() > max {
            let reason =
                format!("{count} of its workers are above their restart limit; the last: {}", last());
            self.fail(Failure { actor: parent, reason });
        } else if slept && count > max && self.crowded().insert(parent.clone()) {
            self.emit_of(&parent, EventKind::ChildrenDormant { dormant: count, reason: last() });
        } else if count <= max && self.crowded().remove(&parent) {
            self.emit_of(&parent, EventKind::ChildrenAwake);
        }
    }

    fn crowded(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.crowded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dormant_siblings(&self, child: &Cell) -> Option<Dormant> {
        let seats = self.seats();
        let parent = seats.get(&child.name)?.parent.clone()?;
        let siblings = seats.values().filter(|r| r.parent.as_ref() == Some(&parent));
        let dormant: Vec<_> = siblings.filter(|r| r.cell.state() == State::Dormant).collect();
        let crashes = dormant.iter().filter_map(|r| r.cell.last_crash());
        let causes = crashes.map(|crash| crash.place.unwrap_or(crash.reason)).collect();
        Some(Dormant { parent, count: dormant.len(), causes })
    }

    fn emit_of(&self, actor: &str, what: EventKind) {
        let cell = self.seats().get(actor).map(|registered| registered.cell.clone());
        if let Some(cell) = cell {
            self.emit(&cell, what);
        }
    }
}
