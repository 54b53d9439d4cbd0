//! PURE: the room that the API server's pods take here, of which a namespace has its share, and what is kept of a pod for which there is
//! none (row 1.5).

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_kube::{Beyond, Deletion, Said, Unreadable};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use messages::facts::Rejection;
use messages::{PodRef, PodUid};
use pod_rules::critical::has_critical_priority;
use pod_rules::reasons::OUT_OF_KUBELET_ROOM;
use pod_spec::weight::{GROWN, PODS_BYTES_MAX, Weights};

use crate::judge::weight;

/// What is kept of a pod without room takes about so much.
const STUB_BYTES: u64 = 8 * 1024;
/// The most that the status of such a pod takes; of a larger one the phase is kept.
const STATUS_BYTES_MAX: u64 = 16 * 1024;
/// A longer word of such a status is none that Kubernetes has.
const WORD_BYTES_MAX: usize = 64;

#[derive(Debug)]
struct Held {
    namespace: Arc<str>,
    bytes: u64,
    is_stub: bool,
}

/// The room that pods take.
#[derive(Debug)]
pub(super) struct PodRoom {
    weights: Weights,
    held: BTreeMap<PodUid, Held>,
    /// Pods that are not kept as they are now, since there was no room.
    left_out: BTreeMap<PodUid, (PodRef, Beyond)>,
    /// Room has become free since that was looked at.
    has_freed: bool,
}

/// What there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The whole pod.
    Whole,
    /// Its identity, and that it was refused.
    Stub,
    /// Nothing of it.
    Nothing,
}

impl PodRoom {
    /// No pods yet; all may take so many bytes.
    pub(super) fn new(max: u64) -> Self {
        Self {
            weights: Weights::new(max),
            held: BTreeMap::new(),
            left_out: BTreeMap::new(),
            has_freed: false,
        }
    }

    /// What there is room for of a pod that takes so many bytes. Of a pod that was refused, nothing more is kept until it is gone.
    pub(super) fn place(&self, pod: &PodRef, asked: Beyond, is_new: impl FnOnce() -> bool) -> Place {
        let Beyond { bytes, is_critical } = asked;
        let known = self.held.get(&pod.uid);
        if known.is_some_and(|known| known.is_stub) {
            return Place::Stub;
        }
        let before = known.map_or(0, |known| known.bytes);
        let is_new = known.is_none() && is_new();
        let fits = |bytes, times| {
            self.weights.fits(&pod.namespace, before, bytes, times)
                || (is_critical && self.weights.fits_critical(&pod.namespace, before, bytes))
        };
        match is_new {
            false if fits(bytes, GROWN) => Place::Whole,
            true if fits(bytes, 1) => Place::Whole,
            true if fits(STUB_BYTES, GROWN) => Place::Stub,
            _ => Place::Nothing,
        }
    }

    /// Whether the pod was refused for the room that it takes.
    pub(super) fn is_stub(&self, uid: &PodUid) -> bool {
        self.held.get(uid).is_some_and(|held| held.is_stub)
    }

    /// The pod takes so many bytes.
    pub(super) fn put(&mut self, pod: &PodRef, bytes: u64, is_stub: bool) {
        // A pod keeps its namespace.
        let held = self.held.entry(pod.uid.clone()).or_insert_with(|| Held {
            namespace: pod.namespace.clone(),
            bytes: 0,
            is_stub,
        });
        self.weights.put(&held.namespace, held.bytes, bytes);
        self.has_freed |= held.bytes >= bytes.saturating_add(STUB_BYTES);
        self.left_out.remove(&pod.uid);
        (held.bytes, held.is_stub) = (bytes, is_stub);
    }

    /// The pod is gone.
    pub(super) fn remove(&mut self, uid: &PodUid) {
        self.left_out.remove(uid);
        if let Some(held) = self.held.remove(uid) {
            self.weights.put(&held.namespace, held.bytes, 0);
            self.has_freed = true;
        }
    }

    /// The pod is not kept as it is now: either there was no room for it, or it cannot be read. Of a pod that was refused for want of
    /// room no more is kept anyway.
    pub(super) fn leave_out(&mut self, pod: PodRef, beyond: Option<Beyond>) {
        self.left_out.remove(&pod.uid);
        if let Some(beyond) = beyond.filter(|_| !self.is_stub(&pod.uid)) {
            self.left_out.insert(pod.uid.clone(), (pod, beyond));
        }
    }

    /// Whether there is room by now for a pod that was left out, as far as room has become free since the last time.
    pub(super) fn fits_again(&mut self, is_new: impl Fn(&PodUid) -> bool) -> bool {
        let fits = |(pod, beyond): &(PodRef, Beyond)| {
            self.place(pod, *beyond, || is_new(&pod.uid)) != Place::Nothing
        };
        let fits_again = self.has_freed && self.left_out.values().any(fits);
        self.has_freed = false;
        fits_again
    }

    /// All that has become free so far is looked at.
    pub(super) fn looked_at(&mut self) {
        self.has_freed = false;
    }
}

/// Why a pod is refused for which there is no room.
pub(super) fn no_room() -> Rejection {
    let max = PODS_BYTES_MAX >> 20;
    let message = format!(
        "the kubelet has no room for the pod: all pods of the API server take at most {max} MiB of its memory, those of one \
         namespace half of that"
    );
    Rejection::new(OUT_OF_KUBELET_ROOM, message)
}

/// What is kept of such a pod: its identity, its deletion and its status.
pub(super) fn stub(pod: &Pod) -> Pod {
    let whole = &pod.metadata;
    let metadata = ObjectMeta {
        name: whole.name.clone(),
        namespace: whole.namespace.clone(),
        uid: whole.uid.clone(),
        generation: whole.generation,
        resource_version: whole.resource_version.clone(),
        creation_timestamp: whole.creation_timestamp.clone(),
        deletion_timestamp: whole.deletion_timestamp.clone(),
        deletion_grace_period_seconds: whole.deletion_grace_period_seconds,
        ..ObjectMeta::default()
    };
    let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let spec = PodSpec { node_name, ..PodSpec::default() };
    Pod { metadata, spec: Some(spec), status: pod.status.as_ref().map(short) }
}

fn short(status: &PodStatus) -> PodStatus {
    if weight(status) <= STATUS_BYTES_MAX {
        return status.clone();
    }
    let word = |word: &Option<String>| word.clone().filter(|word| word.len() <= WORD_BYTES_MAX);
    PodStatus {
        phase: word(&status.phase),
        qos_class: word(&status.qos_class),
        start_time: status.start_time.clone(),
        ..PodStatus::default()
    }
}

/// What a version of a pod asks for that takes so many bytes.
pub(super) fn asked(pod: &Pod, bytes: u64) -> Beyond {
    Beyond { bytes, is_critical: has_critical_priority(pod) }
}

/// A pod of which nothing can be kept is as one that cannot be read: what is known of it goes on.
pub(super) fn unreadable(pod: &Pod, bytes: u64) -> Unreadable {
    let PodRef { uid, namespace, name } = PodRef::of(pod);
    let metadata = &pod.metadata;
    let deletion = Deletion {
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
    };
    Unreadable {
        namespace: namespace.to_string(),
        name: name.to_string(),
        uid: uid.to_string(),
        deletion,
        said: Said::Changed,
        why: no_room().message,
        beyond: Some(asked(pod, bytes)),
    }
}
