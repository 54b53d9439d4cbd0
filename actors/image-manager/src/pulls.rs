//! Which pulls run and which wait (row 30.7). A pull is shared by those alone who may share it: askers with the same
//! credentials; each other asker's pull is its own, with a verdict of its own. Pulls run side by side up to a cap, and
//! namespaces take turns, and within one its pods, so that nobody is held up by a crowd of others' pulls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bridge_cri::PullShare;
use messages::PodUid;

/// How many pulls run at once and how many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullLimits {
    /// Pulls that run at once; 1 is upstream's `serializeImagePulls`.
    pub parallel: usize,
    /// Pulls that wait for their turn. Upstream's serial puller queues ten, and whoever comes then waits outside of
    /// that queue: nobody is turned away by either, so here the queue is only longer.
    pub waiting_max: usize,
    /// Askers that wait for one pull.
    pub askers_max: usize,
}

impl Default for PullLimits {
    fn default() -> Self {
        Self { parallel: 5, waiting_max: 256, askers_max: 1024 }
    }
}

impl PullLimits {
    /// Pulls of one image with different credentials that run at once: however many there are of them, there is room
    /// for another image.
    fn of_one_image(&self) -> usize {
        self.parallel.saturating_sub(1).max(1)
    }

    /// Pulls for one namespace that run at once: registries of one tenant that never end a pull leave room for others.
    /// With very few places all may be used, for most nodes have one namespace that pulls.
    fn of_one_namespace(&self) -> usize {
        if self.parallel > 3 { self.parallel - 1 } else { self.parallel }
    }
}

/// What a pull is of, and who may share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PullKey {
    /// The image, as the runtime is asked for it.
    pub image: String,
    /// Those who may share the pull.
    pub share: PullShare,
}

/// For whom a pull was begun or waits: the first who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod.
    pub pod: PodUid,
}

/// What became of an ask.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked<A> {
    /// A pull that is there will answer it.
    Joined,
    /// It waits for its turn, which may be now: see [`Pulls::begin`].
    Waits,
    /// It waits in the place of another namespace's, which has most of the queue: these askers do not wait any more.
    InPlaceOf(Vec<A>),
}

/// What becomes of a pull when askers have gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Somebody still wants it.
    Wanted,
    /// Nobody does. It had not begun, and does not.
    Unqueued,
    /// Nobody does, and it runs: the caller cancels it.
    Cancel,
}

/// Too much waits already; the asker gets its ask back.
#[derive(Debug, PartialEq, Eq)]
pub struct QueueFull<A>(pub A);

#[derive(Debug)]
struct Pull<A> {
    owner: Owner,
    askers: Vec<A>,
}

/// The pulls of the node. `A` is what has to be answered.
#[derive(Debug)]
pub struct Pulls<A> {
    limits: PullLimits,
    pulls: BTreeMap<PullKey, Pull<A>>,
    /// Those that have not begun, in the order in which they came.
    turn: VecDeque<PullKey>,
    namespaces: Turns<Arc<str>>,
    pods: Turns<PodUid>,
}

/// When each of those who have pulls had its last turn. Newcomers stand beside those who have waited longest, not
/// before them.
#[derive(Debug)]
struct Turns<K> {
    last: BTreeMap<K, u64>,
    next: u64,
}

impl<K: Ord + Clone> Turns<K> {
    fn new() -> Self {
        Self { last: BTreeMap::new(), next: 0 }
    }

    fn come(&mut self, who: &K) {
        let longest = self.last.values().min().copied().unwrap_or(self.next);
        self.last.entry(who.clone()).or_insert(longest);
    }

    fn take(&mut self, who: &K) {
        self.next += 1;
        self.last.insert(who.clone(), self.next);
    }

    fn last(&self, who: &K) -> u64 {
        self.last.get(who).copied().unwrap_or(0)
    }
}

impl<A> Pulls<A> {
    /// Nothing runs.
    pub fn new(limits: PullLimits) -> Self {
        let limits = PullLimits { parallel: limits.parallel.max(1), ..limits };
        let (pulls, turn) = (BTreeMap::new(), VecDeque::new());
        Self { limits, pulls, turn, namespaces: Turns::new(), pods: Turns::new() }
    }

    /// Somebody wants an image pulled.
    ///
    /// # Errors
    /// [`QueueFull`] when too many askers wait for this pull, or the queue is full and no other namespace has more of
    /// it.
    pub fn ask(&mut self, key: &PullKey, owner: Owner, asker: A) -> Result<Asked<A>, QueueFull<A>> {
        if let Some(pull) = self.pulls.get_mut(key) {
            if pull.askers.len() >= self.limits.askers_max {
                return Err(QueueFull(asker));
            }
            pull.askers.push(asker);
            return Ok(Asked::Joined);
        }
        let mut asked = Asked::Waits;
        if self.turn.len() >= self.limits.waiting_max {
            let Some(place) = self.place_for(&owner.namespace) else { return Err(QueueFull(asker)) };
            let displaced = self.turn.remove(place).and_then(|key| self.pulls.remove(&key));
            asked = Asked::InPlaceOf(displaced.map(|pull| pull.askers).unwrap_or_default());
        }
        self.namespaces.come(&owner.namespace);
        self.pods.come(&owner.pod);
        self.pulls.insert(key.clone(), Pull { owner, askers: vec![asker] });
        self.turn.push_back(key.clone());
        Ok(asked)
    }

