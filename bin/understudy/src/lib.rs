//! The companion program for users: `top` shows a running kubelet, `why` says what one of its pods waits for, `timeline` what
//! was done for it, `describe` what is known of it, `logs` prints what it writes, `pods` lists them, `demo` plays the sample pods
//! on a runtime in memory, and `completion` prints scripts for shells.
//!
//! Pure code in [`view`] turns the server's answers ([`pod_why::model`]) into lines; [`top`] requests and draws, [`demo`]
//! starts a kubelet and shows it the same way. Pure code in [`pod_why`], [`list`] and [`describe`] decides what is printed
//! of a pod. [`connect`] makes a [`client::Server`] of the flags that name a kubelet and the caller's credentials.

// This program is used at a terminal: it works in wall time, and its runs are never replayed.
#![allow(clippy::disallowed_methods)]

pub mod answers;
pub mod cli;
pub mod client;
pub mod completion;
pub mod connect;
pub mod demo;
pub mod describe;
pub mod json;
pub mod list;
pub mod logs;
pub mod terminal;
pub mod top;
pub mod view;
