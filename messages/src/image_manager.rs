//! What ImageManager receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::{PodRef, delivery, receives};

/// Row 6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PullPolicy {
    /// Ask the registry every time.
    Always,
    /// Pull when it is not there.
    IfNotPresent,
    /// Never pull.
    Never,
}

/// Have the image of one container present on the node, by policy.
#[derive(Clone, Debug)]
pub struct EnsureImage {
    /// The pod that needs it.
    pub pod: PodRef,
    /// The container that needs it; events name its field path.
    pub container: Arc<str>,
    /// Field path for events, e.g. `spec.containers{web}`.
    pub field_path: Arc<str>,
    /// As the pod spec spells it; without tag or digest `:latest` is meant.
    pub image: Arc<str>,
    /// When to pull.
    pub policy: PullPolicy,
    /// `spec.imagePullSecrets`: names of secrets in the pod's namespace.
    pub pull_secrets: Arc<[Arc<str>]>,
    /// `metadata.annotations`, which go to the runtime with the image.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// The configuration of the pod's sandbox as the runtime's wire has it, which goes with a pull.
    pub sandbox_config: Arc<[u8]>,
}
delivery!(EnsureImage => Result<Arc<PresentImage>, ImageError>: Command, Wait, pod = |m| Some(&m.pod.uid));

/// An image that is on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PresentImage {
    /// What CreateContainer is given (the runtime's image ID).
    pub image_ref: String,
    /// `USER` of the image as a number, if it is one.
    pub uid: Option<i64>,
    /// `USER` of the image as a name; empty if it is a number or not set.
    pub username: String,
}

/// Row 6.2: reason and message as the container's waiting state shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageError {
    /// `ErrImagePull`, `ImagePullBackOff`, `ErrImageNeverPull`, `InvalidImageName`, …
    pub reason: String,
    /// For people.
    pub message: String,
    /// Milliseconds until it is worth asking again; absent if only a change helps.
    pub retry_after_ms: Option<u64>,
}

/// Delete every image that no container uses: the disk is full. Answered with how many have been deleted.
#[derive(Clone, Debug)]
pub struct DeleteUnusedImages;
delivery!(DeleteUnusedImages => usize: Command, Wait);

receives!("ImageManager": EnsureImage, DeleteUnusedImages);
