//! Typed addresses of actors. An address outlives every incarnation of the actor behind it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use actix::Handler;
use actix::dev::OneshotSender;
use messages::{Delivery, WhenFull};

use crate::cell::Cell;
use crate::context::Subsystem;
use crate::envelope::{Entry, Typed};
use crate::mailbox::{Label, Mailbox, Posted, Refusal};

/// Why an ask got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The mailbox had no room: until the deadline for a message type of `WhenFull::Wait`, at the first try
    /// for any other.
    #[error("the mailbox is full")]
    Full,
    /// No answer came before the deadline; the receiver may still handle the message.
    #[error("no answer within the deadline")]
    Deadline,
    /// The receiver crashed or dropped the message before it answered.
    #[error("the answer was lost: the receiver restarted")]
    Lost,
    /// The receiver has quarantined the pod that the message names.
    #[error("the receiver has quarantined this pod")]
    Quarantined,
    /// The receiver has ended for good.
    #[error("the receiver has stopped")]
    Stopped,
}

/// A tell that the receiver's mailbox did not take.
#[derive(Debug)]
pub struct Refused<M> {
    /// The message, given back to the sender.
    pub message: M,
    /// Why the mailbox did not take the message.
    pub why: AskError,
}

impl From<Refusal> for AskError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full => Self::Full,
            Refusal::Closed => Self::Stopped,
            Refusal::Quarantined => Self::Quarantined,
        }
    }
}

/// The address of one actor for messages of one type. Cheap to clone; it survives restarts of the receiver.
pub struct Address<M: Delivery>(Arc<dyn Post<M>>);

impl<M: Delivery> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Delivery> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address<{}>({})", M::NAME, self.0.receiver())
    }
}

/// A future that ends when the mailbox may have room.
pub(crate) type Room = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) trait Post<M: Delivery>: Send + Sync {
    fn post(&self, message: M, asker: Option<OneshotSender<M::Result>>) -> Result<(), (M, Refusal)>;
    /// A wait for room: the future ends when the mailbox may have room.
    fn room(&self) -> Room;
    fn receiver(&self) -> &str;
    fn refused(&self);
}

impl<M: Delivery> Address<M> {
    pub(crate) fn new(post: Arc<dyn Post<M>>) -> Self {
        Self(post)
    }

    /// Tells the receiver something, and never blocks. A refusal is counted at the receiver and returned: the sender tells
    /// it again.
    pub fn tell(&self, message: M) -> Result<(), Refused<M>> {
        self.0.post(message, None).map_err(|(message, refusal)| {
            self.0.refused();
            Refused { message, why: refusal.into() }
        })
    }

    /// Tells what is made good if it is lost, as a digest or the next repetition does. A refusal is counted at the receiver.
    pub fn tell_level(&self, message: M) {
        let _made_good = self.tell(message);
    }

    /// Tells what may be lost, such as an event for people: that it was refused is counted at the receiver and is all that
    /// is left of it.
    pub fn tell_or_count(&self, message: M) {
        let _counted = self.tell(message);
    }

    /// The receiver's name in the supervision tree.
    pub fn receiver(&self) -> &str {
        self.0.receiver()
    }
}

/// The receiving end of an address: the mailbox and the cell of an actor of type `A`.
pub(crate) struct MailboxHandle<A: Subsystem> {
    pub mailbox: Arc<Mailbox<A>>,
    pub cell: Arc<Cell>,
}

impl<A, M> Post<M> for MailboxHandle<A>
where
    A: Subsystem + Handler<M>,
    M: Delivery,
{
    fn post(&self, message: M, asker: Option<OneshotSender<M::Result>>) -> Result<(), (M, Refusal)> {
        let label = Label {
            name: M::NAME,
            key: (M::WHEN_FULL == WhenFull::LatestPerKey).then(|| message.key()),
            pod: message.pod().cloned(),
            is_ask: asker.is_some(),
        };
        let mut message = Some((message, asker));
        let posted = self.mailbox.post(label, M::WHEN_FULL, |label, older| {
            let (mut message, asker) = message.take().expect("the mailbox builds an entry at most once");
            if let Some(older) = older.and_then(|older| older.envelope.message().downcast_ref::<M>()) {
                message.absorb(older);
            }
            Entry {
                name: label.name,
                kind: M::KIND,
                key: label.key,
                pod: label.pod,
                envelope: Box::new(Typed { message, asker }),
            }
        });
        match (posted, message) {
            (Ok(Posted::Replaced | Posted::HeldReplacing), _) => self.cell.counters.replaced(),
            (Ok(Posted::DroppedOldest), _) => self.cell.counters.dropped(),
            (Err(refusal), Some((message, _))) => return Err((message, refusal)),
            _ => {}
        }
        Ok(())
    }

    fn room(&self) -> Room {
        let mailbox = self.mailbox.clone();
        Box::pin(async move {
            let mut room = std::pin::pin!(mailbox.room.notified());
            // The waiter joins the list before the mailbox counts it, so that room made in between is not
            // missed.
            if !room.as_mut().enable() {
                mailbox.want_room();
                room.await;
            }
        })
    }

    fn receiver(&self) -> &str {
        &self.cell.name
    }

    fn refused(&self) {
        self.cell.counters.dead_letter();
    }
}
