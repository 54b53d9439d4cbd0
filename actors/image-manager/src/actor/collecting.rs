//! The collection of unused images (rows 6.9 and 19.5): every five minutes, and when EvictionManager asks. One image is deleted
//! after the other, so that each is still unwanted when its turn comes; asks for the image that is being deleted wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::wire::Image;
use bridge_cri::{CriError, ListedImages};
use bridge_node::stats::Room;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::image_manager::DeleteUnusedImages;
use pod_rules::errors;
use supervision::{Ctx, Effect, Reply, ReplyLater, reply_later};

use super::{ImageAsker, ImageManager, Timer};
use crate::collection::{Candidate, CollectionPolicy, DiskFill, NO_CAPACITY, Plan, too_little};
use crate::execute::records as on_disk;
use crate::execute::unused::{self, Survey};
use crate::execute::{self, MoreImages};
use crate::records::full_name;

/// Upstream's period of looks and of collections.
const EVERY: Duration = Duration::from_secs(300);
/// How long one collection may take: there may be many images, and each call has a deadline of its own.
const LONG: Duration = Duration::from_secs(3600);
/// For this long a look at an image may be under way.
const LOOK_MAX: Duration = Duration::from_secs(600);
/// The most errors of deletions that are told.
const ERRORS_MAX: usize = 64;
/// What is told when no answer of the runtime holds the list of images.
const TOO_LONG: &str = "The container runtime's list of images is too long for one answer. The images that are recorded as pulled, that \
                        containers have, or that the kubelet has seen before are asked for one by one, and are deleted as ever; others \
                        stay";

/// Why images are collected.
enum Why {
    /// The time has come: by the thresholds and ages of the policy.
    Due,
    /// EvictionManager needs room: all that are old enough.
    Asked(Vec<Reply<usize>>),
}

/// The disk when it was found to be full.
struct Full {
    percent: u64,
    capacity: u64,
}

/// A collection under way.
struct Run {
    why: Why,
    began: Duration,
    plan: Plan,
    /// The unused images that are not too old, until it is known whether the disk is full.
    rest: Vec<Candidate>,
    measured: bool,
    full: Option<Full>,
    deleted: usize,
    /// The errors of the plan's deletions.
    failed: Vec<String>,
    problems: Vec<String>,
    /// It ends early, since EvictionManager asks: nothing follows from what it has reached.
    gives_way: bool,
}

impl Run {
    fn new(why: Why, began: Duration) -> Self {
        Self {
            why,
            began,
            plan: Plan::default(),
            rest: Vec::new(),
            measured: false,
            full: None,
            deleted: 0,
            failed: Vec::new(),
            problems: Vec::new(),
            gives_way: false,
        }
    }

    /// The plan is over: what has failed of it becomes one problem.
    fn close_plan(&mut self, policy: &CollectionPolicy) {
        let failed = std::mem::take(&mut self.failed);
        if !failed.is_empty() {
            self.problems.push(self.plan.failure(policy, &errors::aggregate(failed)));
        }
    }
}

/// Collections, and what waits for them.
#[derive(Default)]
pub(super) struct Collecting {
    run: Option<Run>,
    /// Asks that have come since the collection began.
    asked: Vec<Reply<usize>>,
    /// The image that is being deleted.
    removing: Option<Candidate>,
    /// The images that were deleted lately, by the runtime's ID, and when.
    removed: BTreeMap<String, Duration>,
    /// The asks for the image that is being deleted, with its full name.
    held: Vec<(ImageAsker, String)>,
}

impl Collecting {
    /// When the collection that is under way began.
    pub(super) fn began(&self) -> Option<Duration> {
        self.run.as_ref().map(|run| run.began)
    }

    fn is_removing(&self, id: &str) -> bool {
        self.removing.as_ref().is_some_and(|image| image.id == id)
    }

    fn was_removed_since(&self, id: &str, since: Duration) -> bool {
        self.removed.get(id).is_some_and(|removed| *removed > since)
    }
}

