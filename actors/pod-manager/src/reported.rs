//! PURE: the facts about pods besides those of the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::{Pressure, Source, WorkerReport, WorkerState};
use messages::runtime::{HeldPod, HeldPods};
use messages::{PodRef, PodUid};
use pod_rules::phases::pod_has_ended;

use crate::merge::Candidate;

/// The facts from the workers, the runtime, the Node and the disk.
#[derive(Debug, Default)]
pub struct ReportedFacts {
    /// The workers' newest reports.
    reports: BTreeMap<PodUid, Arc<WorkerReport>>,
    /// Pods that had ended before this incarnation started.
    pub(crate) over: BTreeSet<PodUid>,
    /// Pods that ran, from the statuses that StatusManager has kept.
    pub(crate) ran: BTreeSet<PodUid>,
    /// Pods that the runtime holds, from its last answer without those that their workers have released
    /// since; `None` before the first answer.
    held: Option<BTreeMap<PodUid, HeldPod>>,
    /// The source of each pod, kept after the source drops the pod for as long as the node holds something of
    /// it.
    sources: BTreeMap<PodUid, Source>,
    /// Whether the Node has been heard of: before that, no pod of the API server is judged.
    pub node: bool,
    /// Whether the Node can be fetched before a pod is refused for its labels.
    pub fetches_node: bool,
    /// Pods for which the Node has just been fetched; they are judged by it.
    pub fetched_for: BTreeSet<PodUid>,
    /// Whether the runtime supports the supplemental groups policy `Strict`; `None` until it has told.
    pub strict_groups: Option<bool>,
    /// The node's pressure; `None` until EvictionManager has measured it.
    pub pressure: Option<Pressure>,
    /// Whether new pods that it may keep away wait for it while it is unknown.
    pub awaits_pressure: bool,
    /// Whether new pods wait for pods that are here and cannot be read yet.
    pub awaits_unread: bool,
}

impl ReportedFacts {
    /// No facts. `node`: pods of the API server may be judged already; `fetches_node`: the Node can be
    /// fetched.
    pub fn new(node: bool, fetches_node: bool) -> Self {
        Self { node, fetches_node, ..Self::default() }
    }

    /// Takes a worker's report. True if it changes a fact that other pods may wait for.
    pub fn report(&mut self, uid: PodUid, report: Arc<WorkerReport>) -> bool {
        let what = |report: &WorkerReport| (report.state == WorkerState::Terminated, report.released);
        let news = self.reports.get(&uid).is_none_or(|known| what(known) != what(&report));
        if let Some(held) = self.held.as_mut().filter(|_| report.released) {
            held.remove(&uid);
        }
        if report.released && report.deleted {
            // Nothing is left of the pod: one of this UID that comes later is another pod.
            self.reports.remove(&uid);
            self.sources.remove(&uid);
        } else {
            self.reports.insert(uid, report);
        }
        news
    }

    /// The newest report of the pod's worker, unless nothing is left of the pod.
    pub fn report_of(&self, uid: &PodUid) -> Option<&Arc<WorkerReport>> {
        self.reports.get(uid)
    }

    /// Takes a report that the pool gives for a worker, unless the worker has reported itself meanwhile.
    pub fn report_if_unknown(&mut self, uid: PodUid, report: Arc<WorkerReport>) {
        if !self.reports.contains_key(&uid) {
            self.report(uid, report);
        }
    }

    /// Takes the runtime's answer.
    pub fn runtime(&mut self, pods: &HeldPods) {
        self.sources.extend(pods.iter().filter_map(|(uid, pod)| Some((uid.clone(), pod.source?))));
        self.held = Some(BTreeMap::clone(pods));
    }

    /// Whether the runtime has answered.
    pub fn has_heard_runtime(&self) -> bool {
        self.held.is_some()
    }

    /// Whether it is known which pods are on the node: from the runtime's answer, or from kept statuses of
    /// pods that ran.
    pub fn may_tell_what_is_here(&self) -> bool {
        self.held.is_some() || !self.ran.is_empty()
    }

    /// Notes the source that names this pod.
    pub(crate) fn is_from(&mut self, uid: &PodUid, source: Source) {
        if self.sources.get(uid) != Some(&source) {
            self.sources.insert(uid.clone(), source);
        }
    }

    fn is_of_api(&self, uid: &PodUid) -> bool {
        self.sources.get(uid) == Some(&Source::Api)
    }

