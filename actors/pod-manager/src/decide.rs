//! PURE: which pods have been admitted, which refused, and which wait for others to end. A decision holds for as long as
//! the pod is listed: running pods are not judged again, and room that appears later brings no refused pod back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use messages::facts::{DesiredPod, Pressure, Rejection, Source, WorkerReport, WorkerState};
use messages::runtime::RuntimePods;
use messages::{PodRef, PodUid};

use crate::admission::{NodeView, Verdict, judge, pressure};
use crate::merge::Candidate;

/// How StatusManager begins the message of a pod that was refused.
const REJECTED_PREFIX: &str = "Pod was rejected: ";
/// The kubelet waits at least this long for a pod that it ends, in seconds (row 4.6).
const WAIT_SECONDS_MIN: i64 = 10;

/// What is known of the pods besides what the sources say.
#[derive(Debug, Default)]
pub struct Known {
    /// Workers' newest reports.
    reports: BTreeMap<PodUid, Arc<WorkerReport>>,
    /// Pods that had come to their end before this kubelet looked.
    over: BTreeSet<PodUid>,
    /// Pods of which the runtime holds something, as of the last answer and without those that have been given back
    /// since; `None` until it has told.
    held: Option<BTreeMap<PodUid, PodRef>>,
    /// It has been heard of the Node: before, no pod of the API server is judged.
    pub node: bool,
    /// The runtime can do the supplemental groups policy `Strict`; `None` until it has told.
    pub strict_groups: Option<bool>,
    /// What the node runs out of; `None` until it has been measured.
    pub pressure: Option<Pressure>,
}

impl Known {
    /// Nothing but whether pods of the API server may be judged.
    pub fn new(node: bool) -> Self {
        Self { node, ..Self::default() }
    }

    /// A worker's report; whether it changes what others wait for.
    pub fn report(&mut self, uid: PodUid, report: Arc<WorkerReport>) -> bool {
        let what = |report: &WorkerReport| (report.state == WorkerState::Terminated, report.released);
        let news = self.reports.get(&uid).is_none_or(|known| what(known) != what(&report));
        if let Some(held) = self.held.as_mut().filter(|_| report.released) {
            held.remove(&uid);
        }
        if report.released && report.deleted {
            // Nothing is left of it: a pod of this UID that comes later is another one.
            self.reports.remove(&uid);
        } else {
            self.reports.insert(uid, report);
        }
        news
    }

    /// What the pool says on behalf of a worker, unless the worker has said something itself meanwhile.
    pub fn report_if_unknown(&mut self, uid: PodUid, report: Arc<WorkerReport>) {
        if !self.reports.contains_key(&uid) {
            self.report(uid, report);
        }
    }

    /// What the runtime holds.
    pub fn runtime(&mut self, pods: &RuntimePods) {
        let held = pods.iter().filter(|(_, pod)| !pod.is_absent());
        self.held = Some(held.map(|(uid, pod)| (uid.clone(), pod.pod.clone())).collect());
    }

    /// A pod of this full name still has something on the node, as far as its worker says.
    pub fn has_name(&self, full_name: &str) -> bool {
        self.reports.values().any(|report| !report.released && report.pod.full_name() == full_name)
    }

    /// Nothing of the pod runs any more, and nothing will.
    fn is_over(&self, uid: &PodUid) -> bool {
        match self.reports.get(uid) {
            Some(report) => report.state == WorkerState::Terminated,
            None => self.over.contains(uid),
        }
    }

    /// Two static pods of one full name never overlap (row 2.4): an earlier one still has something on the node, or the
    /// runtime has not told yet whether it has.
    fn has_predecessor(&self, pod: &PodRef) -> bool {
        let same = |other: &PodRef| {
            other.uid != pod.uid && other.name == pod.name && other.namespace == pod.namespace
        };
        let Some(held) = &self.held else { return true };
        let unclaimed = |uid: &PodUid| !self.reports.contains_key(uid);
        self.reports.values().any(|report| !report.released && same(&report.pod))
            || held.iter().any(|(uid, held)| unclaimed(uid) && same(held))
    }

    fn forget_all_but(&mut self, listed: &BTreeSet<&PodUid>) {
        self.reports.retain(|uid, report| !report.released || listed.contains(uid));
        self.over.retain(|uid| listed.contains(uid));
    }
}

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
    /// Pods that wait until a predecessor of the same full name has gone, or what is known of the node has come.
    pub waiting: usize,
    /// Some of them wait for something that nobody will tell: the runtime has to be asked.
    pub ask_runtime: bool,
    /// Pods that were refused in this round.
    pub refused: Vec<(PodRef, Rejection)>,
    /// Pods that would be refused if they did not run already, as was found in this round.
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
    /// Pods that run though they would be refused.
    kept: BTreeSet<PodUid>,
}

