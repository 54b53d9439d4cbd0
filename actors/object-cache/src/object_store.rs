//! PURE: the objects of one kind: what is known of each, which asks wait for it, and which watches have become idle
//! (row 11.1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_kube::{Followed, Said};
use messages::PodUid;
use messages::object_cache::ObjectError;

use crate::room::{Name, Room};
use crate::strategy::{Strategy, TTL_DEFAULT};

/// A watch is closed when no actor has asked for its object for so long.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// An object that was asked for so recently stays although no known pod refers to it: the desired pods may tell of the
/// pod later.
const UNKNOWN_MAX: Duration = Duration::from_secs(60);
/// What was read of an object that is not watched holds for so long: less than the minute after which volumes are looked over
/// again.
const FRESH_MAX: Duration = Duration::from_secs(45);
/// At most so many asks wait for one object.
const WAITING_MAX: usize = 256;

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Secrets.
    Secret,
    /// Config maps.
    ConfigMap,
    /// Runtime classes: they have no namespace.
    RuntimeClass,
}

impl Kind {
    /// The kind as errors spell it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::ConfigMap => "configmap",
            Self::RuntimeClass => "runtimeclass.node.k8s.io",
        }
    }

    /// The answer for an object that does not exist.
    pub fn not_found(self, name: &Name) -> ObjectError {
        ObjectError { not_found: true, message: format!("{} {:?} not found", self.word(), name.1) }
    }

    /// The answer for an object that has not been read yet.
    pub fn not_synced(self) -> ObjectError {
        let word = self.word();
        let message = format!("failed to sync {word} cache: timed out waiting for the condition");
        ObjectError { not_found: false, message }
    }
}

/// The state of an object, as far as it is known.
#[derive(Debug)]
enum ObjectState<K> {
    Nothing,
    Absent,
    There(Arc<K>),
}

/// An object on the shelf. `F` is the watch that keeps it current, `W` an ask that waits for it.
#[derive(Debug)]
struct StoredObject<K, F, W> {
    known: ObjectState<K>,
    watch: Option<F>,
    /// When it was current for the last time, if it is not watched.
    read: Duration,
    /// It is to be read, or is being read.
    reading: bool,
    /// A pod that is new to the object came after its read had begun: the read answers only so many of the asks that wait.
    outdated: Option<usize>,
    /// The object never changes, so it is not watched.
    frozen: bool,
    asked: Duration,
    /// The pod that asked last.
    asker: Option<PodUid>,
    waiting: Vec<W>,
    /// Some asks were answered without the object: its arrival is news for their pods.
    owed: bool,
}

impl<K, F, W> StoredObject<K, F, W> {
    /// Whether what is known is out of date. Under [`Strategy::Cache`] it holds for `ttl`, and that there is no object never does.
    fn is_stale(&self, strategy: Strategy, ttl: Duration, now: Duration) -> bool {
        let age = now.saturating_sub(self.read);
        let is_old = match strategy {
            Strategy::Watch => self.watch.is_none() && age > FRESH_MAX,
            Strategy::Cache => age >= ttl || matches!(self.known, ObjectState::Absent),
            Strategy::Get => true,
        };
        is_old && !self.frozen
    }
}

/// What to do with an ask.
#[derive(Debug)]
pub enum Lookup<K, W> {
    /// Give this answer.
    Known(W, Result<Arc<K>, ObjectError>),
    /// The ask has been put on the list; true if it is the first that waits.
    Waits(bool),
    /// The list is full.
    Full(W),
}

/// The object, or why there is none.
pub type ObjectAnswer<K> = Result<Arc<K>, ObjectError>;

/// The effect of a piece of news.
#[derive(Debug)]
pub struct NewsOutcome<K, F, W> {
    /// Whether the object differs from what was known before.
    pub changed: bool,
    /// The watches to close: that of the object if it is no longer needed, and those of others for which there is no room beside it.
    pub closed: Vec<(Name, F)>,
    /// The asks that have waited, and their answer.
    pub answers: Option<(Vec<W>, ObjectAnswer<K>)>,
}

