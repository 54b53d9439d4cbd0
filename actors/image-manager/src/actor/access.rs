//! Whether a pod may use an image that is on the node already, and the records that this depends on.

use std::sync::Arc;
use std::time::Duration;

use bridge_cri::ListedImages;
use bridge_cri::wire::Image;
use bridge_node::host::RecordKind;
use supervision::{Ctx, Effect};

use super::{ImageAsker, ImageManager, Timer};
use crate::execute::records::{self as on_disk, Found, RecordRead};
use crate::execute::{self, Pulled};
use crate::policy;
use crate::records::{
    AccessDecision, AccessQuestion, Checked, IntentFound, PullCredentials, PullSecret, full_name, judge,
};
use messages::image_manager::PullPolicy;

/// How often records of images that are gone are removed: upstream's period of image garbage collection.
const PRUNE_EVERY: Duration = Duration::from_secs(300);
/// How long a list may take, where each image is asked for by itself.
const LIST_MAX: Duration = Duration::from_secs(600);

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
        self.deps.metrics.on_disk(RecordKind::Pulled, found.pulled.len());
        found.pulled.into_iter().for_each(|id| self.recorded.note(id, 0));
        for image in &found.intents {
            self.intents.found(image, self.deps.history.before(image));
        }
        for (asker, image) in self.early.take().unwrap_or_default() {
            let pod = asker.ask.pod.uid.clone();
            ctx.for_pod(&pod, |ctx| self.look(asker, image, ctx));
        }
        if self.intents.len() > 0 {
            let (number, more) = (self.list_begins(), self.recorded_and(self.intents.names()));
            let images = execute::list_images(self.deps.images.clone(), more);
            ctx.effect(
                Effect::within("look for images of intents", LIST_MAX),
                None,
                images,
                move |actor, images, ctx| {
                    let Some(images) = images else { return };
                    actor.note_list(&images, number);
                    actor.settle_intents(&images, number, false, ctx);
                },
            );
        }
    }

    /// Settles the intents of pulls whose outcome was not recorded. An image that came of one gets a record
    /// that opens it to no pod; with `forget_absent`, intents of which no image has come are removed.
    fn settle_intents(
        &mut self,
        listed: &ListedImages,
        number: u64,
        forget_absent: bool,
        ctx: &mut Ctx<Self>,
    ) {
        self.intents.forget_gone(number, |id| listed.is_gone(id));
        self.keep_before();
        for (image, come) in self.intents.left_over(&listed.images, number) {
            match come {
                IntentFound::Made(image_ref) => {
                    self.recorded.note(image_ref.clone(), self.lists);
                    let written = self.write_record(&image_ref, &image, None);
                    ctx.effect("record image", None, written, move |actor, written, ctx| {
                        if written {
                            actor.forget_intent(&image, ctx);
                        }
                    });
                }
                IntentFound::Before => self.forget_intent(&image, ctx),
                IntentFound::Nothing if forget_absent && listed.is_gone(&full_name(&image)) => {
                    self.forget_intent(&image, ctx);
                }
                IntentFound::Nothing => {}
            }
        }
    }

    fn forget_intent(&mut self, image: &str, ctx: &mut Ctx<Self>) {
        if self.intents.settle(image) {
            self.keep_before();
            self.remove_intent(image, ctx);
        }
    }

    /// Removes an intent from the disk, when the last pull of this name has ended.
    pub(super) fn remove_intent(&self, image: &str, ctx: &mut Ctx<Self>) {
        let removed = on_disk::remove_intent(&self.deps.records, image, self.deps.metrics.clone());
        ctx.effect("remove pull intent", None, removed, |_, (), _| {});
    }

    /// A new incarnation must not take an image that was there before a pull for one that the pull has made.
    pub(super) fn keep_before(&self) {
        self.deps.history.set_before(self.intents.before());
    }

    fn write_record(
        &self,
        image_ref: &str,
        image: &str,
        new: Option<PullCredentials>,
    ) -> impl Future<Output = bool> + use<> {
        let now = self.deps.clock.now();
        on_disk::write(&self.deps.records, image_ref, image, (new, false), now, self.deps.metrics.clone())
    }

    /// A pull has ended: its intent is removed if the outcome is `known` and recorded, else it stays.
    pub(super) fn end_intent(&mut self, spelled: &str, known: bool, ctx: &mut Ctx<Self>) {
        if !self.records_matter() {
            return;
        }
        if !known {
            self.intents.leave(spelled, self.lists);
        } else if self.intents.end(spelled, self.lists) {
            self.keep_before();
            self.remove_intent(spelled, ctx);
        }
    }

    /// The image is there: decides whether the pod may use it. The intents are looked at before the record is
    /// read: a pull that ends between the two has written its record by then.
    pub(super) fn verify(&mut self, asker: ImageAsker, image: String, seen: Image, ctx: &mut Ctx<Self>) {
        if !self.deps.settings.verification.looks_at_records() {
            if self.records_matter() {
                self.deps.metrics.checked(Checked::PolicyAllowed);
            }
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
                metrics.checked(Checked::Error);
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
        let mut named = self.intents.names();
        named.extend(self.names.all().cloned());
        let (number, more) = (self.list_begins(), self.recorded_and(named));
        let images = execute::list_images(self.deps.images.clone(), more);
        ctx.effect(Effect::within("list images", LIST_MAX), None, images, move |actor, images, ctx| {
            let Some(images) = images.map(Arc::new) else { return };
            actor.note_list(&images, number);
            let (records, metrics) = (actor.deps.records.clone(), actor.deps.metrics.clone());
            let pruned = on_disk::prune(records, images.clone(), began, metrics);
            ctx.effect("prune pull records", None, pruned, |_, (), _| {});
            actor.settle_intents(&images, number, true, ctx);
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
