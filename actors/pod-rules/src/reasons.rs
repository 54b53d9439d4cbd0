//! Reasons (and messages where those are fixed) of events, of pods' ends, and of containers that wait or have ended.

/// Event, and reason of a pod's end: the node ran out of something, or the pod took more than it may.
pub const EVICTED: &str = "Evicted";
/// Event, and reason of a pod's end: a critical pod needs its room.
pub const PREEMPTING: &str = "Preempting";
/// Event: a pod that has to end takes longer than its grace.
pub const EXCEEDED_GRACE_PERIOD: &str = "ExceededGracePeriod";
/// The message of [`EXCEEDED_GRACE_PERIOD`].
pub const EXCEEDED_GRACE_PERIOD_MESSAGE: &str =
    "Container runtime did not kill the pod within specified grace period.";
/// How the message of a pod begins that the node refuses (row 3.5).
pub const REJECTED_PREFIX: &str = "Pod was rejected: ";

/// Event: a container or what it needs could not be had, with the error.
pub const FAILED: &str = "Failed";
/// Event: a volume could not be mounted.
pub const FAILED_MOUNT: &str = "FailedMount";
/// Event: a manifest or pod is not valid.
pub const FAILED_VALIDATION: &str = "FailedValidation";
/// Event: a container's restart, or an image's pull, waits after failures.
pub const BACK_OFF: &str = "BackOff";
/// Event, and reason of the Node's condition KubeletDegraded: a subsystem has crashed too often.
pub const SUBSYSTEM_DORMANT: &str = "SubsystemDormant";
/// Reason of the Node's condition Ready while it is not.
pub const KUBELET_NOT_READY: &str = "KubeletNotReady";

/// A container waits: its image could not be pulled.
pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
/// A container waits: its image is not pulled again yet.
pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
/// A container waits: nothing is known of it yet.
pub const CONTAINER_CREATING: &str = "ContainerCreating";
/// A container waits for the pod's init containers.
pub const POD_INITIALIZING: &str = "PodInitializing";
/// A container has ended well.
pub const COMPLETED: &str = "Completed";

/// The message of the event for directories of a pod that could not be made.
pub fn no_pod_directories(error: impl std::fmt::Display) -> String {
    format!("error making pod data directories: {error}")
}
