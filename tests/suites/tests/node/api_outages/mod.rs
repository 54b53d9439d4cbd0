//! Faults of the API server that a member of a cluster withstands, with bounds on its requests: down, half open,
//! refusing, slow, losing answers, restored to an earlier time; its Node deleted and edited; clocks that jump. In each
//! case no container is harmed, nothing is left over, and the node recovers without help.

mod away;
mod clocks;
mod forgetful;
mod node_object;
mod refusing;
mod restored;
mod scene;

pub use scene::{NS, clustered, pod};
