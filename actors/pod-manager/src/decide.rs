//! PURE: which pods have been admitted, which refused, and which wait for others to end. A decision holds for
//! as long as a source lists the pod: room that appears later brings no refused pod back.
//!
//! A restarted kubelet judges the same pods again that upstream's judges again, which are all that have not
//! ended, except for pods that hold something on the node. Upstream's kubelet may fail a running pod because
//! the Node's labels, or its own configuration, have changed since the pod was admitted. Here a restart ends
//! no pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use messages::facts::{DesiredPod, Pressure, Rejection, Source};
use messages::{PodRef, PodUid};
use pod_rules::phases;
use pod_rules::reasons::REJECTED_PREFIX;
use supervision::blame;

use crate::admission::{AdmissionVerdict, NodeView, Room, judge, preemption, pressure};
use crate::merge::Candidate;
use crate::reported::ReportedFacts;

/// The least time that PodManager waits for a pod that it ends, in seconds (row 4.6).
const WAIT_SECONDS_MIN: i64 = 10;

/// A critical pod waits for other pods to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The pods that have not ended yet.
    pub victims: BTreeSet<PodUid>,
}

/// A pod that has to end for a critical one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The pod to end.
    pub pod: PodRef,
    /// How long PodManager waits for its end, in seconds: one and a half times its grace period.
    pub wait_seconds: u64,
    /// The first resource of which too little is left.
    pub resource: String,
}

/// The result of a round of decisions.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// The desired pods, with the refused ones.
    pub pods: BTreeMap<PodUid, Arc<DesiredPod>>,
    /// Static pods that still hold something on the node and that their own source has replaced.
    pub superseded: BTreeSet<PodUid>,
    /// How many pods wait: for a predecessor of the same full name to go, or for facts about the node.
    pub waiting: usize,
    /// Whether pods wait for a fact that the runtime has to be asked for.
    pub ask_runtime: bool,
    /// Whether pods wait for the node's pressure.
    pub ask_pressure: bool,
    /// Pods that would be refused for the Node's labels alone: the Node is fetched anew before.
    pub ask_node: BTreeSet<PodUid>,
    /// Pods that were refused in this round, with the reason.
    pub refused: Vec<(PodRef, Rejection)>,
    /// Pods that need what this kubelet does not support, as found in this round.
    pub unsupported: Vec<(PodRef, Rejection)>,
    /// Running pods that need what this kubelet does not support, as found in this round. They run on.
    pub kept: Vec<(PodRef, Rejection)>,
    /// Pods that have to end, as decided in this round.
    pub victims: Vec<Victim>,
    /// Quarantined pods of which it is not known whether they run.
    pub left_alone: BTreeSet<PodUid>,
}

/// All decisions so far.
#[derive(Debug, Default)]
pub struct Decisions {
    admitted: BTreeSet<PodUid>,
    rejected: BTreeMap<PodUid, Rejection>,
    preemptions: BTreeMap<PodUid, Preemption>,
    /// Pods that need what this kubelet does not support, with the reason that was reported.
    unsupported: BTreeMap<PodUid, Rejection>,
    /// Pods that run although they need what this kubelet does not support.
    kept: BTreeSet<PodUid>,
    /// Quarantined pods: PodManager decides nothing about them.
    left_alone: BTreeSet<PodUid>,
    /// Quarantined pods of which StatusManager has told something that was left out.
    unheard: BTreeSet<PodUid>,
    /// What those take that were admitted and have not ended.
    room: Room,
}

impl Decisions {
    /// Restores the decisions of earlier incarnations from the statuses: which pods were refused, and which
    /// have ended.
    pub fn restore(&mut self, known: &mut ReportedFacts, statuses: &BTreeMap<PodUid, Arc<PodStatus>>) {
        for (uid, status) in statuses {
            if blame::step(uid, || self.restore_one(uid, status, known)).is_none() {
                self.unheard.insert(uid.clone());
            }
        }
    }

