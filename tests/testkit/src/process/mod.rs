//! The kubelet's binary as a process of its own, what its ports tell, and waiting for things in wall time.

mod kubelet;
mod poll;
mod port;

pub use kubelet::{KubeletCommand, KubeletProcess};
pub use poll::{eventually, holds};
pub use port::{Answer, Port, free_ports, heard};
