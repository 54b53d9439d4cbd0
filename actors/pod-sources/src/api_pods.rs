//! PURE: the pods that the API server has bound to this node, as its list and watch tell them.

mod room;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bridge_kube::{ApiError, Deletion, Followed, Unreadable};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use messages::facts::{Rejection, SourcePod, UNSUPPORTED_FIELDS};
use messages::pod_set::{GonePod, PodSetUpdate};
use messages::{PodRef, PodUid};
use pod_rules::origin::is_mirror;
use pod_set::Journal;
use pod_spec::weight::PODS_BYTES_MAX;
use supervision::blame;

use self::room::{Place, PodRoom};
use crate::judge::{Judge, Judged, Verdict, annotate, not_judged, weight};
use crate::restart_rules::RestartRules;
use crate::unsupported::Supported;

/// A piece of what is heard of the API server's pods: each pod of a list is judged by itself, or a list of large pods would hold
/// up its thread.
#[derive(Debug)]
pub enum News {
    /// One pod is new or has changed, or it is one of the list that is being read.
    Changed {
        /// The pod.
        pod: Pod,
        /// Whether it is one of the list.
        is_listed: bool,
    },
    /// The list has been read.
    AllListed,
    /// One pod is gone; this is its last form.
    Gone(Pod),
    /// One pod cannot be read.
    Unreadable(Unreadable),
    /// The pods may be out of date for a while.
    Trouble(ApiError),
}

impl News {
    /// The pieces of the news, in their order.
    pub fn pieces(news: Followed<Pod>) -> Vec<Self> {
        match news {
            Followed::All(pods) => {
                let listed = pods.into_iter().map(|pod| Self::Changed { pod, is_listed: true });
                listed.chain([Self::AllListed]).collect()
            }
            Followed::Changed(pod) => vec![Self::Changed { pod, is_listed: false }],
            Followed::Gone(pod) => vec![Self::Gone(pod)],
            Followed::Unreadable(one) => vec![Self::Unreadable(one)],
            Followed::Trouble(error) => vec![Self::Trouble(error)],
        }
    }
}

/// All pods of the node, by UID.
#[derive(Debug)]
pub struct ApiPods {
    supported: Arc<Supported>,
    rules: RestartRules,
    /// As the API server has them.
    pods: BTreeMap<PodUid, SourcePod>,
    /// As PodManager is told of them. Complete once the list has been heard.
    journal: Journal<SourcePod>,
    /// The pods of the list that is being read, as far as it has been.
    listed: BTreeSet<PodUid>,
    /// Pods of that list that cannot be read.
    unreadable: Vec<Unreadable>,
    /// Pods that PodSources has quarantined, in their newest version.
    left_alone: BTreeMap<PodUid, Pod>,
    /// What the pods take.
    room: PodRoom,
    /// Pods that no kubelet of this node has had, and that are being judged elsewhere.
    new_awaited: BTreeSet<PodUid>,
}

impl ApiPods {
    /// Nothing has been heard, by PodSources in this incarnation.
    pub fn new(incarnation: u64, rules: RestartRules) -> Self {
        Self::of(incarnation, rules, PODS_BYTES_MAX)
    }

    /// The same, where the pods may take so many bytes.
    fn of(incarnation: u64, rules: RestartRules, bytes_max: u64) -> Self {
        Self {
            supported: Arc::new(Supported::for_api_pods()),
            rules,
            pods: BTreeMap::new(),
            journal: Journal::new(incarnation),
            listed: BTreeSet::new(),
            unreadable: Vec::new(),
            left_alone: BTreeMap::new(),
            room: PodRoom::new(bytes_max),
            new_awaited: BTreeSet::new(),
        }
    }

    /// The list that is being read has this pod.
    pub fn note_listed(&mut self, uid: PodUid) {
        self.listed.insert(uid);
    }