    /// Whether there was an answer about this pod that has not been taken in.
    pub fn is_unheard(&self, uid: &PodUid) -> bool {
        self.unheard.contains(uid)
    }

    /// Takes in what is said of pods whose answers were left out before. What is said of others is known.
    pub fn restore_unheard(
        &mut self,
        known: &mut ReportedFacts,
        statuses: &BTreeMap<PodUid, Arc<PodStatus>>,
    ) {
        for uid in std::mem::take(&mut self.unheard) {
            let Some(status) = statuses.get(&uid) else { continue };
            if blame::step(&uid, || self.restore_one(&uid, status, known)).is_none() {
                self.unheard.insert(uid);
            }
        }
    }

    fn restore_one(&mut self, uid: &PodUid, status: &PodStatus, known: &mut ReportedFacts) {
        let message = status.message.as_deref().and_then(|message| message.strip_prefix(REJECTED_PREFIX));
        if let (Some(phases::FAILED), Some(message)) = (status.phase.as_deref(), message) {
            let reason = status.reason.clone().unwrap_or_default();
            self.rejected.insert(uid.clone(), Rejection::new(reason, message));
        } else if phases::has_ended(status) {
            known.over.insert(uid.clone());
            self.admitted.insert(uid.clone());
        } else if status.phase.as_deref() == Some(phases::RUNNING) {
            known.ran.insert(uid.clone());
        }
    }

    /// Sets the pods about which nothing is decided from now on, beside those of which the past is not known; about all others
    /// decisions are made again.
    pub fn leave_alone(&mut self, pods: BTreeSet<PodUid>) {
        self.left_alone = pods;
        self.left_alone.extend(self.unheard.iter().cloned());
    }

    /// Whether a pod runs or ran already.
    pub fn has_admitted(&self, uid: &PodUid, known: &ReportedFacts) -> bool {
        self.admitted.contains(uid) || (known.may_be_here(uid) && !self.rejected.contains_key(uid))
    }

    /// The pods that still have to end for critical ones.
    pub fn victims(&self) -> BTreeSet<&PodUid> {
        self.preemptions.values().flat_map(|preemption| &preemption.victims).collect()
    }

    /// PodManager has waited long enough for this victim: its end goes on, and no pod waits for it any more.
    pub fn give_up(&mut self, victim: &PodUid) {
        for preemption in self.preemptions.values_mut() {
            preemption.victims.remove(victim);
        }
    }

    /// Decides about every candidate, in the given order. Pods that are absent count as removed only when
    /// these are `all` of them. About quarantined pods nothing new is decided: a running one goes on, any
    /// other waits.
    pub fn decide(
        &mut self,
        candidates: &[Candidate],
        all: bool,
        known: &mut ReportedFacts,
        node: &NodeView,
    ) -> Outcome {
        let listed: BTreeSet<&PodUid> = candidates.iter().map(|candidate| &candidate.pod_ref.uid).collect();
        if all {
            known.forget_all_but(&listed);
            self.admitted.retain(|uid| listed.contains(uid));
            self.rejected.retain(|uid, _| listed.contains(uid));
            self.preemptions.retain(|uid, _| listed.contains(uid));
            self.unsupported.retain(|uid, _| listed.contains(uid));
            self.kept.retain(|uid| listed.contains(uid));
        }
        let mut unended = BTreeSet::new();
        for Candidate { pod_ref, pod, source } in candidates {
            known.is_from(&pod_ref.uid, *source);
            if self.left_alone.contains(&pod_ref.uid) || !known.is_over(&pod_ref.uid, &pod.pod) {
                unended.insert(&pod_ref.uid);
            }
        }
        for preemption in self.preemptions.values_mut() {
            preemption.victims.retain(|uid| unended.contains(uid));
        }
        let mut round = Round::new(known, node);
        round.before = std::mem::take(&mut self.room);
        for candidate in candidates {
            let uid = &candidate.pod_ref.uid;
            if self.left_alone.contains(uid) {
                self.keep(candidate, &mut round);
            } else {
                blame::for_pod(uid, || self.decide_one(candidate, &mut round));
            }
        }
        self.room = round.room;
        round.outcome.superseded = known.superseded(candidates);
        round.outcome
    }

