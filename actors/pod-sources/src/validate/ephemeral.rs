//! Validation of ephemeral containers. A new pod may not have any; other errors in them are reported all the same.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, PodSpec};

use super::containers::{self, OfPod};
use super::field::{Errors, Path, items, text};

const NOT_ALLOWED: &str = "cannot be set for an Ephemeral Container";

pub(super) fn validate(spec: &PodSpec, pod: &OfPod<'_>, path: &Path, errors: &mut Errors) {
    let lasting: BTreeSet<_> = items(&spec.init_containers)
        .iter()
        .chain(&spec.containers)
        .map(|container| container.name.as_str())
        .collect();
    let mut seen = lasting.clone();
    for (index, ephemeral) in items(&spec.ephemeral_containers).iter().enumerate() {
        let path = path.index(index);
        containers::common(&as_container(ephemeral), pod, &path, errors);
        if !seen.insert(ephemeral.name.as_str()) {
            errors.duplicate(&path.child("name"), &ephemeral.name);
        }
        let target = text(&ephemeral.target_container_name);
        if !target.is_empty() && !lasting.contains(target) {
            errors.not_found(&path.child("targetContainerName"), target, "");
        }
        not_allowed(ephemeral, &path, errors);
    }
}

fn not_allowed(ephemeral: &EphemeralContainer, path: &Path, errors: &mut Errors) {
    let resources = ephemeral.resources.as_ref();
    for (name, given) in [
        ("ports", !items(&ephemeral.ports).is_empty()),
        ("resources", resources.is_some_and(|resources| *resources != Default::default())),
        ("resizePolicy", !items(&ephemeral.resize_policy).is_empty()),
        ("restartPolicy", ephemeral.restart_policy.is_some()),
        ("restartPolicyRules", !items(&ephemeral.restart_policy_rules).is_empty()),
        ("livenessProbe", ephemeral.liveness_probe.is_some()),
        ("readinessProbe", ephemeral.readiness_probe.is_some()),
        ("startupProbe", ephemeral.startup_probe.is_some()),
        ("lifecycle", ephemeral.lifecycle.is_some()),
    ] {
        if given {
            errors.forbidden(&path.child(name), NOT_ALLOWED);
        }
    }
    for (index, mount) in items(&ephemeral.volume_mounts).iter().enumerate() {
        let path = path.child("volumeMounts").index(index);
        for (name, value) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
            if !text(value).is_empty() {
                errors.forbidden(&path.child(name), NOT_ALLOWED);
            }
        }
    }
}

/// The fields that an ephemeral container shares with the others.
fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let ephemeral = ephemeral.clone();
    Container {
        args: ephemeral.args,
        command: ephemeral.command,
        env: ephemeral.env,
        env_from: ephemeral.env_from,
        image: ephemeral.image,
        image_pull_policy: ephemeral.image_pull_policy,
        lifecycle: ephemeral.lifecycle,
        liveness_probe: ephemeral.liveness_probe,
        name: ephemeral.name,
        ports: ephemeral.ports,
        readiness_probe: ephemeral.readiness_probe,
        resize_policy: ephemeral.resize_policy,
        resources: ephemeral.resources,
        restart_policy: ephemeral.restart_policy,
        restart_policy_rules: ephemeral.restart_policy_rules,
        security_context: ephemeral.security_context,
        startup_probe: ephemeral.startup_probe,
        stdin: ephemeral.stdin,
        stdin_once: ephemeral.stdin_once,
        termination_message_path: ephemeral.termination_message_path,
        termination_message_policy: ephemeral.termination_message_policy,
        tty: ephemeral.tty,
        volume_devices: ephemeral.volume_devices,
        volume_mounts: ephemeral.volume_mounts,
        working_dir: ephemeral.working_dir,
    }
}
