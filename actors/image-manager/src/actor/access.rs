//! Whether a pod may use an image that is on the node already, and the records that this depends on.

use std::sync::Arc;

use bridge_cri::wire::Image;
use bridge_node::host::{PullRecords, RecordKind};
use supervision::{Ctx, EffectId};

use super::{ImageAsker, ImageManager, Timer};
use crate::execute::records::{self as on_disk, Found, RecordRead};
use crate::execute::{self, PullMeans, PullTask, Pulled};
use crate::policy;
use crate::records::{AccessDecision, AccessQuestion, IntentFound, PullCredentials, PullSecret, judge};
use messages::image_manager::PullPolicy;

/// How often records of images that are gone are removed: upstream's period of image garbage collection.
const PRUNE_EVERY: std::time::Duration = std::time::Duration::from_secs(300);

impl ImageManager {
    /// Reads the records that earlier processes have left; asks wait until they are read.
    pub(super) fn read_records(&mut self, ctx: &mut Ctx<Self>) {
        if !self.records_matter() {
            return self.records_read(Found::default(), ctx);
        }
        ctx.set_timer(Timer::Prune, PRUNE_EVERY);
        let found = on_disk::find(self.deps.records.clone());
        ctx.effect("read pull records", None, found, Self::records_read);
    }

    /// Whether records are kept: the verification of access is not off.
    pub(super) fn records_matter(&self) -> bool {
        self.deps.settings.verification != crate::records::Verification::Off
    }

    fn records_read(&mut self, found: Found, ctx: &mut Ctx<Self>) {
        for problem in &found.problems {
            tracing::error!("A record of a pull is of no use: {problem}");
        }
        self.deps.metrics.on_disk(RecordKind::Pulling, found.intents.len());
        self.deps.metrics.on_disk(RecordKind::Pulled, found.pulled);
        for image in &found.intents {
            self.intents.found(image);
        }
        for (asker, image) in self.early.take().unwrap_or_default() {
            let pod = asker.ask.pod.uid.clone();
            ctx.for_pod(&pod, |ctx| self.look(asker, image, ctx));
        }
        if self.intents.len() > 0 {
            let images = execute::list_images(self.deps.images.clone());
            ctx.effect("look for images of intents", None, images, |actor, images, ctx| {
                actor.settle_intents(&images.unwrap_or_default(), false, ctx);
            });
        }
    }

    /// Settles the intents of pulls whose outcome was not recorded. An image that came of one gets a record
    /// that opens it to no pod; with `forget_absent`, intents of which no image has come are removed.
    fn settle_intents(&mut self, images: &[Image], forget_absent: bool, ctx: &mut Ctx<Self>) {
        self.intents.forget_gone(images);
        for (image, come) in self.intents.left_over(images) {
            match come {
                IntentFound::Made(image_ref) => {
                    let written = self.write_record(&image_ref, &image, None);
                    ctx.effect("record image", None, written, move |actor, written, ctx| {
                        if written {
                            actor.forget_intent(&image, ctx);
                        }
                    });
                }
                IntentFound::Before => self.forget_intent(&image, ctx),
                IntentFound::Nothing if forget_absent => self.forget_intent(&image, ctx),
                IntentFound::Nothing => {}
            }
        }
    }

    fn forget_intent(&mut self, image: &str, ctx: &mut Ctx<Self>) {
        if self.intents.settle(image) {
            self.remove_intent(image, ctx);
        }
    }

    /// Removes an intent from the disk, when the last pull of this name has ended.
    pub(super) fn remove_intent(&self, image: &str, ctx: &mut Ctx<Self>) {
        let removed = on_disk::remove_intent(&self.deps.records, image, self.deps.metrics.clone());
        ctx.effect("remove pull intent", None, removed, |_, (), _| {});
    }

    /// Before the intent of a pull is written, looks whether an image is there already that no pull has made:
    /// that image goes on counting as preloaded, whatever becomes of this pull.
    pub(super) fn look_before(
        &self,
        records: Arc<dyn PullRecords>,
        means: PullMeans,
        task: PullTask,
        ctx: &mut Ctx<Self>,
    ) -> EffectId {
        let (image, annotations) = (task.key.image.clone(), task.annotations.clone());
        let before = execute::before(self.deps.images.clone(), records, image, annotations);
        ctx.effect(
            "look for image before its pull",
            Some(task.pod.clone()),
            before,
            move |actor, before, ctx| {
                let Some(running) = actor.running.get_mut(&task.key) else { return };
                let before = before.filter(|image| !actor.intents.made(image)).map(|image| image.id);
                actor.intents.begin(&task.spelled, before);
                running.intended = true;
                running.effect = Self::pull(means, task, ctx);
            },
        )
    }

    fn write_record(
        &self,
        image_ref: &str,
        image: &str,
        new: Option<PullCredentials>,
    ) -> impl Future<Output = bool> + use<> {
        let now = self.deps.clock.now();
        on_disk::write(&self.deps.records, image_ref, image, new, now, self.deps.metrics.clone())
    }

