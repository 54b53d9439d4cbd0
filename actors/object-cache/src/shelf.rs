//! PURE: the objects of one kind: what is known of each, who waits for it, and which are watched in vain (row 11.1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_kube::{Followed, Said};
use messages::object_cache::ObjectError;

/// Namespace, empty for what has none, and name.
pub type Name = (Arc<str>, Arc<str>);

/// A watch that nobody has asked about for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// What somebody has asked for just now stays, although no pod that is known refers to it: news of the pod are on their
/// way.
const UNKNOWN_MAX: Duration = Duration::from_secs(60);
/// Who may wait for one object.
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
    /// As errors spell it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::ConfigMap => "configmap",
            Self::RuntimeClass => "runtimeclass.node.k8s.io",
        }
    }

    /// There is no such object.
    pub fn not_found(self, name: &Name) -> ObjectError {
        ObjectError { not_found: true, message: format!("{} {:?} not found", self.word(), name.1) }
    }

    /// Nothing is known of it yet.
    pub fn not_synced(self) -> ObjectError {
        let word = self.word();
        let message = format!("failed to sync {word} cache: timed out waiting for the condition");
        ObjectError { not_found: false, message }
    }
}

/// What is known of an object.
#[derive(Debug)]
enum Known<K> {
    Nothing,
    Absent,
    There(Arc<K>),
}

/// An object on the shelf. `F` is the watch that keeps it current, `W` who waits for it.
#[derive(Debug)]
struct Item<K, F, W> {
    known: Known<K>,
    watch: Option<F>,
    /// It never changes, so it is not watched.
    frozen: bool,
    asked: Duration,
    waiting: Vec<W>,
    /// Some who asked were sent away without an answer: the first one is news to them.
    owed: bool,
}

/// What is to be done for somebody who asks.
#[derive(Debug)]
pub enum Got<K, W> {
    /// The answer.
    Known(W, Result<Arc<K>, ObjectError>),
    /// It has been put to those who wait. True for the first of them.
    Waits(bool),
    /// There is no room to wait.
    Full(W),
}

/// What is said of an object.
pub type Answer<K> = Result<Arc<K>, ObjectError>;

/// What came of some news.
#[derive(Debug)]
pub struct Heard<K, F, W> {
    /// It is not what it was.
    pub changed: bool,
    /// The watch that is of no use any more.
    pub unneeded: Option<F>,
    /// Who has waited, and for what.
    pub answers: Option<(Vec<W>, Answer<K>)>,
}

/// All objects of a kind that are of interest.
#[derive(Debug)]
pub struct Shelf<K, F, W> {
    kind: Kind,
    items: BTreeMap<Name, Item<K, F, W>>,
}

impl<K, F, W> Shelf<K, F, W> {
    /// An empty one.
    pub fn new(kind: Kind) -> Self {
        Self { kind, items: BTreeMap::new() }
    }

    /// Objects, and watches.
    pub fn counts(&self) -> (usize, usize) {
        (self.items.len(), self.items.values().filter(|item| item.watch.is_some()).count())
    }

    /// Somebody asks.
    pub fn get(&mut self, name: &Name, who: W, now: Duration) -> Got<K, W> {
        let item = self.items.entry(name.clone()).or_insert_with(|| Item {
            known: Known::Nothing,
            watch: None,
            frozen: false,
            asked: now,
            waiting: Vec::new(),
            owed: false,
        });
        item.asked = now;
        match answer(self.kind, name, &item.known) {
            Some(answer) => Got::Known(who, answer),
            None if item.waiting.len() >= WAITING_MAX => Got::Full(who),
            None => {
                item.waiting.push(who);
                Got::Waits(item.waiting.len() == 1)
            }
        }
    }

    /// Whether the object should be watched and is not.
    pub fn needs_watch(&self, name: &Name) -> bool {
        self.items.get(name).is_some_and(|item| item.watch.is_none() && !item.frozen)
    }

    /// It is watched now, or not any more.
    pub fn set_watch(&mut self, name: &Name, watch: Option<F>) {
        if let Some(item) = self.items.get_mut(name) {
            item.watch = watch;
        }
    }

    /// News of an object. `immutable` says whether it can never change, `says_the_same` whether there is nothing new in it
    /// for pods.
    pub fn heard(
        &mut self,
        name: &Name,
        news: Followed<K>,
        immutable: impl Fn(&K) -> bool,
        says_the_same: impl Fn(&K, &K) -> bool,
    ) -> Heard<K, F, W> {
        let nothing = Heard { changed: false, unneeded: None, answers: None };
        let Some(item) = self.items.get_mut(name) else { return nothing };
        let known = match news {
            Followed::All(all) => match all.into_iter().next() {
                Some(object) => Known::There(Arc::new(object)),
                None => Known::Absent,
            },
            Followed::Changed(object) => Known::There(Arc::new(object)),
            Followed::Gone(_) => Known::Absent,
            Followed::Unreadable(one) if one.said == Said::Gone => Known::Absent,
            // What was known is the best there is.
            Followed::Unreadable(_) | Followed::Trouble(_) => return nothing,
        };
        let owed = std::mem::take(&mut item.owed);
        let changed = match (&item.known, &known) {
            (Known::Nothing, _) => owed,
            (Known::Absent, Known::Absent) => false,
            (Known::There(before), Known::There(now)) => !says_the_same(before, now),
            _ => true,
        };
        item.known = known;
        item.frozen = matches!(&item.known, Known::There(object) if immutable(object));
        let unneeded = if item.frozen { item.watch.take() } else { None };
        let waiting = std::mem::take(&mut item.waiting);
        let answers = answer(self.kind, name, &item.known).map(|answer| (waiting, answer));
        Heard { changed, unneeded, answers }
    }

