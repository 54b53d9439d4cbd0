//! Reviews with answers that a test sets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures::future::BoxFuture;

use super::{NodeAccess, ReviewError, Reviews, User};

/// Knows the given tokens and permissions; every other question is answered with no.
#[derive(Clone, Debug, Default)]
pub struct FakeReviews {
    /// The user of each token.
    pub tokens: BTreeMap<String, User>,
    /// The allowed combinations of user, verb and subresource.
    pub allowed: BTreeSet<(String, String, String)>,
    /// When set, every question fails.
    pub silent: bool,
}

impl FakeReviews {
    fn answer<T: Send + 'static>(&self, answer: T) -> BoxFuture<'static, Result<T, ReviewError>> {
        let silent = self.silent;
        Box::pin(async move {
            if silent { Err(ReviewError("the API server is silent".to_owned())) } else { Ok(answer) }
        })
    }
}

impl Reviews for FakeReviews {
    fn token(
        &self,
        token: &str,
        _peer: Option<IpAddr>,
    ) -> BoxFuture<'static, Result<Option<User>, ReviewError>> {
        self.answer(self.tokens.get(token).cloned())
    }

    fn access(&self, access: NodeAccess) -> BoxFuture<'static, Result<bool, ReviewError>> {
        let key = (access.user.name.clone(), access.verb, access.subresource);
        self.answer(self.allowed.contains(&key))
    }
}
