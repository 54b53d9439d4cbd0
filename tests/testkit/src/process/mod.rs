//! The kubelet's binary as a process of its own, the answers of its ports, and waits in wall time.

mod kubelet;
mod poll;
mod port;

pub use kubelet::{KubeletCommand, KubeletProcess};
pub use poll::{eventually, holds};
pub use port::{Answer, Port, free_ports, heard};
