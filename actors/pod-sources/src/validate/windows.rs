//! Validation of `spec.os` and of fields for Windows only. The kubelet runs on Linux; the API's rules apply all the
//! same.

use k8s_openapi::api::core::v1::{PodSpec, SecurityContext, WindowsSecurityContextOptions};
use pod_rules::labels::LINUX;

use super::field::{Errors, Path, text};
use super::{names, spec};

const GMSA_SPEC_BYTES_MAX: usize = 64 * 1024;
const USER_DOMAIN_BYTES: usize = 256;
const USER_BYTES_MAX: usize = 104;

pub(super) fn os(pod: &PodSpec, path: &Path, errors: &mut Errors) {
    match pod.os.as_ref().map(|os| os.name.as_str()) {
        None => {}
        Some("") => errors.required(&path.child("os").child("name"), ""),
        Some(LINUX) => linux(pod, path, errors),
        Some("windows") => windows(pod, path, errors),
        Some(other) => errors.unsupported(&path.child("os"), other, &[LINUX, "windows"]),
    }
}

fn linux(pod: &PodSpec, path: &Path, errors: &mut Errors) {
    let message = "windows options cannot be set for a linux pod";
    if pod.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
        errors.forbidden(&path.child("securityContext").child("windowsOptions"), message);
    }
    for (_, context, path) in spec::containers(pod) {
        if context.is_some_and(|context| context.windows_options.is_some()) {
            errors.forbidden(&path.child("securityContext").child("windowsOptions"), message);
        }
    }
}

fn windows(pod: &PodSpec, path: &Path, errors: &mut Errors) {
    let message = "cannot be set for a windows pod";
    for (name, given) in [
        ("hostUsers", pod.host_users.is_some()),
        ("hostPID", pod.host_pid == Some(true)),
        ("hostIPC", pod.host_ipc == Some(true)),
        ("shareProcessNamespace", pod.share_process_namespace.is_some()),
    ] {
        if given {
            errors.forbidden(&path.child(name), message);
        }
    }
    if let Some(context) = &pod.security_context {
        let path = path.child("securityContext");
        for (name, given) in [
            ("appArmorProfile", context.app_armor_profile.is_some()),
            ("seLinuxOptions", context.se_linux_options.is_some()),
            ("seccompProfile", context.seccomp_profile.is_some()),
            ("fsGroup", context.fs_group.is_some()),
            ("fsGroupChangePolicy", context.fs_group_change_policy.is_some()),
            ("sysctls", context.sysctls.as_ref().is_some_and(|sysctls| !sysctls.is_empty())),
            ("runAsUser", context.run_as_user.is_some()),
            ("runAsGroup", context.run_as_group.is_some()),
            ("supplementalGroups", context.supplemental_groups.is_some()),
            ("supplementalGroupsPolicy", context.supplemental_groups_policy.is_some()),
            ("seLinuxChangePolicy", context.se_linux_change_policy.is_some()),
        ] {
            if given {
                errors.forbidden(&path.child(name), message);
            }
        }
    }
    for (_, context, path) in spec::containers(pod) {
        if let Some(context) = context {
            windows_container(context, &path.child("securityContext"), errors);
        }
    }
}

fn windows_container(context: &SecurityContext, path: &Path, errors: &mut Errors) {
    for (name, given) in [
        ("appArmorProfile", context.app_armor_profile.is_some()),
        ("seLinuxOptions", context.se_linux_options.is_some()),
        ("seccompProfile", context.seccomp_profile.is_some()),
        ("capabilities", context.capabilities.is_some()),
        ("readOnlyRootFilesystem", context.read_only_root_filesystem.is_some()),
        ("privileged", context.privileged.is_some()),
        ("allowPrivilegeEscalation", context.allow_privilege_escalation.is_some()),
        ("procMount", context.proc_mount.is_some()),
        ("runAsUser", context.run_as_user.is_some()),
        ("runAsGroup", context.run_as_group.is_some()),
    ] {
        if given {
            errors.forbidden(&path.child(name), "cannot be set for a windows pod");
        }
    }
}

pub(super) fn host_process(pod: &PodSpec, path: &Path, errors: &mut Errors) {
    let of_pod = pod.security_context.as_ref().and_then(|context| context.windows_options.as_ref());
    let of_pod = of_pod.and_then(|options| options.host_process);
    let (mut containers, mut host_processes) = (0, 0);
    for (_, context, path) in spec::containers(pod) {
        containers += 1;
        let own = context.and_then(|context| context.windows_options.as_ref());
        let own = own.and_then(|options| options.host_process);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let path = path.child("securityContext").child("windowsOptions").child("hostProcess");
            let message =
                format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            errors.invalid(&path, &own, message);
        }
        host_processes += usize::from(own.or(of_pod) == Some(true));
    }
    if host_processes == 0 {
        return;
    }
    if host_processes != containers {
        let message =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", message);
    }
    if pod.host_network != Some(true) {
        let message = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.child("hostNetwork"), &false, message);
    }
}

pub(super) fn options(options: &WindowsSecurityContextOptions, path: &Path, errors: &mut Errors) {
    if let Some(name) = &options.gmsa_credential_spec_name {
        errors.all_invalid(&path.child("gmsaCredentialSpecName"), name, names::dns_subdomain(name));
    }
    if let Some(spec) = &options.gmsa_credential_spec {
        let path = path.child("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(&path, "", "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > GMSA_SPEC_BYTES_MAX {
            errors.invalid(&path, "", "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if options.run_as_user_name.is_some() {
        let name = text(&options.run_as_user_name);
        for message in user_name(name) {
            errors.invalid(&path.child("runAsUserName"), name, format!("runAsUserName{message}"));
        }
    }
}

/// The errors of a user name, `DOMAIN\user` or `user`.
fn user_name(name: &str) -> Vec<String> {
    let one = |message: &str| vec![message.to_owned()];
    if name.is_empty() {
        return one(" cannot be an empty string");
    }
    if name.bytes().any(|byte| byte.is_ascii_control()) {
        return one(" cannot contain control characters");
    }
    let parts: Vec<_> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return one(" cannot contain more than one backslash"),
    };
    let mut messages = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= USER_DOMAIN_BYTES {
            messages.push(format!("'s Domain length must be under {USER_DOMAIN_BYTES} characters"));
        }
        let net_bios = (1..=15).contains(&domain.chars().count())
            && !domain.starts_with('.')
            && !domain.contains(['/', ':', '*', '?', '"', '<', '>', '|']);
        let label = |label: &str| label.len() <= names::LABEL_BYTES_MAX && names::dns_label(label).is_empty();
        if !net_bios && !domain.to_lowercase().split('.').all(label) {
            messages.push("'s Domain doesn't match the NetBios nor the DNS format".to_owned());
        }
    }
    if user.is_empty() {
        messages.push("'s User cannot be empty".to_owned());
    } else if user.len() > USER_BYTES_MAX {
        messages.push(format!("'s User length must not be longer than {USER_BYTES_MAX} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        messages.push("'s User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        messages.push("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]".to_owned());
    }
    messages
}
