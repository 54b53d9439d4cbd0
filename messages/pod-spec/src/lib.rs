//! PURE: what a pod's spec means, in one place for all subsystems that go by it.
//!
//! [`quantity`] and [`resources`] read what a pod asks for, [`downward`] tells it to the pod's own containers, and
//! [`expansion`] fills `$(NAME)` in. Nothing here travels between actors: messages carry the pod itself.

pub mod downward;
pub mod expansion;
pub mod quantity;
pub mod resources;
