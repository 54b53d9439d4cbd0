//! PURE: which unused images are deleted, and in which order (rows 6.9 and 19.5): what is known of each image, and the plan
//! of a collection.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bridge_cri::ListedImages;
use pod_rules::durations::GoDuration;

#[cfg(test)]
mod tests;

/// The most images of which times are remembered. An image beyond them is not old enough to be deleted until others are gone.
const IMAGES_MAX: usize = 20_000;

/// When unused images are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionPolicy {
    /// `imageGCHighThresholdPercent`: images are deleted when their disk is as full as this.
    pub high_percent: u64,
    /// `imageGCLowThresholdPercent`: images are deleted until their disk is no fuller than this.
    pub low_percent: u64,
    /// `imageMinimumGCAge`: an image that was detected later than this ago stays, also when EvictionManager asks.
    pub min_age: Duration,
    /// `imageMaximumGCAge`: an image that was not used for longer goes; none for no such limit.
    pub max_age: Option<Duration>,
}

impl Default for CollectionPolicy {
    /// No image is deleted unless EvictionManager asks.
    fn default() -> Self {
        Self { high_percent: 100, low_percent: 80, min_age: Duration::from_secs(120), max_age: None }
    }
}

/// The disk of images, judged by the thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFill {
    /// Its capacity is 0, which cannot be.
    Invalid,
    /// It is less full than the high threshold.
    Enough,
    /// It is as full as the high threshold, or fuller.
    Full {
        /// How full, in percent.
        percent: u64,
        /// The bytes that must be freed to reach the low threshold.
        bytes: u64,
    },
}

impl CollectionPolicy {
    /// Whether images are deleted without EvictionManager's asking.
    pub fn is_on(&self) -> bool {
        self.high_percent < 100 || self.max_age.is_some()
    }

    /// Judges a disk with these bytes.
    pub(crate) fn judge(&self, capacity: u64, available: i64) -> DiskFill {
        if capacity == 0 {
            return DiskFill::Invalid;
        }
        let available = u64::try_from(available).unwrap_or(0).min(capacity);
        let part = |of: u64, by: u64, in_all: u64| {
            let share = u128::from(of) * u128::from(by) / u128::from(in_all);
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let percent = 100 - part(available, 100, capacity).min(100);
        if percent < self.high_percent {
            return DiskFill::Enough;
        }
        let free = part(capacity, 100_u64.saturating_sub(self.low_percent), 100);
        DiskFill::Full { percent, bytes: free.saturating_sub(available) }
    }
}

/// The times of an image, as ages of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    detected: Duration,
    used: Option<Duration>,
}

/// When images were detected first and seen in use last, by the runtime's ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times(BTreeMap<String, Known>);

impl Times {
    /// These are the images that there are.
    pub fn detect(&mut self, listed: &ListedImages, now: Duration) {
        self.0.retain(|id, _| !listed.is_gone(id));
        let described = listed.images.iter().map(|image| &image.id);
        let there: BTreeSet<&String> = described.chain(&listed.unread).collect();
        for id in there {
            if self.0.len() >= IMAGES_MAX {
                return;
            }
            if !self.0.contains_key(id) {
                self.0.insert(id.clone(), Known { detected: now, used: None });
            }
        }
    }

    /// These are the images that there are, and the names by which images are in use. Answers with those that are neither in use
    /// nor pinned, in the order in which they are deleted: first what was not used for longest, then what was detected first.
    pub fn look(
        &mut self,
        listed: impl Into<ListedImages>,
        used: &BTreeSet<String>,
        now: Duration,
    ) -> Vec<Candidate> {
        let listed = listed.into();
        self.detect(&listed, now);
        let mut unused = BTreeMap::new();
        for image in listed.into_all() {
            let Some(known) = self.0.get_mut(&image.id) else { continue };
            let names = image.repo_tags.into_iter().chain(image.repo_digests).collect();
            let candidate = Candidate { id: image.id, names, bytes: image.size, times: *known };
            if candidate.is_among(used) {
                known.used = Some(now);
            } else if !image.pinned {
                unused.insert((known.used, known.detected, candidate.id.clone()), candidate);
            }
        }
        unused.into_values().collect()
    }

    /// The image is gone.
    pub fn forget(&mut self, id: &str) {
        self.0.remove(id);
    }
}

/// An unused image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The runtime's ID.
    pub id: String,
    /// Its tags and digests.
    names: Vec<String>,
    /// Its size.
    pub bytes: u64,
    times: Known,
}

