//! The checks of the level baseline.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{AppArmorProfile, LifecycleHandler, Probe, SELinuxOptions, SeccompProfile};
use pod_rules::annotations::{APPARMOR_PREFIX, PROFILE_LOCALHOST_PREFIX, PROFILE_RUNTIME_DEFAULT};

use super::subject::{Subject, Violation, named, note, plural, quoted, setters};

/// Annotation with the seccomp profile of a pod, of releases before the field.
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Prefix of the annotation with that of a container, whose name follows.
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// The runtime's default profile, as it was first called.
const DOCKER_DEFAULT: &str = "docker/default";

/// The capabilities that may be added.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The types of SELinux that may be set; the last one in newer versions.
const SELINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// The kernel's settings that may be set, the newest last.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// A type that is neither of the two that protect.
fn unprotected(profile: &str) -> Option<&str> {
    (!matches!(profile, "RuntimeDefault" | "Localhost")).then_some(profile)
}

fn forbidden_app_armor(profile: Option<&AppArmorProfile>) -> Option<&str> {
    profile.and_then(|profile| unprotected(&profile.type_))
}

pub(super) fn forbidden_seccomp(profile: Option<&SeccompProfile>) -> Option<&str> {
    profile.and_then(|profile| unprotected(&profile.type_))
}

pub(super) fn app_armor(subject: &Subject<'_>) -> Option<Violation> {
    let mut values: BTreeSet<&str> = BTreeSet::new();
    let of_pod = subject.context().and_then(|context| context.app_armor_profile.as_ref());
    let pod = note(&mut values, forbidden_app_armor(of_pod));
    let containers = subject.containers_that(|one| {
        let profile = one.context.and_then(|context| context.app_armor_profile.as_ref());
        note(&mut values, forbidden_app_armor(profile))
    });
    let is_allowed = |value: &str| {
        value.is_empty() || value == PROFILE_RUNTIME_DEFAULT || value.starts_with(PROFILE_LOCALHOST_PREFIX)
    };
    let annotations = subject.metadata.annotations.iter().flatten();
    let annotations =
        annotations.filter(|(key, value)| key.starts_with(APPARMOR_PREFIX) && !is_allowed(value));
    let annotations: BTreeSet<String> = annotations.map(|(key, value)| format!("{key}={value:?}")).collect();
    let of_annotations =
        (!annotations.is_empty()).then(|| plural("annotation", "annotations", annotations.len()).to_owned());
    let all: Vec<String> = setters(pod, &containers).into_iter().chain(of_annotations).collect();
    if all.is_empty() {
        return None;
    }
    let values: Vec<&str> = values.into_iter().chain(annotations.iter().map(String::as_str)).collect();
    Violation::new(
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len()),
        format!("{} must not set AppArmor profile type to {}", all.join(" and "), quoted(values)),
    )
}

pub(super) fn capabilities(subject: &Subject<'_>) -> Option<Violation> {
    let mut values: BTreeSet<&str> = BTreeSet::new();
    let containers = subject.containers_that(|one| {
        let added = one.context.and_then(|context| context.capabilities.as_ref());
        let added = added.into_iter().flat_map(|capabilities| capabilities.add.iter().flatten());
        let forbidden = added.map(String::as_str).filter(|one| !CAPABILITIES.contains(one));
        let forbidden: Vec<&str> = forbidden.collect();
        values.extend(&forbidden);
        !forbidden.is_empty()
    });
    if containers.is_empty() {
        return None;
    }
    let (containers, values) = (named(&containers), quoted(values));
    Violation::new(
        "non-default capabilities",
        format!("{containers} must not include {values} in securityContext.capabilities.add"),
    )
}

