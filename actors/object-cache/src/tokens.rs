//! PURE: when a token of a service account is renewed (row 10.8).

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use messages::object_cache::{GetToken, Token};
use messages::{PodRef, PodUid};

/// A token older than this is renewed.
const AGE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// At most so many milliseconds are taken off a token's age limit, so that not all tokens of a node are renewed at
/// once.
const JITTER_MAX_MS: u64 = 10_000;

/// Two asks with the same key get the same token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenKey {
    /// The pod that it is bound to.
    pub pod: PodUid,
    /// The service account's namespace and name.
    pub account: (Arc<str>, Arc<str>),
    /// The UID that the service account must have; empty for whichever has the name.
    pub account_uid: Arc<str>,
    /// The audience of the token.
    pub audience: Arc<str>,
    /// The lifetime asked for, in seconds.
    pub expiration_seconds: Option<i64>,
}

impl TokenKey {
    /// The key of an ask.
    pub fn of(ask: &GetToken) -> Self {
        let PodRef { uid, namespace, .. } = &ask.pod;
        Self {
            pod: uid.clone(),
            account: (namespace.clone(), ask.service_account.clone()),
            account_uid: ask.account_uid.clone(),
            audience: ask.audience.clone(),
            expiration_seconds: ask.expiration_seconds,
        }
    }

    /// The first key in order that a token of the pod may have.
    pub fn first_of(pod: &PodUid) -> Self {
        let nothing: Arc<str> = Arc::from("");
        let account = (nothing.clone(), nothing.clone());
        let account_uid = nothing.clone();
        Self { pod: pod.clone(), account, account_uid, audience: nothing, expiration_seconds: None }
    }
}

/// A token that was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The token.
    pub token: Token,
    /// When it ends.
    pub expires: Timestamp,
    /// How long it was issued for; `None` if the server does not say: then it is not renewed before it expires.
    pub lifetime: Option<Duration>,
}

impl Issued {
    /// Whether the token's time is over.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        now > self.expires
    }

    /// Whether it is older than a day or than four fifths of its lifetime. `random` takes up to ten seconds off.
    pub fn requires_refresh(&self, now: Timestamp, random: u64) -> bool {
        let Some(lifetime) = self.lifetime else { return false };
        let seconds = |seconds: u64| SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        let jitter = SignedDuration::from_millis(i64::try_from(random % JITTER_MAX_MS).unwrap_or(0));
        let left = self.expires.duration_since(now);
        let age = seconds(lifetime.as_secs()) - left;
        age > AGE_MAX - jitter || left < seconds(lifetime.as_secs() * 20 / 100) + jitter
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn token() -> Token {
        Token { text: Arc::from("t"), expires: Timestamp::UNIX_EPOCH }
    }

    fn issued(lifetime: u64, left: i64) -> Issued {
        Issued {
            token: token(),
            expires: Timestamp::from_second(NOW + left).expect("a time"),
            lifetime: Some(Duration::from_secs(lifetime)),
        }
    }

    fn due(issued: &Issued, random: u64) -> bool {
        issued.requires_refresh(Timestamp::from_second(NOW).expect("a time"), random)
    }

    #[test]
    fn a_token_is_renewed_after_four_fifths_of_its_time_or_a_day() {
        for (lifetime, left, random, expected) in [
            (3607, 3607, 0, false),
            (3607, 722, 0, false),
            (3607, 720, 0, true),
            (3607, 722, 9_999, true),
            (3607, 740, 9_999, false),
            (3607, -1, 0, true),
            // A token for a week: a day old.
            (604_800, 604_800 - 86_000, 0, false),
            (604_800, 604_800 - 86_399, 0, false),
            (604_800, 604_800 - 86_399, 2_000, true),
            (604_800, 604_800 - 86_401, 0, true),
        ] {
            assert_eq!(due(&issued(lifetime, left), random), expected, "{lifetime} {left} {random}");
        }
        let unknown = Issued { lifetime: None, ..issued(600, 1) };
        assert!(!due(&unknown, 0), "nothing says how old it is");
        assert!(!unknown.has_expired(Timestamp::from_second(NOW).expect("a time")));
        assert!(issued(600, -1).has_expired(Timestamp::from_second(NOW).expect("a time")));
    }

    proptest! {
        #[test]
        fn once_due_a_token_stays_due(lifetime in 600u64..1_000_000, left in -100i64..1_000_000, later in 0i64..100_000, random: u64) {
            let left = left.min(i64::try_from(lifetime).expect("it is small"));
            if due(&issued(lifetime, left), random) {
                prop_assert!(due(&issued(lifetime, left - later), random));
            }
        }

        #[test]
        fn nothing_shows_a_token(text in "[a-z]{8,20}") {
            let issued = Issued { token: Token { text: Arc::from(text.as_str()), ..token() }, ..issued(600, 600) };
            let shown = format!("{issued:?}");
            prop_assert!(!shown.contains(&text));
        }
    }
}