    /// A pull has ended: its intent is removed if the outcome is `known` and recorded, else it stays.
    pub(super) fn end_intent(&mut self, spelled: &str, known: bool, ctx: &mut Ctx<Self>) {
        if !self.records_matter() {
            return;
        }
        if !known {
            self.intents.leave(spelled);
        } else if self.intents.end(spelled) {
            self.remove_intent(spelled, ctx);
        }
    }

    /// The image is there: decides whether the pod may use it. The intents are looked at before the record is
    /// read: a pull that ends between the two has written its record by then.
    pub(super) fn verify(&mut self, asker: ImageAsker, image: String, seen: Image, ctx: &mut Ctx<Self>) {
        if !self.deps.settings.verification.looks_at_records() {
            return self.use_it(asker, seen);
        }
        let intended = self.intents.made(&seen);
        let pod = asker.ask.pod.uid.clone();
        let record = on_disk::read(&self.deps.records, &seen.id);
        ctx.effect("read pull record", Some(pod), record, move |actor, record, ctx| {
            actor.verified(asker, image, seen, (intended, record), ctx);
        });
    }

    fn verified(
        &mut self,
        asker: ImageAsker,
        image: String,
        seen: Image,
        (intended, record): (bool, RecordRead),
        ctx: &mut Ctx<Self>,
    ) {
        if let Err(problem) = &record {
            tracing::error!("A record of a pull is of no use: {problem}");
        }
        let credentials = asker.all_credentials();
        let judgement = judge(
            &self.deps.settings.verification,
            &AccessQuestion {
                image: &asker.ask.image,
                intended,
                record: record.as_ref().map(Option::as_ref).map_err(String::as_str),
                credentials: credentials.as_deref().map_err(String::as_str),
            },
        );
        let of_account = record.as_ref().is_ok_and(|record| {
            self.may_be_shown_by_account(&asker, record.as_ref()) && self.has_providers(&image)
        });
        if of_account && matches!(judgement, AccessDecision::Prove(_)) {
            return self.provide(asker, image, ctx, move |actor, asker, image, ctx| {
                actor.verified(asker, image, seen, (intended, record), ctx);
            });
        }
        let (metrics, policy) = (self.deps.metrics.clone(), asker.ask.policy);
        match judgement {
            AccessDecision::Use { why, add } => {
                metrics.checked(why);
                if let Some(secret) = add {
                    self.add_to_record(&seen.id, &asker.ask.image, secret, ctx);
                }
                self.use_it(asker, seen);
            }
            AccessDecision::Prove(why) => {
                metrics.checked(why);
                metrics.asked(policy, Some(true), Some(true));
                // A pod that may not use the image is not told that the image is there.
                if policy == PullPolicy::Never {
                    let failed = policy::never_pull(&asker.ask.image);
                    return self.refuse(asker, failed);
                }
                self.want(asker, image, ctx);
            }
            AccessDecision::Broken(error) => {
                metrics.checked(crate::records::Checked::Error);
                metrics.asked(policy, Some(true), None);
                let failed = policy::secret_broken(&asker.ask.image, &error);
                self.refuse(asker, failed);
            }
        }
    }

    fn add_to_record(&self, image_ref: &str, image: &str, secret: PullSecret, ctx: &mut Ctx<Self>) {
        let new = PullCredentials { kubernetes_secrets: vec![secret], ..PullCredentials::default() };
        let written = self.write_record(image_ref, image, Some(new));
        ctx.effect("record image", None, written, |_, _, _| {});
    }

    fn use_it(&mut self, asker: ImageAsker, seen: Image) {
        self.deps.metrics.asked(asker.ask.policy, Some(true), Some(false));
        self.record(&asker.ask, policy::present(&asker.ask.image, self.records_matter()));
        let image = execute::present(seen);
        self.give(&image.image_ref);
        asker.reply.send(Ok(Arc::new(image)));
    }

    /// Removes the records of images that are gone, and the intents of which no image has come.
    pub(super) fn prune(&mut self, ctx: &mut Ctx<Self>) {
        if !self.records_matter() {
            return;
        }
        ctx.set_timer(Timer::Prune, PRUNE_EVERY);
        let began = self.deps.clock.now();
        let images = execute::list_images(self.deps.images.clone());
        ctx.effect("list images", None, images, move |actor, images, ctx| {
            let Some(images) = images else { return };
            let there = images.iter().map(|image| image.id.clone()).collect();
            let pruned = on_disk::prune(actor.deps.records.clone(), there, began, actor.deps.metrics.clone());
            ctx.effect("prune pull records", None, pruned, |_, (), _| {});
            actor.settle_intents(&images, true, ctx);
        });
    }

    /// Whether the outcome of a pull is known and recorded, so that its intent can be removed.
    pub(super) fn outcome_known(pulled: &Pulled) -> bool {
        match pulled {
            Pulled::Done { recorded, .. } | Pulled::NotInspected { recorded, .. } => *recorded,
            Pulled::Failed { known, .. } => *known,
            Pulled::NotIntended(_) => true,
        }
    }
}