pub(super) fn host_namespaces(subject: &Subject<'_>) -> Option<Violation> {
    let spec = subject.spec;
    let shared = [("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)];
    let shared = shared.iter().filter(|(_, is_shared)| *is_shared == Some(true));
    let shared: Vec<String> = shared.map(|(name, _)| format!("{name}=true")).collect();
    if shared.is_empty() { None } else { Violation::new("host namespaces", shared.join(", ")) }
}

pub(super) fn host_paths(subject: &Subject<'_>) -> Option<Violation> {
    let volumes = subject.spec.volumes.iter().flatten().filter(|volume| volume.host_path.is_some());
    let volumes: Vec<&str> = volumes.map(|volume| volume.name.as_str()).collect();
    if volumes.is_empty() {
        return None;
    }
    let word = plural("volume", "volumes", volumes.len());
    Violation::new("hostPath volumes", format!("{word} {}", quoted(volumes)))
}

pub(super) fn host_ports(subject: &Subject<'_>) -> Option<Violation> {
    let mut ports: BTreeSet<String> = BTreeSet::new();
    let containers = subject.containers_that(|one| {
        let used = one.ports.iter().filter_map(|port| port.host_port).filter(|port| *port != 0);
        let used: Vec<String> = used.map(|port| port.to_string()).collect();
        let is_bad = !used.is_empty();
        ports.extend(used);
        is_bad
    });
    if containers.is_empty() {
        return None;
    }
    let (uses, word) =
        (plural("uses", "use", containers.len()), plural("hostPort", "hostPorts", ports.len()));
    let listed = ports.into_iter().collect::<Vec<_>>().join(", ");
    Violation::new("hostPort", format!("{} {uses} {word} {listed}", named(&containers)))
}

fn hosts_of_probe(probe: &Probe) -> [Option<&String>; 2] {
    [
        probe.http_get.as_ref().and_then(|get| get.host.as_ref()),
        probe.tcp_socket.as_ref().and_then(|socket| socket.host.as_ref()),
    ]
}

fn hosts_of_hook(hook: &LifecycleHandler) -> [Option<&String>; 2] {
    [
        hook.http_get.as_ref().and_then(|get| get.host.as_ref()),
        hook.tcp_socket.as_ref().and_then(|socket| socket.host.as_ref()),
    ]
}

pub(super) fn probed_hosts(subject: &Subject<'_>) -> Option<Violation> {
    let mut hosts: BTreeSet<&str> = BTreeSet::new();
    let containers = subject.containers_that(|one| {
        let hooks = one.lifecycle.map(|hooks| [&hooks.post_start, &hooks.pre_stop]);
        let hooks = hooks.into_iter().flatten().flatten().flat_map(hosts_of_hook);
        let probes = one.probes.into_iter().flatten().flat_map(hosts_of_probe);
        let named = probes.chain(hooks).flatten().map(String::as_str).filter(|host| !host.is_empty());
        let named: Vec<&str> = named.collect();
        hosts.extend(&named);
        !named.is_empty()
    });
    if containers.is_empty() {
        return None;
    }
    // Unlike elsewhere, each container is told once, by its name.
    let containers: BTreeSet<&str> = containers.into_iter().collect();
    let containers: Vec<&str> = containers.into_iter().collect();
    let uses = plural("uses", "use", containers.len());
    let word = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    Violation::new(
        "probe or lifecycle host",
        format!("{} {uses} {word} {}", named(&containers), quoted(hosts)),
    )
}

pub(super) fn privileged(subject: &Subject<'_>) -> Option<Violation> {
    let containers =
        subject.containers_that(|one| one.context.is_some_and(|context| context.privileged == Some(true)));
    if containers.is_empty() {
        return None;
    }
    Violation::new(
        "privileged",
        format!("{} must not set securityContext.privileged=true", named(&containers)),
    )
}

pub(super) fn proc_mount(subject: &Subject<'_>) -> Option<Violation> {
    let mut values: BTreeSet<&str> = BTreeSet::new();
    let containers = subject.containers_that(|one| {
        let mount = one.context.and_then(|context| context.proc_mount.as_deref());
        note(&mut values, mount.filter(|mount| *mount != "Default"))
    });
    if containers.is_empty() {
        return None;
    }
    let (containers, values) = (named(&containers), quoted(values));
    Violation::new("procMount", format!("{containers} must not set securityContext.procMount to {values}"))
}

pub(super) fn proc_mount_without_user_namespace(subject: &Subject<'_>) -> Option<Violation> {
    if subject.has_user_namespace() { None } else { proc_mount(subject) }
}

pub(super) fn selinux(subject: &Subject<'_>) -> Option<Violation> {
    selinux_with(subject, &SELINUX_TYPES[..4])
}

pub(super) fn selinux_with_engines(subject: &Subject<'_>) -> Option<Violation> {
    selinux_with(subject, &SELINUX_TYPES)
}

fn selinux_with(subject: &Subject<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut has_user, mut has_role) = (BTreeSet::new(), false, false);
    let mut is_bad = |options: Option<&SELinuxOptions>| {
        let Some(options) = options else { return false };
        let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let of_type = options.type_.clone().unwrap_or_default();
        let is_allowed = allowed.contains(&of_type.as_str());
        if !is_allowed {
            types.insert(of_type);
        }
        let (user, role) = (is_set(&options.user), is_set(&options.role));
        has_user |= user;
        has_role |= role;
        !is_allowed || user || role
    };
    let pod = is_bad(subject.context().and_then(|context| context.se_linux_options.as_ref()));
    let containers = subject
        .containers_that(|one| is_bad(one.context.and_then(|context| context.se_linux_options.as_ref())));
    let setters = setters(pod, &containers)?;
    let of_types =
        (!types.is_empty()).then(|| format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    let user = has_user.then(|| "user may not be set".to_owned());
    let role = has_role.then(|| "role may not be set".to_owned());
    let bad: Vec<String> = of_types.into_iter().chain(user).chain(role).collect();
    Violation::new(
        "seLinuxOptions",
        format!("{setters} set forbidden securityContext.seLinuxOptions: {}", bad.join("; ")),
    )
}

pub(super) fn seccomp_annotations(subject: &Subject<'_>) -> Option<Violation> {
    let is_allowed = |value: &str| {
        [PROFILE_RUNTIME_DEFAULT, DOCKER_DEFAULT].contains(&value)
            || value.starts_with(PROFILE_LOCALHOST_PREFIX)
    };
    let of_containers = subject.containers.iter().map(|one| format!("{SECCOMP_CONTAINER}{}", one.name));
    let forbidden = of_containers.chain([SECCOMP_POD.to_owned()]).filter_map(|key| {
        let value = subject.metadata.annotations.as_ref()?.get(&key).filter(|value| !is_allowed(value))?;
        Some(format!("{key}={value:?}"))
    });
    let forbidden: BTreeSet<String> = forbidden.collect();
    if forbidden.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", forbidden.len());
    let listed = forbidden.into_iter().collect::<Vec<_>>().join(", ");
    Violation::new("seccompProfile", format!("forbidden {word} {listed}"))
}

pub(super) fn seccomp(subject: &Subject<'_>) -> Option<Violation> {
    let mut values: BTreeSet<&str> = BTreeSet::new();
    let of_pod = subject.context().and_then(|context| context.seccomp_profile.as_ref());
    let pod = note(&mut values, forbidden_seccomp(of_pod));
    let containers = subject.containers_that(|one| {
        let profile = one.context.and_then(|context| context.seccomp_profile.as_ref());
        note(&mut values, forbidden_seccomp(profile))
    });
    let setters = setters(pod, &containers)?;
    Violation::new(
        "seccompProfile",
        format!("{setters} must not set securityContext.seccompProfile.type to {}", quoted(values)),
    )
}

fn sysctls(subject: &Subject<'_>, allowed: &[&str]) -> Option<Violation> {
    let set = subject.context().into_iter().flat_map(|context| context.sysctls.iter().flatten());
    let forbidden = set.map(|one| one.name.as_str()).filter(|name| !allowed.contains(name));
    let forbidden: Vec<&str> = forbidden.collect();
    if forbidden.is_empty() { None } else { Violation::new("forbidden sysctls", forbidden.join(", ")) }
}

pub(super) fn sysctls_0(subject: &Subject<'_>) -> Option<Violation> {
    sysctls(subject, &SYSCTLS[..5])
}

pub(super) fn sysctls_27(subject: &Subject<'_>) -> Option<Violation> {
    sysctls(subject, &SYSCTLS[..6])
}

pub(super) fn sysctls_29(subject: &Subject<'_>) -> Option<Violation> {
    sysctls(subject, &SYSCTLS[..10])
}

pub(super) fn sysctls_32(subject: &Subject<'_>) -> Option<Violation> {
    sysctls(subject, &SYSCTLS)
}

pub(super) fn host_process(subject: &Subject<'_>) -> Option<Violation> {
    let of_pod = subject.context().and_then(|context| context.windows_options.as_ref());
    let pod = of_pod.is_some_and(|options| options.host_process == Some(true));
    let containers = subject.containers_that(|one| {
        let options = one.context.and_then(|context| context.windows_options.as_ref());
        options.is_some_and(|options| options.host_process == Some(true))
    });
    let setters = setters(pod, &containers)?;
    Violation::new(
        "hostProcess",
        format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"),
    )
}