    /// The full names of the static pods that still hold something on the node, by their workers' reports.
    pub fn names_of_statics(&self) -> BTreeSet<String> {
        let held = self.reports.iter().filter(|(uid, report)| !report.released && !self.is_of_api(uid));
        held.map(|(_, report)| report.pod.full_name()).collect()
    }

    /// The pod has a worker or something in the runtime: some kubelet of this node has admitted it. What its status
    /// says does not tell, since others can write that.
    pub fn is_here(&self, uid: &PodUid) -> bool {
        match (self.reports.get(uid), &self.held) {
            (Some(report), _) => !report.deleted,
            (None, Some(held)) => held.contains_key(uid),
            (None, None) => false,
        }
    }

    /// The pod is here, or may be: the status of a static pod is kept on the node, and the runtime is silent, which does
    /// not mean that nothing runs. After a reboot nothing does.
    pub fn may_be_here(&self, uid: &PodUid) -> bool {
        let is_static = || self.sources.get(uid).is_some_and(|source| *source != Source::Api);
        self.is_here(uid) || (self.held.is_none() && self.ran.contains(uid) && is_static())
    }

    /// Nothing of the pod runs any more, and nothing will.
    pub(crate) fn is_over(&self, uid: &PodUid, pod: &Pod) -> bool {
        match self.reports.get(uid) {
            Some(report) => report.state == WorkerState::Terminated,
            None => self.over.contains(uid) || pod_has_ended(pod),
        }
    }

    /// Whether an earlier static pod of the same full name still holds something on the node: two such pods
    /// never overlap (row 2.4). Only called once the runtime has answered. A pod of the API server keeps no
    /// static pod out, whatever its name.
    pub(crate) fn has_predecessor(&self, pod: &PodRef) -> bool {
        let same = |uid: &PodUid, other: &PodRef| {
            *uid != pod.uid
                && other.name == pod.name
                && other.namespace == pod.namespace
                && !self.is_of_api(uid)
        };
        self.reports.iter().any(|(uid, report)| !report.released && same(uid, &report.pod))
            || self
                .held
                .iter()
                .flatten()
                .any(|(uid, held)| !self.reports.contains_key(uid) && same(uid, &held.pod))
    }

    /// The static pods that the node still holds and that their file or URL has replaced by another pod of
    /// the same full name: pods of the node that are not in `listed`. Only a static pod's own source decides
    /// about its absence, and a source that names the successor has been heard about the predecessor.
    pub(crate) fn superseded(&self, listed: &[Candidate]) -> BTreeSet<PodUid> {
        let uids: BTreeSet<&PodUid> = listed.iter().map(|candidate| &candidate.pod_ref.uid).collect();
        let statics = listed.iter().filter(|candidate| candidate.source != Source::Api);
        let names: BTreeSet<(Source, &str, &str)> = statics
            .map(|candidate| (candidate.source, &*candidate.pod_ref.namespace, &*candidate.pod_ref.name))
            .collect();
        let held = self.held.iter().flatten().map(|(uid, held)| (uid, &held.pod));
        let here = self.reports.iter().map(|(uid, report)| (uid, &report.pod)).chain(held);
        let is_superseded = |(uid, pod): &(&PodUid, &PodRef)| {
            let name = |source: &Source| names.contains(&(*source, &*pod.namespace, &*pod.name));
            !uids.contains(uid) && self.sources.get(*uid).is_some_and(name)
        };
        here.filter(is_superseded).map(|(uid, _)| uid.clone()).collect()
    }

    /// The source has this pod no more, and has told of every other one.
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        if self.reports.get(uid).is_some_and(|report| report.released) {
            self.reports.remove(uid);
        }
        self.over.remove(uid);
        self.ran.remove(uid);
        let is_held = self.held.as_ref().is_some_and(|held| held.contains_key(uid));
        if !self.reports.contains_key(uid) && !is_held {
            self.sources.remove(uid);
        }
    }

    pub(crate) fn forget_all_but(&mut self, listed: &BTreeSet<&PodUid>) {
        self.reports.retain(|uid, report| !report.released || listed.contains(uid));
        self.over.retain(|uid| listed.contains(uid));
        self.ran.retain(|uid| listed.contains(uid));
        let (reports, held) = (&self.reports, self.held.as_ref());
        let has = |uid: &PodUid| reports.contains_key(uid) || held.is_some_and(|held| held.contains_key(uid));
        self.sources.retain(|uid, _| listed.contains(uid) || has(uid));
    }
}