    /// Keeps the decision about a quarantined pod. Its spec is not read, so it takes no room in this round.
    fn keep(&self, candidate: &Candidate, round: &mut Round<'_, '_>) {
        let uid = &candidate.pod_ref.uid;
        if let Some(why) = self.rejected.get(uid).or_else(|| self.unsupported.get(uid)) {
            round.desire(candidate, Some(why.clone()));
        } else if self.has_admitted(uid, round.known) {
            round.desire(candidate, None);
        } else {
            round.outcome.waiting += 1;
            round.outcome.left_alone.insert(uid.clone());
        }
    }

    /// Decides about a pod of the API server of which only its own object has changed, while none waits: what others do
    /// does not depend on it, and it has been judged before. `None` if that is not so, and all have to be looked at.
    pub fn decide_again(
        &mut self,
        candidate: &Candidate,
        known: &mut ReportedFacts,
        node: &NodeView,
    ) -> Option<Outcome> {
        let uid = &candidate.pod_ref.uid;
        let is_judged = self.admitted.contains(uid) || self.rejected.contains_key(uid);
        if candidate.source != Source::Api || !is_judged || !self.preemptions.is_empty() {
            return None;
        }
        Some(self.decide_beside(candidate, known, node))
    }

    /// Decides about a new pod of the API server while none waits, beside what the others take. `None` if all have to be
    /// looked at: a critical pod may end others, and one that waits is decided about with all.
    pub fn decide_new(
        &mut self,
        candidate: &Candidate,
        known: &mut ReportedFacts,
        node: &NodeView,
    ) -> Option<Outcome> {
        let is_enough = candidate.source == Source::Api
            && self.preemptions.is_empty()
            && self.left_alone.is_empty()
            && !preemption::is_critical(&candidate.pod.pod);
        if !is_enough {
            return None;
        }
        known.is_from(&candidate.pod_ref.uid, candidate.source);
        Some(self.decide_beside(candidate, known, node)).filter(|outcome| outcome.waiting == 0)
    }

    fn decide_beside(&mut self, candidate: &Candidate, known: &ReportedFacts, node: &NodeView) -> Outcome {
        let mut round = Round::new(known, node);
        round.room = std::mem::take(&mut self.room);
        round.room.remove(&candidate.pod_ref.uid);
        self.decide_one(candidate, &mut round);
        self.room = round.room;
        round.outcome
    }

    /// The pod may have come to its end, or may not have after all, while none waits.
    pub fn settle(&mut self, uid: &PodUid, pod: Option<&Arc<Pod>>, known: &ReportedFacts) {
        let takes_room = |pod: &&Arc<Pod>| {
            self.admitted.contains(uid) && !known.is_over(uid, pod) && !self.victims().contains(uid)
        };
        match pod.filter(takes_room) {
            Some(pod) => self.room.put(uid, self.room.share(uid, pod)),
            None => self.room.remove(uid),
        }
    }

    /// A pod of the API server is gone, while none waits. Whether that was all: if not, all have to be looked at.
    pub fn forget(&mut self, uid: &PodUid, known: &mut ReportedFacts) -> bool {
        if !self.preemptions.is_empty() {
            return false;
        }
        known.forget(uid);
        self.room.remove(uid);
        self.admitted.remove(uid);
        self.rejected.remove(uid);
        self.unsupported.remove(uid);
        self.kept.remove(uid);
        true
    }

