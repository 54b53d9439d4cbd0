//! exec, attach and port-forward (row 21.4): the runtime's streaming server does them, over the caller's connection.

mod params;
mod upgrade;

pub use params::{Streams, ports, query_pairs};
pub use upgrade::refusal;
