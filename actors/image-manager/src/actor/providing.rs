//! Credentials of the node's providers: asked for when a pod needs them to use an image or to pull it, and not before.

use std::sync::Arc;

use supervision::{Ctx, Effect};

use super::reading::repository;
use super::{ImageAsker, ImageManager, backoff_key};
use crate::credentials::Credential;
use crate::execute::providers::{self, ProviderMeans, Wanted};
use crate::records::{PulledRecord, opened_by_accounts};

impl ImageAsker {
    /// The credentials of the pod's secrets, and what providers gave.
    pub(super) fn all_credentials(&self) -> Result<Vec<Credential>, String> {
        let own = self.credentials.as_ref().map_err(Clone::clone)?;
        Ok(own.iter().chain(self.provided.iter().flat_map(|given| given.iter())).cloned().collect())
    }
}

impl ImageManager {
    /// Whether providers are to be asked before a pull: one that waits out a failure begins none.
    pub(super) fn needs_providers(&self, asker: &ImageAsker) -> bool {
        asker.provided.is_none()
            && asker.credentials.is_ok()
            && self.backoffs.waiting(&backoff_key(&asker.ask), self.now()).is_none()
    }

    /// Whether the answer of a provider may show that the pod may use the image.
    pub(super) fn may_be_shown_by_account(&self, asker: &ImageAsker, record: Option<&PulledRecord>) -> bool {
        asker.provided.is_none()
            && asker.credentials.is_ok()
            && !asker.ask.service_account.is_empty()
            && opened_by_accounts(record, &asker.ask.image)
    }

    /// What was given to the same asker before it gave up, while its pull is under way.
    pub(super) fn provided_before(&self, asker: &ImageAsker, image: &str) -> Option<Arc<[Credential]>> {
        let same = |other: &&ImageAsker| {
            other.ask.pod.uid == asker.ask.pod.uid && other.ask.field_path == asker.ask.field_path
        };
        let pulls = self.pulls.all().filter(|(key, _)| key.image == image);
        pulls.flat_map(|(_, askers)| askers.iter()).filter(same).find_map(|other| other.provided.clone())
    }

    /// Asks the providers that are for the image, and goes on with what they gave.
    pub(super) fn provide(
        &self,
        mut asker: ImageAsker,
        image: String,
        ctx: &mut Ctx<Self>,
        then: impl FnOnce(&mut Self, ImageAsker, String, &mut Ctx<Self>) + Send + 'static,
    ) {
        let repository = repository(&image);
        let all = self.deps.settings.providers.all.iter();
        let fitting: Vec<_> = all.filter(|provider| provider.is_for(&repository)).cloned().collect();
        let deps = &self.deps;
        let means = ProviderMeans {
            plugins: deps.plugins.clone(),
            accounts: deps.accounts.clone(),
            tokens: deps.tokens.clone(),
            kept: deps.answers.clone(),
            compute: deps.compute.for_namespace(&asker.ask.pod.namespace),
            metrics: deps.metrics.clone(),
        };
        let pod = asker.ask.pod.clone();
        let wanted = Wanted {
            repository: Arc::from(repository),
            pod: pod.clone(),
            account: asker.ask.service_account.clone(),
        };
        let provided = providers::provide(means, fitting, wanted);
        // Each of its questions has a deadline of its own.
        let what = Effect::lasting("ask credential providers");
        ctx.effect(what, Some(pod.uid), provided, move |actor, provided, ctx| {
            // An asker that has given up asks again, and only that ask has a place.
            if !asker.reply.is_wanted() {
                return;
            }
            match provided {
                Ok(provided) => asker.provided = Some(provided),
                Err(error) => asker.credentials = Err(error),
            }
            then(actor, asker, image, ctx);
        });
    }

    /// Whether any provider is for the image.
    pub(super) fn has_providers(&self, image: &str) -> bool {
        let all = &self.deps.settings.providers.all;
        !all.is_empty() && {
            let repository = repository(image);
            all.iter().any(|provider| provider.is_for(&repository))
        }
    }
}
