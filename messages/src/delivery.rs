//! How a message is delivered: its name, its key, and what happens when the mailbox is full.

use std::fmt::Debug;
use std::sync::Arc;

use crate::PodUid;

/// What the mailbox does with a message that finds it full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The sender gets the refusal; nothing is queued.
    Reject,
    /// An ask waits for room until its own deadline; a tell is refused.
    Wait,
    /// A waiting message with the same [`Key`] is replaced, full or not; without one and without room: refused. Of what
    /// there are few ([`Key::has_own_room`]) there is always room for each.
    LatestPerKey,
    /// The oldest waiting message of the same name is dropped and counted; without such a one the new message is
    /// refused.
    DropOldest,
}

/// Whether a message asks for a change or only for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Asks for a change: handled even if the asking actor has gone meanwhile.
    Command,
    /// Asks for an answer: skipped, and counted, if the asking actor has gone meanwhile.
    Query,
}

/// The identity of the fact that a message states: a newer message replaces a waiting one of the same type and key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The type has only one fact.
    Only,
    /// One fact per pod.
    Pod(PodUid),
    /// One request per actor that makes it, by its name in the supervision tree.
    Receiver(&'static str),
    /// One fact per name (a source, an image, a container).
    Name(Arc<str>),
}

impl Key {
    /// Whether a full mailbox has room for the message all the same: of its type there is one, or one for each subsystem.
    pub fn has_own_room(&self) -> bool {
        matches!(self, Self::Only | Self::Receiver(_))
    }
}

/// A message that travels between supervised actors.
///
/// `Clone` lets the fault `Duplicate` send it twice; a message is data and cloning it must be cheap (`Arc` inside).
pub trait Delivery: actix::Message<Result: Send> + Clone + Debug + Send + 'static {
    /// The type's name, as metrics, dead letters, crash reports and fault orders show it.
    const NAME: &'static str;
    /// What happens when the mailbox is full.
    const WHEN_FULL: WhenFull;
    /// Whether the message is a command or a query.
    const KIND: Kind;

    /// The key for [`WhenFull::LatestPerKey`].
    fn key(&self) -> Key {
        self.pod().map_or(Key::Only, |uid| Key::Pod(uid.clone()))
    }

    /// The pod this message names. A panic while handling it counts against that pod (poison pod), not
    /// against the subsystem.
    fn pod(&self) -> Option<&PodUid> {
        None
    }

    /// Takes over what must not be lost with the older message of the same key that this one replaces in a mailbox.
    fn absorb(&mut self, _older: &Self) {}
}

/// Declares a message's delivery: `delivery!(SyncPod: Command, LatestPerKey, pod = |m| Some(&m.uid));`
#[macro_export]
macro_rules! delivery {
    ($msg:ty => $result:ty : $kind:ident, $full:ident $(, pod = $pod:expr)? $(, key = $key:expr)?
        $(, absorb = $absorb:expr)?) => {
        impl ::actix::Message for $msg {
            type Result = $result;
        }
        impl $crate::Delivery for $msg {
            const NAME: &'static str = {
                // The type's own name, without a path.
                stringify!($msg)
            };
            const WHEN_FULL: $crate::WhenFull = $crate::WhenFull::$full;
            const KIND: $crate::Kind = $crate::Kind::$kind;
            $(fn pod(&self) -> ::core::option::Option<&$crate::PodUid> {
                let pod: fn(&Self) -> ::core::option::Option<&$crate::PodUid> = $pod;
                pod(self)
            })?
            $(fn key(&self) -> $crate::Key {
                let key: fn(&Self) -> $crate::Key = $key;
                key(self)
            })?
            $(fn absorb(&mut self, older: &Self) {
                let absorb: fn(&mut Self, &Self) = $absorb;
                absorb(self, older);
            })?
        }
    };
}

/// Declares what an actor receives: `receives!("Pleg": PodTouched, GetRuntimePods);`
#[macro_export]
macro_rules! receives {
    ($receiver:literal : $($msg:ty),+ $(,)?) => {
        /// The receiving subsystem's name in the supervision tree.
        pub const RECEIVER: &str = $receiver;
        /// The names of all messages it receives.
        pub const RECEIVES: &[&str] = &[$(<$msg as $crate::Delivery>::NAME),+];
    };
}
