//! The kubelet's binary and other programs as processes, the answers of their ports, and waits in wall time.

mod kubelet;
mod poll;
mod port;
mod read;
mod running;

pub use kubelet::{KubeletCommand, KubeletProcess};
pub use poll::{eventually, holds};
pub use port::{Answer, Port, free_ports, heard};
pub use read::{has_ended, values};
pub use running::{Input, Running, Said};
