//! Effects of quarantined pods: their work begins when the quarantine is over.

use std::collections::VecDeque;

use messages::PodUid;

use crate::context::EffectId;

/// The most effects that wait; with one more the oldest is given up. An actor has one or a few for each pod.
const HELD_MAX: usize = 1024;

/// Effects that wait for the end of their pod's quarantine, in the order in which they were begun.
pub(crate) struct Held<T>(VecDeque<(PodUid, EffectId, T)>);

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Held<T> {
    pub fn push(&mut self, pod: PodUid, id: EffectId, task: T) {
        if self.0.len() >= HELD_MAX
            && let Some((pod, ..)) = self.0.pop_front()
        {
            tracing::warn!(%pod, "Too much waits for the end of quarantines: the oldest effect is given up");
        }
        self.0.push_back((pod, id, task));
    }

    /// Takes out the effects that waited for this pod.
    pub fn take(&mut self, pod: &PodUid) -> Vec<(EffectId, T)> {
        let (of_pod, others) = std::mem::take(&mut self.0).into_iter().partition(|(of, ..)| of == pod);
        self.0 = others;
        let of_pod: VecDeque<_> = of_pod;
        of_pod.into_iter().map(|(_, id, task)| (id, task)).collect()
    }

    /// Gives an effect up. True if it was waiting here.
    pub fn cancel(&mut self, id: EffectId) -> bool {
        let before = self.0.len();
        self.0.retain(|(_, held, _)| *held != id);
        self.0.len() < before
    }
}
