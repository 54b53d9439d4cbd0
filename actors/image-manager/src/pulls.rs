//! Which pulls run and which wait (row 30.7). Only askers with the same credentials share a pull; any other
//! asker gets a pull and a result of its own. Pulls run side by side up to a limit; namespaces take turns,
//! and within a namespace its pods, so that a crowd of pulls for others holds up no pod. A namespace with more
//! than one place gives way to one that has waited long without any, and so does one whose pull has had a place for long.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bridge_cri::PullShare;
use messages::PodUid;

/// How many pulls run at once and how many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullLimits {
    /// Pulls that run at once; 1 is upstream's `serializeImagePulls`.
    pub parallel: usize,
    /// The most pulls that wait for their turn. Upstream's serial puller queues ten, and further callers
    /// block outside of that queue without being refused; here the queue is only longer.
    pub waiting_max: usize,
    /// The most askers that wait for one pull.
    pub askers_max: usize,
}

impl Default for PullLimits {
    fn default() -> Self {
        Self { parallel: 5, waiting_max: 256, askers_max: 1024 }
    }
}

impl PullLimits {
    /// How many pulls of one image with different credentials run at once: one fewer than all, so that
    /// another image has room.
    fn of_one_image(&self) -> usize {
        self.parallel.saturating_sub(1).max(1)
    }

    /// How many pulls for one namespace run at once: one fewer than all, so that a tenant's registry that
    /// never ends a pull leaves room for another. With three places or fewer all may be used, because on most
    /// nodes one namespace pulls; [`Pulls::gives_way`] makes room there.
    fn of_one_namespace(&self) -> usize {
        if self.parallel > 3 { self.parallel - 1 } else { self.parallel }
    }
}

/// The image of a pull, and the pods that may share the pull.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PullKey {
    /// The image's name, as the runtime is asked for it.
    pub image: String,
    /// The fingerprint of namespace, handler and credentials.
    pub share: PullShare,
}

/// The namespace and pod that a pull counts against: those of its first asker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod.
    pub pod: PodUid,
}

/// What became of an ask that was taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked<A> {
    /// The asker has joined a pull that runs or waits.
    Joined,
    /// A new pull waits for its turn, which may be now: see [`Pulls::begin`].
    Waits,
    /// A new pull waits in the place of a pull of the namespace with most of the queue: the askers of that
    /// pull are returned.
    InPlaceOf(Vec<A>),
}

/// What became of a pull after askers have given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullFate {
    /// At least one asker still waits for it.
    Wanted,
    /// No asker waits for it. It had not begun, and is out of the queue.
    Unqueued,
    /// No asker waits for it, and it runs: the caller cancels it.
    Cancel,
}

/// The queue is full; the asker is returned.
#[derive(Debug, PartialEq, Eq)]
pub struct QueueFull<A>(pub A);

#[derive(Debug)]
struct Pull<A> {
    owner: Owner,
    askers: Vec<A>,
    /// The number of the turn in which it began; `None` while it waits.
    began: Option<u64>,
}

/// The pulls of the node. `A` is an asker.
#[derive(Debug)]
pub struct Pulls<A> {
    limits: PullLimits,
    pulls: BTreeMap<PullKey, Pull<A>>,
    /// The pulls that have not begun, in the order in which they were asked for.
    turn: VecDeque<PullKey>,
    namespaces: Turns<Arc<str>>,
    pods: Turns<PodUid>,
}

/// How many pulls of each image, namespace and pod run.
#[derive(Default)]
struct PlacesTaken<'a> {
    images: BTreeMap<&'a String, usize>,
    namespaces: BTreeMap<&'a Arc<str>, usize>,
    pods: BTreeMap<&'a PodUid, usize>,
}

/// When each namespace, or each pod, with pulls had its last turn. A new one starts level with the one that
/// has waited longest, not before it.
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

    fn take(&mut self, who: &K) -> u64 {
        self.next += 1;
        self.last.insert(who.clone(), self.next);
        self.next
    }

    fn last(&self, who: &K) -> u64 {
        self.last.get(who).copied().unwrap_or(0)
    }
}

impl<A> Pulls<A> {
    /// No pulls.
    pub fn new(limits: PullLimits) -> Self {
        let limits = PullLimits { parallel: limits.parallel.max(1), ..limits };
        let (pulls, turn) = (BTreeMap::new(), VecDeque::new());
        Self { limits, pulls, turn, namespaces: Turns::new(), pods: Turns::new() }
    }

    /// These limits hold from now on; pulls that run go on.
    pub fn set_limits(&mut self, limits: PullLimits) {
        self.limits = PullLimits { parallel: limits.parallel.max(1), ..limits };
    }

