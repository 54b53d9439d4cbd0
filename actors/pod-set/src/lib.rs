//! PURE: both ends of a set of pods that travels pod by pod ([`messages::pod_set`]). The writer keeps a [`Journal`], each
//! follower a [`PodSet`]. This crate is no actor: it is what several actors share to talk of sets in the same way.
//!
//! A change of one pod is one message of one pod's size. Mailboxes keep the latest message of each pod, so changes of
//! different pods may arrive in another order than they were made, and one that was replaced never arrives. A follower
//! therefore does not look for gaps between numbers: it compares a hash of all numbers with the writer's digest. A digest
//! that shows another set than the follower has means that a message was lost, and the follower asks for a snapshot.
//!
//! What Pleg sees of a pod is no set, but is told pod by pod as well: [`Looks`] tells a fact of earlier from news.

mod digests;
mod entries;
mod journal;
mod looks;
mod reports;
mod set;

pub use digests::Digests;
pub use journal::{Journal, snapshot};
pub use looks::Looks;
pub use reports::{Reports, forget_over, take_report};
pub use set::{PodSet, Taken};

#[cfg(test)]
mod props;
