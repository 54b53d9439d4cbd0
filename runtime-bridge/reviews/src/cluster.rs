//! Asks the API server by TokenReview and SubjectAccessReview.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::cache::Remembered;
use super::in_flight::ReviewsInFlight;
use super::metrics::{Review, ReviewMetrics};
use super::{NodeAccess, ReviewError, Reviews, User};
use bridge_kube::{ApiClient, ApiError};
use bridge_net::peer::Peer;

/// The most answers of each kind that are remembered.
const ANSWERS_MAX: usize = 4096;
/// The most questions of each kind that are sent to the API server at the same time.
const AT_ONCE: usize = 32;
/// The longest time that an unknown token is remembered, however long other answers are: the token may be issued
/// meanwhile.
const UNKNOWN_TTL: Duration = Duration::from_secs(10);
/// The longest time that a caller waits for an answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// The waits between the attempts of one review.
const RETRY: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_millis(750),
    Duration::from_millis(1125),
    Duration::from_millis(1688),
];

/// How long answers are remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReviewTtls {
    /// The user of a token: `authentication.webhook.cacheTTL`.
    pub token: Duration,
    /// Permissions: `authorization.webhook.cacheAuthorizedTTL`.
    pub allowed: Duration,
    /// Refusals: `authorization.webhook.cacheUnauthorizedTTL`.
    pub refused: Duration,
}

/// The SHA-256 hash of a token: tokens themselves are not kept.
type TokenKey = [u8; 32];

#[derive(Debug)]
struct Answers {
    tokens: Mutex<Remembered<TokenKey, User>>,
    /// Unknown tokens, in a map of their own, since a flood of them would push out the other answers.
    unknown: Mutex<Remembered<TokenKey, ()>>,
    accesses: Mutex<Remembered<NodeAccess, bool>>,
    token_flights: ReviewsInFlight<TokenKey, Option<User>>,
    access_flights: ReviewsInFlight<NodeAccess, bool>,
}

/// Reviews by the API server. Questions about unknown tokens do not hold up questions about known users. Peers take turns
/// with questions about tokens, and users with those about access; and so are remembered answers shared: a user's
/// attributes are part of the question, since an authorizer may look at them, so that each new token of an account is
/// a new question.
#[derive(Clone, Debug)]
pub struct ClusterReviews {
    tokens: ApiClient,
    accesses: ApiClient,
    ttls: ReviewTtls,
    answers: Arc<Answers>,
    metrics: ReviewMetrics,
}

impl ClusterReviews {
    /// Reviews without remembered answers. Each kind of question has a queue of its own, at the rate of `api`.
    pub fn new(api: &ApiClient, ttls: ReviewTtls, metrics: ReviewMetrics) -> Self {
        let answers = Answers {
            tokens: Mutex::new(Remembered::new(ANSWERS_MAX)),
            unknown: Mutex::new(Remembered::new(ANSWERS_MAX)),
            accesses: Mutex::new(Remembered::new(ANSWERS_MAX)),
            token_flights: ReviewsInFlight::new(),
            access_flights: ReviewsInFlight::new(),
        };
        let api = api.with_deadline(DEADLINE);
        let (tokens, accesses) = (api.lane(AT_ONCE), api.lane(AT_ONCE));
        Self { tokens, accesses, ttls, answers: Arc::new(answers), metrics }
    }

    fn known_token(&self, key: &TokenKey) -> Option<Option<User>> {
        let known = remembered(&self.answers.tokens, key).map(Some);
        known.or_else(|| remembered(&self.answers.unknown, key).map(|()| None))
    }

    async fn review_token(
        self,
        key: TokenKey,
        token: String,
        peer: Arc<str>,
    ) -> Result<Option<User>, ReviewError> {
        let review = TokenReview {
            spec: TokenReviewSpec { token, ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let _fetches = self.metrics.fetches();
        let tokens = self.tokens.on_behalf_of(&peer);
        let answer = self.asked(Review::Token, || tokens.create(&review)).await;
        self.metrics.fetched(answer.is_ok());
        let status = answer?.status.unwrap_or_default();
        let whose = status.authenticated.unwrap_or(false).then_some(status.user).flatten().map(user);
        match whose.clone() {
            Some(user) => {
                let tenant = user.tenant();
                remember(&self.answers.tokens, key, user, &tenant, self.ttls.token);
            }
            None => remember(&self.answers.unknown, key, (), &peer, self.ttls.token.min(UNKNOWN_TTL)),
        }
        Ok(whose)
    }

    async fn review_access(self, access: NodeAccess) -> Result<bool, ReviewError> {
        let review = review_of(&access);
        let tenant = access.user.tenant();
        let accesses = self.accesses.on_behalf_of(&tenant);
        let answer = self.asked(Review::Access, || accesses.create(&review)).await;
        let status = answer?.status.unwrap_or_default();
        let allowed = status.allowed && status.denied != Some(true);
        let ttl = if allowed { self.ttls.allowed } else { self.ttls.refused };
        remember(&self.answers.accesses, access, allowed, &tenant, ttl);
        Ok(allowed)
    }

    /// Repeats a question after failures that may pass, and counts each time.
    async fn asked<T, F>(&self, review: Review, ask: impl Fn() -> F) -> Result<T, ReviewError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let counted = || async {
            let began = Instant::now();
            let answer = ask().await;
            self.metrics.reviewed(review, answer.as_ref().err(), began.elapsed());
            answer
        };
        asked(counted).await
    }
}

/// Repeats a question after failures that may pass.
async fn asked<T, F>(ask: impl Fn() -> F) -> Result<T, ReviewError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let attempts = async {
        for wait in RETRY {
            match ask().await {
                Err(error) if error.is_transient() && !error.is_not_sent() => {
                    tokio::time::sleep(wait).await;
                }
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

fn remember<K: Ord + Clone, V: Clone>(
    answers: &Mutex<Remembered<K, V>>,
    key: K,
    value: V,
    owner: &Arc<str>,
    ttl: Duration,
) {
    answers.lock().unwrap_or_else(PoisonError::into_inner).put(key, value, owner, Instant::now(), ttl);
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
    fn token(
        &self,
        token: &str,
        peer: Option<IpAddr>,
    ) -> BoxFuture<'static, Result<Option<User>, ReviewError>> {
        let key: TokenKey = Sha256::digest(token.as_bytes()).into();
        match self.known_token(&key) {
            Some(known) => {
                self.metrics.asked(true, Duration::ZERO);
                Box::pin(async move { Ok(known) })
            }
            None => {
                let (began, metrics, waits) = (Instant::now(), self.metrics.clone(), self.metrics.waits());
                let peer = peer.map_or_else(|| Arc::from(""), |peer| Arc::from(Peer::from(peer).to_string()));
                let review = || self.clone().review_token(key, token.to_owned(), peer);
                let joined = self.answers.token_flights.join(key, review);
                Box::pin(async move {
                    let answer = joined.await;
                    drop(waits);
                    metrics.asked(false, began.elapsed());
                    answer
                })
            }
        }
    }

    fn access(&self, access: NodeAccess) -> BoxFuture<'static, Result<bool, ReviewError>> {
        match remembered(&self.answers.accesses, &access) {
            Some(known) => Box::pin(async move { Ok(known) }),
            None => {
                let review = || self.clone().review_access(access.clone());
                Box::pin(self.answers.access_flights.join(access.clone(), review))
            }
        }
    }
}

#[cfg(all(test, feature = "fake"))]
mod tests;
