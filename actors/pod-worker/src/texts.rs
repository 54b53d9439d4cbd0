//! Reasons and messages of events and statuses, word for word as upstream has them, since people and tools
//! match on them (rows 5.2, 5.5, 5.9, 5.10, 5.15, 5.17, 5.22, 7.8).

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use messages::PodRef;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::WaitingReason;
use pod_rules::durations::GoDuration;
use pod_rules::errors;
use pod_rules::reasons::{BACK_OFF, FAILED, FAILED_MOUNT, cannot_mount, no_pod_directories};

/// Waiting reason of a container that crashes again and again.
pub const CRASH_LOOP_BACK_OFF: &str = "CrashLoopBackOff";
/// Waiting reason when the container's configuration could not be made.
pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
/// Waiting reason when the runtime did not create the container.
pub const CREATE_CONTAINER_ERROR: &str = "CreateContainerError";
/// Waiting reason when the runtime did not start the container.
pub const RUN_CONTAINER_ERROR: &str = "RunContainerError";
/// Waiting reason when the postStart hook has failed.
pub const POST_START_HOOK_ERROR: &str = "PostStartHookError";
/// The message of event Killing for a container whose postStart hook has failed.
pub const FAILED_POST_START_HOOK: &str = "FailedPostStartHook";
/// The message of the event Killing for a container that is killed because all containers of its pod are
/// restarted.
pub const RESTARTING_ALL: &str = "killing";
/// Reason of the end of a pod that was active for too long.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// The message of [`DEADLINE_EXCEEDED`].
pub const DEADLINE_EXCEEDED_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";
/// The beginning of the message of the event NetworkNotReady.
pub const NETWORK_NOT_READY: &str = "network is not ready";

/// Why a container waits. It is remembered, compared and told for each container, so that it has a bound.
pub fn waiting(reason: &str, mut message: String) -> WaitingReason {
    errors::cut(&mut message, errors::WORDS_BYTES_MAX);
    WaitingReason { reason: reason.to_owned(), message }
}

/// The event for volumes that are not mounted after a long wait.
pub fn unmounted_volumes(names: &[String]) -> Text {
    Text::warning(FAILED_MOUNT, cannot_mount(names, &[], "timed out waiting for the condition"))
}

/// The text of an event, without the pod that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Normal or Warning.
    pub event_type: EventType,
    /// CamelCase.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Text {
    fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { event_type: EventType::Normal, reason, message: message.into() }
    }

    fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { event_type: EventType::Warning, reason, message: message.into() }
    }

    /// The event about a pod, or about one of its containers if a field path is given.
    pub fn about(self, pod: &PodRef, field_path: &str) -> RecordEvent {
        RecordEvent {
            object: EventObject::Pod { pod: pod.clone(), field_path: Arc::from(field_path) },
            event_type: self.event_type,
            reason: Arc::from(self.reason),
            message: Arc::from(self.message),
        }
    }

    /// Replaces the container's ID in the message by its name: with IDs no two events would be the same.
    #[must_use]
    pub fn naming(mut self, container_id: &str, name: &str) -> Self {
        if !container_id.is_empty() {
            self.message = self.message.replace(container_id, name);
        }
        self
    }
}

/// The event for a sandbox that is replaced.
pub fn sandbox_changed() -> Text {
    Text::normal("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
}

/// The event for a sandbox that could not be made.
pub fn failed_create_sandbox(error: &str) -> Text {
    Text::warning("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {error}"))
}

/// The event for a sandbox whose status (with its addresses) could not be read.
pub fn failed_sandbox_status(error: &str) -> Text {
    Text::warning("FailedPodSandBoxStatus", format!("Unable to get pod sandbox status: {error}"))
}

/// The event for a created container.
pub fn created() -> Text {
    Text::normal("Created", "Container created")
}

/// The event for a started container.
pub fn started() -> Text {
    Text::normal("Started", "Container started")
}

/// The event for a container that could not be configured, created or started.
pub fn failed(error: &str) -> Text {
    Text::warning(FAILED, format!("Error: {error}"))
}

/// The event for a container that is being stopped.
pub fn killing(message: &str) -> Text {
    Text::normal("Killing", message)
}

/// The event for a failed postStart hook; without the error, which may hold secrets.
pub fn failed_post_start_hook() -> Text {
    Text::warning("FailedPostStartHook", "PostStartHook failed")
}

/// The event for a failed preStop hook; without the error, which may hold secrets.
pub fn failed_pre_stop_hook() -> Text {
    Text::warning("FailedPreStopHook", "PreStopHook failed")
}

/// The event for a hook whose server answered in plain HTTP and was asked again over HTTP.
pub fn hook_http_fallback(host: &str, port: u16) -> Text {
    let host = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    Text::warning(
        "LifecycleHTTPFallback",
        format!("request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded"),
    )
}

/// The event for a pod that was active for longer than `activeDeadlineSeconds`.
pub fn deadline_exceeded() -> Text {
    Text::normal(DEADLINE_EXCEEDED, DEADLINE_EXCEEDED_MESSAGE)
}

