//! Answers of providers that still hold. They are kept beside the actor, so that a new incarnation asks no provider again.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_io::watch;
use tokio::time::Instant;

use super::{Answer, CacheKind, Given};

/// The most answers that are kept.
const ANSWERS_MAX: usize = 1024;
/// The most bytes that they hold together.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most answers that are kept on behalf of one namespace, whose pods choose what is asked.
const ANSWERS_OF_ONE_MAX: usize = ANSWERS_MAX / 4;
/// The most bytes that they hold together.
const BYTES_OF_ONE_MAX: usize = BYTES_MAX / 4;
/// About how many bytes an entry takes beside its texts.
const ENTRY_BYTES: usize = 256;

/// What a provider is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The provider's name.
    pub provider: &'a str,
    /// The repository of the image.
    pub repository: &'a str,
    /// The fingerprint of the service account, if the provider is told one.
    pub account: Option<[u8; 32]>,
}

impl<'a> Question<'a> {
    fn key(&self, kind: CacheKind) -> Key {
        let of = match kind {
            CacheKind::Image => Of::Image(self.repository.to_owned()),
            CacheKind::Registry => Of::Registry(self.registry().to_owned()),
            CacheKind::Global => Of::All,
        };
        Key { provider: self.provider.to_owned(), account: self.account, of }
    }

    fn registry(&self) -> &'a str {
        self.repository.split('/').next().unwrap_or_default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Image(String),
    Registry(String),
    All,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    provider: String,
    account: Option<[u8; 32]>,
    of: Of,
}

struct Kept {
    given: Given,
    expires: Instant,
    bytes: usize,
    /// The namespace on whose behalf it was asked for. It may serve others.
    namespace: Arc<str>,
}

/// The answers that are kept on behalf of a namespace.
#[derive(Clone, Copy, Default)]
struct Share {
    answers: usize,
    bytes: usize,
}

impl Share {
    fn with(self, bytes: usize) -> Self {
        Self { answers: self.answers + 1, bytes: self.bytes + bytes }
    }

    fn is_too_large(self) -> bool {
        self.answers > ANSWERS_OF_ONE_MAX || self.bytes > BYTES_OF_ONE_MAX
    }

    /// How much of all that there may be it takes, by the number of answers or by their bytes.
    fn weight(self) -> usize {
        self.bytes.max(self.answers * (BYTES_MAX / ANSWERS_MAX))
    }
}

#[derive(Default)]
struct Entries {
    all: BTreeMap<Key, Kept>,
    bytes: usize,
    shares: BTreeMap<Arc<str>, Share>,
}

impl Entries {
    fn remove(&mut self, key: &Key) {
        let Some(gone) = self.all.remove(key) else { return };
        self.bytes -= gone.bytes;
        if let Some(share) = self.shares.get_mut(&gone.namespace) {
            *share = Share { answers: share.answers - 1, bytes: share.bytes - gone.bytes };
            if share.answers == 0 {
                self.shares.remove(&gone.namespace);
            }
        }
    }

    /// Removes the answer of the namespace that expires the soonest. False if there is none.
    fn remove_soonest(&mut self, namespace: &str) -> bool {
        let own = self.all.iter().filter(|(_, kept)| *kept.namespace == *namespace);
        let soonest = own.min_by_key(|(_, kept)| kept.expires).map(|(key, _)| key.clone());
        soonest.inspect(|key| self.remove(key)).is_some()
    }

    fn share(&self, namespace: &str) -> Share {
        self.shares.get(namespace).copied().unwrap_or_default()
    }

    /// The namespace with the most, if this answer is kept, too.
    fn heaviest(&self, new: &Kept) -> Option<Arc<str>> {
        let weight = |namespace: &Arc<str>, share: Share| match *namespace == new.namespace {
            true => share.with(new.bytes).weight(),
            false => share.weight(),
        };
        let heaviest = self.shares.iter().max_by_key(|&(namespace, share)| weight(namespace, *share));
        heaviest.map(|(namespace, _)| namespace.clone())
    }

