//! PURE: which pods have been admitted, which refused, and which wait for others to end. A decision holds for as long as
//! the pod is listed: room that appears later brings no refused pod back.
//!
//! A restarted kubelet judges again what upstream judges again, every pod that has not come to its end, but for those that
//! have something on the node: upstream's kubelet may fail a running pod because the Node's labels, or its own
//! configuration, are others than they were when the pod came. Here a restart ends no pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use messages::facts::{DesiredPod, Rejection, Source};
use messages::{PodRef, PodUid};
use pod_rules::phases;
use pod_rules::reasons::REJECTED_PREFIX;
use supervision::blame;

use crate::admission::{NodeView, Verdict, judge, pressure};
use crate::known::Known;
use crate::merge::Candidate;

/// The kubelet waits at least this long for a pod that it ends, in seconds (row 4.6).
const WAIT_SECONDS_MIN: i64 = 10;

/// Others end so that a critical pod finds room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// Who still has to end.
    pub victims: BTreeSet<PodUid>,
}

/// A pod that has to end for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Which one.
    pub pod: PodRef,
    /// How long it is waited for, in seconds: half as long again as its grace.
    pub wait_seconds: u64,
    /// The resource that is missing.
    pub resource: String,
}

/// What a round of decisions gives.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// The desired pods, refused ones included.
    pub pods: BTreeMap<PodUid, Arc<DesiredPod>>,
    /// Static pods that still have something on the node and have been replaced at their own source.
    pub superseded: BTreeSet<PodUid>,
    /// Pods that wait until a predecessor of the same full name has gone, or what is known of the node has come.
    pub waiting: usize,
    /// Some of them wait for something that nobody will tell: the runtime has to be asked.
    pub ask_runtime: bool,
    /// These are refused only for what the Node is: it is fetched anew before.
    pub ask_node: BTreeSet<PodUid>,
    /// Pods that were refused in this round.
    pub refused: Vec<(PodRef, Rejection)>,
    /// Pods that ask for what is not done here, as was found in this round.
    pub unsupported: Vec<(PodRef, Rejection)>,
    /// Pods that would wait like these if they did not run already, as was found in this round.
    pub kept: Vec<(PodRef, Rejection)>,
    /// Pods that have to end, as was decided in this round.
    pub victims: Vec<Victim>,
}

/// Every decision so far.
#[derive(Debug, Default)]
pub struct Decisions {
    admitted: BTreeSet<PodUid>,
    rejected: BTreeMap<PodUid, Rejection>,
    preemptions: BTreeMap<PodUid, Preemption>,
    /// Pods that ask for what is not done here, with what was said of it.
    unsupported: BTreeMap<PodUid, Rejection>,
    /// Pods that run though they ask for it.
    kept: BTreeSet<PodUid>,
    /// Quarantined pods: nothing is decided about them.
    left_alone: BTreeSet<PodUid>,
}

impl Decisions {
    /// Takes in what was decided before this incarnation: who was refused, and who has come to its end.
    pub fn restore(&mut self, known: &mut Known, statuses: &BTreeMap<PodUid, Arc<PodStatus>>) {
        for (uid, status) in statuses {
            let _named = blame::name(uid);
            let message = status.message.as_deref().and_then(|message| message.strip_prefix(REJECTED_PREFIX));
            if let (Some(phases::FAILED), Some(message)) = (status.phase.as_deref(), message) {
                let reason = status.reason.clone().unwrap_or_default();
                self.rejected.insert(uid.clone(), Rejection { reason, message: message.to_owned() });
                continue;
            }
            if phases::has_ended(status) {
                known.over.insert(uid.clone());
                self.admitted.insert(uid.clone());
            } else if status.phase.as_deref() == Some(phases::RUNNING) {
                known.ran.insert(uid.clone());
            }
        }
    }

    /// Nothing is decided about these from now on, and again about all others.
    pub fn leave_alone(&mut self, pods: BTreeSet<PodUid>) {
        self.left_alone = pods;
    }

    /// Whether a pod runs or ran already.
    pub fn has_admitted(&self, uid: &PodUid, known: &Known) -> bool {
        self.admitted.contains(uid) || (known.may_be_here(uid) && !self.rejected.contains_key(uid))
    }

    /// Whoever still has to end for others.
    pub fn victims(&self) -> BTreeSet<&PodUid> {
        self.preemptions.values().flat_map(|preemption| &preemption.victims).collect()
    }

    /// A victim has been waited for long enough: its end goes on, and nobody waits for it any more.
    pub fn give_up(&mut self, victim: &PodUid) {
        for preemption in self.preemptions.values_mut() {
            preemption.victims.remove(victim);
        }
    }

    /// Decides about every candidate, in their order. Only when these are `all` does absence mean removal. Nothing new is
    /// decided about those that are left alone: what runs goes on, and what does not waits.
    pub fn decide(
        &mut self,
        candidates: &[Candidate],
        all: bool,
        known: &mut Known,
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
        let mut round = Round { known, node, active: Vec::new(), outcome: Outcome::default() };
        for candidate in candidates {
            let uid = &candidate.pod_ref.uid;
            if self.left_alone.contains(uid) {
                self.keep(candidate, &mut round);
            } else {
                blame::for_pod(uid, || self.decide_one(candidate, &mut round));
            }
        }
        round.outcome.superseded = known.superseded(candidates);
        round.outcome
    }

