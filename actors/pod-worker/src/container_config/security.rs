//! As whom a container runs, and what it may do (rows 17.1 to 17.5).

use k8s_openapi::api::core::v1::Pod;
use messages::image_manager::PresentImage;
use runtime_bridge::cri::wire::{
    Int64Value, LinuxContainerSecurityContext, NamespaceMode, SecurityProfile, security_profile::ProfileType,
};

use crate::sandbox_config::namespaces;

/// Paths of /proc and /sys that an ordinary container does not see.
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
/// Paths of /proc that an ordinary container only reads.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// That of a container without a security context: the image's user, else root; no seccomp profile. It sees the
/// processes of `target`, if that is given.
pub(super) fn security_context(
    pod: &Pod,
    image: &PresentImage,
    target: Option<&str>,
) -> LinuxContainerSecurityContext {
    let mut namespaces = namespaces(pod);
    if let Some(target) = target {
        namespaces.set_pid(NamespaceMode::Target);
        target.clone_into(&mut namespaces.target_id);
    }
    let uid = match (image.uid, image.username.is_empty()) {
        (Some(uid), _) => Some(uid),
        (None, true) => Some(0),
        (None, false) => None,
    };
    LinuxContainerSecurityContext {
        namespace_options: Some(namespaces),
        run_as_user: uid.map(|value| Int64Value { value }),
        run_as_username: if uid.is_some() { String::new() } else { image.username.clone() },
        masked_paths: MASKED_PATHS.map(str::to_owned).to_vec(),
        readonly_paths: READONLY_PATHS.map(str::to_owned).to_vec(),
        seccomp: Some(SecurityProfile {
            profile_type: ProfileType::Unconfined.into(),
            localhost_ref: String::new(),
        }),
        ..LinuxContainerSecurityContext::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pod;

    #[test]
    fn an_ephemeral_container_sees_its_targets_processes() {
        let image = PresentImage { image_ref: String::new(), uid: None, username: String::new() };
        let context = security_context(&pod("Always", vec![], vec![]), &image, Some("id"));
        let namespaces = context.namespace_options.expect("always given");
        assert_eq!((namespaces.pid(), namespaces.target_id.as_str()), (NamespaceMode::Target, "id"));
    }

    #[test]
    fn the_images_user_is_taken() {
        let user = |uid, username: &str| {
            let image = PresentImage { image_ref: String::new(), uid, username: username.into() };
            let context = security_context(&pod("Always", vec![], vec![]), &image, None);
            (context.run_as_user.map(|user| user.value), context.run_as_username)
        };
        assert_eq!(user(Some(7), ""), (Some(7), String::new()));
        assert_eq!(user(None, "nobody"), (None, "nobody".to_owned()));
        assert_eq!(user(None, ""), (Some(0), String::new()));
    }
}