/// All objects of one kind that are asked for or referred to.
#[derive(Debug)]
pub struct ObjectStore<K, F, W> {
    kind: Kind,
    items: BTreeMap<Name, StoredObject<K, F, W>>,
    /// The objects that are not watched.
    room: Room,
    /// Those that are.
    watched: Room,
    bytes_of: fn(&K) -> usize,
    strategy: Strategy,
    /// How long what was read holds under [`Strategy::Cache`].
    ttl: Duration,
}

impl<K, F, W> ObjectStore<K, F, W> {
    /// An empty one, for objects of these sizes.
    pub fn new(kind: Kind, bytes_of: fn(&K) -> usize) -> Self {
        let (room, watched) = (Room::default(), Room::default());
        let (strategy, ttl) = (Strategy::Watch, TTL_DEFAULT);
        Self { kind, items: BTreeMap::new(), room, watched, bytes_of, strategy, ttl }
    }

    /// The same for objects that are kept current in this way.
    #[must_use]
    pub fn kept_by(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// How the objects are kept current.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Sets how long what was read holds under [`Strategy::Cache`].
    pub fn set_ttl(&mut self, ttl: Duration) {
        self.ttl = ttl;
    }

    /// Under [`Strategy::Cache`] a pod that is new to an object is shown nothing that was read before, nor what a read under way
    /// finds: the object is forgotten, unless it never changes.
    pub fn expire(&mut self, name: &Name) {
        let Some(item) = self.items.get_mut(name) else { return };
        if self.strategy == Strategy::Cache && !item.frozen {
            item.known = ObjectState::Nothing;
            if item.reading {
                item.outdated.get_or_insert(item.waiting.len());
            }
            self.room.remove(name);
        }
    }

    /// The number of objects, and of watches.
    pub fn counts(&self) -> (usize, usize) {
        (self.items.len(), self.items.values().filter(|item| item.watch.is_some()).count())
    }

    /// Takes an ask for an object.
    pub fn get(&mut self, name: &Name, who: W, now: Duration) -> Lookup<K, W> {
        let item = self.items.entry(name.clone()).or_insert_with(|| StoredObject {
            known: ObjectState::Nothing,
            watch: None,
            read: now,
            reading: false,
            outdated: None,
            frozen: false,
            asked: now,
            asker: None,
            waiting: Vec::new(),
            owed: false,
        });
        item.asked = now;
        let is_stale = item.is_stale(self.strategy, self.ttl, now);
        match answer(self.kind, name, &item.known).filter(|_| !is_stale) {
            Some(answer) => Lookup::Known(who, answer),
            None if item.waiting.len() >= WAITING_MAX => Lookup::Full(who),
            None => {
                item.waiting.push(who);
                Lookup::Waits(item.waiting.len() == 1)
            }
        }
    }

    /// Notes that a pod has asked for the object: it is followed and read on behalf of the one that asked last.
    pub fn asked_by(&mut self, name: &Name, pod: PodUid) {
        if let Some(item) = self.items.get_mut(name) {
            item.asker = Some(pod);
        }
    }

    /// The pod on whose behalf the object is followed and read.
    pub fn asker(&self, name: &Name) -> Option<PodUid> {
        self.items.get(name).and_then(|item| item.asker.clone())
    }

    /// Whether the object should be watched and is not.
    pub fn needs_watch(&self, name: &Name) -> bool {
        let is_unwatched = |item: &StoredObject<K, F, W>| item.watch.is_none() && !item.frozen;
        self.strategy == Strategy::Watch && self.items.get(name).is_some_and(is_unwatched)
    }

    /// Notes that the object is watched now.
    pub fn set_watch(&mut self, name: &Name, watch: F) {
        if let Some(item) = self.items.get_mut(name) {
            item.watch = Some(watch);
            self.room.remove(name);
        }
    }

    /// Takes the watch of an object, which was current until now.
    pub fn take_watch(&mut self, name: &Name, now: Duration) -> Option<F> {
        let item = self.items.get_mut(name)?;
        item.read = now;
        let watch = item.watch.take();
        self.keep(name);
        watch
    }

    /// Counts what is known of an object. For one that is watched others lose their watches, which are returned; for one that is
    /// not, others are forgotten.
    fn keep(&mut self, name: &Name) -> Vec<(Name, F)> {
        let mut closed = Vec::new();
        let Some(item) = self.items.get(name) else { return closed };
        let bytes = match &item.known {
            ObjectState::There(object) => Some((self.bytes_of)(object)),
            _ => None,
        };
        match (bytes, item.watch.is_some()) {
            (Some(bytes), true) => {
                for unwatched in self.watched.put(name, bytes) {
                    let item = self.items.get_mut(&unwatched);
                    let watch = item.and_then(|item| item.watch.take());
                    self.keep(&unwatched);
                    closed.extend(watch.map(|watch| (unwatched, watch)));
                }
            }
            (Some(bytes), false) => {
                self.watched.remove(name);
                for gone in self.room.put(name, bytes) {
                    if let Some(item) = self.items.get_mut(&gone) {
                        (item.known, item.frozen) = (ObjectState::Nothing, false);
                    }
                }
            }
            (None, _) => {
                self.room.remove(name);
                self.watched.remove(name);
            }
        }
        closed
    }

    /// Whether the object, which is not watched, has to be read since asks wait for it: true once until it has been read.
    pub fn begin_read(&mut self, name: &Name) -> bool {
        let Some(item) = self.items.get_mut(name) else { return false };
        let wanted = item.owed || !item.waiting.is_empty();
        let begins = wanted && item.watch.is_none() && !item.reading;
        item.reading |= begins;
        begins
    }

    /// The read begins now, for all asks that wait, if the object is still to be read.
    pub fn starts_read(&mut self, name: &Name) -> bool {
        let Some(item) = self.items.get_mut(name) else { return false };
        item.outdated = None;
        item.reading
    }

    /// Whether asks wait for the object.
    pub fn is_awaited(&self, name: &Name) -> bool {
        self.items.get(name).is_some_and(|item| !item.waiting.is_empty())
    }

    /// The object has been read, or could not be. Returns whether what was read is news, which has to be heard next: a watch knows
    /// better.
    pub fn end_read(&mut self, name: &Name, now: Duration, was_read: bool) -> bool {
        let Some(item) = self.items.get_mut(name) else { return false };
        item.reading = false;
        let news = was_read && item.watch.is_none();
        if news {
            item.read = now;
        } else {
            item.outdated = None;
        }
        news
    }

    /// News of an object. `immutable` says whether it can never change, `says_the_same` whether there is nothing new in it
    /// for pods.
    pub fn heard(
        &mut self,
        name: &Name,
        news: Followed<K>,
        immutable: impl Fn(&K) -> bool,
        says_the_same: impl Fn(&K, &K) -> bool,
    ) -> NewsOutcome<K, F, W> {
        let nothing = NewsOutcome { changed: false, closed: Vec::new(), answers: None };
        let Some(item) = self.items.get_mut(name) else { return nothing };
        let known = match news {
            Followed::All(all) => match all.into_iter().next() {
                Some(object) => ObjectState::There(Arc::new(object)),
                None => ObjectState::Absent,
            },
            Followed::Changed(object) => ObjectState::There(Arc::new(object)),
            Followed::Gone(_) => ObjectState::Absent,
            Followed::Unreadable(one) if one.said == Said::Gone => ObjectState::Absent,
            // The state known before stays: there is no better.
            Followed::Unreadable(_) | Followed::Trouble(_) => return nothing,
        };
        let owed = std::mem::take(&mut item.owed);
        let changed = match (&item.known, &known) {
            (ObjectState::Nothing, _) => owed,
            (ObjectState::Absent, ObjectState::Absent) => false,
            (ObjectState::There(before), ObjectState::There(now)) => !says_the_same(before, now),
            _ => true,
        };
        item.known = known;
        item.frozen = matches!(&item.known, ObjectState::There(object) if immutable(object));
        let unneeded = if item.frozen { item.watch.take() } else { None };
        let mut closed: Vec<_> = unneeded.map(|watch| (name.clone(), watch)).into_iter().collect();
        let outdated = item.outdated.take().filter(|_| !item.frozen);
        let answered = outdated.map_or(item.waiting.len(), |before| before.min(item.waiting.len()));
        let waiting = item.waiting.drain(..answered).collect();
        let answers = answer(self.kind, name, &item.known).map(|answer| (waiting, answer));
        if (self.strategy == Strategy::Get || outdated.is_some()) && !item.frozen {
            // The next ask is answered by the next read, whatever becomes of that.
            item.known = ObjectState::Nothing;
        }
        closed.extend(self.keep(name));
        NewsOutcome { changed, closed, answers }
    }

    /// Takes the asks that wait for the object, since they have waited long enough. Their answer is what was known last.
    pub fn give_up(&mut self, name: &Name) -> (Vec<W>, ObjectAnswer<K>) {
        let not_synced = || Err(self.kind.not_synced());
        let Some(item) = self.items.get_mut(name) else { return (Vec::new(), not_synced()) };
        let known = answer(self.kind, name, &item.known);
        item.owed |= known.is_none() && !item.waiting.is_empty();
        // None waits any more that the read under way could answer.
        item.outdated = item.outdated.map(|_| 0);
        (std::mem::take(&mut item.waiting), known.unwrap_or_else(not_synced))
    }

    /// Removes objects that no pod refers to and objects with an idle watch. Returns the watches to close.
    pub fn sweep(&mut self, referred: &BTreeSet<&Name>, now: Duration) -> Vec<(Name, F)> {
        let mut closed = Vec::new();
        let idle_max = if self.strategy == Strategy::Cache { IDLE_MAX.max(self.ttl) } else { IDLE_MAX };
        let (room, watched) = (&mut self.room, &mut self.watched);
        self.items.retain(|name, item| {
            let unasked = now.saturating_sub(item.asked);
            // An object that has not been read yet keeps its watch, or it would have to be read again.
            let idle = unasked > idle_max && !matches!(item.known, ObjectState::Nothing) && !item.frozen;
            let unknown = !referred.contains(name) && unasked > UNKNOWN_MAX && item.waiting.is_empty();
            if idle || unknown {
                closed.extend(item.watch.take().map(|watch| (name.clone(), watch)));
                room.remove(name);
                watched.remove(name);
            }
            !(idle || unknown)
        });
        closed
    }
}

fn answer<K>(kind: Kind, name: &Name, known: &ObjectState<K>) -> Option<Result<Arc<K>, ObjectError>> {
    match known {
        ObjectState::Nothing => None,
        ObjectState::Absent => Some(Err(kind.not_found(name))),
        ObjectState::There(object) => Some(Ok(object.clone())),
    }
}

#[cfg(test)]
mod strategies;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::BYTES_MAX;

