//! The API server's reviews of the kubelet's own callers: which user a token belongs to, and what that user may do with
//! the node. NodeApi asks.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

mod cache;
mod cluster;
#[cfg(feature = "fake")]
mod fake;
mod in_flight;
mod metrics;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

pub use cluster::{ClusterReviews, ReviewTtls};
#[cfg(feature = "fake")]
pub use fake::FakeReviews;
pub use metrics::ReviewMetrics;

/// A user, as the API server knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    /// The user name, unique at one time.
    pub name: String,
    /// An ID that is never used again; empty if the API server states none.
    pub uid: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Further attributes, by lower-case name.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The tenant that the user's questions and connections count against: of a service account its namespace, since a tenant
    /// may have any number of accounts, else the user.
    #[must_use]
    pub fn tenant(&self) -> Arc<str> {
        const ACCOUNT: &str = "system:serviceaccount:";
        let namespace = self.name.strip_prefix(ACCOUNT).and_then(|rest| rest.split_once(':'));
        namespace.map_or_else(
            || Arc::from(self.name.as_str()),
            |(namespace, _)| format!("{ACCOUNT}{namespace}").into(),
        )
    }
}

/// The question whether a user may access a part of the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeAccess {
    /// The user.
    pub user: Arc<User>,
    /// `get`, `create`, …; empty for a method without a verb.
    pub verb: String,
    /// The Node object's name.
    pub node: String,
    /// The part of the Node: `proxy`, `pods`, …
    pub subresource: String,
}

/// The API server gave no answer; the text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReviewError(pub String);

/// Answers questions about callers, asking the API server unless the answer is remembered. Yes and no are answers; only
/// a missing answer is an error.
pub trait Reviews: Send + Sync + std::fmt::Debug {
    /// The user that a token belongs to; `None` for an unknown token. The question takes its turn among those of other
    /// peers.
    fn token(
        &self,
        token: &str,
        peer: Option<IpAddr>,
    ) -> BoxFuture<'static, Result<Option<User>, ReviewError>>;

    /// Whether the access is allowed.
    fn access(&self, access: NodeAccess) -> BoxFuture<'static, Result<bool, ReviewError>>;
}