    fn decide_one<'a>(&mut self, candidate: &'a Candidate, round: &mut Round<'a, '_>) {
        let uid = &candidate.pod_ref.uid;
        if !round.known.has_heard_runtime() && !round.known.may_be_here(uid) {
            // What may run already is not judged as if it were new.
            round.outcome.ask_runtime = true;
            round.outcome.waiting += 1;
            return;
        }
        let refused = self.rejected.get(uid).cloned().or_else(|| self.unsupported(candidate, round));
        if refused.is_some() {
            self.admitted.remove(uid);
            round.desire(candidate, refused);
            return;
        }
        // The source has kept nothing of the pod that a worker could run.
        if let Some(why) = candidate.pod.refused.clone().filter(Rejection::is_final) {
            self.admitted.remove(uid);
            self.refuse(candidate, why, round);
            return;
        }
        if !self.admitted.contains(uid) {
            let is_static = candidate.source != Source::Api;
            if is_static && !round.known.is_here(uid) && round.known.has_predecessor(&candidate.pod_ref) {
                round.outcome.ask_runtime = true;
                round.outcome.waiting += 1;
                return;
            }
            match self.admit(candidate, round) {
                Ok(true) => {}
                Ok(false) => {
                    round.outcome.waiting += 1;
                    return;
                }
                Err(why) => return self.refuse(candidate, why, round),
            }
            self.preemptions.remove(uid);
            self.admitted.insert(uid.clone());
        }
        if !round.known.is_over(uid, &candidate.pod.pod) && !self.victims().contains(uid) {
            round.take_room(candidate);
        }
        round.desire(candidate, None);
    }

    fn refuse(&mut self, candidate: &Candidate, why: Rejection, round: &mut Round<'_, '_>) {
        self.rejected.insert(candidate.pod_ref.uid.clone(), why.clone());
        round.outcome.refused.push((candidate.pod_ref.clone(), why.clone()));
        round.desire(candidate, Some(why));
    }

    /// Why this kubelet does not support the pod, unless the pod runs already: another kubelet may have
    /// started it, and ending it is worse than letting it run.
    fn unsupported(&mut self, candidate: &Candidate, round: &mut Round<'_, '_>) -> Option<Rejection> {
        let uid = &candidate.pod_ref.uid;
        // A deleted pod of this kind gets the phase Failed before it goes; any other pod with a final phase
        // has ended elsewhere.
        let has_ended = phases::pod_has_ended(&candidate.pod.pod) && !self.unsupported.contains_key(uid);
        let why = candidate.pod.refused.clone().filter(|why| !has_ended && !why.is_final());
        let Some(why) = why else {
            self.unsupported.remove(uid);
            return None;
        };
        let runs = self.admitted.contains(uid) || round.known.is_here(uid);
        if candidate.source == Source::Api && runs {
            if self.kept.insert(uid.clone()) {
                round.outcome.kept.push((candidate.pod_ref.clone(), why));
            }
            return None;
        }
        if self.unsupported.get(uid) != Some(&why) {
            self.unsupported.insert(uid.clone(), why.clone());
            round.outcome.unsupported.push((candidate.pod_ref.clone(), why.clone()));
        }
        Some(why)
    }

    /// Whether a pod is admitted now, later or not at all.
    fn admit<'a>(&mut self, candidate: &'a Candidate, round: &mut Round<'a, '_>) -> Result<bool, Rejection> {
        let (uid, pod) = (&candidate.pod_ref.uid, &candidate.pod.pod);
        if ends_anyway(pod) || round.known.is_here(uid) {
            return Ok(true);
        }
        if round.known.has_heard_runtime() {
            return self.admit_new(candidate, round);
        }
        // It may run: then it is not judged, and it is shown meanwhile. If not, it needs what a new pod needs. So what a
        // new pod would be refused, wait for or let others end for waits until the runtime tells.
        let fits = round.judge(candidate) == AdmissionVerdict::Admit;
        round.outcome.ask_runtime |= !fits;
        Ok(fits)
    }

    /// Whether a pod that is not here is admitted now, later or not at all.
    fn admit_new<'a>(
        &mut self,
        candidate: &'a Candidate,
        round: &mut Round<'a, '_>,
    ) -> Result<bool, Rejection> {
        let uid = &candidate.pod_ref.uid;
        if let Some(preemption) = self.preemptions.get(uid) {
            if preemption.victims.is_empty() {
                return Ok(true);
            }
            // The room that it waits for is its own.
            round.take_room(candidate);
            return Ok(false);
        }
        if round.known.awaits_unread || candidate.source == Source::Api && !round.known.node {
            return Ok(false);
        }
        let pressure = match round.known.pressure {
            Some(known) => known,
            None if round.known.awaits_pressure
                && pressure::may_refuse(&candidate.pod.pod, candidate.source) =>
            {
                round.outcome.ask_pressure = true;
                return Ok(false);
            }
            None => Pressure::default(),
        };
        if let Some(why) = pressure::refusal(&candidate.pod.pod, candidate.source, pressure) {
            return Err(why);
        }
        match round.judge(candidate) {
            AdmissionVerdict::Admit => Ok(true),
            AdmissionVerdict::AskAgain => Ok(false),
            AdmissionVerdict::Reject(why) => Err(why),
            AdmissionVerdict::AskNode(why)
                if !round.known.fetches_node || round.known.fetched_for.contains(uid) =>
            {
                Err(why)
            }
            AdmissionVerdict::AskNode(_) => {
                round.outcome.ask_node.insert(uid.clone());
                Ok(false)
            }
            AdmissionVerdict::Preempt { victims, resource } => {
                let victims: Vec<&Candidate> = victims.into_iter().map(|index| round.active[index]).collect();
                let uids: BTreeSet<PodUid> =
                    victims.iter().map(|victim| victim.pod_ref.uid.clone()).collect();
                for victim in victims {
                    round.outcome.victims.push(Victim {
                        pod: victim.pod_ref.clone(),
                        wait_seconds: wait_seconds(&victim.pod.pod),
                        resource: resource.clone(),
                    });
                }
                round.active.retain(|other| !uids.contains(&other.pod_ref.uid));
                uids.iter().for_each(|uid| round.room.remove(uid));
                round.take_room(candidate);
                self.preemptions.insert(uid.clone(), Preemption { victims: uids });
                Ok(false)
            }
        }
    }
}

