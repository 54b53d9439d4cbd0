//! Things that the watchdog pings like an actor although they are none, such as a runtime with threads of its
//! own.

use std::sync::Arc;

use crate::cell::{Cell, State, Vitality};
use crate::orders::Order;
use crate::tree::{Registered, Remote, Tree};

impl Tree {
    /// Has the watchdog ping something that is no actor, such as a runtime with threads of its own, and shows
    /// it in the tree under `name`. `ping` runs on the watchdog's thread and must not block; it passes the
    /// [`Answer`] to the pinged thing, which calls [`Answer::give`]. Silence is reported and ends the process
    /// as that of an actor's thread does.
    pub fn watch(
        &self,
        name: &'static str,
        vitality: Vitality,
        ping: impl Fn(Answer) + Send + Sync + 'static,
    ) {
        let cell = Arc::new(Cell::new(name.to_owned(), name, vitality));
        cell.set_state(State::Running);
        cell.begin("its tasks", None);
        let remote = Arc::new(Watched { cell: cell.clone(), ping });
        let registered = Registered { cell, parent: None, remote, handle: Arc::new(()) };
        self.seats().insert(name.to_owned(), registered);
    }
}

struct Watched<P> {
    cell: Arc<Cell>,
    ping: P,
}

impl<P: Fn(Answer) + Send + Sync> Remote for Watched<P> {
    fn order(&self, order: Order) {
        match order {
            Order::Ping => (self.ping)(Answer(self.cell.clone())),
            Order::Stop => self.cell.set_state(State::Stopped),
            // There is no incarnation to end and no state to show.
            _ => {}
        }
    }

    fn depth(&self) -> usize {
        0
    }

    fn bound(&self) -> usize {
        0
    }
}

/// The answer to one ping of [`Tree::watch`].
pub struct Answer(Arc<Cell>);

impl Answer {
    /// Tells the watchdog that the pinged thing has answered.
    pub fn give(self) {
        self.0.answered();
    }
}
