//! PURE: spans of steps. A pod is a trace; whether it is told depends on its UID alone, so that all of it is told or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::history::{Step, StepKind, StepState};
use sha2::{Digest, Sha256};

use crate::queue::Ended;
use crate::wire::{
    ExportTraceServiceRequest, InstrumentationScope, KeyValue, Resource, ResourceSpans, ScopeSpans, Span,
    Status,
};

const MILLION: u32 = 1_000_000;
/// The name of the span of which those of a pod's steps are parts.
const ROOT: &str = "pod";
/// `SPAN_KIND_INTERNAL` and `SPAN_KIND_CLIENT`.
const INTERNAL: i32 = 1;
const CLIENT: i32 = 3;
/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

/// The share of pods that are told, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling(u32);

impl Sampling {
    /// So many pods of a million; more than a million is all of them.
    #[must_use]
    pub fn per_million(pods: u32) -> Self {
        Self(pods.min(MILLION))
    }

    /// Whether no pod is told.
    #[must_use]
    pub fn is_never(self) -> bool {
        self.0 == 0
    }

    /// Whether the pod of this UID is told: by its trace ID, as OpenTelemetry's sampler by ratio judges.
    #[must_use]
    pub fn tells(self, pod: &str) -> bool {
        let drawn = lower_half(trace_id(pod)) >> 1;
        // Of 63 bits those below the share.
        u128::from(drawn) * u128::from(MILLION) < u128::from(self.0) << 63
    }
}

/// The trace of a pod: the first 16 bytes of the SHA-256 of its UID, which is the same for every kubelet.
#[must_use]
pub fn trace_id(pod: &str) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(pod.as_bytes()).into();
    std::array::from_fn(|at| digest[at])
}

fn lower_half(trace: [u8; 16]) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|at| trace[at + 8]))
}

/// An ID that no other number of this process has, and none of another process but by chance.
fn span_id(process: u64, number: u64) -> Vec<u8> {
    let mut z = process.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // An ID of zeros is none.
    (z ^ (z >> 31)).max(1).to_be_bytes().to_vec()
}

/// What a pod is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// What all spans of a process have in common.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// The node's name.
    pub(crate) node: String,
    /// A number drawn for this process.
    pub(crate) number: u64,
}

/// Steps that are told together, and what is known of their pods.
pub(crate) struct Batch<'a> {
    pub(crate) ended: &'a [Ended],
    /// The pods whose first span this process has not told yet.
    pub(crate) new: &'a BTreeSet<Arc<str>>,
    pub(crate) names: &'a BTreeMap<Arc<str>, PodName>,
    /// The wall time at the moment from which those of steps are counted, nanoseconds since 1970.
    pub(crate) epoch_ns: i128,
}

