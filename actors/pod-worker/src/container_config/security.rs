//! The user, groups and privileges of a container (rows 17.1 to 17.5).

use bridge_cri::wire::{
    Capability, Int64Value, LinuxContainerSecurityContext, NamespaceMode, NamespaceOption,
};
use k8s_openapi::api::core::v1::{Capabilities, Container, Pod, PodSecurityContext, SecurityContext};
use messages::PodRef;
use messages::image_manager::PresentImage;

use super::ConfigError;
use super::profiles::{apparmor, seccomp};
use crate::node_rules::NodeRules;
use crate::sandbox_config::namespaces;
use crate::security_groups::{groups, groups_policy, selinux};

/// Paths of /proc and /sys that are hidden from an ordinary container.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// Paths of /proc that are read-only for an ordinary container.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// The largest user ID that Kubernetes allows.
const USER_ID_MAX: i64 = i32::MAX as i64;

/// The security context of a container. `target` is the ID of the container whose processes an ephemeral one
/// sees.
pub(super) fn security_context(
    pod: &Pod,
    container: &Container,
    image: &PresentImage,
    target: Option<&str>,
    rules: &NodeRules,
) -> Result<LinuxContainerSecurityContext, ConfigError> {
    let of_pod = pod_context(pod);
    let context = effective(of_pod, container);
    let is = |flag: Option<bool>| flag.unwrap_or(false);
    let (masked_paths, readonly_paths) = proc_paths(context.proc_mount.as_deref(), rules);
    let (run_as_user, run_as_username) = user(&context, image);
    let (apparmor, old_apparmor) = apparmor(pod, container)?.unzip();
    #[expect(deprecated, reason = "older runtimes know no other field")]
    Ok(LinuxContainerSecurityContext {
        capabilities: context.capabilities.as_ref().map(capabilities),
        privileged: is(context.privileged),
        namespace_options: Some(namespaces_seen(pod, target)),
        selinux_options: context.se_linux_options.as_ref().map(selinux),
        run_as_user: run_as_user.map(|value| Int64Value { value }),
        run_as_group: context.run_as_group.map(|value| Int64Value { value }),
        run_as_username,
        readonly_rootfs: is(context.read_only_root_filesystem),
        supplemental_groups: groups(of_pod),
        supplemental_groups_policy: groups_policy(of_pod)?.into(),
        no_new_privs: context.allow_privilege_escalation == Some(false),
        masked_paths,
        readonly_paths,
        seccomp: Some(seccomp(pod, container, rules)?),
        apparmor,
        apparmor_profile: old_apparmor.unwrap_or_default(),
        ..LinuxContainerSecurityContext::default()
    })
}

/// Refuses a container that must not run as root and would, or might. User names are not looked up in the
/// image, so only a numeric user counts as not root.
pub(super) fn verify_non_root(
    pod: &Pod,
    pod_ref: &PodRef,
    container: &Container,
    image: &PresentImage,
) -> Result<(), ConfigError> {
    let context = effective(pod_context(pod), container);
    if context.run_as_non_root != Some(true) {
        return Ok(());
    }
    let names = || (pod_ref.to_string(), container.name.clone());
    let refused = |make: fn(String, String) -> ConfigError| {
        let (pod, container) = names();
        Err(make(pod, container))
    };
    match (context.run_as_user, image_user(image)) {
        (Some(0), _) => refused(|pod, container| ConfigError::RunAsRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, ImageUser::Id(0)) => refused(|pod, container| ConfigError::ImageRunsAsRoot { pod, container }),
        (None, ImageUser::Id(uid)) if !(0..=USER_ID_MAX).contains(&uid) => {
            let (pod, container) = names();
            Err(ConfigError::ImageUserInvalid { uid, pod, container })
        }
        (None, ImageUser::Id(_)) => Ok(()),
        (None, ImageUser::Name(user)) => {
            let (pod, container) = names();
            Err(ConfigError::ImageUserUnknown { user: user.to_owned(), pod, container })
        }
    }
}

enum ImageUser<'a> {
    Id(i64),
    Name(&'a str),
}

/// The image's user. An image without a user runs as root.
fn image_user(image: &PresentImage) -> ImageUser<'_> {
    match image.uid {
        Some(uid) => ImageUser::Id(uid),
        None if image.username.is_empty() => ImageUser::Id(0),
        None => ImageUser::Name(&image.username),
    }
}

fn user(context: &SecurityContext, image: &PresentImage) -> (Option<i64>, String) {
    match (context.run_as_user, image_user(image)) {
        (Some(uid), _) | (None, ImageUser::Id(uid)) => (Some(uid), String::new()),
        (None, ImageUser::Name(name)) => (None, name.to_owned()),
    }
}

fn pod_context(pod: &Pod) -> Option<&PodSecurityContext> {
    pod.spec.as_ref()?.security_context.as_ref()
}

/// The container's own security context, filled up with the pod's.
fn effective(of_pod: Option<&PodSecurityContext>, container: &Container) -> SecurityContext {
    let mut context = container.security_context.clone().unwrap_or_default();
    if let Some(of_pod) = of_pod {
        context.se_linux_options = context.se_linux_options.or_else(|| of_pod.se_linux_options.clone());
        context.run_as_user = context.run_as_user.or(of_pod.run_as_user);
        context.run_as_group = context.run_as_group.or(of_pod.run_as_group);
        context.run_as_non_root = context.run_as_non_root.or(of_pod.run_as_non_root);
    }
    context
}

/// The namespaces of the container. It sees its target's processes only if it would else see none but its
/// own.
fn namespaces_seen(pod: &Pod, target: Option<&str>) -> NamespaceOption {
    let mut options = namespaces(pod);
    if let Some(id) = target
        && options.pid() == NamespaceMode::Container
    {
        options.set_pid(NamespaceMode::Target);
        options.target_id = id.to_owned();
    }
    options
}

fn capabilities(asked: &Capabilities) -> Capability {
    Capability {
        add_capabilities: asked.add.clone().unwrap_or_default(),
        drop_capabilities: asked.drop.clone().unwrap_or_default(),
        ..Capability::default()
    }
}

/// The hidden paths and the read-only paths.
fn proc_paths(proc_mount: Option<&str>, rules: &NodeRules) -> (Vec<String>, Vec<String>) {
    if proc_mount == Some("Unmasked") {
        return (Vec::new(), Vec::new());
    }
    let masked = MASKED_PATHS.map(str::to_owned).into_iter().chain(rules.thermal_paths.iter().cloned());
    (masked.collect(), READONLY_PATHS.map(str::to_owned).to_vec())
}

#[cfg(test)]
mod tests;
