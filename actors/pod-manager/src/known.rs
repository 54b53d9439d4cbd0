//! PURE: what is known of the pods besides what the sources say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::{Pressure, Source, WorkerReport, WorkerState};
use messages::runtime::{HeldPod, HeldPods};
use messages::{PodRef, PodUid};
use pod_rules::phases::pod_has_ended;

use crate::merge::Candidate;

/// What the workers, the runtime, the Node and the disk tell.
#[derive(Debug, Default)]
pub struct Known {
    /// Workers' newest reports.
    reports: BTreeMap<PodUid, Arc<WorkerReport>>,
    /// Pods that had come to their end before this kubelet looked.
    pub(crate) over: BTreeSet<PodUid>,
    /// Pods that ran, as StatusManager has kept it.
    pub(crate) ran: BTreeSet<PodUid>,
    /// Pods of which the runtime holds something, as of the last answer and without those that have been given back
    /// since; `None` until it has told.
    held: Option<BTreeMap<PodUid, HeldPod>>,
    /// Where pods are from, also those that have gone there and still have something on the node.
    sources: BTreeMap<PodUid, Source>,
    /// It has been heard of the Node: before, no pod of the API server is judged.
    pub node: bool,
    /// A Node can be fetched before a pod is refused for what the Node is.
    pub fetches_node: bool,
    /// Pods that a Node has been fetched for; they are judged by it.
    pub fetched_for: BTreeSet<PodUid>,
    /// The runtime can do the supplemental groups policy `Strict`; `None` until it has told.
    pub strict_groups: Option<bool>,
    /// What the node runs out of; `None` until it has been measured.
    pub pressure: Option<Pressure>,
}

impl Known {
    /// Nothing but whether pods of the API server may be judged, and whether a Node can be fetched.
    pub fn new(node: bool, fetches_node: bool) -> Self {
        Self { node, fetches_node, ..Self::default() }
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
            self.sources.remove(&uid);
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
    pub fn runtime(&mut self, pods: &HeldPods) {
        self.sources.extend(pods.iter().filter_map(|(uid, pod)| Some((uid.clone(), pod.source?))));
        self.held = Some(BTreeMap::clone(pods));
    }

    /// It has been heard from the runtime.
    pub fn has_heard_runtime(&self) -> bool {
        self.held.is_some()
    }

    /// The runtime has told what it has, or it is known without it that pods ran.
    pub fn may_tell_what_is_here(&self) -> bool {
        self.held.is_some() || !self.ran.is_empty()
    }

    /// This source names this pod.
    pub(crate) fn is_from(&mut self, uid: &PodUid, source: Source) {
        if self.sources.get(uid) != Some(&source) {
            self.sources.insert(uid.clone(), source);
        }
    }

    fn is_of_api(&self, uid: &PodUid) -> bool {
        self.sources.get(uid) == Some(&Source::Api)
    }

    /// A static pod of this full name still has something on the node, as far as its worker says.
    pub fn has_name(&self, full_name: &str) -> bool {
        self.reports.iter().any(|(uid, report)| {
            !report.released && !self.is_of_api(uid) && report.pod.full_name() == full_name
        })
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

    /// Two static pods of one full name never overlap (row 2.4): an earlier one still has something on the node.
    /// Asked once the runtime has told what it has. A pod of the API server keeps no static one out, whatever its name.
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

    /// Who of these pods, of which the node still has something, has gone from its file or URL and made room for another
    /// of its full name there: pods of the node that `listed` does not name. The absence of a static pod depends on
    /// nothing but its own source, and a source that names the one has been heard about the other.
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