impl Decisions {
    /// Takes in what was decided before this incarnation: pods with a status were admitted or refused.
    pub fn restore(&mut self, known: &mut Known, statuses: &BTreeMap<PodUid, Arc<PodStatus>>) {
        for (uid, status) in statuses {
            let phase = status.phase.as_deref();
            let message = status.message.as_deref().and_then(|message| message.strip_prefix(REJECTED_PREFIX));
            if let (Some("Failed"), Some(message)) = (phase, message) {
                let reason = status.reason.clone().unwrap_or_default();
                self.rejected.insert(uid.clone(), Rejection { reason, message: message.to_owned() });
                continue;
            }
            if matches!(phase, Some("Succeeded" | "Failed")) {
                known.over.insert(uid.clone());
            }
            self.admitted.insert(uid.clone());
        }
    }

    /// Pods that run or ran already.
    pub fn admitted(&self) -> &BTreeSet<PodUid> {
        &self.admitted
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

    /// Decides about every candidate, in their order. Only when these are `all` does absence mean removal.
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
            self.kept.retain(|uid| listed.contains(uid));
        }
        for preemption in self.preemptions.values_mut() {
            preemption.victims.retain(|uid| listed.contains(uid) && !known.is_over(uid));
        }
        let mut round = Round { known, node, active: Vec::new(), outcome: Outcome::default() };
        for candidate in candidates {
            self.decide_one(candidate, &mut round);
        }
        round.outcome
    }

    fn decide_one<'a>(&mut self, candidate: &'a Candidate, round: &mut Round<'a, '_>) {
        let uid = &candidate.pod_ref.uid;
        let refused = self.rejected.get(uid).cloned().or_else(|| self.refused_by_source(candidate, round));
        if refused.is_some() {
            let told = self.rejected.contains_key(uid);
            if let (false, Some(why)) = (told, &refused) {
                self.rejected.insert(uid.clone(), why.clone());
                round.outcome.refused.push((candidate.pod_ref.clone(), why.clone()));
            }
            self.admitted.remove(uid);
            round.desire(candidate, refused);
            return;
        }
        if !self.admitted.contains(uid) {
            if candidate.source != Source::Api && round.known.has_predecessor(&candidate.pod_ref) {
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
        if !round.known.is_over(uid) && !self.victims().contains(uid) {
            round.active.push(candidate);
        }
        round.desire(candidate, None);
    }

    /// What its source says against the pod, unless it runs: another kubelet may have started what this one would not,
    /// and ending it is worse than leaving it alone.
    fn refused_by_source(&mut self, candidate: &Candidate, round: &mut Round<'_, '_>) -> Option<Rejection> {
        let why = candidate.pod.refused.clone()?;
        let uid = &candidate.pod_ref.uid;
        if candidate.source != Source::Api || !(self.admitted.contains(uid) || runs(&candidate.pod.pod)) {
            return Some(why);
        }
        if self.kept.insert(uid.clone()) {
            round.outcome.kept.push((candidate.pod_ref.clone(), why));
        }
        None
    }

    /// Whether a new pod is admitted now, later or not at all.
    fn admit<'a>(&mut self, candidate: &'a Candidate, round: &mut Round<'a, '_>) -> Result<bool, Rejection> {
        let (uid, pod) = (&candidate.pod_ref.uid, &candidate.pod.pod);
        if ends_anyway(pod) || (candidate.source == Source::Api && was_admitted(pod)) {
            return Ok(true);
        }
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
        let others: Vec<&Pod> = round.active.iter().map(|other| &*other.pod.pod).collect();
        if let Some(why) = pressure::refusal(pod, candidate.source, round.known.pressure.unwrap_or_default())
        {
            return Err(why);
        }
        match judge(pod, candidate.source, &others, round.node, round.known.strict_groups) {
            Verdict::Admit => Ok(true),
            Verdict::AskAgain => Ok(false),
            Verdict::Reject(why) => Err(why),
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
    fn desire(&mut self, candidate: &Candidate, rejected: Option<Rejection>) {
        let pod_ref = candidate.pod_ref.clone();
        let desired =
            DesiredPod { pod_ref, pod: candidate.pod.pod.clone(), source: candidate.source, rejected };
        self.outcome.pods.insert(candidate.pod_ref.uid.clone(), Arc::new(desired));
    }
}

/// Terminal or terminating before it was seen here: its worker sees to the rest.
fn ends_anyway(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"))
}

/// Some kubelet of this node has taken it already, this one or the one before: only they write a start time.
fn was_admitted(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.start_time.is_some())
}

/// A kubelet has started containers of it, and it has not come to its end.
fn runs(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let of = |statuses: &Option<Vec<ContainerStatus>>| {
        statuses.iter().flatten().any(|container| container.container_id.is_some())
    };
    !ends_anyway(pod) && (of(&status.container_statuses) || of(&status.init_container_statuses))
}

/// How long a pod that the node ends is waited for, in seconds (row 4.6).
fn wait_seconds(pod: &Pod) -> u64 {
    let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(0);
    let wait = grace.saturating_add(grace / 2).max(WAIT_SECONDS_MIN);
    u64::try_from(wait).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
