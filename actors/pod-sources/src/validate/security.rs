//! Validation of security contexts.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    AppArmorProfile, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
};

use super::field::{Errors, Path, items};
use super::{names, paths, windows};

/// Longest path of Linux, in bytes, without its terminating zero.
const PATH_BYTES_MAX: usize = 4095;
const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

pub(super) fn of_pod(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let message = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), &true, message);
    }
    let Some(context) = &spec.security_context else { return };
    let path = path.child("securityContext");
    for (name, id) in [
        ("fsGroup", context.fs_group),
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
    ] {
        if let Some(id) = id {
            errors.all_invalid(&path.child(name), &id, names::user_or_group(id));
        }
    }
    for (index, id) in items(&context.supplemental_groups).iter().enumerate() {
        let path = path.child("supplementalGroups").index(index);
        errors.all_invalid(&path, id, names::user_or_group(*id));
    }
    sysctls(spec, context, &path.child("sysctls"), errors);
    for (name, value, supported) in [
        ("fsGroupChangePolicy", &context.fs_group_change_policy, &["Always", "OnRootMismatch"][..]),
        ("supplementalGroupsPolicy", &context.supplemental_groups_policy, &["Merge", "Strict"]),
        // MountOption needs the feature SELinuxMount, which is off by default.
        ("seLinuxChangePolicy", &context.se_linux_change_policy, &["Recursive"]),
    ] {
        if let Some(value) = value {
            errors.one_of(&path.child(name), value, supported);
        }
    }
    if let Some(profile) = &context.seccomp_profile {
        seccomp(profile, &path.child("seccompProfile"), errors);
    }
    if let Some(options) = &context.windows_options {
        windows::options(options, &path.child("windowsOptions"), errors);
    }
    if let Some(profile) = &context.app_armor_profile {
        app_armor(profile, &path.child("appArmorProfile"), errors);
    }
}

fn sysctls(spec: &PodSpec, context: &PodSecurityContext, path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in items(&context.sysctls).iter().enumerate() {
        let (name, path) = (sysctl.name.as_str(), path.index(index).child("name"));
        if name.is_empty() {
            errors.required(&path, "");
        } else if !names::is_sysctl(name) {
            let segment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
            let max = names::SUBDOMAIN_BYTES_MAX;
            let message =
                format!("must have at most {max} characters and match regex ^({segment}[\\./])*{segment}$");
            errors.invalid(&path, name, message);
        } else if !seen.insert(name) {
            errors.duplicate(&path, name);
        }
        let dotted = name.replace('/', ".");
        if spec.host_network == Some(true) && dotted.starts_with("net.") {
            errors.invalid(&path, name, "may not be specified when 'hostNetwork' is true");
        }
        let of_ipc = dotted.starts_with("fs.mqueue.")
            || dotted.starts_with("kernel.shm")
            || dotted.starts_with("kernel.msg")
            || dotted == "kernel.sem";
        if spec.host_ipc == Some(true) && of_ipc {
            errors.invalid(&path, name, "may not be specified when 'hostIPC' is true");
        }
    }
}

pub(super) fn of_container(context: &SecurityContext, host_users: bool, path: &Path, errors: &mut Errors) {
    for (name, id) in [("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group)] {
        if let Some(id) = id {
            errors.all_invalid(&path.child(name), &id, names::user_or_group(id));
        }
    }
    if let Some(mount) = &context.proc_mount {
        let path = path.child("procMount");
        errors.one_of(&path, mount, &["Default", "Unmasked"]);
        if host_users && mount == "Unmasked" {
            errors.invalid(&path, mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    if let Some(profile) = &context.seccomp_profile {
        seccomp(profile, &path.child("seccompProfile"), errors);
    }
    if context.allow_privilege_escalation == Some(false) {
        let path = path.child("allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            let message = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(&path, &false, message);
        }
        let added = context.capabilities.as_ref().map_or(&[][..], |capabilities| items(&capabilities.add));
        if added.iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            let message =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(&path, &false, message);
        }
    }
    if let Some(options) = &context.windows_options {
        windows::options(options, &path.child("windowsOptions"), errors);
    }
    if let Some(profile) = &context.app_armor_profile {
        app_armor(profile, &path.child("appArmorProfile"), errors);
    }
}

fn seccomp(profile: &SeccompProfile, path: &Path, errors: &mut Errors) {
    if profile.type_.is_empty() {
        errors.required(&path.child("type"), "type is required when seccompProfile is set");
    } else {
        errors.one_of(&path.child("type"), &profile.type_, &PROFILE_TYPES);
    }
    let file_path = path.child("localhostProfile");
    match (&profile.localhost_profile, profile.type_ == "Localhost") {
        (None, true) => errors.required(&file_path, "must be set when seccomp type is Localhost"),
        (Some(file), true) => paths::local_descending(file, &file_path, errors),
        (Some(file), false) => {
            errors.invalid(&file_path, file, "can only be set when seccomp type is Localhost");
        }
        (None, false) => {}
    }
}

fn app_armor(profile: &AppArmorProfile, path: &Path, errors: &mut Errors) {
    let name_path = path.child("localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("", _) => errors.required(&path.child("type"), "type is required when appArmorProfile is set"),
        ("Localhost", Some(name)) if name.trim() != name => {
            errors.invalid(&name_path, name, "must not be padded with whitespace");
        }
        ("Localhost", Some(name)) if !name.is_empty() => {
            if name.len() > PATH_BYTES_MAX {
                errors.too_long(&name_path, PATH_BYTES_MAX);
            }
        }
        ("Localhost", _) => errors.required(&name_path, "must be set when AppArmor type is Localhost"),
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            errors.invalid(&name_path, name, "can only be set when AppArmor type is Localhost");
        }
        (type_, _) => errors.one_of(&path.child("type"), type_, &PROFILE_TYPES),
    }
}