    fn keep(&mut self, key: Key, mut kept: Kept, now: Instant) {
        if let Some(before) = self.all.get(&key).filter(|before| before.expires >= now) {
            // Another namespace must not make it one of its own, which go when it asks for many.
            kept.namespace = before.namespace.clone();
        }
        self.remove(&key);
        if kept.bytes > BYTES_OF_ONE_MAX {
            return;
        }
        let over: Vec<Key> =
            self.all.iter().filter(|(_, kept)| kept.expires < now).map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| self.remove(key));
        while self.share(&kept.namespace).with(kept.bytes).is_too_large() {
            if !self.remove_soonest(&kept.namespace) {
                break;
            }
        }
        while self.all.len() >= ANSWERS_MAX || self.bytes + kept.bytes > BYTES_MAX {
            let Some(heaviest) = self.heaviest(&kept) else { break };
            if !self.remove_soonest(&heaviest) {
                break;
            }
        }
        self.bytes += kept.bytes;
        let share = self.shares.entry(kept.namespace.clone()).or_default();
        *share = share.with(kept.bytes);
        self.all.insert(key, kept);
    }
}

/// The answers. Cheap to clone; clones are the same.
#[derive(Clone, Default)]
pub struct KeptAnswers(Arc<watch::Sender<Entries>>);

impl std::fmt::Debug for KeptAnswers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptAnswers({})", self.0.borrow().all.len())
    }
}

impl KeptAnswers {
    /// What was given for this question and still holds: first for the image, then for its registry, then for all.
    pub fn get(&self, question: &Question<'_>) -> Option<Given> {
        let now = Instant::now();
        let entries = self.0.borrow();
        [CacheKind::Image, CacheKind::Registry, CacheKind::Global].into_iter().find_map(|kind| {
            let kept = entries.all.get(&question.key(kind))?;
            (kept.expires >= now).then(|| kept.given.clone())
        })
    }

    /// Keeps an answer, asked for on behalf of a namespace, while it holds. Beyond a number of answers or bytes those of the
    /// namespace go that expire the soonest, and beyond those of all namespaces such of the namespace with the most.
    pub fn keep(&self, question: &Question<'_>, namespace: &Arc<str>, answer: &Answer) {
        let now = Instant::now();
        let Some(expires) = answer.holds.and_then(|holds| now.checked_add(holds)) else { return };
        let key = question.key(answer.kind);
        let texts = answer.given.iter().map(|(registry, credential)| {
            registry.len() + credential.username.len() + credential.password.len() + ENTRY_BYTES
        });
        let bytes = ENTRY_BYTES + question.provider.len() + question.repository.len() + texts.sum::<usize>();
        let kept = Kept { given: answer.given.clone(), expires, bytes, namespace: namespace.clone() };
        self.0.send_modify(|entries| entries.keep(key, kept, now));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.borrow().all.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::credentials::Credential;

    const MINUTE: Duration = Duration::from_secs(60);

    fn answer(user: &str, kind: CacheKind, holds: Option<Duration>) -> Answer {
        let credential = Credential::for_tests(user, "hush", None);
        Answer { given: [("r.io".to_owned(), credential)].into(), kind, holds }
    }

    fn team() -> Arc<str> {
        Arc::from("team")
    }

    fn of(repository: &str) -> Question<'_> {
        Question { provider: "one", repository, account: None }
    }

