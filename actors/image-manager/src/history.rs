//! What the collection of images knows beside the actor, so that a new incarnation neither takes every image for a new one nor
//! deletes what an earlier one has just given to a pod. A new process begins anew, as upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::ListedImages;
use bridge_io::watch;
use tokio::time::Instant;

use crate::collection::{Candidate, Times};

/// An image that a pod was given, or that a pod has asked for, may not be in use yet: for this long it is not deleted.
const NEW_FOR: Duration = Duration::from_secs(120);

/// A deletion is remembered so long, which is longer than a pull lasts.
const DELETED_FOR: Duration = Duration::from_secs(48 * 3600);
/// The most deletions that are remembered.
const DELETED_MAX: usize = 20_000;

/// The times of images. Cheap to clone; clones are the same.
#[derive(Clone, Debug)]
pub struct ImageHistory {
    origin: Instant,
    kept: Arc<watch::Sender<Kept>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kept {
    times: Times,
    /// The images that pods were given lately, by the runtime's reference, and when.
    given: BTreeMap<String, Duration>,
    /// When images are looked at next.
    due: Duration,
    /// Whether the last collection failed.
    failed: bool,
    /// Whether the last list of images was longer than an answer.
    too_long: bool,
    /// The images that were there before the pulls that have begun, by the name of the intent.
    before: BTreeMap<String, BTreeSet<String>>,
    /// When images were deleted, or may have been, by the runtime's ID.
    deleted: BTreeMap<String, Duration>,
}

impl Default for ImageHistory {
    fn default() -> Self {
        Self { origin: Instant::now(), kept: Arc::new(watch::Sender::new(Kept::default())) }
    }
}

impl ImageHistory {
    /// The age of the history, which is that of the process.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// These are the images that there are.
    pub(crate) fn detect(&self, listed: &ListedImages) {
        let now = self.now();
        self.kept.send_modify(|kept| kept.times.detect(listed, now));
    }

    /// These are the images that there are, and the names by which images are in use: those that are not, in the order in which
    /// they are deleted.
    pub(crate) fn look(
        &self,
        listed: ListedImages,
        used: &BTreeSet<String>,
        now: Duration,
    ) -> Vec<Candidate> {
        let mut unused = Vec::new();
        self.kept.send_modify(|kept| unused = kept.times.look(listed, used, now));
        unused
    }

    /// The image was deleted.
    pub(crate) fn forget(&self, id: &str) {
        self.kept.send_modify(|kept| kept.times.forget(id));
    }

    /// The image was deleted, or may have been.
    pub(crate) fn note_deleted(&self, id: &str) {
        let now = self.now();
        self.kept.send_modify(|kept| {
            kept.deleted.retain(|_, deleted| *deleted + DELETED_FOR > now);
            if kept.deleted.len() >= DELETED_MAX {
                let oldest = kept.deleted.iter().min_by_key(|(_, deleted)| **deleted);
                let oldest = oldest.map(|(id, _)| id.clone());
                if let Some(oldest) = oldest {
                    kept.deleted.remove(&oldest);
                }
            }
            kept.deleted.insert(id.to_owned(), now);
        });
    }

    /// Whether the image was deleted at this age of the process or later: what was known of it before holds no more.
    pub(crate) fn was_deleted_since(&self, id: &str, since: Duration) -> bool {
        self.kept.borrow().deleted.get(id).is_some_and(|deleted| *deleted >= since)
    }

    /// A pod is about to use the image. `since` is when a collection that is under way began: what was given shortly before or
    /// later stays known to it.
    pub(crate) fn give(&self, image_ref: &str, since: Option<Duration>) {
        let now = self.now();
        self.kept.send_modify(|kept| {
            kept.forget_given(since.unwrap_or(now));
            kept.given.insert(image_ref.to_owned(), now);
        });
    }

    /// The images that pods were given shortly before `since`, or later.
    pub(crate) fn given(&self, since: Duration) -> BTreeSet<String> {
        self.kept.send_modify(|kept| kept.forget_given(since));
        self.kept.borrow().given.keys().cloned().collect()
    }

    /// Whether a pod was given this image lately.
    pub(crate) fn was_given(&self, image: &Candidate) -> bool {
        self.kept.borrow().given.keys().any(|name| image.is_called(name))
    }

    /// When images are to be looked at next.
    pub(crate) fn due(&self) -> Duration {
        self.kept.borrow().due
    }

    /// Sets when images are to be looked at next.
    pub(crate) fn set_due(&self, due: Duration) {
        self.kept.send_modify(|kept| kept.due = due);
    }

    /// Notes whether the list of images is longer than an answer; answers whether the one before was.
    pub(crate) fn set_too_long(&self, too_long: bool) -> bool {
        let mut before = false;
        self.kept.send_modify(|kept| before = std::mem::replace(&mut kept.too_long, too_long));
        before
    }

    /// Keeps which images were there before the pulls that have begun, in place of what was kept.
    pub(crate) fn set_before(&self, before: BTreeMap<String, BTreeSet<String>>) {
        self.kept.send_if_modified(|kept| {
            let differs = kept.before != before;
            kept.before = before;
            differs
        });
    }

    /// The images that an earlier incarnation knew to be there before its pulls by this name; none before any pull.
    pub(crate) fn before(&self, image: &str) -> BTreeSet<String> {
        self.kept.borrow().before.get(image).cloned().unwrap_or_default()
    }

    /// Notes whether a collection failed; answers whether the one before did.
    pub(crate) fn set_failed(&self, failed: bool) -> bool {
        let mut before = false;
        self.kept.send_modify(|kept| before = std::mem::replace(&mut kept.failed, failed));
        before
    }
}

impl Kept {
    fn forget_given(&mut self, since: Duration) {
        self.given.retain(|_, given| *given + NEW_FOR > since);
    }
}