    /// The newest place in the queue of the namespace that has most of them, if that has more than this one would.
    fn place_for(&self, namespace: &Arc<str>) -> Option<usize> {
        let mut places: BTreeMap<&Arc<str>, (usize, usize)> = BTreeMap::new();
        for (place, key) in self.turn.iter().enumerate() {
            let Some(pull) = self.pulls.get(key) else { continue };
            let entry = places.entry(&pull.owner.namespace).or_default();
            *entry = (entry.0 + 1, place);
        }
        let own = places.get(namespace).map_or(0, |(count, _)| *count);
        let (count, place) = places.into_values().max()?;
        (count > own + 1).then_some(place)
    }

    /// The pull whose turn it is, if there is room: the caller begins it, and asks again.
    pub fn begin(&mut self) -> Option<PullKey> {
        if self.running() >= self.limits.parallel {
            return None;
        }
        let (mut images, mut namespaces, mut pods) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (key, pull) in &self.pulls {
            if !self.turn.contains(key) {
                *images.entry(&key.image).or_insert(0) += 1;
                *namespaces.entry(&pull.owner.namespace).or_insert(0) += 1;
                *pods.entry(&pull.owner.pod).or_insert(0) += 1;
            }
        }
        let (of_one_image, of_one_namespace) = (self.limits.of_one_image(), self.limits.of_one_namespace());
        let rank = |(place, key): (usize, &PullKey)| {
            let owner = &self.pulls.get(key)?.owner;
            let (namespace, pod) = (&owner.namespace, &owner.pod);
            let room = images.get(&key.image).copied().unwrap_or(0) < of_one_image
                && namespaces.get(namespace).copied().unwrap_or(0) < of_one_namespace;
            room.then(|| {
                let of_namespace =
                    (namespaces.get(namespace).copied().unwrap_or(0), self.namespaces.last(namespace));
                let of_pod = (pods.get(pod).copied().unwrap_or(0), self.pods.last(pod));
                (of_namespace, of_pod, place)
            })
        };
        let (_, _, place) = self.turn.iter().enumerate().filter_map(rank).min()?;
        let key = self.turn.remove(place)?;
        if let Some(pull) = self.pulls.get(&key) {
            self.namespaces.take(&pull.owner.namespace);
            self.pods.take(&pull.owner.pod);
        }
        Some(key)
    }

    /// A pull is over: who is to be answered.
    pub fn finished(&mut self, key: &PullKey) -> Vec<A> {
        let askers = self.pulls.remove(key).map(|pull| pull.askers).unwrap_or_default();
        self.forget_absent();
        askers
    }

    fn forget_absent(&mut self) {
        let pulls = &self.pulls;
        self.namespaces
            .last
            .retain(|namespace, _| pulls.values().any(|pull| pull.owner.namespace == *namespace));
        self.pods.last.retain(|pod, _| pulls.values().any(|pull| pull.owner.pod == *pod));
    }

    /// Forgets the askers of a pull that do not wait any more.
    pub fn keep(&mut self, key: &PullKey, waits: impl FnMut(&A) -> bool) -> Kept {
        let Some(pull) = self.pulls.get_mut(key) else { return Kept::Wanted };
        pull.askers.retain(waits);
        if !pull.askers.is_empty() {
            return Kept::Wanted;
        }
        let queued = self.turn.iter().position(|queued| queued == key);
        self.finished(key);
        match queued {
            Some(place) => {
                self.turn.remove(place);
                Kept::Unqueued
            }
            None => Kept::Cancel,
        }
    }

    /// Those who wait for a pull.
    pub fn askers_mut(&mut self, key: &PullKey) -> &mut [A] {
        self.pulls.get_mut(key).map_or(&mut [], |pull| pull.askers.as_mut_slice())
    }

    /// Every pull that runs or waits for its turn, and who waits for it.
    pub fn all(&self) -> impl Iterator<Item = (&PullKey, &[A])> {
        self.pulls.iter().map(|(key, pull)| (key, pull.askers.as_slice()))
    }

    /// Pulls that run.
    pub fn running(&self) -> usize {
        self.pulls.len() - self.turn.len()
    }

    /// Pulls that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.turn.len()
    }
}

#[cfg(test)]
mod tests;