    fn user(kept: &KeptAnswers, question: &Question<'_>) -> Option<String> {
        kept.get(question).map(|given| given[0].1.username.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_for_its_image_its_registry_or_all() {
        for (kind, same, registry, other) in [
            (CacheKind::Image, true, false, false),
            (CacheKind::Registry, true, true, false),
            (CacheKind::Global, true, true, true),
        ] {
            let kept = KeptAnswers::default();
            kept.keep(&of("r.io/a"), &team(), &answer("me", kind, Some(MINUTE)));
            let found = ["r.io/a", "r.io/b", "q.io/a"].map(|repository| kept.get(&of(repository)).is_some());
            assert_eq!(found, [same, registry, other], "{kind:?}");
            let elsewhere = Question { provider: "two", ..of("r.io/a") };
            assert!(kept.get(&elsewhere).is_none(), "another provider's");
            let account = Question { account: Some([1; 32]), ..of("r.io/a") };
            assert!(kept.get(&account).is_none(), "for an account");
        }
        let kept = KeptAnswers::default();
        kept.keep(&of("r.io/a"), &team(), &answer("all", CacheKind::Global, Some(MINUTE)));
        kept.keep(&of("r.io/a"), &team(), &answer("registry", CacheKind::Registry, Some(MINUTE)));
        kept.keep(&of("r.io/a"), &team(), &answer("image", CacheKind::Image, Some(MINUTE)));
        let users = ["r.io/a", "r.io/b", "q.io/a"].map(|repository| user(&kept, &of(repository)));
        assert_eq!(users, ["image", "registry", "all"].map(|user| Some(user.to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_with_its_time() {
        let kept = KeptAnswers::default();
        kept.keep(&of("r.io/never"), &team(), &answer("me", CacheKind::Image, None));
        kept.keep(&of("r.io/a"), &team(), &answer("me", CacheKind::Image, Some(MINUTE)));
        assert_eq!(kept.len(), 1, "one that does not hold is not kept");
        tokio::time::advance(MINUTE).await;
        assert!(kept.get(&of("r.io/a")).is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(kept.get(&of("r.io/a")).is_none());
        kept.keep(&of("r.io/b"), &team(), &answer("me", CacheKind::Image, Some(MINUTE)));
        assert_eq!(kept.len(), 1, "what is over goes");
        kept.keep(&of("r.io/b"), &team(), &answer("again", CacheKind::Image, Some(Duration::MAX)));
        assert_eq!(user(&kept, &of("r.io/b")).as_deref(), Some("me"), "longer than time lasts is no time");
    }

    #[tokio::test(start_paused = true)]
    async fn the_answers_of_a_namespace_are_bounded_in_number_and_bytes() {
        let kept = KeptAnswers::default();
        for number in 0..2 * ANSWERS_OF_ONE_MAX {
            let holds = MINUTE + Duration::from_secs(number as u64);
            kept.keep(&of(&format!("r.io/{number}")), &team(), &answer("me", CacheKind::Image, Some(holds)));
        }
        assert_eq!(kept.len(), ANSWERS_OF_ONE_MAX);
        assert!(kept.get(&of("r.io/0")).is_none(), "it would have expired first");
        let large = "x".repeat(BYTES_OF_ONE_MAX / 4);
        for number in 0..10 {
            let holds = Duration::from_secs(100_000 + number);
            kept.keep(
                &of(&format!("r.io/{number}")),
                &team(),
                &answer(&large, CacheKind::Image, Some(holds)),
            );
        }
        assert_eq!(kept.len(), 3);
        kept.keep(&of("r.io/b"), &team(), &answer(&large.repeat(5), CacheKind::Image, Some(MINUTE)));
        assert_eq!(kept.len(), 3, "one that is larger than all may be is not kept");
        assert!(!format!("{kept:?}").contains("hush"));
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_with_many_answers_lose_their_own() {
        let kept = KeptAnswers::default();
        kept.keep(&of("quiet.io/app"), &team(), &answer("me", CacheKind::Image, Some(MINUTE)));
        let holds = Some(60 * MINUTE);
        for number in 0..8 * ANSWERS_OF_ONE_MAX {
            let crowd: Arc<str> = Arc::from(format!("crowd{}", number % 8));
            kept.keep(&of(&format!("r.io/{number}")), &crowd, &answer("me", CacheKind::Image, holds));
        }
        assert_eq!(kept.len(), ANSWERS_MAX);
        assert!(kept.get(&of("quiet.io/app")).is_some());
        let large = "x".repeat(BYTES_OF_ONE_MAX / 4);
        for number in 0..100 {
            let crowd: Arc<str> = Arc::from(format!("crowd{}", number % 8));
            // One of another namespace's, too.
            for repository in [format!("r.io/large{number}").as_str(), "quiet.io/app"] {
                kept.keep(&of(repository), &crowd, &answer(&large, CacheKind::Image, holds));
            }
        }
        assert!(kept.get(&of("quiet.io/app")).is_some());
        let entries = kept.0.borrow();
        let bytes: usize = entries.all.values().map(|kept| kept.bytes).sum();
        assert!(bytes == entries.bytes && bytes <= BYTES_MAX, "{bytes}");
        let shares = entries.shares.values().copied();
        let sum = shares.fold((0, 0), |sum, share| (sum.0 + share.answers, sum.1 + share.bytes));
        assert_eq!(sum, (entries.all.len(), bytes));
        assert_eq!(entries.shares["team"].answers, 1);
    }
}
