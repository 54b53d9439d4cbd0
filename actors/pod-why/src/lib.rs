//! What a node's pods wait for, in words: pure code that NodeApi's `/why` and the companion `understudy` share, so that both
//! say the same.
//!
//! [`model`] is what the kubelet's server answers, as far as it is read; [`why`] explains one pod, [`overview`] all of them with
//! the [`node`]; [`rows`] has kubectl's columns, [`timeline`] what was done for
//! a pod.

pub mod model;
pub mod node;
pub mod overview;
pub mod parts;
pub mod rows;
pub mod text;
pub mod timeline;
pub mod why;
