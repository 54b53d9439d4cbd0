//! A CSI driver that really mounts, in a process of its own, and misbehaves on order.
//!
//! It is the bridge's fake driver with effects: a volume is a directory below `DIRECTORY/volumes` that is bind-mounted, a
//! block device a file there behind a loop device, an inline volume a tmpfs. What it holds is kept in `DIRECTORY/held.json`,
//! so that the next process goes on where a killed one ended.
//!
//! ```text
//! TEST-PROGRAM csi-driver --name NAME --directory DIRECTORY [--registry plugins_registry]
//! ```
//!
//! It serves `DIRECTORY/csi.sock`, and with `--registry` also the registration `reg.sock` there. Orders are lines on its
//! standard input, see [`orders`]; each is answered by a line that begins with `ok` or `error`. It ends with its input.
//! [`DriverProcess`] is such a process: the test program itself, started anew and [`asked`] to be a driver.
//!
//! Beside it, [`hostpath`] runs a driver of others.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program of its own, driven by tests in wall time"
)]

pub mod claimed;
pub mod controller;
mod effects;
pub mod hostpath;
pub mod orders;
mod process;
pub mod programs;
pub mod registrar;

pub use effects::{Mounts, is_mounted};
pub use process::{DriverProcess, asked};