    type Texts = ObjectStore<String, u32, &'static str>;

    fn name(name: &str) -> Name {
        (Arc::from("ns"), Arc::from(name))
    }

    fn mutable(_: &String) -> bool {
        false
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn who_asks_waits_for_the_first_list_and_then_never() {
        let (mut object_store, a) = (Texts::new(Kind::Secret, String::len), name("a"));
        assert!(matches!(object_store.get(&a, "one", seconds(0)), Lookup::Waits(true)));
        assert!(object_store.needs_watch(&a));
        object_store.set_watch(&a, 1);
        assert!(!object_store.needs_watch(&a));
        assert!(matches!(object_store.get(&a, "two", seconds(0)), Lookup::Waits(false)));
        let heard = object_store.heard(&a, Followed::All(vec!["x".to_owned()]), mutable, String::eq);
        assert!(!heard.changed, "nobody had anything else");
        assert_eq!(heard.answers, Some((vec!["one", "two"], Ok(Arc::new("x".to_owned())))));
        let Lookup::Known("three", Ok(object)) = object_store.get(&a, "three", seconds(1)) else {
            panic!("it is known")
        };
        assert_eq!(*object, "x");
    }

    #[test]
    fn only_what_is_other_than_before_is_a_change() {
        let (mut object_store, a) = (Texts::new(Kind::ConfigMap, String::len), name("a"));
        let _ = object_store.get(&a, "one", seconds(0));
        let mut change = |news| object_store.heard(&a, news, mutable, String::eq).changed;
        let x = || "x".to_owned();
        assert!(!change(Followed::All(vec![])));
        assert!(change(Followed::Changed(x())));
        assert!(!change(Followed::All(vec![x()])));
        assert!(change(Followed::Changed("y".to_owned())));
        assert!(change(Followed::Gone(x())));
        assert!(!change(Followed::All(vec![])));
        let Lookup::Known(_, Err(error)) = object_store.get(&a, "two", seconds(0)) else {
            panic!("it is known")
        };
        assert_eq!(error, ObjectError { not_found: true, message: "configmap \"a\" not found".to_owned() });
        assert!(
            !object_store.heard(&name("b"), Followed::Gone(x()), mutable, String::eq).changed,
            "nobody asked"
        );
    }

    #[test]
    fn what_cannot_change_is_not_watched() {
        let (mut object_store, a) = (Texts::new(Kind::Secret, String::len), name("a"));
        let _ = object_store.get(&a, "one", seconds(0));
        object_store.set_watch(&a, 7);
        let heard = object_store.heard(&a, Followed::All(vec!["x".to_owned()]), |_| true, String::eq);
        assert_eq!(heard.closed, [(name("a"), 7)]);
        assert!(!object_store.needs_watch(&a));
        // A frozen object is kept while a pod refers to it, with or without asks, and no longer.
        assert!(object_store.sweep(&BTreeSet::from([&a]), seconds(10_000)).is_empty());
        assert_eq!(object_store.counts(), (1, 0));
        object_store.sweep(&BTreeSet::new(), seconds(10_000));
        assert_eq!(object_store.counts(), (0, 0));
    }

    #[test]
    fn watches_end_when_nobody_asks_or_refers() {
        let (mut object_store, a, b) = (Texts::new(Kind::Secret, String::len), name("a"), name("b"));
        for (watch, name) in [(1, &a), (2, &b)] {
            let _ = object_store.get(name, "one", seconds(0));
            object_store.set_watch(name, watch);
            object_store.heard(name, Followed::All(vec!["x".to_owned()]), mutable, String::eq);
        }
        assert!(
            object_store.sweep(&BTreeSet::from([&a]), seconds(60)).is_empty(),
            "its pod may be on its way"
        );
        assert_eq!(object_store.sweep(&BTreeSet::from([&a]), seconds(61)), [(b, 2)]);
        assert!(object_store.sweep(&BTreeSet::from([&a]), seconds(300)).is_empty());
        assert_eq!(object_store.sweep(&BTreeSet::from([&a]), seconds(301)), [(a, 1)]);
        assert_eq!(object_store.counts(), (0, 0));
    }

    #[test]
    fn a_list_under_way_is_not_given_up() {
        let (mut object_store, a) = (Texts::new(Kind::Secret, String::len), name("a"));
        let _ = object_store.get(&a, "one", seconds(0));
        object_store.set_watch(&a, 1);
        assert_eq!(object_store.give_up(&a), (vec!["one"], Err(Kind::Secret.not_synced())));
        assert!(object_store.sweep(&BTreeSet::from([&a]), seconds(1000)).is_empty());
        assert!(
            object_store.heard(&a, Followed::All(vec!["x".to_owned()]), mutable, String::eq).changed,
            "\"one\" has not heard of it"
        );
        assert_eq!(
            Kind::Secret.not_synced().message,
            "failed to sync secret cache: timed out waiting for the condition"
        );
    }

    #[test]
    fn what_is_not_watched_is_read_again_when_it_is_asked_for_after_a_while() {
        let (mut object_store, a) = (Texts::new(Kind::Secret, String::len), name("a"));
        let read = |store: &mut Texts, text: &str, now: u64| {
            store.end_read(&a, seconds(now), true);
            store.heard(&a, Followed::All(vec![text.to_owned()]), mutable, String::eq)
        };
        let known = |lookup| match lookup {
            Lookup::Known(_, answer) => answer.ok().map(|text: Arc<String>| (*text).clone()),
            _ => None,
        };
        assert!(matches!(object_store.get(&name("a"), "one", seconds(0)), Lookup::Waits(true)));
        assert!(object_store.begin_read(&name("a")));
        assert!(!object_store.begin_read(&name("a")), "once is enough");
        assert!(!read(&mut object_store, "x", 1).changed);
        assert_eq!(known(object_store.get(&name("a"), "two", seconds(46))).as_deref(), Some("x"));
        assert!(!object_store.begin_read(&name("a")), "no ask waits");
        assert!(matches!(object_store.get(&name("a"), "three", seconds(47)), Lookup::Waits(true)));
        assert!(object_store.begin_read(&name("a")));
        let late = object_store.give_up(&name("a"));
        assert_eq!(late, (vec!["three"], Ok(Arc::new("x".to_owned()))), "there is no newer");
        assert!(read(&mut object_store, "y", 48).changed);
        // While it is watched it is current, and for a while after that.
        object_store.set_watch(&name("a"), 1);
        assert_eq!(known(object_store.get(&name("a"), "four", seconds(200))).as_deref(), Some("y"));
        assert_eq!(object_store.take_watch(&name("a"), seconds(200)), Some(1));
        assert_eq!(known(object_store.get(&name("a"), "five", seconds(240))).as_deref(), Some("y"));
        assert!(matches!(object_store.get(&name("a"), "six", seconds(250)), Lookup::Waits(true)));
    }

    #[test]
    fn what_is_watched_has_a_bound_too_and_what_goes_is_read_when_it_is_asked_for() {
        let mut store = ObjectStore::<usize, u32, &str>::new(Kind::Secret, |bytes| *bytes);
        let mut closed = Vec::new();
        for (object, watch) in [("a", 1), ("b", 2), ("c", 3)] {
            let _ = store.get(&name(object), "one", seconds(0));
            store.set_watch(&name(object), watch);
            let heard = store.heard(&name(object), Followed::All(vec![BYTES_MAX / 2]), |_| false, usize::eq);
            assert!(heard.answers.is_some());
            closed.extend(heard.closed);
        }
        assert_eq!(closed, [(name("a"), 1)]);
        assert_eq!(store.counts(), (3, 2));
        // It grows, and the other has to go.
        let heard = store.heard(&name("c"), Followed::Changed(BYTES_MAX), |_| false, usize::eq);
        assert_eq!(heard.closed, [(name("b"), 2)]);
        assert!(matches!(store.get(&name("a"), "two", seconds(60)), Lookup::Waits(true)));
        assert!(store.begin_read(&name("a")) && store.needs_watch(&name("a")));
        assert!(matches!(store.get(&name("c"), "two", seconds(60)), Lookup::Known(..)));
        // What is gone takes no room.
        let _ = store.heard(&name("c"), Followed::Gone(0), |_| false, usize::eq);
        store.set_watch(&name("a"), 4);
        assert!(
            store.heard(&name("a"), Followed::All(vec![BYTES_MAX]), |_| false, usize::eq).closed.is_empty()
        );
    }

    #[test]
    fn what_is_not_watched_and_too_much_is_read_again() {
        let mut store = ObjectStore::<usize, u32, &str>::new(Kind::Secret, |bytes| *bytes);
        let put = |store: &mut ObjectStore<usize, u32, &'static str>, object: &str, bytes: usize| {
            let _ = store.get(&name(object), "one", seconds(0));
            store.begin_read(&name(object));
            store.end_read(&name(object), seconds(0), true);
            store.heard(&name(object), Followed::All(vec![bytes]), |_| false, usize::eq)
        };
        store.get(&name("watched"), "one", seconds(0));
        store.set_watch(&name("watched"), 1);
        for object in ["watched", "a", "b"] {
            let answer = put(&mut store, object, BYTES_MAX / 2).answers.map(|(_, answer)| answer);
            assert_eq!(answer, Some(Ok(Arc::new(BYTES_MAX / 2))));
        }
        let is_known = |store: &mut ObjectStore<usize, u32, &'static str>, object: &str| {
            matches!(store.get(&name(object), "two", seconds(1)), Lookup::Known(..))
        };
        assert!(["watched", "a", "b"].iter().all(|object| is_known(&mut store, object)));
        put(&mut store, "c", BYTES_MAX / 2);
        assert!(["watched", "b", "c"].iter().all(|object| is_known(&mut store, object)));
        assert!(!is_known(&mut store, "a") && store.begin_read(&name("a")));
        // It waits for it, and is answered; what is read is no change for pods.
        assert!(!put(&mut store, "a", BYTES_MAX / 2).changed);
        assert!(!is_known(&mut store, "b"));
        // One that is watched no longer takes room, too.
        assert_eq!(store.take_watch(&name("watched"), seconds(1)), Some(1));
        assert!(!is_known(&mut store, "c"));
    }
}
