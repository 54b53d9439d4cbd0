//! Credential providers: programs of the node that give credentials for images (row 6.6): which of them are asked for an image,
//! what they are asked and answer, and how long an answer holds.

mod cache;
mod texts;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

pub use cache::{KeptAnswers, Question};
pub use texts::{Answer, CacheKind, answer, request};

use super::{AccountSource, Credential, Keyring, keyring};

/// The configured providers, `--image-credential-provider-config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialProviders {
    /// The providers, in the order of the configuration.
    pub all: Arc<[CredentialProvider]>,
    /// The SHA-256 of the configuration's files, `sha256:…`; none without a configuration.
    pub hash: Option<String>,
}

impl CredentialProviders {
    /// These providers, which were read from files with these contents.
    pub fn new(files: &[Vec<u8>], all: Vec<CredentialProvider>) -> Self {
        let mut hash = Sha256::new();
        for file in files {
            hash.update((file.len() as u64).to_be_bytes());
            hash.update(file);
        }
        let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { all: all.into(), hash: Some(format!("sha256:{digits}")) }
    }
}

/// One provider.
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialProvider {
    /// `name`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// `matchImages`.
    pub match_images: Vec<String>,
    /// `defaultCacheDuration`.
    pub default_cache: Duration,
    /// `apiVersion`: that of requests and answers.
    pub api_version: String,
    /// `args`.
    pub args: Arc<[String]>,
    /// `env`, names and values.
    pub env: Arc<[(String, String)]>,
    /// `tokenAttributes`.
    pub tokens: Option<TokenAttributes>,
}

/// Shows neither arguments nor environment, which may hold secrets.
impl fmt::Debug for CredentialProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialProvider").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CredentialProvider {
    /// Whether it gives credentials for images of this repository (`docker.io/library/busybox`).
    pub fn is_for(&self, repository: &str) -> bool {
        self.match_images.iter().any(|pattern| keyring::matches(pattern, repository))
    }
}

/// `tokenAttributes`: what a provider is told of the pod's service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAttributes {
    /// `serviceAccountTokenAudience`.
    pub audience: Arc<str>,
    /// `cacheType`.
    pub cache: TokenCache,
    /// `requireServiceAccount`: pods without one get nothing of the provider.
    pub required: bool,
    /// `requiredServiceAccountAnnotationKeys`: pods of accounts without one of them get nothing.
    pub required_keys: Vec<String>,
    /// `optionalServiceAccountAnnotationKeys`.
    pub optional_keys: Vec<String>,
}

impl TokenAttributes {
    /// The annotations that the provider is told; `None` if a required one is missing.
    pub fn annotations(&self, all: Option<&BTreeMap<String, String>>) -> Option<BTreeMap<String, String>> {
        let value = |key: &String| all.and_then(|all| all.get(key)).map(|value| (key.clone(), value.clone()));
        let mut told: BTreeMap<String, String> =
            self.required_keys.iter().map(value).collect::<Option<_>>()?;
        told.extend(self.optional_keys.iter().filter_map(value));
        Some(told)
    }
}

/// `cacheType`: for which pods an answer holds that was given for a service account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCache {
    /// For the pod with the same token.
    Token,
    /// For all pods of the service account.
    ServiceAccount,
}

/// A pod's service account as a provider is told of it.
#[derive(Clone)]
pub struct Account {
    /// Which it is.
    pub source: Arc<AccountSource>,
    /// The annotations that the provider is told.
    pub annotations: BTreeMap<String, String>,
    /// A token of it, bound to the pod.
    pub token: Arc<str>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Account {
    /// The fingerprint under which answers for it are kept.
    pub fn fingerprint(&self, cache: TokenCache) -> [u8; 32] {
        let mut hash = Sha256::new();
        let AccountSource { uid, namespace, name } = &*self.source;
        let annotations = self.annotations.iter().flat_map(|(key, value)| [key, value]);
        let token = (cache == TokenCache::Token).then_some(&*self.token);
        let parts = [namespace, name, uid].into_iter().chain(annotations).map(String::as_str).chain(token);
        for part in parts {
            // Without the lengths, two different lists of parts could yield the same bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

/// What a provider gave: registries and their credentials.
pub type Given = Arc<[(String, Credential)]>;

/// The credentials that fit a repository, of what each provider gave and for which account, in the order of the providers, and
/// the registries that are none.
pub fn merged(
    given: &[(Given, Option<Arc<AccountSource>>)],
    repository: &str,
) -> (Vec<Credential>, Vec<String>) {
    let (mut keyring, mut wrong) = (Keyring::default(), Vec::new());
    for (given, account) in given {
        for (registry, credential) in given.iter() {
            let credential = Credential { account: account.clone(), ..credential.clone() };
            wrong.extend(keyring.add(registry, credential).err());
        }
    }
    (keyring.lookup(repository), wrong)
}

#[cfg(test)]
mod tests;
