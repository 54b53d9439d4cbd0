//! Asks the node's credential providers for an image's credentials (row 6.6).

use std::sync::Arc;
use std::time::Duration;

use bridge_io::compute::{Compute, computed};
use bridge_node::host::{CredentialPlugins, Needed, PluginError, PluginRun};
use futures::future::join_all;
use messages::PodRef;
use messages::object_cache::{GetServiceAccount, GetToken};
use supervision::AskPort;
use tokio::time::Instant;

use crate::actor::ImageManager;
use crate::credentials::providers::{
    Account, CredentialProvider, Given, KeptAnswers, Question, TokenAttributes, answer, merged, request,
};
use crate::credentials::{AccountSource, Credential};
use crate::metrics::ImageMetrics;

/// The longest wait for a service account, and for a token of it; ObjectCache answers sooner.
const OBJECT_DEADLINE: Duration = Duration::from_secs(30);
/// The longest wait for all providers: a service account and a token of it, three minutes for a plugin's turn, and a minute in which
/// it runs.
const PROVIDED_WITHIN: Duration = Duration::from_secs(320);

/// The effects and neighbours that a question to providers needs.
#[derive(Clone)]
pub struct ProviderMeans {
    /// Runs their programs.
    pub plugins: Arc<dyn CredentialPlugins>,
    /// ObjectCache: the pods' service accounts.
    pub accounts: AskPort<ImageManager, GetServiceAccount>,
    /// ObjectCache: tokens of them.
    pub tokens: AskPort<ImageManager, GetToken>,
    /// The answers that still hold.
    pub kept: KeptAnswers,
    /// Where answers are parsed.
    pub compute: Arc<dyn Compute>,
    /// Metrics.
    pub metrics: ImageMetrics,
}

/// What credentials are wanted for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The repository of the image.
    pub repository: Arc<str>,
    /// The pod.
    pub pod: PodRef,
    /// Its service account; empty if it has none.
    pub account: Arc<str>,
}

/// What a provider gave, and for which account.
type Provided = (Given, Option<Arc<AccountSource>>);

/// Why a provider has given nothing.
#[derive(Debug)]
enum NotGiven {
    /// Its plugin had no turn, or not in time: what it would give is not known.
    NotAsked(String),
    /// It has failed.
    Failed(String),
}

