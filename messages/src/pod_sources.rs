//! The messages that PodSources receives.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::facts::NodeObserved;
use crate::{delivery, receives};

/// Asks PodSources to send every source's pods again, since PodManager has restarted.
#[derive(Clone, Debug)]
pub struct ResendPods;
delivery!(ResendPods => (): Command, LatestPerKey);

/// The most bytes of a manifest that is submitted: as a text in JSON, in which characters may have two bytes, it fits into a
/// checkpoint.
pub const SUBMISSION_BYTES_MAX: usize = 512 << 10;

/// Asks PodSources to run the pod of a manifest, and to keep the manifest over restarts (row 1.8). The answer comes when the
/// manifest is safe on the disk.
#[derive(Clone, PartialEq, Eq)]
pub struct SubmitPod {
    /// The manifest's bytes, YAML or JSON.
    pub manifest: Arc<[u8]>,
    /// The tenant that the caller counts for: one has at most half of the room for submitted pods.
    pub tenant: Arc<str>,
}
delivery!(SubmitPod => Result<SubmittedPod, SubmissionRefused>: Command, Reject);

/// A manifest may hold secrets in its environment: it is not shown.
impl fmt::Debug for SubmitPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubmitPod({} bytes of {:?})", self.manifest.len(), self.tenant)
    }
}

/// A pod that was submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmittedPod {
    /// The pod as it was accepted: complete, with its UID, and with the node's name behind its own.
    pub pod: Arc<Pod>,
    /// Whether it is there because of this submission, and was not there already, the same.
    pub is_new: bool,
}

/// Asks PodSources to run a submitted pod no longer, and to forget its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawPod {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name, as it was accepted or as it was submitted; the former comes first.
    pub name: Arc<str>,
}
delivery!(WithdrawPod => Result<(), SubmissionRefused>: Command, Reject);

/// A submission or a withdrawal that has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmissionRefused {
    /// The kind of refusal.
    pub why: WhyRefused,
    /// What is wrong, with the thing and the value.
    pub message: String,
}

/// The kinds of refusals of submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyRefused {
    /// Pods cannot be submitted on this node.
    Off,
    /// The manifest is wrong.
    Invalid,
    /// The pod may not do what it wants to.
    Forbidden,
    /// The manifest is larger than can be kept.
    TooLarge,
    /// Another pod has the name.
    Conflict,
    /// There is no such pod.
    NotFound,
    /// Too many submissions are under way, one of this pod among them, or what was submitted has not been read yet.
    Busy,
    /// There is no room for further pods, or none on the disk.
    Full,
    /// The disk has failed.
    Failed,
}

receives!("PodSources": ResendPods, NodeObserved, SubmitPod, WithdrawPod);