    /// The list has been read: a pod that it does not have is gone. Of pods that cannot be read what was known goes on. Returns the
    /// message that tells of it, if it brings anything new.
    pub fn all_listed(&mut self, now: Timestamp) -> Option<PodSetUpdate<SourcePod>> {
        let before = self.journal.digest();
        let unread = std::mem::take(&mut self.unreadable);
        let mut listed = std::mem::take(&mut self.listed);
        for one in &unread {
            let uid = PodUid::new(&one.uid);
            blame::step(&uid, || self.unread(one, now));
            listed.insert(uid);
        }
        let known = self.pods.keys().chain(self.journal.unread_uids());
        let gone: Vec<PodUid> = known.filter(|uid| !listed.contains(*uid)).cloned().collect();
        for uid in &gone {
            blame::step(uid, || self.forget(uid, GonePod::default()));
        }
        self.journal.completed();
        (self.journal.digest() != before).then(|| self.journal.snapshot())
    }

    /// Notes that a pod of the next list cannot be decoded: its last known version stays.
    pub fn unreadable(&mut self, one: Unreadable) {
        self.unreadable.push(one);
    }

    /// A pod cannot be read as it is now: what was known of it goes on, but for its deletion. Returns the message that
    /// there is such a pod if nothing was known, since its absence would mean that it has gone.
    pub fn unread(&mut self, one: &Unreadable, now: Timestamp) -> Option<PodSetUpdate<SourcePod>> {
        let uid = PodUid::new(&one.uid);
        let pod_ref =
            PodRef { uid: uid.clone(), namespace: (&*one.namespace).into(), name: (&*one.name).into() };
        self.room.leave_out(pod_ref, one.beyond);
        let known = self.pods.get(&uid);
        if known.is_none() && one.beyond.is_some() && self.is_new(&uid) {
            self.new_awaited.insert(uid.clone());
        }
        if one.deletion.deletion_timestamp.is_none() {
            return if known.is_some() { None } else { self.journal.unread(&uid) };
        }
        match known {
            Some(known) if is_deleted(&known.pod, one) => None,
            Some(known) => {
                // The spec is the one that was judged, and the pod takes about as much as before: it may be a large one, of which
                // nothing is written or compared here.
                let mut pod = Pod::clone(&known.pod);
                delete(&mut pod, one);
                let pod = SourcePod { pod: Arc::new(pod), ..known.clone() };
                self.pods.insert(uid.clone(), pod.clone());
                Some(self.journal.put(&uid, self.rules.of(pod)))
            }
            None => {
                let pod = unspecified(one, now);
                self.room.put(&PodRef::of(&pod.pod), weight(&*pod.pod), false);
                self.pods.insert(uid.clone(), pod.clone());
                Some(self.journal.put(&uid, pod))
            }
        }
    }

    /// A pod is left alone: what was known of it goes on until it is [`ApiPods::let_in`]. Returns the message that tells
    /// of a pod of which nothing was known.
    pub fn leave_alone(&mut self, pod: Pod, now: Timestamp) -> Option<PodSetUpdate<SourcePod>> {
        let pod_ref = PodRef::of(&pod);
        let uid = pod_ref.uid.clone();
        self.left_alone.insert(uid.clone(), pod.clone());
        if self.pods.contains_key(&uid) {
            return None;
        }
        self.room.put(&pod_ref, weight(&pod), false);
        let pod = unjudged(pod, now);
        self.pods.insert(uid.clone(), pod.clone());
        Some(self.journal.put(&uid, self.rules.of(pod)))
    }

    /// A pod is not left alone any more. Returns its newest version, if there was news of it meanwhile: that has changed now.
    pub fn let_in(&mut self, uid: &PodUid) -> Option<Pod> {
        self.left_alone.remove(uid)
    }