/// The state of one round of decisions.
struct Round<'a, 'k> {
    known: &'k ReportedFacts,
    node: &'k NodeView,
    /// The candidates that take room of the node so far.
    active: Vec<&'a Candidate>,
    /// What they take.
    room: Room,
    /// What the candidates took in the round before: an unchanged pod takes the same.
    before: Room,
    outcome: Outcome,
}

impl<'a, 'k> Round<'a, 'k> {
    fn new(known: &'k ReportedFacts, node: &'k NodeView) -> Self {
        let (room, before) = (Room::default(), Room::default());
        Self { known, node, active: Vec::new(), room, before, outcome: Outcome::default() }
    }

    /// Whether the pod fits beside those that take room so far.
    fn judge(&self, Candidate { pod, source, .. }: &Candidate) -> AdmissionVerdict {
        let others = || self.active.iter().map(|other| &*other.pod.pod).collect();
        judge(&pod.pod, *source, &self.room, others, self.node, self.known.strict_groups)
    }

    fn take_room(&mut self, candidate: &'a Candidate) {
        let uid = &candidate.pod_ref.uid;
        self.room.put(uid, self.before.share(uid, &candidate.pod.pod));
        self.active.push(candidate);
    }

    fn desire(&mut self, candidate: &Candidate, rejected: Option<Rejection>) {
        let pod_ref = candidate.pod_ref.clone();
        let desired = DesiredPod {
            pod_ref,
            pod: candidate.pod.pod.clone(),
            source: candidate.source,
            rejected,
            made_anew: candidate.pod.made_anew,
        };
        self.outcome.pods.insert(candidate.pod_ref.uid.clone(), Arc::new(desired));
    }
}

/// Whether the pod was ended or being deleted before it was seen here: it is admitted, and its worker ends
/// it.
fn ends_anyway(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || phases::pod_has_ended(pod)
}

/// How long PodManager waits for a pod that it ends, in seconds (row 4.6).
fn wait_seconds(pod: &Pod) -> u64 {
    let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(0);
    let wait = grace.saturating_add(grace / 2).max(WAIT_SECONDS_MIN);
    u64::try_from(wait).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
