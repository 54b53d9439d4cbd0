//! What the API server says of the kubelet's own callers: who has a token, and what somebody may do with the node.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

mod cache;
mod cluster;
#[cfg(feature = "fake")]
mod fake;
mod flights;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;

pub use cluster::{ClusterReviews, ReviewTtls};
#[cfg(feature = "fake")]
pub use fake::FakeReviews;

/// Somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    /// Unique at one time.
    pub name: String,
    /// Unique for ever; empty if nobody says.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// What else is known, by lower-case name.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// May this user do this with the node?
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeAccess {
    /// Who.
    pub user: Arc<User>,
    /// `get`, `create`, …; empty for a method without a verb.
    pub verb: String,
    /// The Node object's name.
    pub node: String,
    /// `proxy`, `pods`, …
    pub subresource: String,
}

/// The API server has not said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReviewError(pub String);

/// Asks for what is not remembered. Yes and no are answers; only silence is an error.
pub trait Reviews: Send + Sync + std::fmt::Debug {
    /// Whose token this is; nobody's is `None`.
    fn token(&self, token: &str) -> BoxFuture<'static, Result<Option<User>, ReviewError>>;

    /// Whether this is allowed.
    fn access(&self, access: NodeAccess) -> BoxFuture<'static, Result<bool, ReviewError>>;
}
