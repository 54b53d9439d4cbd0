//! Validation of the fields of a pod's spec that concern the pod as a whole.

use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec, SecurityContext};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_rules::restart::RestartPolicy;

use super::field::{Errors, Path, items, text};
use super::{
    claims, containers, env, ephemeral, metadata, names, resources, scheduling, security, volumes, windows,
};

/// The most name servers, search domains, and characters of all search domains that libc resolves with.
const DNS_NAMESERVERS_MAX: usize = 3;
const DNS_SEARCHES_MAX: usize = 32;
const DNS_SEARCH_CHARS_MAX: usize = 2048;
/// Longest host name of Linux, in bytes.
const HOSTNAME_BYTES_MAX: usize = 64;

/// Name, security context and path of every container: init, regular, ephemeral.
pub(super) fn containers(
    spec: &PodSpec,
) -> impl Iterator<Item = (&str, Option<&SecurityContext>, Path)> + use<'_> {
    let at = |list: &str, index: usize| Path::new("spec").child(list).index(index);
    let init = items(&spec.init_containers).iter().enumerate();
    let init =
        init.map(move |(i, c)| (c.name.as_str(), c.security_context.as_ref(), at("initContainers", i)));
    let regular = spec.containers.iter().enumerate();
    let regular =
        regular.map(move |(i, c)| (c.name.as_str(), c.security_context.as_ref(), at("containers", i)));
    let ephemeral = items(&spec.ephemeral_containers).iter().enumerate();
    let ephemeral = ephemeral
        .map(move |(i, c)| (c.name.as_str(), c.security_context.as_ref(), at("ephemeralContainers", i)));
    init.chain(regular).chain(ephemeral)
}

pub(super) fn validate(spec: &PodSpec, meta: &ObjectMeta, path: &Path, errors: &mut Errors) {
    if spec.termination_grace_period_seconds.is_none() {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let volumes = volumes::validate(items(&spec.volumes), meta, &path.child("volumes"), errors);
    claims::validate(spec, meta, &path.child("resourceClaims"), errors);
    let pod = containers::OfPod {
        volumes: &volumes,
        claims: claims::names(spec),
        grace_period_seconds: spec.termination_grace_period_seconds,
        os: spec.os.as_ref().map(|os| os.name.as_str()),
        restart_policy: text(&spec.restart_policy),
        host_users: spec.host_users.unwrap_or(true),
    };
    containers::regular(&spec.containers, &pod, &path.child("containers"), errors);
    containers::init(spec, &pod, &path.child("initContainers"), errors);
    ephemeral::validate(spec, &pod, &path.child("ephemeralContainers"), errors);
    resources::of_pod(spec, &path.child("resources"), errors);
    host_network_ports(spec, path, errors);
    let policies = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never];
    let restart = &policies.map(RestartPolicy::as_str);
    errors.required_one_of(&path.child("restartPolicy"), text(&spec.restart_policy), restart);
    let dns = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.required_one_of(&path.child("dnsPolicy"), text(&spec.dns_policy), dns);
    metadata::labels(spec.node_selector.as_ref(), &path.child("nodeSelector"), errors);
    security::of_pod(spec, path, errors);
    dns_config(spec, &path.child("dnsConfig"), errors);
    scheduling::validate(spec, path, errors);
    windows::host_process(spec, path, errors);
    host_users(spec, path, errors);
    host_names(spec, path, errors);
    object_names(spec, path, errors);
    numbers_and_policies(spec, path, errors);
    windows::os(spec, path, errors);
    env::files_from_empty_dirs(spec, path, errors);
    tokens_need_an_account(spec, &path.child("volumes"), errors);
}

/// In the host's network the ports of containers are the host's.
fn host_network_ports(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    if spec.host_network != Some(true) {
        return;
    }
    for (index, container) in spec.containers.iter().enumerate() {
        let path = path.child("containers").index(index).child("ports");
        for (index, port) in items(&container.ports).iter().enumerate() {
            let host_port = port.host_port.unwrap_or(0);
            if host_port != port.container_port {
                let message = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&path.index(index).child("hostPort"), &host_port, message);
            }
        }
    }
}