    /// A pod that nothing is decided about takes no room either: its spec is not looked at.
    fn keep(&self, candidate: &Candidate, round: &mut Round<'_, '_>) {
        let uid = &candidate.pod_ref.uid;
        if let Some(why) = self.rejected.get(uid).or_else(|| self.unsupported.get(uid)) {
            round.desire(candidate, Some(why.clone()));
        } else if self.has_admitted(uid, round.known) {
            round.desire(candidate, None);
        } else {
            round.outcome.waiting += 1;
        }
    }

    /// Decides about a pod of the API server of which only its own object has changed, while none waits: what others do
    /// does not depend on it, and it has been judged before. `None` if that is not so, and all have to be looked at.
    pub fn decide_again(
        &mut self,
        candidate: &Candidate,
        known: &mut Known,
        node: &NodeView,
    ) -> Option<Outcome> {
        let uid = &candidate.pod_ref.uid;
        let is_judged = self.admitted.contains(uid) || self.rejected.contains_key(uid);
        if candidate.source != Source::Api || !is_judged || !self.preemptions.is_empty() {
            return None;
        }
        let mut round = Round { known, node, active: Vec::new(), outcome: Outcome::default() };
        self.decide_one(candidate, &mut round);
        Some(round.outcome)
    }

    /// A pod of the API server is gone, while none waits. Whether that was all: if not, all have to be looked at.
    pub fn forget(&mut self, uid: &PodUid, known: &mut Known) -> bool {
        if !self.preemptions.is_empty() {
            return false;
        }
        known.forget(uid);
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
                Err(why) => {
                    self.rejected.insert(uid.clone(), why.clone());
                    round.outcome.refused.push((candidate.pod_ref.clone(), why.clone()));
                    round.desire(candidate, Some(why));
                    return;
                }
            }
            self.preemptions.remove(uid);
            self.admitted.insert(uid.clone());
        }
        if !round.known.is_over(uid, &candidate.pod.pod) && !self.victims().contains(uid) {
            round.active.push(candidate);
        }
        round.desire(candidate, None);
    }

    /// What the pod asks for that is not done here, unless it runs: another kubelet may have started what this one would
    /// not, and ending it is worse than leaving it alone.
    fn unsupported(&mut self, candidate: &Candidate, round: &mut Round<'_, '_>) -> Option<Rejection> {
        let uid = &candidate.pod_ref.uid;
        // Deleted, such a pod is told as Failed before it goes; only others have come to an end elsewhere.
        let has_ended = phases::pod_has_ended(&candidate.pod.pod) && !self.unsupported.contains_key(uid);
        let why = candidate.pod.refused.clone().filter(|_| !has_ended);
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
        let fits = round.judge(candidate) == Verdict::Admit;
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
            round.active.push(candidate);
            return Ok(false);
        }
        if candidate.source == Source::Api && !round.known.node {
            return Ok(false);
        }
        let pressure = round.known.pressure.unwrap_or_default();
        if let Some(why) = pressure::refusal(&candidate.pod.pod, candidate.source, pressure) {
            return Err(why);
        }
        match round.judge(candidate) {
            Verdict::Admit => Ok(true),
            Verdict::AskAgain => Ok(false),
            Verdict::Reject(why) => Err(why),
            Verdict::AskNode(why) if !round.known.fetches_node || round.known.fetched_for.contains(uid) => {
                Err(why)
            }
            Verdict::AskNode(_) => {
                round.outcome.ask_node.insert(uid.clone());
                Ok(false)
            }
            Verdict::Preempt { victims, resource } => {
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
                round.active.push(candidate);
                self.preemptions.insert(uid.clone(), Preemption { victims: uids });
                Ok(false)
            }
        }
    }
}

/// One round of decisions.
struct Round<'a, 'k> {
    known: &'k Known,
    node: &'k NodeView,
    /// Who takes room of the node so far.
    active: Vec<&'a Candidate>,
    outcome: Outcome,
}

impl Round<'_, '_> {
    /// Whether the pod fits beside those that take room so far.
    fn judge(&self, Candidate { pod, source, .. }: &Candidate) -> Verdict {
        let others: Vec<&Pod> = self.active.iter().map(|other| &*other.pod.pod).collect();
        judge(&pod.pod, *source, &others, self.node, self.known.strict_groups)
    }

    fn desire(&mut self, candidate: &Candidate, rejected: Option<Rejection>) {
        let pod_ref = candidate.pod_ref.clone();
        let desired =
            DesiredPod { pod_ref, pod: candidate.pod.pod.clone(), source: candidate.source, rejected };
        self.outcome.pods.insert(candidate.pod_ref.uid.clone(), Arc::new(desired));
    }
}

/// Terminal or terminating before it was seen here: its worker sees to the rest.
fn ends_anyway(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || phases::pod_has_ended(pod)
}

/// How long a pod that the node ends is waited for, in seconds (row 4.6).
fn wait_seconds(pod: &Pod) -> u64 {
    let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(0);
    let wait = grace.saturating_add(grace / 2).max(WAIT_SECONDS_MIN);
    u64::try_from(wait).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