    /// Adds an ask to the pull of this key, or queues a new pull for it.
    ///
    /// # Errors
    /// [`QueueFull`] when too many askers wait for this pull, or the queue is full and no other namespace has
    /// more of it.
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
        self.pulls.insert(key.clone(), Pull { owner, askers: vec![asker], began: None });
        self.turn.push_back(key.clone());
        Ok(asked)
    }

    /// The newest place in the queue of the namespace with the most places, if that has more than `namespace`
    /// would have.
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

    /// How many pulls of each image, namespace and pod run.
    fn places_taken(&self) -> PlacesTaken<'_> {
        let mut taken = PlacesTaken::default();
        for (key, pull) in self.pulls.iter().filter(|(_, pull)| pull.began.is_some()) {
            *taken.images.entry(&key.image).or_insert(0) += 1;
            *taken.namespaces.entry(&pull.owner.namespace).or_insert(0) += 1;
            *taken.pods.entry(&pull.owner.pod).or_insert(0) += 1;
        }
        taken
    }

    /// The place in the queue of the pull whose turn it is, if there is room.
    fn next_place(&self) -> Option<usize> {
        if self.running() >= self.limits.parallel {
            return None;
        }
        let PlacesTaken { images, namespaces, pods } = self.places_taken();
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
        self.turn.iter().enumerate().filter_map(rank).min().map(|(_, _, place)| place)
    }

    /// The pod of the pull that [`Pulls::begin`] would begin now.
    pub fn next_pod(&self) -> Option<&PodUid> {
        let key = self.turn.get(self.next_place()?)?;
        self.pulls.get(key).map(|pull| &pull.owner.pod)
    }

    /// The pull whose turn it is, if there is room: the caller begins it, and calls again.
    pub fn begin(&mut self) -> Option<PullKey> {
        let key = self.turn.remove(self.next_place()?)?;
        if let Some(pull) = self.pulls.get_mut(&key) {
            pull.began = Some(self.namespaces.take(&pull.owner.namespace));
            self.pods.take(&pull.owner.pod);
        }
        Some(key)
    }

    /// The pull that has to give up its place, if all places are taken and a namespace without a place has
    /// waited too long by `too_long`: the youngest pull of the namespace with the most places. A namespace's
    /// only pull goes on, so that each gets on, until it has had its time by `had_time`: a registry that never
    /// ends a pull would keep the place.
    pub fn gives_way(
        &self,
        too_long: impl Fn(&A) -> bool,
        had_time: impl Fn(&PullKey) -> bool,
    ) -> Option<PullKey> {
        if self.running() < self.limits.parallel {
            return None;
        }
        let taken = self.places_taken();
        let room_for =
            |key: &PullKey| taken.images.get(&key.image).copied().unwrap_or(0) < self.limits.of_one_image();
        let crowded_out = |pull: &Pull<A>| {
            !taken.namespaces.contains_key(&pull.owner.namespace) && pull.askers.iter().any(&too_long)
        };
        let mut waiting = self.turn.iter().filter_map(|key| Some((key, self.pulls.get(key)?)));
        if !waiting.any(|(key, pull)| room_for(key) && crowded_out(pull)) {
            return None;
        }
        let places = |pull: &Pull<A>| taken.namespaces.get(&pull.owner.namespace).copied().unwrap_or(0);
        let running = || self.pulls.iter().filter(|(_, pull)| pull.began.is_some());
        let of_several = running().filter(|(_, pull)| places(pull) > 1);
        let youngest = of_several.max_by_key(|(_, pull)| (places(pull), pull.began));
        let oldest = || running().filter(|(key, _)| had_time(key)).min_by_key(|(_, pull)| pull.began);
        youngest.or_else(oldest).map(|(key, _)| key.clone())
    }

    /// A pull that runs gives up its place and waits for another turn; its askers go on waiting.
    pub fn wait_again(&mut self, key: &PullKey) {
        if let Some(pull) = self.pulls.get_mut(key)
            && pull.began.take().is_some()
        {
            self.turn.push_back(key.clone());
        }
    }

    /// Removes a pull that has ended, and returns its askers.
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

    /// Removes the askers of a pull for which `waits` is false.
    pub fn keep(&mut self, key: &PullKey, waits: impl FnMut(&A) -> bool) -> PullFate {
        let Some(pull) = self.pulls.get_mut(key) else { return PullFate::Wanted };
        pull.askers.retain(waits);
        if !pull.askers.is_empty() {
            return PullFate::Wanted;
        }
        let queued = self.turn.iter().position(|queued| queued == key);
        self.finished(key);
        match queued {
            Some(place) => {
                self.turn.remove(place);
                PullFate::Unqueued
            }
            None => PullFate::Cancel,
        }
    }

    /// The askers that wait for a pull.
    pub fn askers_mut(&mut self, key: &PullKey) -> &mut [A] {
        self.pulls.get_mut(key).map_or(&mut [], |pull| pull.askers.as_mut_slice())
    }

    /// Whether this pull runs or waits for its turn.
    pub fn has(&self, key: &PullKey) -> bool {
        self.pulls.contains_key(key)
    }

    /// Every pull that runs or waits for its turn, and its askers.
    pub fn all(&self) -> impl Iterator<Item = (&PullKey, &[A])> {
        self.pulls.iter().map(|(key, pull)| (key, pull.askers.as_slice()))
    }

    /// How many pulls run.
    pub fn running(&self) -> usize {
        self.pulls.len() - self.turn.len()
    }

    /// How many pulls wait for their turn.
    pub fn waiting(&self) -> usize {
        self.turn.len()
    }
}

#[cfg(test)]
mod tests;
