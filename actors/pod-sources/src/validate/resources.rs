//! Validation of resource amounts: names, quantities, requests against limits.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSpec, ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use super::field::{Errors, PART_BYTES_MAX, Path, items, text};
use super::names;
use pod_rules::errors::cut;
use pod_spec::quantity::Quantity;
use pod_spec::resources::{
    Amounts, HUGE_PAGES_PREFIX, aggregate, is_huge_pages, is_native, is_pod_level, overcommit_allowed,
};

/// Resource names without a prefix that Kubernetes knows.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Resource names that are counted in whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

type ResourceMap = BTreeMap<String, Text>;

pub(super) fn of_container(
    resources: &ResourceRequirements,
    claims: &BTreeSet<&str>,
    path: &Path,
    errors: &mut Errors,
) {
    requirements(resources, container_name, path, errors);
    claim_names(items(&resources.claims), claims, &path.child("claims"), errors);
}

pub(super) fn overhead(overhead: &ResourceMap, path: &Path, errors: &mut Errors) {
    let limits = ResourceRequirements { limits: Some(overhead.clone()), ..ResourceRequirements::default() };
    requirements(&limits, container_name, path, errors);
}

pub(super) fn of_pod(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    let Some(resources) = &spec.resources else { return };
    if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return errors.forbidden(path, "may not be set for a windows pod");
    }
    if resources.claims.is_some() {
        errors.forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    requirements(resources, pod_name, path, errors);
    consistent_with_containers(spec, resources, path, errors);
}

/// The requests of all containers together must not exceed the pod's.
fn consistent_with_containers(
    spec: &PodSpec,
    resources: &ResourceRequirements,
    path: &Path,
    errors: &mut Errors,
) {
    let (requests, limits) = (parsed(&resources.requests), parsed(&resources.limits));
    for (name, total) in aggregate(spec, Amounts::Requests) {
        if let Some(request) = requests.get(name.as_str()).filter(|request| total > **request) {
            let message = format!("must be greater than or equal to aggregate container requests of {total}");
            errors.invalid(&path.child("requests").key(&name), &request.to_string(), message);
        }
    }
    for (name, total) in aggregate(spec, Amounts::Limits) {
        let limit = limits.get(name.as_str()).filter(|limit| is_huge_pages(&name) && total > **limit);
        if let Some(limit) = limit {
            let message = format!("must be greater than or equal to aggregate container limits of {total}");
            errors.invalid(&path.child("limits").key(&name), &limit.to_string(), message);
        }
    }
    for (index, container) in spec.containers.iter().enumerate() {
        let Some(own) = &container.resources else { continue };
        for (name, own) in parsed(&own.limits) {
            if let Some(limit) = limits.get(name).filter(|limit| own > **limit) {
                let path = Path::new("spec").child("containers").index(index).child("resources");
                let message = format!("must be less than or equal to pod limits of {limit}");
                errors.invalid(&path.child("limits").key(name), &own.to_string(), message);
            }
        }
    }
}

/// The amounts that are quantities; errors of the others are reported elsewhere.
fn parsed(amounts: &Option<ResourceMap>) -> BTreeMap<&str, Quantity> {
    amounts
        .iter()
        .flatten()
        .filter_map(|(name, text)| Some((name.as_str(), Quantity::parse(&text.0).ok()?)))
        .collect()
}