impl Process {
    /// The spans of a batch, as they are sent.
    pub(crate) fn request(&self, batch: &Batch<'_>) -> ExportTraceServiceRequest {
        let roots = batch.new.iter().filter_map(|pod| self.root(pod, batch));
        let steps = batch.ended.iter().map(|ended| self.span(ended, batch));
        let scope = InstrumentationScope {
            name: "understudy".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let spans = ScopeSpans { scope: Some(scope), spans: roots.chain(steps).collect() };
        let attributes = [
            ("service.name", "kubelet"),
            ("host.name", self.node.as_str()),
            ("k8s.node.name", self.node.as_str()),
        ];
        let resource =
            Resource { attributes: attributes.map(|(key, text)| KeyValue::text(key, text)).into() };
        let of = ResourceSpans { resource: Some(resource), scope_spans: vec![spans] };
        ExportTraceServiceRequest { resource_spans: vec![of] }
    }

    /// The ID of the span that a pod's other spans of this process are parts of.
    fn root_id(&self, trace: [u8; 16]) -> Vec<u8> {
        span_id(self.number ^ lower_half(trace), 0)
    }

    /// That span: from the beginning of the first step of the batch to the end of the last.
    fn root(&self, pod: &Arc<str>, batch: &Batch<'_>) -> Option<Span> {
        let of_pod = batch.ended.iter().filter(|ended| ended.pod == *pod);
        let steps: Vec<&Step> = of_pod.map(|ended| &ended.step).collect();
        let began = steps.iter().map(|step| step.began).min()?;
        let ended = steps.iter().map(|step| end(step)).max()?;
        let trace = trace_id(pod);
        Some(Span {
            trace_id: trace.to_vec(),
            span_id: self.root_id(trace),
            parent_span_id: Vec::new(),
            name: ROOT.to_owned(),
            kind: INTERNAL,
            start_time_unix_nano: unix_ns(batch.epoch_ns, began),
            end_time_unix_nano: unix_ns(batch.epoch_ns, ended),
            attributes: named(pod, batch.names),
            status: None,
        })
    }

    fn span(&self, ended: &Ended, batch: &Batch<'_>) -> Span {
        let Ended { pod, number, step } = ended;
        let trace = trace_id(pod);
        let mut attributes = named(pod, batch.names);
        let of_step = [
            ("understudy.actor", step.by),
            ("understudy.kind", kind(step.kind)),
            ("understudy.state", state(step.state)),
        ];
        attributes.extend(of_step.map(|(key, text)| KeyValue::text(key, text)));
        let failed = Status { message: String::new(), code: ERROR };
        Span {
            trace_id: trace.to_vec(),
            span_id: span_id(self.number, *number),
            parent_span_id: self.root_id(trace),
            name: step.what.to_owned(),
            kind: if step.kind == StepKind::Call { CLIENT } else { INTERNAL },
            start_time_unix_nano: unix_ns(batch.epoch_ns, step.began),
            end_time_unix_nano: unix_ns(batch.epoch_ns, end(step)),
            attributes,
            status: (step.state == StepState::Failed).then_some(failed),
        }
    }
}

/// A pod's UID, and its name where that is known.
fn named(pod: &Arc<str>, names: &BTreeMap<Arc<str>, PodName>) -> Vec<KeyValue> {
    let mut attributes = vec![KeyValue::text("k8s.pod.uid", pod)];
    if let Some(PodName { namespace, name }) = names.get(pod) {
        attributes.push(KeyValue::text("k8s.pod.name", name));
        attributes.push(KeyValue::text("k8s.namespace.name", namespace));
    }
    attributes
}

fn end(step: &Step) -> Duration {
    step.began.saturating_add(step.took)
}

fn unix_ns(epoch_ns: i128, at: Duration) -> u64 {
    let at = i128::try_from(at.as_nanos()).unwrap_or(i128::MAX);
    u64::try_from(epoch_ns.saturating_add(at).max(0)).unwrap_or(u64::MAX)
}

fn kind(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Message => "message",
        StepKind::Effect => "effect",
        StepKind::Call => "call",
    }
}