    /// Patience is over for those who wait.
    pub fn give_up(&mut self, name: &Name) -> Vec<W> {
        let Some(item) = self.items.get_mut(name) else { return Vec::new() };
        item.owed |= !item.waiting.is_empty();
        std::mem::take(&mut item.waiting)
    }

    /// Takes away what no pod refers to, and closes watches that nobody asks about; the watches to be closed.
    pub fn sweep(&mut self, referred: &BTreeSet<&Name>, now: Duration) -> Vec<F> {
        let mut closed = Vec::new();
        self.items.retain(|name, item| {
            let unasked = now.saturating_sub(item.asked);
            // What has not been read yet would have to be read again.
            let idle = unasked > IDLE_MAX && !matches!(item.known, Known::Nothing) && !item.frozen;
            let unknown = !referred.contains(name) && unasked > UNKNOWN_MAX && item.waiting.is_empty();
            if idle || unknown {
                closed.extend(item.watch.take());
            }
            !(idle || unknown)
        });
        closed
    }
}

fn answer<K>(kind: Kind, name: &Name, known: &Known<K>) -> Option<Result<Arc<K>, ObjectError>> {
    match known {
        Known::Nothing => None,
        Known::Absent => Some(Err(kind.not_found(name))),
        Known::There(object) => Some(Ok(object.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Texts = Shelf<String, u32, &'static str>;

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
        let (mut shelf, a) = (Texts::new(Kind::Secret), name("a"));
        assert!(matches!(shelf.get(&a, "one", seconds(0)), Got::Waits(true)));
        assert!(shelf.needs_watch(&a));
        shelf.set_watch(&a, Some(1));
        assert!(!shelf.needs_watch(&a));
        assert!(matches!(shelf.get(&a, "two", seconds(0)), Got::Waits(false)));
        let heard = shelf.heard(&a, Followed::All(vec!["x".to_owned()]), mutable, String::eq);
        assert!(!heard.changed, "nobody had anything else");
        assert_eq!(heard.answers, Some((vec!["one", "two"], Ok(Arc::new("x".to_owned())))));
        let Got::Known("three", Ok(object)) = shelf.get(&a, "three", seconds(1)) else {
            panic!("it is known")
        };
        assert_eq!(*object, "x");
    }

    #[test]
    fn only_what_is_other_than_before_is_a_change() {
        let (mut shelf, a) = (Texts::new(Kind::ConfigMap), name("a"));
        let _ = shelf.get(&a, "one", seconds(0));
        let mut change = |news| shelf.heard(&a, news, mutable, String::eq).changed;
        let x = || "x".to_owned();
        assert!(!change(Followed::All(vec![])));
        assert!(change(Followed::Changed(x())));
        assert!(!change(Followed::All(vec![x()])));
        assert!(change(Followed::Changed("y".to_owned())));
        assert!(change(Followed::Gone(x())));
        assert!(!change(Followed::All(vec![])));
        let Got::Known(_, Err(error)) = shelf.get(&a, "two", seconds(0)) else { panic!("it is known") };
        assert_eq!(error, ObjectError { not_found: true, message: "configmap \"a\" not found".to_owned() });
        assert!(!shelf.heard(&name("b"), Followed::Gone(x()), mutable, String::eq).changed, "nobody asked");
    }

    #[test]
    fn what_cannot_change_is_not_watched() {
        let (mut shelf, a) = (Texts::new(Kind::Secret), name("a"));
        let _ = shelf.get(&a, "one", seconds(0));
        shelf.set_watch(&a, Some(7));
        let heard = shelf.heard(&a, Followed::All(vec!["x".to_owned()]), |_| true, String::eq);
        assert_eq!(heard.unneeded, Some(7));
        assert!(!shelf.needs_watch(&a));
        // It is kept while a pod refers to it, whoever asks, and no longer.
        assert!(shelf.sweep(&BTreeSet::from([&a]), seconds(10_000)).is_empty());
        assert_eq!(shelf.counts(), (1, 0));
        shelf.sweep(&BTreeSet::new(), seconds(10_000));
        assert_eq!(shelf.counts(), (0, 0));
    }

    #[test]
    fn watches_end_when_nobody_asks_or_refers() {
        let (mut shelf, a, b) = (Texts::new(Kind::Secret), name("a"), name("b"));
        for (watch, name) in [(1, &a), (2, &b)] {
            let _ = shelf.get(name, "one", seconds(0));
            shelf.set_watch(name, Some(watch));
            shelf.heard(name, Followed::All(vec!["x".to_owned()]), mutable, String::eq);
        }
        assert!(shelf.sweep(&BTreeSet::from([&a]), seconds(60)).is_empty(), "its pod may be on its way");
        assert_eq!(shelf.sweep(&BTreeSet::from([&a]), seconds(61)), [2]);
        assert!(shelf.sweep(&BTreeSet::from([&a]), seconds(300)).is_empty());
        assert_eq!(shelf.sweep(&BTreeSet::from([&a]), seconds(301)), [1]);
        assert_eq!(shelf.counts(), (0, 0));
    }

    #[test]
    fn a_list_under_way_is_not_given_up() {
        let (mut shelf, a) = (Texts::new(Kind::Secret), name("a"));
        let _ = shelf.get(&a, "one", seconds(0));
        shelf.set_watch(&a, Some(1));
        assert_eq!(shelf.give_up(&a), ["one"]);
        assert!(shelf.sweep(&BTreeSet::from([&a]), seconds(1000)).is_empty());
        assert!(
            shelf.heard(&a, Followed::All(vec!["x".to_owned()]), mutable, String::eq).changed,
            "\"one\" has not heard of it"
        );
        assert_eq!(
            Kind::Secret.not_synced().message,
            "failed to sync secret cache: timed out waiting for the condition"
        );
    }
}
