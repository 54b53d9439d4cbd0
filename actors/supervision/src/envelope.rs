//! A message on its way into one actor, with its type erased.

use std::any::Any;

use actix::Handler;
use actix::dev::{MessageResponse, OneshotSender};
use messages::{Delivery, Key, Kind, PodUid};

use crate::context::{Ctx, Subsystem};

/// A waiting message and what the mailbox has to know of it.
pub(crate) struct Entry<A: Subsystem> {
    pub name: &'static str,
    pub kind: Kind,
    pub key: Option<Key>,
    pub pod: Option<PodUid>,
    pub envelope: Box<dyn Envelope<A>>,
}

impl<A: Subsystem> Entry<A> {
    /// Whether it takes none of the room that the mailbox's bound gives.
    pub fn has_own_room(&self) -> bool {
        self.key.as_ref().is_some_and(Key::has_own_room)
    }
}

/// A message that can be handled by `A`.
pub(crate) trait Envelope<A: Subsystem>: Send {
    fn handle(self: Box<Self>, actor: &mut A, ctx: &mut Ctx<A>);
    /// Whether an asker waits, or has waited, for the answer.
    fn is_ask(&self) -> bool;
    /// Whether the message is an ask whose asker has given up.
    fn asker_gone(&self) -> bool;
    /// The message itself, for one of the same type that replaces it.
    fn message(&self) -> &dyn Any;
    /// The same message once more, without an asker.
    #[cfg(feature = "faults")]
    fn duplicate(&self) -> Box<dyn Envelope<A>>;
}

pub(crate) struct Typed<M: Delivery> {
    pub message: M,
    pub asker: Option<OneshotSender<M::Result>>,
}

impl<A, M> Envelope<A> for Typed<M>
where
    A: Subsystem + Handler<M>,
    M: Delivery,
{
    fn handle(self: Box<Self>, actor: &mut A, ctx: &mut Ctx<A>) {
        let Self { message, asker } = *self;
        actor.handle(message, ctx).handle(ctx, asker);
    }

    fn is_ask(&self) -> bool {
        self.asker.is_some()
    }

    fn asker_gone(&self) -> bool {
        self.asker.as_ref().is_some_and(OneshotSender::is_closed)
    }

    fn message(&self) -> &dyn Any {
        &self.message
    }

    #[cfg(feature = "faults")]
    fn duplicate(&self) -> Box<dyn Envelope<A>> {
        Box::new(Self { message: self.message.clone(), asker: None })
    }
}
