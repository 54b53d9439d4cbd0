//! Reasons (and messages where those are fixed) of events, of pods' ends, and of waiting and ended
//! containers.

/// Event, and reason of a pod's end: the node ran out of a resource, or the pod used more than it may.
pub const EVICTED: &str = "Evicted";
/// Event, and reason of a pod's end: a critical pod needs its resources.
pub const PREEMPTING: &str = "Preempting";
/// Event: a pod takes longer to end than its grace period.
pub const EXCEEDED_GRACE_PERIOD: &str = "ExceededGracePeriod";
/// The message of [`EXCEEDED_GRACE_PERIOD`].
pub const EXCEEDED_GRACE_PERIOD_MESSAGE: &str =
    "Container runtime did not kill the pod within specified grace period.";
/// Reason of a pod's end: the kubelet has no room to keep it, for there is a bound of the memory that the API server's pods take, and of
/// that of one namespace. Upstream has no such bound, and no such reason.
pub const OUT_OF_KUBELET_ROOM: &str = "OutOfKubeletRoom";
/// Prefix of the message of a pod that the node rejects (row 3.5).
pub const REJECTED_PREFIX: &str = "Pod was rejected: ";

/// Event: a container, or something it needs, could not be made; the message has the error.
pub const FAILED: &str = "Failed";
/// Event: a volume could not be mounted.
pub const FAILED_MOUNT: &str = "FailedMount";
/// Event: a manifest or pod is not valid.
pub const FAILED_VALIDATION: &str = "FailedValidation";
/// Event: the restart of a container, or the pull of an image, waits after failures.
pub const BACK_OFF: &str = "BackOff";
/// Event, and reason of the Node's condition KubeletDegraded: a subsystem has crashed too often.
pub const SUBSYSTEM_DORMANT: &str = "SubsystemDormant";
/// Event, and reason of the Node's condition KubeletDegraded: a subsystem leaves several pods alone for one cause.
pub const PODS_LEFT_ALONE: &str = "PodsLeftAlone";
/// Reason of the Node's condition Ready while it is false.
pub const KUBELET_NOT_READY: &str = "KubeletNotReady";

/// Reason of a waiting container: its image could not be pulled.
pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
/// Reason of a waiting container: its image could not be pulled and the next pull waits.
pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
/// Reason of a waiting container: the runtime does not have it yet.
pub const CONTAINER_CREATING: &str = "ContainerCreating";
/// Reason of a waiting container: the pod's init containers have not ended.
pub const POD_INITIALIZING: &str = "PodInitializing";
/// Reason of an ended container: it ended well.
pub const COMPLETED: &str = "Completed";

/// The reason of a pod whose volumes the node cannot attach any more.
pub const VOLUME_ATTACHMENT_LIMIT_EXCEEDED: &str = "VolumeAttachmentLimitExceeded";

/// The message of [`FAILED_MOUNT`] for volumes of a pod that are not mounted, sorted by name, and those among them of which
/// it is not known what they are made of.
pub fn cannot_mount(unmounted: &[String], unprocessed: &[String], why: &str) -> String {
    let (unmounted, unprocessed) = (unmounted.join(" "), unprocessed.join(" "));
    format!(
        "Unable to attach or mount volumes: unmounted volumes=[{unmounted}], unattached volumes=[], failed to process \
         volumes=[{unprocessed}]: {why}"
    )
}

/// The message of the event for pod directories that could not be made.
pub fn no_pod_directories(error: impl std::fmt::Display) -> String {
    format!("error making pod data directories: {error}")
}