impl ImageManager {
    /// Sets the timer of the next look: a new incarnation looks no sooner than the earlier one would have.
    pub(super) fn collect_when_due(&self, ctx: &mut Ctx<Self>) {
        let history = &self.deps.history;
        ctx.set_timer(Timer::Collect, history.due().saturating_sub(history.now()));
    }

    /// Looks at the images, and deletes what the policy says.
    pub(super) fn collect(&mut self, ctx: &mut Ctx<Self>) {
        self.deps.history.set_due(self.deps.history.now() + EVERY);
        ctx.set_timer(Timer::Collect, EVERY);
        if self.collecting.run.is_some() {
            // It has looked by itself.
            return;
        }
        if self.deps.settings.collection.is_on() {
            return self.start_collection(Why::Due, ctx);
        }
        let number = self.list_begins();
        let images = execute::list_images(self.deps.images.clone(), self.recorded_and(BTreeSet::new()));
        ctx.effect(Effect::within("look at images", LONG), None, images, move |actor, images, _| {
            if let Some(images) = images {
                actor.note_list(&images, number);
                actor.deps.history.detect(&images);
            }
        });
    }

    /// The images that pulls are recorded of, and `more`.
    pub(super) fn recorded_and(&self, mut more: BTreeSet<String>) -> MoreImages {
        let records = self.records_matter().then(|| self.deps.records.clone());
        Box::pin(async move {
            if let Some(records) = records {
                more.extend(on_disk::recorded(records).await);
            }
            more
        })
    }

    /// A list of images begins; answers with its number. What is noted from then on with that number may be missing in the list.
    pub(super) fn list_begins(&mut self) -> u64 {
        self.lists += 1;
        self.lists
    }

    /// What follows from any list of images. It is told once that the list has become longer than an answer, and logged once that
    /// it is so no more.
    pub(super) fn note_list(&mut self, listed: &ListedImages, number: u64) {
        self.recorded.forget_gone(number, |id| listed.is_gone(id));
        let wanted = self.pulls.all().map(|(key, _)| full_name(&key.image)).collect();
        self.names.keep(listed, number, &wanted);
        let before = self.deps.history.set_too_long(listed.too_long().is_some());
        match listed.too_long() {
            Some(error) if !before => {
                let mut message = format!("{TOO_LONG}: {}", error.status_text());
                errors::cut(&mut message, errors::WORDS_BYTES_MAX);
                tracing::warn!("{message}");
                self.tell_of_node("ImageListTooLong", &message);
            }
            None if before => tracing::info!("An answer of the runtime holds the list of images again"),
            _ => {}
        }
    }

    fn start_collection(&mut self, why: Why, ctx: &mut Ctx<Self>) {
        let began = self.deps.history.now();
        self.collecting.removed.retain(|_, removed| *removed + LOOK_MAX > began);
        self.collecting.run = Some(Run::new(why, began));
        let more = self.recorded_and(self.deps.history.given(began));
        let survey = unused::survey(self.deps.images.clone(), self.deps.runtime.clone(), more);
        let number = self.list_begins();
        let what = Effect::within("look for unused images", LONG);
        ctx.effect(what, None, survey, move |actor, survey, ctx| {
            if let Ok(survey) = &survey {
                actor.note_list(&survey.images, number);
            }
            actor.surveyed(survey, ctx);
        });
    }

    fn surveyed(&mut self, survey: Result<Survey, String>, ctx: &mut Ctx<Self>) {
        let policy = self.deps.settings.collection;
        let Some(run) = &mut self.collecting.run else { return };
        let Survey { images, mut used } = match survey {
            Ok(survey) => survey,
            Err(problem) => {
                run.problems.push(problem);
                return self.end_collection(ctx);
            }
        };
        used.extend(self.deps.history.given(run.began));
        let now = self.deps.history.now();
        let candidates = self.deps.history.look(images, &used, now);
        match run.why {
            Why::Due => (run.plan, run.rest) = Plan::of_age(candidates, &policy, now),
            Why::Asked(_) => run.plan = Plan::for_space(candidates, &policy, now, None),
        }
        self.go_on(ctx);
    }

