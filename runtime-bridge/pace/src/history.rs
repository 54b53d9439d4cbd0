//! What was done for each pod lately, and how long it took. Supervision notes messages and effects, the bridge notes calls;
//! notes outlive the incarnations of actors, and can be read from any thread.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The most steps that are kept of a pod: the latest.
const STEPS_MAX: usize = 64;
/// The most pods of which steps are kept: those that something was done for last.
const PODS_MAX: usize = 1024;
/// A step that repeats one of so many before it is counted there: what a pod's probes do must not push out how it began.
const REPEATS: usize = 8;

/// What kind of work a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// An actor has handled a message.
    Message,
    /// Work that an actor has begun, and whose end it hears of.
    Effect,
    /// A call to a program outside.
    Call,
}

/// How a step has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepState {
    /// It is under way.
    Running,
    /// It has ended.
    Done,
    /// It has ended with an error, a panic or at its deadline.
    Failed,
    /// It was cut off: its actor has crashed, ended or cancelled it.
    Dropped,
}

/// One step, and those that repeated it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What kind of work it is.
    pub kind: StepKind,
    /// The actor or program that did it.
    pub by: &'static str,
    /// The name of the message, effect or call.
    pub what: &'static str,
    /// How it has gone.
    pub state: StepState,
    /// When it was begun first.
    pub began: Duration,
    /// When it was begun last.
    pub last: Duration,
    /// How long the last one took; of one that is under way, so far.
    pub took: Duration,
    /// How long the longest one took.
    pub longest: Duration,
    /// How often it was done.
    pub times: u32,
}

impl Step {
    fn repeats(&self, other: &Self) -> bool {
        let same = |step: &Self| (step.kind, step.by, step.what, step.state);
        self.state != StepState::Running && same(self) == same(other)
    }

    fn ended(&mut self, state: StepState, now: Duration) {
        self.state = state;
        self.took = now.saturating_sub(self.began);
        self.longest = self.took;
    }
}

#[derive(Default)]
struct Lately {
    /// When something was noted last.
    touched: Duration,
    /// The oldest first; each with a number.
    steps: VecDeque<(u64, Step)>,
}

impl Lately {
    fn push(&mut self, number: u64, step: Step) {
        if self.steps.len() == STEPS_MAX {
            self.steps.pop_front();
        }
        self.steps.push_back((number, step));
    }

    /// Counts a step that has ended where it was done just before, or keeps it at this place, from the newest. Tells whether it
    /// was done just before.
    fn settle(&mut self, at: usize) -> bool {
        let Some((_, ended)) = self.steps.get(at).cloned() else { return false };
        let before = (0..at).rev().take(REPEATS).find(|before| self.steps[*before].1.repeats(&ended));
        let Some((_, first)) = before.and_then(|before| self.steps.get_mut(before)) else { return false };
        first.times = first.times.saturating_add(1);
        first.last = ended.began;
        first.took = ended.took;
        first.longest = first.longest.max(ended.longest);
        self.steps.remove(at);
        true
    }
}

#[derive(Default)]
struct Table {
    next: u64,
    pods: BTreeMap<Arc<str>, Lately>,
}

impl Table {
    /// The steps of the pod, whose turn it is now.
    fn touched(&mut self, pod: &str, now: Duration) -> &mut Lately {
        if !self.pods.contains_key(pod) {
            if self.pods.len() >= PODS_MAX {
                let oldest = self.pods.iter().min_by_key(|(_, lately)| lately.touched);
                if let Some(oldest) = oldest.map(|(pod, _)| pod.clone()) {
                    self.pods.remove(&oldest);
                }
            }
            self.pods.insert(pod.into(), Lately::default());
        }
        let lately = self.pods.get_mut(pod).expect("it was put in above unless it was there");
        lately.touched = now;
        lately
    }
}

/// Hears of a pod's steps: the pod, the step's number and the step.
type Follower = Box<dyn Fn(&str, u64, &Step) + Send + Sync>;

struct Inner {
    now: Box<dyn Fn() -> Duration + Send + Sync>,
    table: Mutex<Table>,
    follower: OnceLock<Follower>,
}

/// The steps of all pods, by UID. Clones share them.
#[derive(Clone)]
pub struct History(Arc<Inner>);

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("pods", &self.table().pods.len()).finish_non_exhaustive()
    }
}

