//! Answering an ask after its handler has returned.

use std::sync::{Arc, Mutex, PoisonError};

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message};

/// What a handler returns when the answer comes later: see [`reply_later`].
#[must_use = "return it from the handler, or the asker never gets an answer"]
pub struct ReplyLater<R>(Arc<Mutex<Slot<R>>>);

/// The sender of a later answer. Dropping it unanswered tells the asker that the answer is lost.
#[must_use = "dropping it tells the asker that the answer is lost"]
pub struct Reply<R>(Arc<Mutex<Slot<R>>>);

enum Slot<R> {
    /// The handler has not returned yet.
    Open,
    /// The handler has returned; this is the asker that waits.
    Asker(OneshotSender<R>),
    /// The answer came before the handler returned.
    Early(R),
    /// No asker waits (the message was a tell), or the answer was sent or lost.
    Closed,
}

/// A pair: the handler returns the first and keeps the second until it can answer.
pub fn reply_later<R>() -> (ReplyLater<R>, Reply<R>) {
    let slot = Arc::new(Mutex::new(Slot::Open));
    (ReplyLater(slot.clone()), Reply(slot))
}

impl<R> Reply<R> {
    /// Whether an asker may still wait for the answer; true also before the handler has returned.
    pub fn is_wanted(&self) -> bool {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Slot::Open => true,
            Slot::Asker(sender) => !sender.is_closed(),
            Slot::Early(_) | Slot::Closed => false,
        }
    }

    /// Sends the answer. An asker that has given up meanwhile is no error.
    pub fn send(self, answer: R) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Open => Slot::Early(answer),
            Slot::Asker(sender) => {
                let _asker_gone = sender.send(answer);
                Slot::Closed
            }
            Slot::Early(_) | Slot::Closed => Slot::Closed,
        };
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*slot, Slot::Early(_)) {
            *slot = Slot::Closed;
        }
    }
}

impl<A, M> MessageResponse<A, M> for ReplyLater<M::Result>
where
    A: Actor,
    M: Message,
{
    fn handle(self, _: &mut A::Context, asker: Option<OneshotSender<M::Result>>) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = match (std::mem::replace(&mut *slot, Slot::Closed), asker) {
            (Slot::Early(answer), Some(sender)) => {
                let _asker_gone = sender.send(answer);
                Slot::Closed
            }
            (Slot::Open, Some(sender)) => Slot::Asker(sender),
            _ => Slot::Closed,
        };
    }
}