fn requirements(
    resources: &ResourceRequirements,
    name_rule: fn(&str, &Path, &mut Errors),
    path: &Path,
    errors: &mut Errors,
) {
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    amounts(&resources.limits, name_rule, &limits_path, errors);
    amounts(&resources.requests, name_rule, &requests_path, errors);
    let (limits, requests) = (parsed(&resources.limits), parsed(&resources.requests));
    for (name, request) in &requests {
        let path = requests_path.key(name);
        match limits.get(name) {
            Some(limit) if request != limit && !overcommit_allowed(name) => {
                let message = format!("must be equal to {name} limit of {limit}");
                errors.invalid(&path, &request.to_string(), message);
            }
            Some(limit) if request > limit => {
                let message = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid(&path, &request.to_string(), message);
            }
            None if !overcommit_allowed(name) => {
                let message = "Limit must be set for non overcommitable resources";
                errors.required(&limits_path.key(name), message);
            }
            _ => {}
        }
    }
    let names = || limits.keys().chain(requests.keys());
    if names().any(|name| is_huge_pages(name)) && !names().any(|name| matches!(*name, "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

fn amounts(
    amounts: &Option<ResourceMap>,
    name_rule: fn(&str, &Path, &mut Errors),
    path: &Path,
    errors: &mut Errors,
) {
    for (name, amount) in amounts.iter().flatten() {
        let path = path.key(name);
        name_rule(name, &path, errors);
        match Quantity::parse(&amount.0) {
            Ok(quantity) => value(name, quantity, &path, errors),
            Err(error) => errors.invalid(&path, &amount.0, error.to_string()),
        }
    }
}

/// An amount of a resource: not negative, whole where the resource is counted, whole pages of huge pages.
pub(super) fn value(name: &str, quantity: Quantity, path: &Path, errors: &mut Errors) {
    let shown = quantity.to_string();
    if quantity.signum() < 0 {
        errors.invalid(path, &shown, "must be greater than or equal to 0");
    }
    if (COUNTED.contains(&name) || is_extended(name)) && quantity.millis_rounded_up() % 1000 != 0 {
        errors.invalid(path, &shown, "must be an integer");
    }
    if let Some(size) = name.strip_prefix(HUGE_PAGES_PREFIX) {
        let page = Quantity::parse(size).ok().filter(|page| page.signum() > 0 && page.is_whole());
        let divisible = page.is_some_and(|page| quantity.units_rounded_up() % page.units_rounded_up() == 0);
        if !divisible {
            errors.invalid(path, &shown, format!("{shown} is not positive integer multiple of {name}"));
        }
    }
}

/// Checks a resource name of any kind. Returns whether it is well formed.
fn resource_name(name: &str, path: &Path, errors: &mut Errors) -> bool {
    let messages = names::qualified_name(name);
    if !messages.is_empty() {
        errors.all_invalid(path, name, messages);
        return false;
    }
    let huge_pages = is_huge_pages(name) || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !STANDARD.contains(&name) && !huge_pages {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

fn container_name(name: &str, path: &Path, errors: &mut Errors) {
    let well_formed = resource_name(name, path, errors);
    if !name.contains('/') {
        if well_formed && !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_pages(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if well_formed && !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn pod_name(name: &str, path: &Path, errors: &mut Errors) {
    if resource_name(name, path, errors) && !is_pod_level(name) {
        errors.unsupported(path, name, &["cpu", HUGE_PAGES_PREFIX, "memory"]);
    }
}

/// Whether the resource is a third party's, offered by a device plugin.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// The claims of a pod, as far as an error shows them: each claim of each container may name one that is not there.
fn shown(pod_claims: &BTreeSet<&str>) -> String {
    let mut list = String::new();
    for name in pod_claims {
        if list.len() > PART_BYTES_MAX {
            break;
        }
        list.push_str(if list.is_empty() { ": " } else { ", " });
        list.push_str(name);
    }
    cut(&mut list, PART_BYTES_MAX);
    if list.is_empty() { " which is empty".to_owned() } else { list }
}

fn claim_names(claims: &[ResourceClaim], pod_claims: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    let known = shown(pod_claims);
    for (index, claim) in claims.iter().enumerate() {
        let (path, name, request) = (path.index(index), claim.name.as_str(), text(&claim.request));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
        if !request.is_empty() {
            errors.all_invalid(&path.child("request"), request, names::dns_label(request));
        }
        // The keys of a claim's parts follow each other.
        let part_is_named = |key: &String| key.split_once('/').is_some_and(|(whole, _)| whole == name);
        let part = seen.range(format!("{name}/")..).next();
        let overlaps = seen.contains(name)
            || seen.contains(&key)
            || (request.is_empty() && part.is_some_and(part_is_named));
        if overlaps {
            errors.duplicate(&path, &key);
        }
        seen.insert(key);
        if !pod_claims.contains(name) {
            let message = format!("must be one of the names in pod.spec.resourceClaims{known}");
            errors.not_found(&path, name, message);
        }
    }
}