impl History {
    /// An empty history; `now` tells the time since one fixed moment.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { now: Box::new(now), table: Mutex::default(), follower: OnceLock::new() }))
    }

    /// Has `tell` called with each step that has ended from now on, on the thread where it ended: every call, and every message
    /// and effect that does not repeat one of the latest. No two steps have one number, and 0 is none. A history has one
    /// follower; returns whether this is the one.
    pub fn follow(&self, tell: impl Fn(&str, u64, &Step) + Send + Sync + 'static) -> bool {
        self.0.follower.set(Box::new(tell)).is_ok()
    }

    fn tell(&self, pod: &str, number: u64, step: &Step, repeats: bool) {
        if let Some(tell) = self.0.follower.get().filter(|_| step.kind == StepKind::Call || !repeats) {
            tell(pod, number, step);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the fixed moment.
    #[must_use]
    pub fn now(&self) -> Duration {
        (self.0.now)()
    }

    /// Notes a message that has been handled.
    pub fn handled(&self, pod: &str, by: &'static str, what: &'static str, took: Duration) {
        let now = self.now();
        let began = now.saturating_sub(took);
        let (kind, state) = (StepKind::Message, StepState::Done);
        let step = Step { kind, by, what, state, began, last: began, took, longest: took, times: 1 };
        let mut table = self.table();
        table.next += 1;
        let number = table.next;
        let lately = table.touched(pod, now);
        lately.push(number, step.clone());
        let repeats = lately.settle(lately.steps.len() - 1);
        drop(table);
        self.tell(pod, number, &step, repeats);
    }

    /// Notes that work begins. It counts as dropped unless [`Begun::end`] says otherwise.
    #[must_use = "the step ends when this is dropped"]
    pub fn begin(&self, pod: &str, kind: StepKind, by: &'static str, what: &'static str) -> Begun {
        let began = self.now();
        let state = StepState::Running;
        let took = Duration::ZERO;
        let step = Step { kind, by, what, state, began, last: began, took, longest: took, times: 1 };
        let mut table = self.table();
        table.next += 1;
        let number = table.next;
        table.touched(pod, began).push(number, step.clone());
        drop(table);
        Begun { history: self.clone(), pod: pod.into(), number, step, state: StepState::Dropped }
    }

    fn ended(&self, begun: &Begun) {
        let Begun { pod, number, .. } = begun;
        let now = self.now();
        let mut step = begun.step.clone();
        step.ended(begun.state, now);
        let mut repeats = false;
        let mut table = self.table();
        // Another pod, or other steps, may have taken its place.
        if let Some(lately) = table.pods.get_mut(pod) {
            lately.touched = now;
            if let Ok(at) = lately.steps.binary_search_by_key(number, |(number, _)| *number) {
                lately.steps[at].1 = step.clone();
                repeats = lately.settle(at);
            }
        }
        drop(table);
        self.tell(pod, *number, &step, repeats);
    }

    /// The steps of a pod, the oldest first; none if nothing is known of it.
    #[must_use]
    pub fn of(&self, pod: &str) -> Vec<Step> {
        let now = self.now();
        let table = self.table();
        let steps = table.pods.get(pod).into_iter().flat_map(|lately| &lately.steps);
        let told = steps.map(|(_, step)| {
            let mut step = step.clone();
            if step.state == StepState::Running {
                step.ended(StepState::Running, now);
            }
            step
        });
        told.collect()
    }
}

/// A step under way; its drop ends it.
#[derive(Debug)]
pub struct Begun {
    history: History,
    pod: Arc<str>,
    number: u64,
    step: Step,
    state: StepState,
}

impl Begun {
    /// The step has ended, well or not.
    pub fn end(mut self, well: bool) {
        self.state = if well { StepState::Done } else { StepState::Failed };
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.history.ended(self);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A history, and the milliseconds of its clock.
    fn history() -> (History, Arc<AtomicU64>) {
        let clock = Arc::new(AtomicU64::new(0));
        let read = clock.clone();
        (History::new(move || Duration::from_millis(read.load(Ordering::Relaxed))), clock)
    }

    fn told(history: &History, pod: &str) -> Vec<(&'static str, StepState, u64, u32)> {
        let steps = history.of(pod);
        let ms = |step: &Step| u64::try_from(step.took.as_millis()).unwrap();
        steps.iter().map(|step| (step.what, step.state, ms(step), step.times)).collect()
    }

    #[test]
    fn a_step_is_under_way_until_it_ends_fails_or_is_dropped() {
        let (history, clock) = history();
        let first = history.begin("p", StepKind::Call, "runtime", "RunPodSandbox");
        clock.store(5, Ordering::Relaxed);
        assert_eq!(told(&history, "p"), [("RunPodSandbox", StepState::Running, 5, 1)]);
        let second = history.begin("p", StepKind::Effect, "PodWorker", "sync");
        clock.store(9, Ordering::Relaxed);
        first.end(true);
        drop(second);
        history.begin("p", StepKind::Call, "runtime", "StartContainer").end(false);
        clock.store(20, Ordering::Relaxed);
        assert_eq!(
            told(&history, "p"),
            [
                ("RunPodSandbox", StepState::Done, 9, 1),
                ("sync", StepState::Dropped, 4, 1),
                ("StartContainer", StepState::Failed, 0, 1)
            ]
        );
        assert_eq!(history.of("q"), []);
    }

    #[test]
    fn what_repeats_is_counted_and_pushes_nothing_out() {
        let (history, clock) = history();
        history.begin("p", StepKind::Effect, "PodWorker", "sync").end(true);
        for at in 1..=500 {
            clock.store(at * 1000, Ordering::Relaxed);
            let probe = history.begin("p", StepKind::Effect, "ProbeManager", "probe");
            clock.store(at * 1000 + at, Ordering::Relaxed);
            probe.end(true);
            history.handled("p", "PodWorker", "ProbeVerdict", Duration::ZERO);
        }
        let steps = history.of("p");
        let counted: Vec<_> = steps.iter().map(|step| (step.what, step.times)).collect();
        assert_eq!(counted, [("sync", 1), ("probe", 500), ("ProbeVerdict", 500)]);
        let probe = &steps[1];
        assert_eq!((probe.began, probe.last), (Duration::from_secs(1), Duration::from_secs(500)));
        assert_eq!((probe.took, probe.longest), (Duration::from_millis(500), Duration::from_millis(500)));
        // One that fails is another step.
        history.begin("p", StepKind::Effect, "ProbeManager", "probe").end(false);
        assert_eq!(told(&history, "p").last(), Some(&("probe", StepState::Failed, 0, 1)));
    }

    #[test]
    fn a_follower_hears_of_every_call_and_of_what_is_no_repetition_once_it_has_ended() {
        let (history, clock) = history();
        history.handled("p", "PodWorker", "before", Duration::ZERO);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        let follow = move |pod: &str, number: u64, step: &Step| {
            hears.lock().unwrap().push((
                pod.to_owned(),
                number,
                step.what,
                step.state,
                step.took.as_millis(),
            ));
        };
        assert!(history.follow(follow));
        assert!(!history.follow(|_, _, _| {}), "there is one already");
        let pull = history.begin("p", StepKind::Effect, "ImageManager", "pull");
        for _ in 0..3 {
            history.begin("p", StepKind::Call, "runtime", "StartContainer").end(true);
            history.begin("p", StepKind::Effect, "ProbeManager", "probe").end(true);
            history.handled("q", "PodWorker", "SyncPod", Duration::ZERO);
        }
        for _ in 0..STEPS_MAX {
            history.handled("p", "PodWorker", "a", Duration::ZERO);
            history.begin("p", StepKind::Effect, "PodWorker", "sync").end(false);
        }
        // What is under way for long is told, even where many steps have come after it.
        const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        (0..STEPS_MAX).for_each(|at| history.handled("p", "StatusManager", NAMES[at % 10], Duration::ZERO));
        clock.store(7, Ordering::Relaxed);
        pull.end(true);
        let heard = heard.lock().unwrap();
        let named = |what: &str| heard.iter().filter(|told| told.2 == what).count();
        assert_eq!((named("StartContainer"), named("probe"), named("SyncPod")), (3, 1, 1));
        assert_eq!((named("before"), named("sync")), (0, 1));
        let last = heard.last().expect("the pull at least");
        assert_eq!((last.0.as_str(), last.2, last.3, last.4), ("p", "pull", StepState::Done, 7));
        let numbers: std::collections::BTreeSet<u64> = heard.iter().map(|told| told.1).collect();
        assert!(numbers.len() == heard.len() && !numbers.contains(&0), "{numbers:?}");
    }

    #[test]
    fn steps_of_a_pod_and_pods_have_bounds() {
        const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let (history, clock) = history();
        let first = history.begin("p", StepKind::Effect, "PodWorker", "sync");
        for at in 0..STEPS_MAX {
            history.handled("p", "PodWorker", NAMES[at % NAMES.len()], Duration::ZERO);
        }
        let steps = told(&history, "p");
        assert_eq!((steps.len(), steps[0].0), (STEPS_MAX, "a"));
        // Its place is taken.
        first.end(true);
        assert_eq!(told(&history, "p"), steps);
        for at in 0..PODS_MAX {
            clock.fetch_add(1, Ordering::Relaxed);
            history.handled(&at.to_string(), "PodWorker", "a", Duration::ZERO);
        }
        assert_eq!(history.of("p"), []);
        assert_eq!((history.of("0").len(), history.of("1023").len()), (1, 1));
    }
}