    /// One pod is new or has changed. Returns the message that tells of it, if it brings anything new. A new pod for which there is no
    /// room is refused, and little of it is kept; of one that is known what was known goes on.
    pub fn changed(&mut self, pod: Pod, now: Timestamp) -> Option<PodSetUpdate<SourcePod>> {
        let pod_ref = PodRef::of(&pod);
        let bytes = weight(&pod);
        match self.place(&pod, bytes) {
            Place::Whole => {
                let judged = self.judge(&pod_ref.uid, now).of(pod);
                self.keep(&pod_ref, bytes, judged)
            }
            place => self.without_room(place, &pod, bytes, now),
        }
    }

    /// By what a version of this pod is judged now. It holds until anything else is heard of the pod.
    pub fn judge(&self, uid: &PodUid, now: Timestamp) -> Judge {
        let (known, supported) = (self.pods.get(uid).cloned(), self.supported.clone());
        Judge { known, supported, rules: self.rules, now }
    }

    /// A version of a pod is being judged elsewhere. Returns the message that there is such a pod if nothing was known of it, since
    /// its absence would mean that it has gone.
    pub fn awaits(&mut self, uid: &PodUid) -> Option<PodSetUpdate<SourcePod>> {
        self.left_alone.remove(uid);
        if self.pods.contains_key(uid) {
            return None;
        }
        if self.is_new(uid) {
            self.new_awaited.insert(uid.clone());
        }
        self.journal.unread(uid)
    }

    /// A version of a pod has been judged elsewhere: as [`ApiPods::changed`].
    pub fn judged(&mut self, pod: &Pod, verdict: Verdict, now: Timestamp) -> Option<PodSetUpdate<SourcePod>> {
        match self.place(pod, verdict.bytes) {
            Place::Whole => self.keep(&PodRef::of(pod), verdict.bytes, verdict.judged),
            place => self.without_room(place, pod, verdict.bytes, now),
        }
    }

    /// Whether the list that is being read has this pod.
    pub fn is_listed(&self, uid: &PodUid) -> bool {
        self.listed.contains(uid)
    }

    fn place(&mut self, pod: &Pod, bytes: u64) -> Place {
        let pod_ref = PodRef::of(pod);
        self.left_alone.remove(&pod_ref.uid);
        let place = self.room.place(&pod_ref, room::asked(pod, bytes), || self.is_new(&pod_ref.uid));
        // One of which nothing can be kept is as new with its next version.
        if place == Place::Whole {
            self.new_awaited.remove(&pod_ref.uid);
        }
        place
    }

    /// Whether there is room by now for a version of a pod for which there was none, so that the API server is to be asked for all pods
    /// again: once for all the room that has become free until now.
    pub fn wants_list(&mut self) -> bool {
        self.room.fits_again(|uid| self.new_awaited.contains(uid))
    }

    /// All pods are asked for: what was heard of a list that did not end counts no more.
    pub fn list_begins(&mut self) {
        self.listed.clear();
        self.unreadable.clear();
        self.room.looked_at();
    }

    /// Whether no kubelet of this node has had the pod: what the first list has may run already.
    fn is_new(&self, uid: &PodUid) -> bool {
        let is_unread = || self.journal.unread_uids().any(|unread| unread == uid);
        self.has_heard() && (self.new_awaited.contains(uid) || !is_unread())
    }

    fn keep(&mut self, pod: &PodRef, bytes: u64, judged: Option<Judged>) -> Option<PodSetUpdate<SourcePod>> {
        let is_stub = self.room.is_stub(&pod.uid);
        self.room.put(pod, bytes, is_stub);
        let Judged { pod: kept, told } = judged?;
        self.pods.insert(pod.uid.clone(), kept);
        Some(self.journal.put(&pod.uid, told))
    }

