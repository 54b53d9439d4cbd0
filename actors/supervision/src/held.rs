//! Effects of quarantined pods: their work begins when the quarantine is over.

use std::collections::VecDeque;

use messages::PodUid;

use crate::context::EffectId;

/// So many effects may wait in any actor, and where more messages may wait, as many. An actor has one or a few for each pod.
const HELD_MAX: usize = 1024;

/// Effects that wait for the end of their pod's quarantine, in the order in which they were begun.
pub(crate) struct Held<T> {
    waiting: VecDeque<(PodUid, EffectId, T)>,
    most: usize,
}

impl<T> Held<T> {
    pub fn new(messages_max: usize) -> Self {
        Self { waiting: VecDeque::new(), most: messages_max.max(HELD_MAX) }
    }

    /// # Panics
    /// Without room: the actor counts on a result that would not come.
    pub fn push(&mut self, pod: &PodUid, id: EffectId, task: T) {
        assert!(self.waiting.len() < self.most, "{} effects wait for the ends of quarantines", self.most);
        self.waiting.push_back((pod.clone(), id, task));
    }

    /// Takes out the effects that waited for this pod.
    pub fn take(&mut self, pod: &PodUid) -> Vec<(EffectId, T)> {
        let (of_pod, others) = std::mem::take(&mut self.waiting).into_iter().partition(|(of, ..)| of == pod);
        self.waiting = others;
        let of_pod: VecDeque<_> = of_pod;
        of_pod.into_iter().map(|(_, id, task)| (id, task)).collect()
    }

    /// Gives an effect up. True if it was waiting here.
    pub fn cancel(&mut self, id: EffectId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(_, held, _)| *held != id);
        self.waiting.len() < before
    }
}
