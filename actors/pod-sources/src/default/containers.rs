//! Defaults of containers: regular, init and ephemeral ones.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, EphemeralContainer, HTTPGetAction, Lifecycle, PodSpec, Probe,
};

use super::{set_if_empty, set_if_zero};
use bridge_text::image::is_latest;

pub(super) fn set_defaults(spec: &mut PodSpec) {
    let host_network = spec.host_network.unwrap_or(false);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        container_defaults(container, host_network);
    }
    for container in spec.ephemeral_containers.iter_mut().flatten() {
        ephemeral_defaults(container);
    }
}

fn container_defaults(container: &mut Container, host_network: bool) {
    for port in container.ports.iter_mut().flatten() {
        port_defaults(port);
        // In the host's network a container's port is the host's.
        if host_network && port.host_port.unwrap_or(0) == 0 && port.container_port != 0 {
            port.host_port = Some(port.container_port);
        }
    }
    common(
        container.image.as_deref(),
        &mut container.image_pull_policy,
        &mut container.termination_message_path,
        &mut container.termination_message_policy,
    );
    env_defaults(&mut container.env);
    let probes =
        [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    probes.into_iter().flatten().for_each(probe_defaults);
    lifecycle_defaults(&mut container.lifecycle);
}

fn ephemeral_defaults(container: &mut EphemeralContainer) {
    container.ports.iter_mut().flatten().for_each(port_defaults);
    common(
        container.image.as_deref(),
        &mut container.image_pull_policy,
        &mut container.termination_message_path,
        &mut container.termination_message_policy,
    );
    env_defaults(&mut container.env);
    let probes =
        [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    probes.into_iter().flatten().for_each(probe_defaults);
    lifecycle_defaults(&mut container.lifecycle);
}

fn common(
    image: Option<&str>,
    pull_policy: &mut Option<String>,
    message_path: &mut Option<String>,
    message_policy: &mut Option<String>,
) {
    set_if_empty(pull_policy, pull_policy_of(image.unwrap_or_default()));
    set_if_empty(message_path, "/dev/termination-log");
    set_if_empty(message_policy, "File");
}

/// The pull policy that an image has when none is given.
pub(super) fn pull_policy_of(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

fn port_defaults(port: &mut ContainerPort) {
    set_if_empty(&mut port.protocol, "TCP");
}

fn env_defaults(env: &mut Option<Vec<EnvVar>>) {
    for source in env.iter_mut().flatten().filter_map(|variable| variable.value_from.as_mut()) {
        if let Some(field) = &mut source.field_ref {
            set_if_empty(&mut field.api_version, "v1");
        }
        if let Some(file) = &mut source.file_key_ref {
            file.optional.get_or_insert(false);
        }
    }
}

fn probe_defaults(probe: &mut Probe) {
    set_if_zero(&mut probe.timeout_seconds, 1);
    set_if_zero(&mut probe.period_seconds, 10);
    set_if_zero(&mut probe.success_threshold, 1);
    set_if_zero(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(http_defaults);
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn lifecycle_defaults(lifecycle: &mut Option<Lifecycle>) {
    let Some(lifecycle) = lifecycle else { return };
    let handlers = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
    handlers.into_iter().flatten().filter_map(|handler| handler.http_get.as_mut()).for_each(http_defaults);
}

fn http_defaults(http: &mut HTTPGetAction) {
    set_if_empty(&mut http.path, "/");
    set_if_empty(&mut http.scheme, "HTTP");
}