    fn without_room(
        &mut self,
        place: Place,
        pod: &Pod,
        bytes: u64,
        now: Timestamp,
    ) -> Option<PodSetUpdate<SourcePod>> {
        let pod_ref = PodRef::of(pod);
        if place == Place::Nothing || is_mirror(pod) {
            tracing::warn!(pod = %pod_ref, bytes, "There is no room for a pod of the API server as it is now");
            return self.unread(&room::unreadable(pod, bytes), now);
        }
        let known = self.pods.get(&pod_ref.uid);
        let mut stub = room::stub(pod);
        annotate(&mut stub, known, now);
        let bytes = weight(&stub);
        let is_known = known.is_some_and(|known| *known.pod == stub);
        self.room.put(&pod_ref, bytes, true);
        self.new_awaited.remove(&pod_ref.uid);
        if is_known {
            return None;
        }
        let refused = SourcePod { pod: Arc::new(stub), refused: Some(room::no_room()), made_anew: None };
        self.pods.insert(pod_ref.uid.clone(), refused.clone());
        Some(self.journal.put(&pod_ref.uid, self.rules.of(refused)))
    }

    /// Takes one pod as gone, with the grace period that its deletion granted. A forced deletion states that period in the last
    /// change before the pod goes, and the followers may not have heard of that change yet.
    pub fn gone(&mut self, pod: &Pod) -> Option<PodSetUpdate<SourcePod>> {
        let granted_seconds = pod.metadata.deletion_grace_period_seconds;
        self.forget(&PodRef::of(pod).uid, GonePod { granted_seconds, superseded: false })
    }

    /// One pod is gone, and this is known of its end.
    pub fn forget(&mut self, uid: &PodUid, gone: GonePod) -> Option<PodSetUpdate<SourcePod>> {
        self.left_alone.remove(uid);
        self.pods.remove(uid);
        self.room.remove(uid);
        self.new_awaited.remove(uid);
        self.journal.remove(uid, gone)
    }

    /// The pods as PodManager is told of them, once the list has been heard.
    pub fn journal(&self) -> &Journal<SourcePod> {
        &self.journal
    }

    /// How many pods there are, once the list has been heard.
    pub fn count(&self) -> Option<usize> {
        self.has_heard().then_some(self.pods.len())
    }

    /// Whether the list has been heard.
    pub fn has_heard(&self) -> bool {
        self.journal.digest().complete
    }
}

/// A quarantined pod of which no earlier version is known: if it runs it goes on, else it waits.
fn unjudged(mut pod: Pod, now: Timestamp) -> SourcePod {
    annotate(&mut pod, None, now);
    SourcePod { pod: Arc::new(pod), refused: Some(not_judged()), made_anew: None }
}

/// Whether the pod is known to be deleted as the one that cannot be read is.
fn is_deleted(pod: &Pod, one: &Unreadable) -> bool {
    let known = Deletion {
        deletion_timestamp: pod.metadata.deletion_timestamp.clone(),
        deletion_grace_period_seconds: pod.metadata.deletion_grace_period_seconds,
    };
    known == one.deletion
}

/// Marks the pod as being deleted, as the one that cannot be read is.
fn delete(pod: &mut Pod, one: &Unreadable) {
    pod.metadata.deletion_timestamp.clone_from(&one.deletion.deletion_timestamp);
    pod.metadata.deletion_grace_period_seconds = one.deletion.deletion_grace_period_seconds;
}

/// A pod that is being deleted, and of which nothing can be read but that: what runs of it ends, and nothing begins.
fn unspecified(one: &Unreadable, now: Timestamp) -> SourcePod {
    let text = |text: &str| Some(text.to_owned());
    let (namespace, name, uid) = (text(&one.namespace), text(&one.name), text(&one.uid));
    let metadata = ObjectMeta { namespace, name, uid, ..ObjectMeta::default() };
    let mut pod = Pod { metadata, spec: Some(PodSpec::default()), status: None };
    delete(&mut pod, one);
    annotate(&mut pod, None, now);
    let refused = Rejection::new(UNSUPPORTED_FIELDS, one.why.clone());
    SourcePod { pod: Arc::new(pod), refused: Some(refused), made_anew: None }
}
