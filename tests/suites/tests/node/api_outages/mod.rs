//! What a member of a cluster must withstand from its API server, with the number of requests that it costs: away,
//! half open, refusing, slow, forgetful, put back to an earlier time; its Node deleted and edited; clocks that jump.
//! In each no container is harmed, nothing is left over, and all is well again without help.

mod away;
mod clocks;
mod forgetful;
mod node_object;
mod refusing;
mod restored;
mod scene;