/// The waiting message of an ephemeral container whose target container has no instance.
pub fn target_missing(target: &str) -> String {
    format!("unable to find target container {target}")
}

/// The event for a failed termination, which is tried again.
pub fn failed_kill_pod(error: &str) -> Text {
    Text::warning("FailedKillPod", format!("error killing pod: {error}"))
}

/// The event for a container that waits for its restart delay.
pub fn back_off(container: &str, pod: &PodRef) -> Text {
    Text::warning(BACK_OFF, format!("Back-off restarting failed container {container} in pod {pod}"))
}

/// The event for pod directories that could not be made.
pub fn failed_directories(error: &str) -> Text {
    Text::warning(FAILED, no_pod_directories(error))
}

/// The event for a step that lasts longer than a healthy one can. Upstream has no such event: its
/// `FailedSync` is about a pod whose status the runtime does not give.
pub fn blocked(step: &str, lasts: Duration) -> Text {
    Text::warning("SyncBlocked", format!("pod waits for {step} since {}s", lasts.as_secs()))
}

/// The event for a pod that waits for the runtime's network.
pub fn network_not_ready(problem: &str) -> Text {
    Text::warning("NetworkNotReady", format!("{NETWORK_NOT_READY}: {problem}"))
}

const NO_CLUSTER_DNS: &str = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                              \"ClusterFirst\" policy. Falling back to \"Default\" policy.";

/// The event for a pod with policy ClusterFirst on a node without cluster DNS.
pub fn missing_cluster_dns(pod: &PodRef) -> Text {
    Text::warning("MissingClusterDNS", format!("pod: {:?}. {NO_CLUSTER_DNS}", pod.to_string()))
}

/// The event about the node for a pod with policy ClusterFirst on a node without cluster DNS.
pub fn node_misses_cluster_dns() -> RecordEvent {
    RecordEvent {
        object: EventObject::Node,
        event_type: EventType::Warning,
        reason: Arc::from("MissingClusterDNS"),
        message: Arc::from(NO_CLUSTER_DNS),
    }
}

/// The event for a part of a pod's resolver configuration that exceeds the limits and was left out.
pub fn dns_config_forming(message: &str) -> Text {
    Text::warning("DNSConfigForming", message)
}

/// The event about the node for a resolver configuration that is not fit for pods.
pub fn check_limits_for_resolv_conf(message: &str) -> RecordEvent {
    RecordEvent {
        object: EventObject::Node,
        event_type: EventType::Warning,
        reason: Arc::from("CheckLimitsForResolvConf"),
        message: Arc::from(message),
    }
}

/// The default message of the event Killing.
pub fn stopping(container: &str) -> String {
    format!("Stopping container {container}")
}

/// The message of the waiting reason CrashLoopBackOff.
pub fn back_off_message(delay: SignedDuration, container: &str, pod: &PodRef) -> String {
    format!(
        "back-off {} restarting failed container={container} pod={pod}",
        GoDuration::whole_millis(delay.unsigned_abs())
    )
}

/// A kill's message for a container that is restarted afterwards.
pub fn will_be_restarted(message: &str) -> String {
    format!("{message}, will be restarted")
}

/// The message of a kill: the container's spec has changed.
pub fn definition_changed(container: &str) -> String {
    format!("Container {container} definition changed")
}

/// The message of a kill: the container failed its liveness probe.
pub fn failed_liveness(container: &str) -> String {
    format!("Container {container} failed liveness probe")
}

/// The message of a kill: the container failed its startup probe.
pub fn failed_startup(container: &str) -> String {
    format!("Container {container} failed startup probe")
}

/// The message of a kill: the container's state is unknown, and it is restarted.
pub fn unknown_state() -> String {
    "Container is in \"unknown\" state, try killing it before restart".to_owned()
}

/// The same message about an init container.
pub fn of_init(message: &str) -> String {
    message.replacen("Container ", "Init container ", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pod_ref;

    #[test]
    fn messages_are_upstreams() {
        assert_eq!((created().reason, created().message.as_str()), ("Created", "Container created"));
        assert_eq!((started().reason, started().message.as_str()), ("Started", "Container started"));
        assert_eq!(
            back_off("c", &pod_ref()).message,
            "Back-off restarting failed container c in pod web_ns(uid-1)"
        );
        assert_eq!(
            back_off_message(SignedDuration::from_secs(10), "c", &pod_ref()),
            "back-off 10s restarting failed container=c pod=web_ns(uid-1)"
        );
        assert_eq!(
            will_be_restarted(&failed_liveness("c")),
            "Container c failed liveness probe, will be restarted"
        );
        assert_eq!(of_init(&failed_startup("c")), "Init container c failed startup probe");
        assert_eq!(
            missing_cluster_dns(&pod_ref()).message,
            "pod: \"web_ns(uid-1)\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \
             \"ClusterFirst\" policy. Falling back to \"Default\" policy."
        );
    }

    #[test]
    fn container_ids_become_names() {
        assert_eq!(failed("task 12ab died").naming("12ab", "c").message, "Error: task c died");
    }
}
