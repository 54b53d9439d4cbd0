//! When pulls begin, and which of them make room for others.

use std::collections::BTreeSet;
use std::time::Duration;

use messages::image_manager::EnsureImage;
use supervision::{Ctx, Effect, EffectId, blame};
use tokio::time::Instant;

use super::{ImageAsker, ImageManager, Running, Timer};
use crate::execute::{self, PullMeans, PullTask, Pulled};
use crate::pulls::PullKey;
use crate::throttle::{REFUSED, Token};

/// A namespace without a place waits no longer than this while another one has several.
const PATIENCE: Duration = Duration::from_secs(60);
/// A pull keeps its place so long while others wait that have none. After a pull without any progress for five minutes the runtime
/// gives it up itself; a registry that drips is given up here.
const PLACE_FOR: Duration = Duration::from_secs(15 * 60);

impl ImageManager {
    /// Begins the pulls whose turn it is. While the token bucket is empty they wait, but a pull whose pod has
    /// emptied it fails and leaves its place to the next at once.
    pub(super) fn begin(&mut self, ctx: &mut Ctx<Self>) {
        while let Some(pod) = self.pulls.next_pod().cloned() {
            let token = self.throttle.take(&pod, self.now());
            if let Token::After(wait) = token {
                return ctx.set_timer(Timer::Token, wait);
            }
            let Some(key) = self.pulls.begin() else { return };
            if token == Token::Overdrawn {
                let error = REFUSED.to_owned();
                self.answer_all(&key, &Pulled::Failed { error, known: true });
                continue;
            }
            let Some(first) = self.pulls.askers_mut(&key).first() else { continue };
            let EnsureImage { pod, annotations, sandbox_config, runtime_handler, .. } = first.ask.clone();
            let _named = blame::name(&pod.uid);
            let (spelled, credentials) =
                (first.ask.image.clone(), first.credentials.clone().unwrap_or_default());
            let provided = first.provided.clone().unwrap_or_default();
            let means = PullMeans {
                images: self.deps.images.clone(),
                configs: self.deps.configs.clone(),
                records: self.records_matter().then(|| self.deps.records.clone()),
                clock: self.deps.clock.clone(),
                history: self.deps.history.clone(),
                metrics: self.deps.metrics.clone(),
            };
            let task = PullTask {
                key: key.clone(),
                spelled: spelled.clone(),
                credentials,
                provided,
                pod: pod.uid.clone(),
                annotations,
                sandbox_config,
                before: BTreeSet::new(),
                since: Duration::ZERO,
                runtime_handler,
            };
            let effect = self.look_before(means, task, ctx);
            self.running.insert(key, Running { effect, spelled, intended: false, since: Instant::now() });
        }
    }

    pub(super) fn pull(means: PullMeans, task: PullTask, ctx: &mut Ctx<Self>) -> EffectId {
        let (key, pod) = (task.key.clone(), task.pod.clone());
        let pull = execute::pull(means, task);
        ctx.effect(Effect::lasting("pull image"), Some(pod), pull, move |actor, ended, ctx| {
            actor.pulled(&key, ended, ctx)
        })
    }

    /// Takes places from namespaces that have several, and from pulls that have had theirs for long, for namespaces that
    /// have waited long without any. A pull that gives way waits for another turn.
    pub(super) fn make_room(&mut self, ctx: &mut Ctx<Self>) {
        let too_long = |asker: &ImageAsker| asker.since.elapsed() >= PATIENCE;
        let is_old = |pull: &Running| pull.since.elapsed() >= PLACE_FOR;
        while let Some(key) = self.pulls.gives_way(too_long, |key| self.running.get(key).is_some_and(is_old))
        {
            tracing::info!(
                image = key.image,
                "Another namespace has waited long: this pull gives up its place"
            );
            self.cancel(&key, ctx);
            self.pulls.wait_again(&key);
            self.begin(ctx);
        }
    }

    /// Cancels a pull that runs.
    pub(super) fn cancel(&mut self, key: &PullKey, ctx: &mut Ctx<Self>) {
        if let Some(pull) = self.running.remove(key) {
            // The effect goes first: it would take the cancelled call for a failure, and try the next
            // credential.
            ctx.cancel_effect(pull.effect);
            if pull.intended {
                self.end_intent(&pull.spelled, false, ctx);
            }
        }
        self.deps.images.cancel_pull(&key.image, key.share);
    }
}