    /// Deletes the next image, or goes on to what follows the last one.
    fn go_on(&mut self, ctx: &mut Ctx<Self>) {
        loop {
            let Some(run) = &mut self.collecting.run else { return };
            let is_due = matches!(run.why, Why::Due);
            if is_due && !self.collecting.asked.is_empty() {
                run.gives_way = true;
                return self.end_collection(ctx);
            }
            if self.deps.history.now().saturating_sub(run.began) >= LONG {
                run.problems.push("the deletion of unused images takes too long".to_owned());
                return self.end_collection(ctx);
            }
            let measured = run.measured;
            let Some(image) = run.plan.take_next() else {
                return if is_due && !measured { self.measure(ctx) } else { self.end_collection(ctx) };
            };
            if !self.is_wanted(&image) {
                let removal = unused::remove(self.deps.images.clone(), image.id.clone());
                self.collecting.removing = Some(image);
                ctx.effect("delete image", None, removal, Self::deleted);
                return;
            }
        }
    }

    /// Whether a pod wants the image since it was looked at.
    fn is_wanted(&self, image: &Candidate) -> bool {
        let is_it = |name: &str| image.is_called(name) || image.is_called(&full_name(name));
        self.deps.history.was_given(image)
            || self.pulls.all().any(|(key, _)| is_it(&key.image))
            || self.early.iter().flatten().any(|(_, name)| is_it(name))
            || self.deps.images.pulls_in_flight().iter().any(|(name, _)| is_it(name))
    }

    fn deleted(&mut self, outcome: Result<(), CriError>, ctx: &mut Ctx<Self>) {
        let Some(image) = self.collecting.removing.take() else { return };
        self.collecting.removed.insert(image.id.clone(), self.deps.history.now());
        if outcome.as_ref().err().is_none_or(CriError::outcome_unknown) {
            // If it comes again, a pull has made it.
            self.before.discard();
            self.deps.history.note_deleted(&image.id);
            self.intents.forget_gone(u64::MAX, |id| id == image.id);
            self.keep_before();
        }
        if let Some(run) = &mut self.collecting.run {
            match outcome {
                Ok(()) => {
                    tracing::info!(image = image.id, bytes = image.bytes, "An unused image was deleted");
                    run.plan.freed(image.bytes);
                    run.deleted += 1;
                    self.deps.history.forget(&image.id);
                    self.deps.metrics.collected(run.plan.reason());
                }
                Err(error) => {
                    tracing::warn!(%error, image = image.id, "An unused image stays");
                    if run.failed.len() < ERRORS_MAX {
                        run.failed.push(error.status_text());
                    }
                }
            }
        }
        for (asker, image) in std::mem::take(&mut self.collecting.held) {
            let pod = asker.ask.pod.uid.clone();
            ctx.for_pod(&pod, |ctx| self.look(asker, image, ctx));
        }
        self.go_on(ctx);
    }

    fn measure(&mut self, ctx: &mut Ctx<Self>) {
        let room = unused::room(self.deps.stats.clone(), self.deps.usage.clone());
        ctx.effect("measure disk of images", None, room, Self::measured);
    }

    fn measured(&mut self, room: Result<Room, String>, ctx: &mut Ctx<Self>) {
        let policy = self.deps.settings.collection;
        let Some(run) = &mut self.collecting.run else { return };
        run.measured = true;
        run.close_plan(&policy);
        let rest = std::mem::take(&mut run.rest);
        match room.map(|room| (room.capacity, policy.judge(room.capacity, room.available))) {
            Err(problem) => run.problems.push(problem),
            Ok((_, DiskFill::Enough)) => {}
            Ok((_, DiskFill::Invalid)) => {
                run.problems.push(NO_CAPACITY.to_owned());
                self.tell_of_node("InvalidDiskCapacity", NO_CAPACITY);
            }
            Ok((capacity, DiskFill::Full { percent, bytes })) => {
                tracing::info!(percent, bytes, "The disk of images is full: unused ones are deleted");
                run.full = Some(Full { percent, capacity });
                run.plan = Plan::for_space(rest, &policy, self.deps.history.now(), Some(bytes));
            }
        }
        self.go_on(ctx);
    }

