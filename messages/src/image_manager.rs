//! The messages that ImageManager receives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::config_manager::Configured;
use crate::{PodRef, delivery, receives};

/// When an image is pulled: `imagePullPolicy` of a container, `pullPolicy` of an image volume (row 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum PullPolicy {
    /// Pull before every start of a container that needs it.
    Always,
    /// Pull when the image is not on the node.
    IfNotPresent,
    /// Never pull.
    Never,
}

/// Asks for the image of one container, or of a pod's image volumes, to be on the node, by its pull policy. PodWorker asks.
#[derive(Clone, Debug)]
pub struct EnsureImage {
    /// The pod that needs it.
    pub pod: PodRef,
    /// What needs it, for people: the container's name, or `volume/` and a volume's name.
    pub container: Arc<str>,
    /// Field path for events, e.g. `spec.containers{web}`; empty for a volume's image, whose events are about the pod.
    pub field_path: Arc<str>,
    /// The image as the pod spec spells it; without tag or digest `:latest` is meant.
    pub image: Arc<str>,
    /// When to pull.
    pub policy: PullPolicy,
    /// `spec.imagePullSecrets`: names of secrets in the pod's namespace.
    pub pull_secrets: Arc<[Arc<str>]>,
    /// `spec.serviceAccountName`; empty if the pod has none.
    pub service_account: Arc<str>,
    /// `metadata.annotations`, which go to the runtime with the image.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// The configuration of the pod's sandbox as the runtime's wire has it, which goes with a pull.
    pub sandbox_config: Arc<[u8]>,
    /// The runtime's handler for which the image is meant; empty for the default one, and while images are the same for all.
    pub runtime_handler: Arc<str>,
}
delivery!(EnsureImage => Result<Arc<PresentImage>, ImageError>: Command, Wait, pod = |m| Some(&m.pod.uid));

/// An image that is on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PresentImage {
    /// The image reference for CreateContainer (the runtime's image ID).
    pub image_ref: String,
    /// `USER` of the image as a number, if it is one.
    pub uid: Option<i64>,
    /// `USER` of the image as a name; empty if it is a number or not set.
    pub username: String,
}

/// Why an image cannot be had (row 6.2): reason and message as the container's waiting state shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageError {
    /// `ErrImagePull`, `ImagePullBackOff`, `ErrImageNeverPull`, `InvalidImageName`, …
    pub reason: String,
    /// The message, for people.
    pub message: String,
    /// Milliseconds until another ask can succeed; `None` if only a change of the spec or the node helps.
    pub retry_after_ms: Option<u64>,
}

/// Asks ImageManager to delete every image that no container uses and that is not too new. EvictionManager asks when the disk
/// is full. Answered with the number of images deleted.
#[derive(Clone, Debug)]
pub struct DeleteUnusedImages;
delivery!(DeleteUnusedImages => usize: Command, Wait);

/// How images are pulled and deleted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageRules {
    /// `registryPullQPS`: pulls per second in the long run; 0 is no limit.
    pub pulls_per_second: f64,
    /// `registryBurst`: pulls that may begin at once after a quiet time.
    pub burst: u32,
    /// `serializeImagePulls` and `maxParallelImagePulls`: pulls that run at once.
    pub parallel: usize,
    /// `imageGCHighThresholdPercent`
    pub high_percent: u64,
    /// `imageGCLowThresholdPercent`
    pub low_percent: u64,
    /// `imageMinimumGCAge`
    pub min_age: Duration,
    /// `imageMaximumGCAge`; none for no such limit.
    pub max_age: Option<Duration>,
}

/// How images are pulled and deleted from now on. Writer: ConfigManager.
pub type ImagesConfigured = Configured<ImageRules>;
delivery!(ImagesConfigured => (): Command, LatestPerKey);

receives!("ImageManager": EnsureImage, DeleteUnusedImages, ImagesConfigured);