fn dns_config(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    let own_only = text(&spec.dns_policy) == "None";
    let Some(config) = &spec.dns_config else {
        if own_only {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        return;
    };
    if own_only && items(&config.nameservers).is_empty() {
        let message = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        return errors.required(&path.child("nameservers"), message);
    }
    resolver(config, path, errors);
}

fn resolver(config: &PodDNSConfig, path: &Path, errors: &mut Errors) {
    let (servers, searches) = (items(&config.nameservers), items(&config.searches));
    let (servers_path, searches_path) = (path.child("nameservers"), path.child("searches"));
    if servers.len() > DNS_NAMESERVERS_MAX {
        let message = format!("must not have more than {DNS_NAMESERVERS_MAX} nameservers");
        errors.invalid(&servers_path, &servers.to_vec(), message);
    }
    for (index, server) in servers.iter().enumerate() {
        errors.all_invalid(&servers_path.index(index), server, names::ip_address(server));
    }
    if searches.len() > DNS_SEARCHES_MAX {
        let message = format!("must not have more than {DNS_SEARCHES_MAX} search paths");
        errors.invalid(&searches_path, &searches.to_vec(), message);
    }
    if searches.join(" ").len() > DNS_SEARCH_CHARS_MAX {
        let message = format!(
            "must not have more than {DNS_SEARCH_CHARS_MAX} characters (including spaces) in the search list"
        );
        errors.invalid(&searches_path, &searches.to_vec(), message);
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let messages = names::dns_subdomain_with_underscore(search);
        errors.all_invalid(&searches_path.index(index), search, messages);
    }
    for (index, option) in items(&config.options).iter().enumerate() {
        if text(&option.name).is_empty() {
            errors.required(&path.child("options").index(index), "must not be empty");
        }
    }
}

/// A pod in a user namespace of its own must not use the host's other namespaces.
fn host_users(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    if spec.host_users != Some(false) {
        return;
    }
    let host = [("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)];
    for (name, _) in host.into_iter().filter(|(_, value)| *value == Some(true)) {
        errors.forbidden(&path.child(name), "when `hostUsers` is false");
    }
    for (list, containers) in
        [("initContainers", items(&spec.init_containers)), ("containers", spec.containers.as_slice())]
    {
        for (index, container) in containers.iter().enumerate() {
            if !items(&container.volume_devices).is_empty() {
                let path = path.child(list).index(index).child("volumeDevices");
                errors.forbidden(&path, "when `hostUsers` is false");
            }
        }
    }
}

fn host_names(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    for (name, value) in [("hostname", text(&spec.hostname)), ("subdomain", text(&spec.subdomain))] {
        if !value.is_empty() {
            errors.all_invalid(&path.child(name), value, names::dns_label(value));
        }
    }
    if let Some(name) = &spec.hostname_override {
        let path = path.child("hostnameOverride");
        if spec.set_hostname_as_fqdn == Some(true) {
            errors.forbidden(&path, "may not be specified when setHostnameAsFQDN is true");
        }
        if spec.host_network == Some(true) {
            errors.forbidden(&path, "may not be specified when hostNetwork is true");
        }
        if name.len() > HOSTNAME_BYTES_MAX {
            errors.too_long(&path, HOSTNAME_BYTES_MAX);
        }
        errors.all_invalid(&path, name, names::dns_subdomain(name));
    }
    for (index, alias) in items(&spec.host_aliases).iter().enumerate() {
        let path = path.child("hostAliases").index(index);
        errors.all_invalid(&path.child("ip"), &alias.ip, names::ip_address(&alias.ip));
        for (index, name) in items(&alias.hostnames).iter().enumerate() {
            errors.all_invalid(&path.child("hostnames").index(index), name, names::dns_subdomain(name));
        }
    }
}

/// Validates names of other objects.
fn object_names(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    for (name, value) in [
        ("serviceAccountName", text(&spec.service_account_name)),
        ("nodeName", text(&spec.node_name)),
        ("priorityClassName", text(&spec.priority_class_name)),
    ] {
        if !value.is_empty() {
            errors.all_invalid(&path.child(name), value, names::dns_subdomain(value));
        }
    }
    if let Some(name) = &spec.runtime_class_name {
        errors.all_invalid(&path.child("runtimeClassName"), name, names::dns_subdomain(name));
    }
    if let Some(group) = &spec.scheduling_group {
        let path = path.child("schedulingGroup").child("podGroupName");
        match &group.pod_group_name {
            Some(name) => errors.all_invalid(&path, name, names::dns_subdomain(name)),
            None => errors.invalid(&path, "", "must specify one of: `podGroupName`"),
        }
    }
}

fn numbers_and_policies(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    if let Some(seconds) =
        spec.active_deadline_seconds.filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds))
    {
        let message = names::between(1, i64::from(i32::MAX));
        errors.invalid(&path.child("activeDeadlineSeconds"), &seconds, message);
    }
    if let Some(policy) = &spec.preemption_policy {
        let supported = &["PreemptLowerPriority", "Never"];
        errors.required_one_of(&path.child("preemptionPolicy"), policy, supported);
    }
    if let Some(overhead) = &spec.overhead {
        resources::overhead(overhead, &path.child("overhead"), errors);
    }
    for (index, gate) in items(&spec.readiness_gates).iter().enumerate() {
        let path = path.child("readinessGates").index(index).child("conditionType");
        errors.all_invalid(&path, &gate.condition_type, names::qualified_name(&gate.condition_type));
    }
}

fn tokens_need_an_account(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    if !text(&spec.service_account_name).is_empty() {
        return;
    }
    for (index, volume) in items(&spec.volumes).iter().enumerate() {
        let sources = volume.projected.as_ref().map_or(&[][..], |projected| items(&projected.sources));
        let path = path.index(index).child("projected").child("sources");
        for (index, _) in
            sources.iter().enumerate().filter(|(_, source)| source.service_account_token.is_some())
        {
            let path = path.index(index).child("serviceAccountToken");
            errors.forbidden(&path, "must not be specified when serviceAccountName is not set");
        }
    }
}
