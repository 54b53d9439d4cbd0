//! TokenReview and SubjectAccessReview at the API server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::cache::Remembered;
use super::{NodeAccess, ReviewError, Reviews, User};
use crate::kube::{ApiClient, ApiError};

/// Answers of each kind that are remembered.
const ANSWERS_MAX: usize = 4096;
/// A caller is not kept waiting for longer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Waits between the attempts of one review.
const RETRY: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_millis(750),
    Duration::from_millis(1125),
    Duration::from_millis(1688),
];

/// How long answers are remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReviewTtls {
    /// Whose a token is: `authentication.webhook.cacheTTL`.
    pub token: Duration,
    /// Yes: `authorization.webhook.cacheAuthorizedTTL`.
    pub allowed: Duration,
    /// No: `authorization.webhook.cacheUnauthorizedTTL`.
    pub refused: Duration,
}

/// Tokens are remembered by their hash alone.
type TokenKey = [u8; 32];

#[derive(Debug)]
struct Answers {
    tokens: Mutex<Remembered<TokenKey, Option<User>>>,
    accesses: Mutex<Remembered<NodeAccess, bool>>,
}

/// Asks the API server.
#[derive(Clone, Debug)]
pub struct ClusterReviews {
    api: ApiClient,
    ttls: ReviewTtls,
    answers: Arc<Answers>,
}

impl ClusterReviews {
    /// Remembers nothing yet.
    pub fn new(api: ApiClient, ttls: ReviewTtls) -> Self {
        let answers = Answers {
            tokens: Mutex::new(Remembered::new(ANSWERS_MAX)),
            accesses: Mutex::new(Remembered::new(ANSWERS_MAX)),
        };
        Self { api, ttls, answers: Arc::new(answers) }
    }
}

/// Tries again what may go better the next time.
async fn asked<T, F>(ask: impl Fn() -> F) -> Result<T, ReviewError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let attempts = async {
        for wait in RETRY {
            match ask().await {
                Err(error) if error.is_transient() => tokio::time::sleep(wait).await,
                answer => return answer,
            }
        }
        ask().await
    };
    match tokio::time::timeout(DEADLINE, attempts).await {
        Ok(answer) => answer.map_err(|error| ReviewError(error.to_string())),
        Err(_) => Err(ReviewError(format!("no review within {} s", DEADLINE.as_secs()))),
    }
}

fn remembered<K: Ord + Clone, V: Clone>(answers: &Mutex<Remembered<K, V>>, key: &K) -> Option<V> {
    answers.lock().unwrap_or_else(PoisonError::into_inner).get(key, Instant::now())
}

fn user(info: UserInfo) -> User {
    User {
        name: info.username.unwrap_or_default(),
        uid: info.uid.unwrap_or_default(),
        groups: info.groups.unwrap_or_default(),
        extra: info.extra.unwrap_or_default().into_iter().collect(),
    }
}

fn review_of(access: &NodeAccess) -> SubjectAccessReview {
    let user = &access.user;
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: text(&user.name),
            uid: text(&user.uid),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: text(&access.verb),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: text(&access.subresource),
                name: text(&access.node),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

impl Reviews for ClusterReviews {
    fn token(&self, token: &str) -> BoxFuture<'static, Result<Option<User>, ReviewError>> {
        let key: TokenKey = Sha256::digest(token.as_bytes()).into();
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let this = self.clone();
        Box::pin(async move {
            if let Some(known) = remembered(&this.answers.tokens, &key) {
                return Ok(known);
            }
            let status = asked(|| this.api.create(&review)).await?.status.unwrap_or_default();
            let whose = match status.authenticated {
                Some(true) => status.user.map(user),
                _ => None,
            };
            let mut answers = this.answers.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            answers.put(key, whose.clone(), Instant::now(), this.ttls.token);
            Ok(whose)
        })
    }

    fn access(&self, access: NodeAccess) -> BoxFuture<'static, Result<bool, ReviewError>> {
        let this = self.clone();
        Box::pin(async move {
            if let Some(known) = remembered(&this.answers.accesses, &access) {
                return Ok(known);
            }
            let review = review_of(&access);
            let status = asked(|| this.api.create(&review)).await?.status.unwrap_or_default();
            let allowed = status.allowed && status.denied != Some(true);
            let ttl = if allowed { this.ttls.allowed } else { this.ttls.refused };
            let mut answers = this.answers.accesses.lock().unwrap_or_else(PoisonError::into_inner);
            answers.put(access, allowed, Instant::now(), ttl);
            Ok(allowed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_asks_for_the_node() {
        let user = User { name: "jane".into(), groups: vec!["g".into()], ..User::default() };
        let access = NodeAccess {
            user: Arc::new(user),
            verb: "get".into(),
            node: "n1".into(),
            subresource: "pods".into(),
        };
        assert_eq!(
            serde_json::to_value(review_of(&access)).unwrap()["spec"],
            serde_json::json!({
                "user": "jane", "groups": ["g"],
                "resourceAttributes": {
                    "verb": "get", "version": "v1", "resource": "nodes", "subresource": "pods", "name": "n1"
                }
            })
        );
    }
}
