//! Several pods that one subsystem leaves alone for one cause, as replicas of one template are.

use std::collections::{BTreeMap, BTreeSet};

use messages::PodUid;
use supervision::{EventKind, SupervisionEvent};

/// So many pods with one cause are no single pod's affair.
const SEVERAL: usize = 3;

/// The pods in quarantine, by subsystem and place.
#[derive(Default)]
pub(super) struct Crowds(BTreeMap<(String, String), Crowd>);

#[derive(Default)]
struct Crowd {
    pods: BTreeSet<PodUid>,
    is_told: bool,
}

impl Crowds {
    /// Takes note of an event. Returns what has changed: subsystem and place, and why that is a matter of the Node; `None` when it
    /// is one no longer.
    ///
    /// It is one from three pods on until none of them is left alone any more: between two quarantines a pod is let in
    /// for a moment, which says nothing.
    pub(super) fn hear(&mut self, event: &SupervisionEvent) -> Vec<(String, Option<&'static str>)> {
        let actor = &event.actor;
        let (pod, entered) = match &event.what {
            EventKind::Quarantined { pod, panic, .. } => {
                // The place of an effect that passes its deadline names the pod.
                let place = panic.place.strip_suffix(&format!(" of {pod}")).unwrap_or(&panic.place);
                (Some(pod), Some((place, panic.after.is_zero())))
            }
            EventKind::Released { pod } => (Some(pod), None),
            EventKind::Stopped | EventKind::Failed => (None, None),
            _ => return Vec::new(),
        };
        for (_, crowd) in self.0.iter_mut().filter(|((of, _), _)| of == actor) {
            crowd.pods.retain(|one| pod.is_some_and(|pod| pod != one));
        }
        if let (Some(pod), Some((place, _))) = (pod, entered) {
            self.0.entry((actor.clone(), place.to_owned())).or_default().pods.insert(pod.clone());
        }
        let mut changes = Vec::new();
        self.0.retain(|(of, place), crowd| {
            let size = crowd.pods.len();
            let is_crowd = size >= SEVERAL || (crowd.is_told && size > 0);
            if is_crowd != crowd.is_told {
                crowd.is_told = is_crowd;
                let why = if entered.is_none_or(|(_, has_panicked)| has_panicked) { PANICS } else { HANGS };
                changes.push((format!("{of} at {place}"), is_crowd.then_some(why)));
            }
            size > 0
        });
        changes
    }
}

const PANICS: &str = "it panics for several pods, which are left alone";
const HANGS: &str = "it does not end in time for several pods, which are left alone";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use supervision::PanicReport;

    use super::*;

    fn event(actor: &str, what: EventKind) -> SupervisionEvent {
        SupervisionEvent { actor: actor.to_owned(), at_ms: 0, what }
    }

    fn failed(actor: &str, pod: &str, place: &str, after: u64) -> SupervisionEvent {
        let panic = PanicReport {
            place: place.to_owned(),
            message: format!("about {pod}"),
            pod: None,
            after: Duration::from_secs(after),
        };
        event(actor, EventKind::Quarantined { pod: PodUid::new(pod), panic, seconds: 10 })
    }

    fn panicked(actor: &str, pod: &str, place: &str) -> SupervisionEvent {
        failed(actor, pod, place, 0)
    }

    fn released(actor: &str, pod: &str) -> SupervisionEvent {
        event(actor, EventKind::Released { pod: PodUid::new(pod) })
    }

    /// Changes as they are shown, those that end as `-`.
    fn heard(crowds: &mut Crowds, events: &[SupervisionEvent]) -> Vec<String> {
        let changes = events.iter().flat_map(|event| crowds.hear(event));
        changes.map(|(subsystem, why)| format!("{subsystem}: {}", why.unwrap_or("-"))).collect()
    }

    #[test]
    fn three_pods_of_one_actor_at_one_place_are_told_until_none_is_left_alone() {
        let mut crowds = Crowds::default();
        let apart = [
            panicked("Pleg", "a", "x.rs:1"),
            panicked("Pleg", "b", "x.rs:1"),
            panicked("Pleg", "c", "x.rs:2"),
            panicked("PodManager", "c", "x.rs:1"),
            panicked("Pleg", "b", "x.rs:1"),
        ];
        assert_eq!(heard(&mut crowds, &apart), [""; 0]);
        let third = [panicked("Pleg", "d", "x.rs:1"), panicked("Pleg", "e", "x.rs:1")];
        assert_eq!(
            heard(&mut crowds, &third),
            ["Pleg at x.rs:1: it panics for several pods, which are left alone"],
            "and a fourth changes nothing"
        );
        let takes_turns = [
            released("Pleg", "a"),
            released("Pleg", "b"),
            released("Pleg", "d"),
            panicked("Pleg", "a", "x.rs:1"),
            released("Pleg", "e"),
        ];
        assert_eq!(heard(&mut crowds, &takes_turns), [""; 0]);
        assert_eq!(heard(&mut crowds, &[released("Pleg", "a")]), ["Pleg at x.rs:1: -"]);
        heard(&mut crowds, &[released("Pleg", "c"), released("PodManager", "c")]);
        assert!(crowds.0.is_empty(), "nothing is kept of it");
    }

    #[test]
    fn a_pod_that_panics_at_another_place_counts_there() {
        let mut crowds = Crowds::default();
        heard(&mut crowds, &["a", "b", "c"].map(|pod| panicked("Pleg", pod, "x.rs:1")));
        let moved = ["a", "b", "c"].map(|pod| panicked("Pleg", pod, "y.rs:1"));
        assert_eq!(
            heard(&mut crowds, &moved),
            ["Pleg at x.rs:1: -", "Pleg at y.rs:1: it panics for several pods, which are left alone"]
        );
        let ended = [event("Pleg", EventKind::Stopped)];
        assert_eq!(heard(&mut crowds, &ended), ["Pleg at y.rs:1: -"]);
        assert!(crowds.0.is_empty());
    }

    #[test]
    fn one_effect_that_passes_its_deadline_for_several_pods_is_one_cause() {
        let mut crowds = Crowds::default();
        let late =
            ["a", "b", "c"].map(|pod| failed("VolumeManager", pod, &format!("effect mount of {pod}"), 60));
        assert_eq!(
            heard(&mut crowds, &late),
            ["VolumeManager at effect mount: it does not end in time for several pods, which are left alone"]
        );
    }
}
