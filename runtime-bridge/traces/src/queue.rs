//! Steps that wait for their way to the collector.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge_pace::history::Step;
use tokio::sync::Notify;

/// The most steps that wait.
const STEPS_MAX: usize = 2048;
/// The most steps that are sent at once.
pub(crate) const BATCH_MAX: usize = 512;

/// A step of a pod that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The pod's UID.
    pub(crate) pod: Arc<str>,
    /// The step's number in the history of all pods.
    pub(crate) number: u64,
    pub(crate) step: Step,
}

/// The steps that wait, of each pod the oldest first.
#[derive(Debug, Default)]
struct Waiting {
    steps: usize,
    pods: BTreeMap<Arc<str>, VecDeque<(u64, Step)>>,
    /// The pod whose turn was last.
    last: Option<Arc<str>>,
}

impl Waiting {
    /// Returns whether another step had to go.
    fn push(&mut self, pod: &str, number: u64, step: Step) -> bool {
        let is_full = self.steps >= STEPS_MAX;
        if is_full {
            self.make_room(pod);
        }
        match self.pods.get_mut(pod) {
            Some(steps) => steps.push_back((number, step)),
            None => drop(self.pods.insert(Arc::from(pod), VecDeque::from([(number, step)]))),
        }
        self.steps += 1;
        is_full
    }

    /// Drops the oldest step of this pod, if it has its share of the places, or else of the pod that has most.
    fn make_room(&mut self, pod: &str) {
        let share = STEPS_MAX / self.pods.len().max(1);
        let own = self.pods.get_key_value(pod).filter(|(_, steps)| steps.len() >= share.max(1));
        let from = own.or_else(|| self.pods.iter().max_by_key(|(_, steps)| steps.len()));
        let from = from.map(|(pod, _)| pod.clone());
        if let Some(from) = from {
            self.take_of(&from);
        }
    }

    fn take_of(&mut self, pod: &Arc<str>) -> Option<(u64, Step)> {
        let steps = self.pods.get_mut(pod)?;
        let taken = steps.pop_front();
        if steps.is_empty() {
            self.pods.remove(pod);
        }
        self.steps = self.steps.saturating_sub(usize::from(taken.is_some()));
        taken
    }

    /// So many steps at most, of the pods in turn.
    fn take(&mut self, most: usize) -> Vec<Ended> {
        let mut taken = Vec::new();
        while taken.len() < most {
            let after = self.last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.pods.range::<str, _>((after, Bound::Unbounded)).next();
            let Some(pod) = next.or_else(|| self.pods.iter().next()).map(|(pod, _)| pod.clone()) else {
                break;
            };
            let Some((number, step)) = self.take_of(&pod) else { break };
            self.last = Some(pod.clone());
            taken.push(Ended { pod, number, step });
        }
        taken.sort_by_key(|ended| ended.number);
        taken
    }
}

/// Steps from the threads on which they end, for the task that sends them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    some: Notify,
    many: Notify,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a step. Returns whether another one had to go for it.
    pub(crate) fn push(&self, pod: &str, number: u64, step: &Step) -> bool {
        let mut waiting = self.waiting();
        let dropped = waiting.push(pod, number, step.clone());
        let steps = waiting.steps;
        drop(waiting);
        self.some.notify_one();
        if steps >= BATCH_MAX {
            self.many.notify_one();
        }
        dropped
    }

    /// Ends when a step waits.
    pub(crate) async fn some(&self) {
        while self.waiting().steps == 0 {
            self.some.notified().await;
        }
    }

    /// Ends when as many steps wait as are sent at once.
    pub(crate) async fn many(&self) {
        while self.waiting().steps < BATCH_MAX {
            self.many.notified().await;
        }
    }

    /// The steps that are sent next.
    pub(crate) fn take(&self) -> Vec<Ended> {
        self.waiting().take(BATCH_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bridge_pace::history::{StepKind, StepState};

    use super::*;

    fn step() -> Step {
        let (kind, state, zero) = (StepKind::Call, StepState::Done, Duration::ZERO);
        Step { kind, by: "a", what: "b", state, began: zero, last: zero, took: zero, longest: zero, times: 1 }
    }

    fn numbers(taken: &[Ended], pod: &str) -> Vec<u64> {
        taken.iter().filter(|ended| &*ended.pod == pod).map(|ended| ended.number).collect()
    }

    #[test]
    fn pods_take_turns_and_each_has_its_oldest_first() {
        let mut waiting = Waiting::default();
        for number in 1..=10 {
            waiting.push("a", number, step());
        }
        waiting.push("b", 11, step());
        waiting.push("c", 12, step());
        let taken = waiting.take(4);
        assert_eq!(
            [numbers(&taken, "a"), numbers(&taken, "b"), numbers(&taken, "c")],
            [vec![1, 2], vec![11], vec![12]]
        );
        assert_eq!(numbers(&waiting.take(100), "a"), (3..=10).collect::<Vec<_>>());
        assert_eq!((waiting.steps, waiting.pods.len(), waiting.take(1)), (0, 0, vec![]));
    }

    #[test]
    fn a_pod_that_fills_the_queue_loses_its_own_oldest_steps() {
        let mut waiting = Waiting::default();
        let places = u64::try_from(STEPS_MAX).unwrap();
        waiting.push("quiet", 1, step());
        let dropped = (2..=places + 10).filter(|number| waiting.push("loud", *number, step())).count();
        assert_eq!((dropped, waiting.steps), (10, STEPS_MAX));
        assert!(
            waiting.push("quiet", places + 11, step()),
            "for a pod below its share the loud one makes room"
        );
        let taken = waiting.take(STEPS_MAX);
        assert_eq!(numbers(&taken, "quiet"), [1, places + 11]);
        assert_eq!(numbers(&taken, "loud"), (13..=places + 10).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn the_sender_is_woken_by_the_first_step_and_by_many() {
        let queue = Arc::new(Queue::default());
        let (waits, waits_for_many) = (queue.clone(), queue.clone());
        let some = tokio::spawn(async move { waits.some().await });
        let many = tokio::spawn(async move { waits_for_many.many().await });
        tokio::task::yield_now().await;
        assert!(!some.is_finished());
        assert!(!queue.push("a", 1, &step()));
        some.await.unwrap();
        assert!(!many.is_finished());
        for number in 2..=u64::try_from(BATCH_MAX).unwrap() {
            queue.push("a", number, &step());
        }
        many.await.unwrap();
        assert_eq!(queue.take().len(), BATCH_MAX);
    }
}