impl From<String> for NotGiven {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The credentials of these providers, all of which are for the image, in the order in which to try them. A provider that fails
/// gives none, as upstream has it: the pull is tried without.
///
/// # Errors
/// A provider could not be asked, since too many plugins run. Upstream starts each at once; what it would give is not known, so no
/// pull is tried.
pub async fn provide(
    means: ProviderMeans,
    providers: Vec<CredentialProvider>,
    wanted: Wanted,
) -> Result<Arc<[Credential]>, String> {
    let mut asked = Vec::new();
    for provider in &providers {
        asked.push(given_in_time(&means, provider, &wanted));
    }
    let answers = join_all(asked).await;
    let mut provided = Vec::new();
    for (provider, answer) in providers.iter().zip(answers) {
        match answer {
            Ok(given) => provided.extend(given),
            Err(NotGiven::NotAsked(error)) => {
                return Err(format!("credential provider {:?} could not be asked: {error}", provider.name));
            }
            Err(NotGiven::Failed(error)) => tracing::error!(
                provider = provider.name,
                image = &*wanted.repository,
                pod = %wanted.pod,
                "A credential provider gives nothing: {error}"
            ),
        }
    }
    if provided.is_empty() {
        return Ok(Arc::default());
    }
    let repository = wanted.repository.clone();
    let fitting = move || merged(&provided, &repository);
    match computed(&means.compute, wanted.pod.uid.as_str(), fitting).await {
        Ok((fitting, wrong)) => {
            if let Some(first) = wrong.first() {
                let count = wrong.len();
                tracing::warn!(count, "Registries of credential providers are passed over: {first}");
            }
            Ok(fitting.into())
        }
        Err(error) => {
            tracing::error!(%error, "The answers of credential providers cannot be used");
            Ok(Arc::default())
        }
    }
}

/// What a provider gives, if it gives that in time.
async fn given_in_time(
    means: &ProviderMeans,
    provider: &CredentialProvider,
    wanted: &Wanted,
) -> Result<Option<Provided>, NotGiven> {
    let given = tokio::time::timeout(PROVIDED_WITHIN, given_by(means, provider, wanted)).await;
    given.unwrap_or_else(|_| Err(NotGiven::NotAsked(format!("no answer within {PROVIDED_WITHIN:?}"))))
}

/// What a provider gives: what it gave before if that still holds. Nothing if the pod's service account is not for it.
async fn given_by(
    means: &ProviderMeans,
    provider: &CredentialProvider,
    wanted: &Wanted,
) -> Result<Option<Provided>, NotGiven> {
    let account = match &provider.tokens {
        Some(tokens) if wanted.account.is_empty() && tokens.required => return Ok(None),
        Some(tokens) if !wanted.account.is_empty() => {
            let Some(account) = account(means, tokens, wanted).await? else {
                tracing::debug!(
                    provider = provider.name,
                    pod = %wanted.pod,
                    "The service account lacks an annotation that the credential provider needs"
                );
                return Ok(None);
            };
            Some((account, tokens.cache))
        }
        Some(_) | None => None,
    };
    let fingerprint = account.as_ref().map(|(account, cache)| account.fingerprint(*cache));
    let account = account.map(|(account, _)| account);
    let source = account.as_ref().map(|account| account.source.clone());
    let given = answered(means, provider, wanted, account, fingerprint).await?;
    Ok(Some((given, source)))
}

/// The answer for this account, which the fingerprint stands for: one that holds still, or else its plugin's. A plugin that waits
/// for its turn while another ask is answered is not run if that answer holds for both.
async fn answered(
    means: &ProviderMeans,
    provider: &CredentialProvider,
    wanted: &Wanted,
    account: Option<Account>,
    fingerprint: Option<[u8; 32]>,
) -> Result<Given, NotGiven> {
    let question =
        Question { provider: &provider.name, repository: &wanted.repository, account: fingerprint };
    loop {
        if let Some(given) = means.kept.get(&question) {
            return Ok(given);
        }
        let (kept, of) = (means.kept.clone(), (provider.name.clone(), wanted.repository.clone()));
        let is_unknown = move || {
            kept.get(&Question { provider: &of.0, repository: &of.1, account: fingerprint }).is_none()
        };
        let run = PluginRun {
            program: provider.program.clone(),
            args: provider.args.clone(),
            env: provider.env.clone(),
            input: request(provider, &wanted.repository, account.as_ref()),
            tenant: wanted.pod.namespace.clone(),
            needed: Needed::when(is_unknown),
        };
        let (began, joined) = (Instant::now(), means.plugins.is_under_way(&run));
        let output = means.plugins.run(run).await;
        if matches!(output, Err(PluginError::NotNeeded)) {
            // It is known now. If its time has ended since, it is asked for again.
            continue;
        }
        if !joined {
            means.metrics.plugin_ran(&provider.name, began.elapsed(), output.is_ok());
        }
        let of_plugin = |error: String| format!("plugin {}: {error}", provider.program.display());
        let output = output.map_err(|error| match error {
            PluginError::NoTurn => NotGiven::NotAsked(of_plugin(error.to_string())),
            _ => NotGiven::Failed(of_plugin(error.to_string())),
        })?;
        let (of, read) = (provider.clone(), output.clone());
        let read = move || answer(&of, account.as_ref(), read.content());
        let answer = computed(&means.compute, wanted.pod.uid.as_str(), read).await;
        let answer = answer.map_err(|error| error.to_string()).flatten().map_err(of_plugin)?;
        means.kept.keep(&question, &wanted.pod.namespace, &answer);
        // The next run, which may not be needed now, has its turn.
        drop(output);
        return Ok(answer.given);
    }
}

/// The pod's service account with a token; `None` if an annotation is missing that the provider requires.
async fn account(
    means: &ProviderMeans,
    tokens: &TokenAttributes,
    wanted: &Wanted,
) -> Result<Option<Account>, String> {
    let PodRef { uid, namespace, .. } = &wanted.pod;
    let ask =
        GetServiceAccount { pod: uid.clone(), namespace: namespace.clone(), name: wanted.account.clone() };
    let found = match means.accounts.ask(ask, OBJECT_DEADLINE).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(format!("failed to get service account: {}", error.message)),
        Err(error) => return Err(format!("failed to get service account: ObjectCache: {error}")),
    };
    let Some(annotations) = tokens.annotations(found.metadata.annotations.as_ref()) else { return Ok(None) };
    let account_uid = found.metadata.uid.clone().unwrap_or_default();
    let ask = GetToken {
        pod: wanted.pod.clone(),
        service_account: wanted.account.clone(),
        account_uid: Arc::from(account_uid.as_str()),
        audience: tokens.audience.clone(),
        expiration_seconds: None,
    };
    let token = match means.tokens.ask(ask, OBJECT_DEADLINE).await {
        Ok(Ok(token)) => token.text,
        Ok(Err(error)) => return Err(format!("failed to get service account token: {}", error.message)),
        Err(error) => return Err(format!("failed to get service account token: ObjectCache: {error}")),
    };
    let (namespace, name) = (namespace.to_string(), wanted.account.to_string());
    let source = Arc::new(AccountSource { uid: account_uid, namespace, name });
    Ok(Some(Account { source, annotations, token }))
}