    fn end_collection(&mut self, ctx: &mut Ctx<Self>) {
        let Some(mut run) = self.collecting.run.take() else { return };
        if run.deleted > 0 {
            self.prune(ctx);
        }
        // Where deletions have failed, these are the reason.
        let is_short = run.failed.is_empty() && run.plan.is_short();
        run.close_plan(&self.deps.settings.collection);
        match run.why {
            Why::Asked(replies) => {
                for problem in run.problems {
                    tracing::warn!("Unused images may be left: {problem}");
                }
                for reply in replies {
                    reply.send(run.deleted);
                }
            }
            Why::Due if run.gives_way => {}
            Why::Due => {
                if let Some(full) = run.full.filter(|_| is_short) {
                    let message = too_little(full.percent, full.capacity, run.plan.bytes_freed());
                    self.tell_of_node("FreeDiskSpaceFailed", &message);
                    run.problems.push(message);
                }
                self.tell_outcome(run.problems);
            }
        }
        self.collecting.asked.retain(Reply::is_wanted);
        let asked = std::mem::take(&mut self.collecting.asked);
        if !asked.is_empty() {
            self.start_collection(Why::Asked(asked), ctx);
        }
    }

    /// Tells a failure from the second one in a row on: the first may come of a runtime that has just started.
    fn tell_outcome(&self, problems: Vec<String>) {
        let failed_before = self.deps.history.set_failed(!problems.is_empty());
        if problems.is_empty() {
            if failed_before {
                tracing::info!("Unused images are collected again");
            }
            return;
        }
        let mut message = errors::aggregate(problems);
        errors::cut(&mut message, errors::WORDS_BYTES_MAX);
        tracing::warn!("Unused images could not be collected: {message}");
        if failed_before {
            self.tell_of_node("ImageGCFailed", &message);
        }
    }

    fn tell_of_node(&self, reason: &str, message: &str) {
        // A full recorder counts what it drops.
        self.deps.events.tell_or_count(RecordEvent {
            object: EventObject::Node,
            event_type: EventType::Warning,
            reason: Arc::from(reason),
            message: Arc::from(message),
        });
    }

    /// An ask for the image that is being deleted waits until that is over; any other is returned.
    pub(super) fn hold(&mut self, asker: ImageAsker, image: String) -> Option<(ImageAsker, String)> {
        let full = full_name(&image);
        let is_it = |removed: &Candidate| removed.is_called(&image) || removed.is_called(&full);
        if self.collecting.removing.as_ref().is_some_and(is_it) {
            self.collecting.held.push((asker, image));
            return None;
        }
        Some((asker, image))
    }

    /// What a look that began at `since` has seen. An image that was deleted meanwhile is looked for again; another one is not
    /// deleted until the pod uses it.
    pub(super) fn seen(
        &mut self,
        asker: ImageAsker,
        image: String,
        (seen, since): (Result<Option<Image>, CriError>, Duration),
        ctx: &mut Ctx<Self>,
    ) {
        if let Ok(Some(found)) = &seen {
            if self.collecting.is_removing(&found.id) {
                return self.collecting.held.push((asker, image));
            }
            if self.collecting.was_removed_since(&found.id, since) {
                return self.look(asker, image, ctx);
            }
            self.give(&found.id);
        }
        self.looked(asker, image, seen, ctx);
    }
}

impl actix::Handler<DeleteUnusedImages> for ImageManager {
    type Result = ReplyLater<usize>;

    fn handle(&mut self, _: DeleteUnusedImages, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        if self.collecting.run.is_some() {
            // What it has looked at may be old, and its plan another one.
            self.collecting.asked.retain(Reply::is_wanted);
            self.collecting.asked.push(reply);
        } else {
            self.start_collection(Why::Asked(vec![reply]), ctx);
        }
        later
    }
}
