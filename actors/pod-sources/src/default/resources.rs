//! Defaults of resource amounts: requests from limits, per container and for the pod as a whole (KEP 2837).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use pod_spec::quantity::Quantity;
use pod_spec::resources::{Amounts, aggregate, is_huge_pages, is_pod_level, overcommit_allowed};

/// A map of resource amounts as the API writes it.
type ResourceMap = Option<BTreeMap<String, Text>>;

pub(super) fn set_defaults(spec: &mut PodSpec) {
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(resources) = &mut container.resources {
            round(resources);
            requests_from_limits(resources);
        }
    }
    for container in spec.ephemeral_containers.iter_mut().flatten() {
        container.resources.iter_mut().for_each(round);
    }
    round_up(&mut spec.overhead);
    if let Some(mut resources) = spec.resources.take() {
        round(&mut resources);
        pod_level(spec, &mut resources);
        spec.resources = Some(resources);
    }
}

fn round(resources: &mut ResourceRequirements) {
    round_up(&mut resources.limits);
    round_up(&mut resources.requests);
}

/// Rounds amounts up to thousandths and writes them in canonical form. A text that is not a quantity stays as it is:
/// validation reports it.
pub(super) fn round_up(amounts: &mut ResourceMap) {
    for amount in amounts.iter_mut().flat_map(BTreeMap::values_mut) {
        if let Ok(quantity) = Quantity::parse(&amount.0) {
            amount.0 = quantity.rounded_up_to_milli().to_string();
        }
    }
}

fn requests_from_limits(resources: &mut ResourceRequirements) {
    let Some(limits) = &resources.limits else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

fn pod_level(spec: &PodSpec, resources: &mut ResourceRequirements) {
    let is_empty = |amounts: &ResourceMap| amounts.as_ref().is_none_or(BTreeMap::is_empty);
    let has = |amounts: &ResourceMap, name: &str| amounts.as_ref().is_some_and(|map| map.contains_key(name));
    if is_empty(&resources.limits) && is_empty(&resources.requests) {
        return;
    }
    // Huge pages cannot be overcommitted: the pod's limit is what its containers may use together.
    for (name, total) in aggregate(spec, Amounts::Limits) {
        if is_huge_pages(&name) && !has(&resources.requests, &name) {
            resources
                .limits
                .get_or_insert_default()
                .entry(name)
                .or_insert_with(|| Text(total.rounded_up_to_milli().to_string()));
        }
    }
    if is_empty(&resources.limits) {
        return;
    }
    let limits = resources.limits.clone().unwrap_or_default();
    let mut requests = resources.requests.take().unwrap_or_default();
    for (name, total) in aggregate(spec, Amounts::Requests) {
        if is_pod_level(&name) && overcommit_allowed(&name) {
            requests.entry(name).or_insert_with(|| Text(total.rounded_up_to_milli().to_string()));
        }
    }
    for (name, limit) in limits {
        if is_pod_level(&name) {
            requests.entry(name).or_insert(limit);
        }
    }
    if !requests.is_empty() {
        resources.requests = Some(requests);
    }
}
