//! Both ends of a set of pods that travels pod by pod ([`messages::pod_set`]). The writer keeps a [`Journal`], each follower
//! a [`PodSet`]; both are PURE. This crate is no actor: it is what several actors share to talk of sets in the same way.
//!
//! A change of one pod is one message of one pod's size. Mailboxes keep the latest message of each pod, so changes of
//! different pods may arrive in another order than they were made, and one that was replaced never arrives. A follower
//! therefore does not look for gaps between numbers: it compares a hash of all numbers with the writer's digest. A digest
//! that shows another set than the follower has means that a message was lost, and the follower asks for a snapshot.
//!
//! A [`Teller`] has a journal and tells its followers of it, each at its own pace: what one has no room for it is told later.
//! A follower that acts on what it hears keeps a [`Followed`], which forgets nothing when a writer begins anew, and in which
//! absence is told like presence.
//!
//! A single fact, of a pod or of none, needs no journal: its writer keeps it in a [`Level`].

mod entries;
mod followed;
mod journal;
mod level;
mod listener;
mod set;
mod teller;

pub use followed::{Changed, Ends, Followed};
pub use journal::{Journal, snapshot};
pub use level::Level;
pub use set::{PodSet, Taken};
pub use teller::{Followers, Teller};

#[cfg(test)]
mod props;
