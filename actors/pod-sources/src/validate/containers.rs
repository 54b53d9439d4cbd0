//! Validation of containers: rules for all of them, and rules for regular and init containers only.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec, Volume};

use super::field::{Errors, Path, items, text};
use super::{env, mounts, names, probes, resources, restart, security};
use pod_spec::resources::is_sidecar;

/// The facts of a pod that the validation of its containers needs.
pub(super) struct OfPod<'a> {
    /// Valid volumes by name.
    pub(super) volumes: &'a BTreeMap<&'a str, &'a Volume>,
    /// Names of the pod's resource claims.
    pub(super) claims: BTreeSet<&'a str>,
    /// The pod's termination grace period in seconds, if it has one.
    pub(super) grace_period_seconds: Option<i64>,
    /// The operating system that the pod names.
    pub(super) os: Option<&'a str>,
    /// The pod's restart policy.
    pub(super) restart_policy: &'a str,
    /// Whether the pod runs in the host's user namespace.
    pub(super) host_users: bool,
}

pub(super) fn regular(containers: &[Container], pod: &OfPod<'_>, path: &Path, errors: &mut Errors) {
    if containers.is_empty() {
        return errors.required(path, "");
    }
    let mut seen = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        common(container, pod, &path, errors);
        if !seen.insert(container.name.as_str()) {
            errors.duplicate(&path.child("name"), &container.name);
        }
        hooks_and_probes(container, pod, &path, errors);
        restart::of_container(container, &path, errors);
    }
    // Regular containers run side by side, so they share the host's ports.
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        host_ports(items(&container.ports), &mut taken, &path.index(index), errors);
    }
}

pub(super) fn init(spec: &PodSpec, pod: &OfPod<'_>, path: &Path, errors: &mut Errors) {
    let mut seen: BTreeSet<_> = spec.containers.iter().map(|container| container.name.as_str()).collect();
    for (index, container) in items(&spec.init_containers).iter().enumerate() {
        let path = path.index(index);
        common(container, pod, &path, errors);
        restart::of_init_container(container, &path, errors);
        if !seen.insert(container.name.as_str()) && !container.name.is_empty() {
            errors.duplicate(&path.child("name"), &container.name);
        }
        // Init containers run one after another: only ports of the same container can conflict.
        host_ports(items(&container.ports), &mut BTreeSet::new(), &path, errors);
        if is_sidecar(container) {
            hooks_and_probes(container, pod, &path, errors);
        } else {
            only_for_sidecars(container, &path, errors);
        }
    }
}

fn only_for_sidecars(container: &Container, path: &Path, errors: &mut Errors) {
    for (name, given) in [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ] {
        if given {
            let message = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(&path.child(name), message);
        }
    }
    for (index, policy) in items(&container.resize_policy).iter().enumerate() {
        if policy.restart_policy == "RestartContainer" {
            let path = path.child("resizePolicy").index(index).child("restartPolicy");
            let message = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.invalid(&path, &policy.restart_policy, message);
        }
    }
}

fn hooks_and_probes(container: &Container, pod: &OfPod<'_>, path: &Path, errors: &mut Errors) {
    if let Some(lifecycle) = &container.lifecycle {
        let path = path.child("lifecycle");
        probes::lifecycle(lifecycle, pod.grace_period_seconds, pod.os, &path, errors);
    }
    if let Some(probe) = &container.liveness_probe {
        probes::liveness(probe, &path.child("livenessProbe"), errors);
    }
    if let Some(probe) = &container.readiness_probe {
        probes::readiness(probe, &path.child("readinessProbe"), errors);
    }
    if let Some(probe) = &container.startup_probe {
        probes::startup(probe, &path.child("startupProbe"), errors);
    }
}

/// Rules for containers of every kind.
pub(super) fn common(container: &Container, pod: &OfPod<'_>, path: &Path, errors: &mut Errors) {
    let name_path = path.child("name");
    if container.name.is_empty() {
        errors.required(&name_path, "");
    } else {
        errors.all_invalid(&name_path, &container.name, names::dns_label(&container.name));
    }
    let image = text(&container.image);
    errors.not_empty(&path.child("image"), image);
    if image.trim() != image {
        errors.invalid(&path.child("image"), image, "must not have leading or trailing whitespace");
    }
    let policies = &["File", "FallbackToLogsOnError"];
    let policy = text(&container.termination_message_policy);
    errors.required_one_of(&path.child("terminationMessagePolicy"), policy, policies);
    ports(items(&container.ports), &path.child("ports"), errors);
    env::variables(items(&container.env), &path.child("env"), errors);
    env::sources(items(&container.env_from), &path.child("envFrom"), errors);
    mounts::mounts(container, pod.volumes, &path.child("volumeMounts"), errors);
    mounts::devices(container, pod.volumes, &path.child("volumeDevices"), errors);
    pull_policy(text(&container.image_pull_policy), &path.child("imagePullPolicy"), errors);
    if let Some(required) = &container.resources {
        resources::of_container(required, &pod.claims, &path.child("resources"), errors);
    }
    restart::resize(container, pod.restart_policy, &path.child("resizePolicy"), errors);
    if let Some(context) = &container.security_context {
        security::of_container(context, pod.host_users, &path.child("securityContext"), errors);
    }
}

pub(super) fn pull_policy(policy: &str, path: &Path, errors: &mut Errors) {
    errors.required_one_of(path, policy, &["Always", "IfNotPresent", "Never"]);
}

fn ports(ports: &[ContainerPort], path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(&port.name);
        if !name.is_empty() {
            let messages = names::port_name(name);
            if messages.is_empty() && !seen.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
            errors.all_invalid(&path.child("name"), name, messages);
        }
        if port.container_port == 0 {
            errors.required(&path.child("containerPort"), "");
        } else {
            let messages = names::port_number(port.container_port);
            errors.all_invalid(&path.child("containerPort"), &port.container_port, messages);
        }
        if let Some(host_port) = port.host_port.filter(|port| *port != 0) {
            errors.all_invalid(&path.child("hostPort"), &host_port, names::port_number(host_port));
        }
        let protocol = text(&port.protocol);
        errors.required_one_of(&path.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
    }
}

fn host_ports(ports: &[ContainerPort], taken: &mut BTreeSet<String>, path: &Path, errors: &mut Errors) {
    for (index, port) in ports.iter().enumerate() {
        let host_port = port.host_port.unwrap_or(0);
        if host_port == 0 {
            continue;
        }
        let key = format!("{}/{}/{host_port}", text(&port.protocol), text(&port.host_ip));
        if taken.contains(&key) {
            errors.duplicate(&path.child("ports").index(index).child("hostPort"), &key);
        }
        taken.insert(key);
    }
}
