//! What is on the node before pulls: the images that no pull has made stay open to all pods, and names are counted. Pulls that begin
//! within a short time share one list.

use std::collections::BTreeSet;
use std::time::Duration;

use bridge_cri::wire::Image;
use supervision::{Ctx, Effect, EffectId};
use tokio::time::Instant;

use super::ImageManager;
use crate::execute::{self, BEFORE_MAX, Before, ListBefore, PullMeans, PullTask, Pulled};
use crate::pulls::PullKey;
use crate::records::full_name;

/// A list serves the pulls that begin so soon after it.
const SHARED_FOR: Duration = Duration::from_secs(5);

/// A list of images for pulls.
#[derive(Clone)]
struct Shared {
    list: ListBefore,
    began: Instant,
    /// The same as an age of the process.
    since: Duration,
}

/// The list for the pulls that begin now, if there is one.
#[derive(Default)]
pub(super) struct Lists(Option<Shared>);

impl Lists {
    /// An image was pulled or removed: a list that has begun serves no pull that begins later.
    pub(super) fn discard(&mut self) {
        self.0 = None;
    }

    /// Lets a list go that serves no pull any more. False if there is none left.
    pub(super) fn forget_stale(&mut self) -> bool {
        if self.current().is_none() {
            self.0 = None;
        }
        self.0.is_some()
    }

    fn current(&self) -> Option<&Shared> {
        self.0.as_ref().filter(|shared| match shared.list.peek() {
            // It is under way, or the pulls that wanted it have gone.
            None => shared.began.elapsed() < BEFORE_MAX,
            Some(listed) => listed.is_some() && shared.began.elapsed() < SHARED_FOR,
        })
    }
}

impl ImageManager {
    /// The list for a pull, and whether it has begun for this pull alone.
    fn list_before(&mut self) -> (Shared, bool) {
        if let Some(current) = self.before.current() {
            return (current.clone(), false);
        }
        let list = execute::list_before(self.deps.images.clone());
        let new = Shared { list, began: Instant::now(), since: self.deps.history.now() };
        self.before.0 = Some(new.clone());
        (new, true)
    }

    /// Before the intent of a pull is written, looks which images are there already that no pull has made: these go
    /// on counting as preloaded, whatever becomes of this pull. Where no list shows all images, these are those that are known.
    /// A pull by a name too many fails.
    pub(super) fn look_before(
        &mut self,
        means: PullMeans,
        mut task: PullTask,
        ctx: &mut Ctx<Self>,
    ) -> EffectId {
        let (image, annotations) = (task.key.image.clone(), task.annotations.clone());
        let (handler, (shared, is_new)) = (task.runtime_handler.clone(), self.list_before());
        task.since = shared.since;
        let list = (shared.list, is_new);
        let before = execute::before(list, self.deps.images.clone(), image, annotations, handler);
        ctx.effect(
            Effect::lasting("look for images before a pull"),
            Some(task.pod.clone()),
            before,
            move |actor, before, ctx| {
                let key = task.key.clone();
                if !actor.running.contains_key(&key) {
                    return;
                }
                if let Err(error) = actor.admit_name(&key, &before) {
                    actor.running.remove(&key);
                    actor.answer_all(&key, &Pulled::Failed { error, known: true });
                    return actor.begin(ctx);
                }
                let mut before = actor.not_pulled(before.images());
                // The list may have begun before they were deleted.
                before.retain(|id| !actor.deps.history.was_deleted_since(id, task.since));
                if actor.deps.settings.verification.opens_preloaded() {
                    task.before = before.clone();
                }
                if actor.records_matter() {
                    actor.intents.begin(&task.spelled, before, actor.lists);
                    actor.keep_before();
                }
                let effect = Self::pull(means, task, ctx);
                if let Some(running) = actor.running.get_mut(&key) {
                    running.intended = true;
                    running.effect = effect;
                }
            },
        )
    }

    fn admit_name(&mut self, key: &PullKey, before: &Before) -> Result<(), String> {
        let Some(first) = self.pulls.askers_mut(key).first() else { return Ok(()) };
        let namespace = first.ask.pod.namespace.clone();
        let images = (before.images(), before.is_whole());
        self.names.admit(&namespace, &full_name(&key.image), images, self.lists)
    }

    /// Those of the images that no pull has made. Of an image without a name this is not known.
    fn not_pulled<'a>(&self, images: impl Iterator<Item = &'a Image>) -> BTreeSet<String> {
        let is_named = |image: &&Image| !image.repo_tags.is_empty() || !image.repo_digests.is_empty();
        let is_other =
            |image: &&Image| is_named(image) && !self.recorded.has(&image.id) && !self.intents.made(image);
        images.filter(is_other).map(|image| image.id.clone()).collect()
    }
}
