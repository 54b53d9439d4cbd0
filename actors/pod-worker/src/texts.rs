//! Reasons and messages, word for word as upstream spells them: people and tools look for them (rows 5.2, 5.5, 5.9,
//! 5.10, 5.15, 5.17, 5.22, 7.8).

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use messages::PodRef;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use pod_rules::durations::GoDuration;
use pod_rules::reasons::{BACK_OFF, FAILED, FAILED_MOUNT, no_pod_directories};

/// Waiting reason of a container that crashes again and again.
pub const CRASH_LOOP_BACK_OFF: &str = "CrashLoopBackOff";
/// Waiting reason when no configuration for the container could be made.
pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
/// Waiting reason when the runtime would not create the container.
pub const CREATE_CONTAINER_ERROR: &str = "CreateContainerError";
/// Waiting reason when the runtime would not start the container.
pub const RUN_CONTAINER_ERROR: &str = "RunContainerError";
/// Waiting reason when the postStart hook has failed.
pub const POST_START_HOOK_ERROR: &str = "PostStartHookError";
/// The message of event Killing for a container whose postStart hook has failed.
pub const FAILED_POST_START_HOOK: &str = "FailedPostStartHook";
/// The message of event Killing for a container of a pod all of whose containers are restarted.
pub const RESTARTING_ALL: &str = "killing";
/// Reason of a pod that has run for too long.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// Its message.
pub const DEADLINE_EXCEEDED_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";
/// What the error says while the network plugin is not ready; such an error is retried soon.
pub const NETWORK_NOT_READY: &str = "network is not ready";

/// The volumes of a pod have been waited for in vain.
pub fn unmounted_volumes(names: &[String]) -> Text {
    let names = names.join(" ");
    let message = format!(
        "Unable to attach or mount volumes: unmounted volumes=[{names}], unattached volumes=[], failed to process volumes=[]: timed out waiting for the condition"
    );
    Text::warning(FAILED_MOUNT, message)
}

/// An event, before it is known which pod it is about.
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

    /// Puts the container's name where the message has its ID: IDs make every event a new one.
    #[must_use]
    pub fn naming(mut self, container_id: &str, name: &str) -> Self {
        if !container_id.is_empty() {
            self.message = self.message.replace(container_id, name);
        }
        self
    }
}

/// A sandbox that was there is replaced.
pub fn sandbox_changed() -> Text {
    Text::normal("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
}

/// No sandbox could be made.
pub fn failed_create_sandbox(error: &str) -> Text {
    Text::warning("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {error}"))
}

/// The sandbox was made, but its status (its addresses) could not be read.
pub fn failed_sandbox_status(error: &str) -> Text {
    Text::warning("FailedPodSandBoxStatus", format!("Unable to get pod sandbox status: {error}"))
}

/// The container has been created.
pub fn created() -> Text {
    Text::normal("Created", "Container created")
}

/// The container runs.
pub fn started() -> Text {
    Text::normal("Started", "Container started")
}

/// The container could not be configured, created or started.
pub fn failed(error: &str) -> Text {
    Text::warning(FAILED, format!("Error: {error}"))
}

/// The container is being stopped.
pub fn killing(message: &str) -> Text {
    Text::normal("Killing", message)
}

/// A postStart hook has failed; why is not said, since it may hold what should not go into an event.
pub fn failed_post_start_hook() -> Text {
    Text::warning("FailedPostStartHook", "PostStartHook failed")
}

/// A preStop hook has failed; why is not said either.
pub fn failed_pre_stop_hook() -> Text {
    Text::warning("FailedPreStopHook", "PreStopHook failed")
}

/// A hook's server does not speak TLS, and was asked without.
pub fn hook_http_fallback(host: &str, port: u16) -> Text {
    let host = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    Text::warning(
        "LifecycleHTTPFallback",
        format!("request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded"),
    )
}

/// The pod has run for longer than it may.
pub fn deadline_exceeded() -> Text {
    Text::normal(DEADLINE_EXCEEDED, DEADLINE_EXCEEDED_MESSAGE)
}

/// The container that an ephemeral one is to join is not there.
pub fn target_missing(target: &str) -> String {
    format!("unable to find target container {target}")
}

/// Termination did not succeed and is tried again.
pub fn failed_kill_pod(error: &str) -> Text {
    Text::warning("FailedKillPod", format!("error killing pod: {error}"))
}

/// The container has to wait before its restart.
pub fn back_off(container: &str, pod: &PodRef) -> Text {
    Text::warning(BACK_OFF, format!("Back-off restarting failed container {container} in pod {pod}"))
}

/// The pod's directories could not be made.
pub fn failed_directories(error: &str) -> Text {
    Text::warning(FAILED, no_pod_directories(error))
}

/// A step has lasted longer than any that goes well. Upstream has no word for it; its `FailedSync` is a pod whose status
/// the runtime does not tell.
pub fn blocked(step: &str, lasts: Duration) -> Text {
    Text::warning("SyncBlocked", format!("pod waits for {step} since {}s", lasts.as_secs()))
}

/// The network plugin is not ready.
pub fn network_not_ready(problem: &str) -> Text {
    Text::warning("NetworkNotReady", format!("{NETWORK_NOT_READY}: {problem}"))
}

const NO_CLUSTER_DNS: &str = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                              \"ClusterFirst\" policy. Falling back to \"Default\" policy.";

/// A pod with policy ClusterFirst on a node without cluster DNS.
pub fn missing_cluster_dns(pod: &PodRef) -> Text {
    Text::warning("MissingClusterDNS", format!("pod: {:?}. {NO_CLUSTER_DNS}", pod.to_string()))
}

/// The same about the node.
pub fn node_misses_cluster_dns() -> RecordEvent {
    RecordEvent {
        object: EventObject::Node,
        event_type: EventType::Warning,
        reason: Arc::from("MissingClusterDNS"),
        message: Arc::from(NO_CLUSTER_DNS),
    }
}

/// Something of a pod's resolver configuration is beyond the limits and was left out.
pub fn dns_config_forming(message: &str) -> Text {
    Text::warning("DNSConfigForming", message)
}

/// The node's own resolver configuration is not fit for pods. About the node.
pub fn check_limits_for_resolv_conf(message: &str) -> RecordEvent {
    RecordEvent {
        object: EventObject::Node,
        event_type: EventType::Warning,
        reason: Arc::from("CheckLimitsForResolvConf"),
        message: Arc::from(message),
    }
}

/// The default message of event Killing.
pub fn stopping(container: &str) -> String {
    format!("Stopping container {container}")
}

/// The message of a waiting reason CrashLoopBackOff.
pub fn back_off_message(delay: SignedDuration, container: &str, pod: &PodRef) -> String {
    format!(
        "back-off {} restarting failed container={container} pod={pod}",
        GoDuration::whole_millis(delay.unsigned_abs())
    )
}

/// Appended when the container comes back.
pub fn will_be_restarted(message: &str) -> String {
    format!("{message}, will be restarted")
}

/// Why a regular container is killed.
pub fn definition_changed(container: &str) -> String {
    format!("Container {container} definition changed")
}

/// Why a regular container is killed.
pub fn failed_liveness(container: &str) -> String {
    format!("Container {container} failed liveness probe")
}

/// Why a regular container is killed.
pub fn failed_startup(container: &str) -> String {
    format!("Container {container} failed startup probe")
}

/// Why a container is killed before its restart.
pub fn unknown_state() -> String {
    "Container is in \"unknown\" state, try killing it before restart".to_owned()
}

/// The same words about an init container.
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
