//! PURE: whether this kubelet takes a version of a pod of the API server, and as what.

use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::facts::{Rejection, Source, SourcePod, UNSUPPORTED_FIELDS};
use pod_rules::annotations::{CONFIG_MIRROR, CONFIG_SOURCE};
use pod_spec::weight::Weigher;
use serde::Serialize;

use crate::restart_rules::RestartRules;
use crate::static_pod::CONFIG_SEEN_ANNOTATION;
use crate::unsupported::{Supported, refusal};

/// A pod of more bytes as JSON is large: to judge it takes long enough to hold up the actors' thread.
pub const LARGE_FROM_BYTES: usize = 64 << 10;

/// Takes so many bytes and no more.
struct Room(usize);

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a pod is too large to be judged where other pods wait. The work to see that is bounded.
pub fn is_large(pod: &Pod) -> bool {
    serde_json::to_writer(Room(LARGE_FROM_BYTES), pod).is_err()
}

/// What a version of a pod is judged by. Judging takes nothing else, so that it may happen on any thread.
#[derive(Clone, Debug)]
pub struct Judge {
    /// The version that is known.
    pub known: Option<SourcePod>,
    /// The fields that this kubelet supports.
    pub supported: Arc<Supported>,
    /// The restart rules that apply.
    pub rules: RestartRules,
    /// When the version was heard of.
    pub now: Timestamp,
}

/// A version of a pod that brings something new.
#[derive(Clone, Debug)]
pub struct Judged {
    /// As the API server has it.
    pub pod: SourcePod,
    /// As PodManager is told of it.
    pub told: SourcePod,
}

/// What came of judging a version of a pod.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// About how many bytes of memory it takes.
    pub bytes: u64,
    /// The version, if it brings anything new.
    pub judged: Option<Judged>,
}

/// About how many bytes of memory this takes.
pub fn weight(of: &impl Serialize) -> u64 {
    let mut weigher = Weigher::default();
    // Writing there does not fail, and an API object has string keys only, hence is JSON.
    let _ = serde_json::to_writer(&mut weigher, of);
    weigher.bytes()
}

impl Judge {
    /// Weighs a version and judges it.
    pub fn weighed(&self, pod: Pod) -> Verdict {
        Verdict { bytes: weight(&pod), judged: self.of(pod) }
    }

    /// Judges a version; nothing if it brings nothing new.
    pub fn of(&self, pod: Pod) -> Option<Judged> {
        let pod = source_pod(pod, self.known.as_ref(), &self.supported, self.now);
        let is_new = self.known.as_ref().is_none_or(|known| !Arc::ptr_eq(&known.pod, &pod.pod));
        is_new.then(|| Judged { told: self.rules.of(pod.clone()), pod })
    }
}

/// What is said of a pod that is left alone and of which nothing was known.
pub fn not_judged() -> Rejection {
    Rejection::new(UNSUPPORTED_FIELDS, "PodSources leaves the pod alone after repeated panics")
}

/// Annotates the pod with source and time; returns whether it is a mirror.
pub fn annotate(pod: &mut Pod, known: Option<&SourcePod>, now: Timestamp) -> bool {
    // Managed fields are large and of no use here.
    pod.metadata.managed_fields = None;
    let annotations = pod.metadata.annotations.get_or_insert_default();
    let is_mirror = annotations.contains_key(CONFIG_MIRROR);
    if !is_mirror {
        let seen = known
            .and_then(|known| known.pod.metadata.annotations.as_ref()?.get(CONFIG_SEEN_ANNOTATION).cloned());
        annotations.insert(CONFIG_SOURCE.to_owned(), Source::Api.as_str().to_owned());
        annotations.insert(CONFIG_SEEN_ANNOTATION.to_owned(), seen.unwrap_or_else(|| now.to_string()));
    }
    is_mirror
}

fn source_pod(mut pod: Pod, known: Option<&SourcePod>, supported: &Supported, now: Timestamp) -> SourcePod {
    let is_mirror = annotate(&mut pod, known, now);
    let refused = if is_mirror { None } else { refused(&pod, known, supported) };
    match known {
        // Without a change the same `Arc` goes on, so that receivers compare pointers.
        Some(known) if *known.pod == pod && known.refused == refused => known.clone(),
        _ => SourcePod { pod: Arc::new(pod), refused, made_anew: None },
    }
}

fn refused(pod: &Pod, known: Option<&SourcePod>, supported: &Supported) -> Option<Rejection> {
    // A spec that has not changed asks for the same as before; statuses change often.
    let judged = known.filter(|known| known.refused.as_ref() != Some(&not_judged()));
    if let Some(known) = judged.filter(|known| known.pod.spec == pod.spec) {
        return known.refused.clone();
    }
    refusal(pod, supported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_large_beyond_so_many_bytes_as_json_in_whatever_field() {
        let mut pod = Pod::default();
        let fill = |pod: &mut Pod, bytes: usize| pod.metadata.generate_name = Some("x".repeat(bytes));
        fill(&mut pod, 0);
        let bytes = serde_json::to_vec(&pod).unwrap().len();
        fill(&mut pod, LARGE_FROM_BYTES - bytes);
        assert!(!is_large(&pod));
        fill(&mut pod, LARGE_FROM_BYTES - bytes + 1);
        assert!(is_large(&pod));
    }
}
