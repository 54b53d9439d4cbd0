//! PURE: what a pod's spec means, computed in one place for all subsystems that read it.
//!
//! [`quantity`] and [`resources`] read what a pod requests, [`downward`] renders what the pod's own containers are told
//! of it, [`expansion`] fills in `$(NAME)`, and [`nesting`] and [`weight`] bound what pods take in memory. None of these types travel between actors: messages carry the pod
//! itself.

pub mod downward;
pub mod expansion;
pub mod nesting;
pub mod quantity;
pub mod resources;
pub mod weight;