impl Candidate {
    /// Whether this is one of its names.
    pub fn is_called(&self, name: &str) -> bool {
        self.id == name || self.names.iter().any(|known| known == name)
    }

    /// Whether one of its names is among these.
    pub fn is_among(&self, names: &BTreeSet<String>) -> bool {
        names.contains(&self.id) || self.names.iter().any(|name| names.contains(name))
    }

    /// Since when it has been idle: an image that was never seen in use, since it was detected.
    fn idle_since(&self) -> Duration {
        self.times.used.map_or(self.times.detected, |used| used.max(self.times.detected))
    }

    fn is_too_old(&self, policy: &CollectionPolicy, now: Duration) -> bool {
        policy.max_age.is_some_and(|oldest| now.saturating_sub(self.idle_since()) > oldest)
    }

    fn is_old_enough(&self, policy: &CollectionPolicy, now: Duration) -> bool {
        now.saturating_sub(self.times.detected) >= policy.min_age
    }
}

/// Why an image is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was not used for too long.
    Age,
    /// The disk is full.
    Space,
}

impl Reason {
    /// The metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Space => "space",
        }
    }
}

/// The images that are deleted one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    reason: Reason,
    /// Those that are left, the last one first.
    left: Vec<Candidate>,
    /// The bytes that are enough; none if all images go.
    goal: Option<u64>,
    freed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self { reason: Reason::Age, left: Vec::new(), goal: None, freed: 0 }
    }
}

impl Plan {
    fn new(reason: Reason, mut images: Vec<Candidate>, goal: Option<u64>) -> Self {
        images.reverse();
        Self { reason, left: images, goal, freed: 0 }
    }

    /// Deletes those that were not used for too long; the others are returned.
    pub fn of_age(
        images: Vec<Candidate>,
        policy: &CollectionPolicy,
        now: Duration,
    ) -> (Self, Vec<Candidate>) {
        // An image younger than the minimum stays, whatever the maximum is.
        let goes = |image: &Candidate| image.is_too_old(policy, now) && image.is_old_enough(policy, now);
        let (old, rest) = images.into_iter().partition(goes);
        (Self::new(Reason::Age, old, None), rest)
    }

    /// Deletes those that are old enough until so many bytes are freed; without a goal, all of these.
    pub fn for_space(
        mut images: Vec<Candidate>,
        policy: &CollectionPolicy,
        now: Duration,
        goal: Option<u64>,
    ) -> Self {
        images.retain(|image| image.is_old_enough(policy, now));
        Self::new(Reason::Space, images, goal)
    }

    /// The image that is deleted next.
    pub fn take_next(&mut self) -> Option<Candidate> {
        if self.goal.is_some_and(|goal| self.freed >= goal) {
            return None;
        }
        self.left.pop()
    }

    /// An image of this size was deleted.
    pub fn freed(&mut self, bytes: u64) {
        self.freed = self.freed.saturating_add(bytes);
    }

    /// Why images are deleted.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The bytes that deleted images had.
    pub fn bytes_freed(&self) -> u64 {
        self.freed
    }

    /// Whether less was freed than the goal.
    pub fn is_short(&self) -> bool {
        self.goal.is_some_and(|goal| self.freed < goal)
    }

    /// What has failed, in upstream's words, with the errors of deletions in one.
    pub fn failure(&self, policy: &CollectionPolicy, error: &str) -> String {
        match (self.reason, self.goal) {
            (Reason::Age, _) => {
                let oldest = GoDuration::whole_millis(policy.max_age.unwrap_or_default());
                format!(
                    "wanted to free images older than {oldest}, encountered errors in image deletion: {error}"
                )
            }
            (Reason::Space, Some(goal)) => format!(
                "wanted to free {goal} bytes, but freed {} bytes space with errors in image deletion: {error}",
                self.freed
            ),
            (Reason::Space, None) => format!("errors in image deletion: {error}"),
        }
    }
}

/// What is said of a disk without any capacity.
pub const NO_CAPACITY: &str = "invalid capacity 0 on image filesystem";

/// What is said when too little could be freed.
pub fn too_little(percent: u64, capacity: u64, freed: u64) -> String {
    format!(
        "Insufficient free disk space on the node's image filesystem ({percent}% of {} used). Failed to free sufficient space by \
         deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used by active images, logs, \
         volumes, or other data.",
        size(capacity)
    )
}

/// A number of bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}