fn state(state: StepState) -> &'static str {
    match state {
        StepState::Running => "running",
        StepState::Done => "done",
        StepState::Failed => "failed",
        StepState::Dropped => "dropped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(pod: &str, number: u64, kind: StepKind, state: StepState, (began, took): (u64, u64)) -> Ended {
        let (began, took) = (Duration::from_secs(began), Duration::from_secs(took));
        let (by, what) = match kind {
            StepKind::Call => ("runtime", "StartContainer"),
            StepKind::Message | StepKind::Effect => ("PodWorker", "sync"),
        };
        let step = Step { kind, by, what, state, began, last: began, took, longest: took, times: 1 };
        Ended { pod: Arc::from(pod), number, step }
    }

    #[test]
    fn a_pod_is_one_trace_with_a_span_for_each_step() {
        let steps = [
            ended("p", 1, StepKind::Effect, StepState::Done, (2, 5)),
            ended("p", 2, StepKind::Call, StepState::Failed, (3, 1)),
            ended("q", 3, StepKind::Message, StepState::Dropped, (4, 0)),
        ];
        let name = PodName { namespace: Arc::from("default"), name: Arc::from("web") };
        let names = BTreeMap::from([(Arc::from("p"), name)]);
        let new = BTreeSet::from([Arc::from("p")]);
        let process = Process { node: "node".to_owned(), number: 7 };
        let batch = Batch { ended: &steps, new: &new, names: &names, epoch_ns: 1_000_000_000_000 };
        let request = process.request(&batch);
        let [of] = &request.resource_spans[..] else { panic!("one resource: {request:?}") };
        let resource = of.resource.as_ref().expect("it is named");
        let expected = [("service.name", "kubelet"), ("host.name", "node"), ("k8s.node.name", "node")];
        assert_eq!(resource.attributes, expected.map(|(key, text)| KeyValue::text(key, text)));
        let [scope] = &of.scope_spans[..] else { panic!("one scope: {request:?}") };
        let [root, sync, start, other] = &scope.spans[..] else { panic!("four spans: {request:?}") };

        let second = 1_000_000_000_u64;
        let times = |span: &Span| (span.start_time_unix_nano / second, span.end_time_unix_nano / second);
        assert_eq!(
            [root, sync, start, other].map(times),
            [(1002, 1007), (1002, 1007), (1003, 1004), (1004, 1004)]
        );
        let named =
            |span: &Span| (span.name.clone(), span.kind, span.status.as_ref().map(|status| status.code));
        assert_eq!(named(root), ("pod".to_owned(), 1, None));
        assert_eq!(named(sync), ("sync".to_owned(), 1, None));
        assert_eq!(named(start), ("StartContainer".to_owned(), 3, Some(2)));
        assert_eq!([root, sync, start].map(|span| &span.trace_id[..]), [&trace_id("p")[..]; 3]);
        assert_eq!(other.trace_id, trace_id("q"));
        assert!(root.parent_span_id.is_empty());
        assert_eq!([sync, start].map(|span| &span.parent_span_id), [&root.span_id; 2]);
        assert_ne!(other.parent_span_id, root.span_id);
        let ids: BTreeSet<_> = scope.spans.iter().map(|span| &span.span_id).collect();
        assert!(ids.len() == 4 && ids.iter().all(|id| id.len() == 8), "{ids:?}");

        let told = |span: &Span| span.attributes.iter().map(|one| one.key.clone()).collect::<Vec<_>>();
        assert_eq!(told(root), ["k8s.pod.uid", "k8s.pod.name", "k8s.namespace.name"]);
        let keys = [
            "k8s.pod.uid",
            "k8s.pod.name",
            "k8s.namespace.name",
            "understudy.actor",
            "understudy.kind",
            "understudy.state",
        ];
        assert_eq!(told(start), keys);
        let texts: Vec<_> = keys.iter().filter_map(|key| start.attribute(key)).collect();
        assert_eq!(texts, ["p", "web", "default", "runtime", "call", "failed"]);
        // Its name is not known.
        let texts: Vec<_> = keys.iter().filter_map(|key| other.attribute(key)).collect();
        assert_eq!(texts, ["q", "PodWorker", "message", "dropped"]);
    }

    #[test]
    fn another_process_has_other_ids_in_the_same_trace() {
        let steps = [ended("p", 1, StepKind::Effect, StepState::Done, (0, 1))];
        let (new, names) = (BTreeSet::from([Arc::from("p")]), BTreeMap::new());
        let spans = |number| {
            let process = Process { node: "node".to_owned(), number };
            let batch = Batch { ended: &steps, new: &new, names: &names, epoch_ns: 0 };
            process.request(&batch).resource_spans.remove(0).scope_spans.remove(0).spans
        };
        let (one, other) = (spans(1), spans(2));
        for (one, other) in one.iter().zip(&other) {
            assert_eq!(one.trace_id, other.trace_id);
            assert_ne!(one.span_id, other.span_id);
        }
    }

    #[test]
    fn a_pod_is_told_or_not_by_its_uid_and_as_many_as_the_share() {
        let pods: Vec<String> = (0..10_000).map(|pod| format!("pod-{pod}")).collect();
        let told = |per_million| {
            let sampling = Sampling::per_million(per_million);
            pods.iter().filter(|pod| sampling.tells(pod)).cloned().collect::<BTreeSet<_>>()
        };
        assert_eq!((told(0).len(), told(1_000_000).len(), told(u32::MAX).len()), (0, 10_000, 10_000));
        let (tenth, half) = (told(100_000), told(500_000));
        assert!(
            (900..1100).contains(&tenth.len()) && (4800..5200).contains(&half.len()),
            "{} {}",
            tenth.len(),
            half.len()
        );
        assert!(tenth.is_subset(&half), "a larger share keeps what a smaller one has");
        assert!(Sampling::default().is_never() && !Sampling::per_million(1).is_never());
    }

    #[test]
    fn moments_before_1970_are_its_beginning() {
        assert_eq!(unix_ns(-5, Duration::from_nanos(3)), 0);
        assert_eq!(unix_ns(-5, Duration::from_nanos(9)), 4);
        assert_eq!(unix_ns(i128::MAX, Duration::MAX), u64::MAX);
    }
}
