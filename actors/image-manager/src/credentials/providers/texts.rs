//! The texts of plugins: `CredentialProviderRequest` and `CredentialProviderResponse` of `credentialprovider.kubelet.k8s.io`.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_node::host::SecretContent;
use pod_rules::durations::GoDuration;
use pod_rules::errors;
use serde::{Deserialize, Serialize};

use super::{Account, CredentialProvider, Given, TokenCache};
use crate::credentials::Credential;

/// The longest word of an answer that an error shows, bytes.
const SHOWN_BYTES_MAX: usize = 64;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    kind: &'static str,
    api_version: &'a str,
    image: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    service_account_token: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    service_account_annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Response {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(default)]
    cache_key_type: String,
    cache_duration: Option<String>,
    auth: Option<BTreeMap<String, Login>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// `cacheKeyType`: for which images an answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// For the repository that was asked for.
    Image,
    /// For all repositories of its registry.
    Registry,
    /// For all images.
    Global,
}

/// An answer of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The registries and their credentials.
    pub given: Given,
    /// For which images it holds.
    pub kind: CacheKind,
    /// How long it holds; `None` if it is not kept.
    pub holds: Option<Duration>,
}

/// What a plugin is asked.
pub fn request(provider: &CredentialProvider, repository: &str, account: Option<&Account>) -> SecretContent {
    let request = Request {
        kind: "CredentialProviderRequest",
        api_version: &provider.api_version,
        image: repository,
        service_account_token: account.map_or("", |account| &*account.token),
        service_account_annotations: account.map(|account| account.annotations.clone()).unwrap_or_default(),
    };
    let mut json = serde_json::to_vec(&request).expect("a request has only string keys");
    json.push(b'\n');
    SecretContent::new(json)
}

/// Reads what a plugin has answered.
///
/// # Errors
/// What is wrong with it. No text of the answer is shown but a wrong version, kind or kind of cache.
pub fn answer(
    provider: &CredentialProvider,
    account: Option<&Account>,
    output: &SecretContent,
) -> Result<Answer, String> {
    let envelope: Envelope = parse(output)?;
    for (field, found, expected) in [
        ("apiVersion", envelope.api_version, provider.api_version.as_str()),
        ("kind", envelope.kind, "CredentialProviderResponse"),
    ] {
        if found != expected {
            return Err(format!("its answer has the {field} {:?}, expected {expected:?}", shown(found)));
        }
    }
    let response: Response = parse(output)?;
    let kind = match response.cache_key_type.as_str() {
        "Image" => CacheKind::Image,
        "Registry" => CacheKind::Registry,
        "Global" => CacheKind::Global,
        _ => {
            let found = shown(response.cache_key_type);
            return Err(format!(
                "its answer has the cacheKeyType {found:?}, expected \"Image\", \"Registry\" or \"Global\""
            ));
        }
    };
    let holds = match response.cache_duration {
        None => provider.default_cache,
        Some(text) => GoDuration::parse(&text)
            .map_err(|_| "the cacheDuration of its answer is no duration".to_owned())?
            .as_std(),
    };
    let logins = response.auth.unwrap_or_default();
    let for_many = provider.tokens.as_ref().is_some_and(|tokens| tokens.cache != TokenCache::Token);
    let echoes = |account: &Account| logins.values().any(|login| login.password == *account.token);
    if for_many && account.is_some_and(echoes) {
        return Err("it gave the service account's token as a password, which needs the cacheType \"Token\""
            .to_owned());
    }
    let credential = |login: Login| Credential {
        username: login.username,
        password: login.password,
        ..Credential::default()
    };
    let given = logins.into_iter().map(|(registry, login)| (registry, credential(login))).collect();
    Ok(Answer { given, kind, holds: Some(holds).filter(|holds| !holds.is_zero()) })
}

fn shown(mut text: String) -> String {
    errors::cut(&mut text, SHOWN_BYTES_MAX);
    text
}

fn parse<'de, T: Deserialize<'de>>(output: &'de SecretContent) -> Result<T, String> {
    // Only the place is taken from the parser's error: its text may quote a secret.
    serde_json::from_slice(output.expose()).map_err(|error| {
        format!(
            "its answer is no CredentialProviderResponse in JSON (line {}, column {})",
            error.line(),
            error.column()
        )
    })
}
