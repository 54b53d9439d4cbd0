//! What resource names mean, and what a pod's containers ask for together.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::quantity::Quantity;

/// Prefix of the resources that are huge pages of one size: `hugepages-2Mi`.
pub const HUGE_PAGES_PREFIX: &str = "hugepages-";

/// Which of a container's amounts are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amounts {
    /// `resources.requests`
    Requests,
    /// `resources.limits`
    Limits,
}

/// Whether a resource is huge pages.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES_PREFIX)
}

/// Whether a resource belongs to Kubernetes itself: no prefix, or one of kubernetes.io.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a request may be lower than the limit.
pub fn overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Whether a resource may be given for a pod as a whole.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

/// Whether an init container is a sidecar: it keeps running beside the containers that start after it.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// What a pod's containers ask for together: the sum of those that run side by side, or what is needed at the worst
/// moment of initialisation if that is more. Texts that are no quantities count as nothing.
pub fn aggregate(spec: &PodSpec, which: Amounts) -> BTreeMap<String, Quantity> {
    let mut running = BTreeMap::new();
    for container in &spec.containers {
        add(&mut running, &amounts(container, which));
    }
    let (mut sidecars, mut initialising) = (BTreeMap::new(), BTreeMap::new());
    for container in spec.init_containers.iter().flatten() {
        let own = amounts(container, which);
        let at_once = if is_sidecar(container) {
            add(&mut running, &own);
            add(&mut sidecars, &own);
            sidecars.clone()
        } else {
            let mut sum = own;
            add(&mut sum, &sidecars);
            sum
        };
        raise(&mut initialising, &at_once);
    }
    raise(&mut running, &initialising);
    running
}

fn amounts(container: &Container, which: Amounts) -> BTreeMap<String, Quantity> {
    let Some(resources) = &container.resources else { return BTreeMap::new() };
    let map = match which {
        Amounts::Requests => &resources.requests,
        Amounts::Limits => &resources.limits,
    };
    let parsed = |(name, text): (&String, &k8s_openapi::apimachinery::pkg::api::resource::Quantity)| {
        Some((name.clone(), Quantity::parse(&text.0).ok()?))
    };
    map.iter().flatten().filter_map(parsed).collect()
}

fn add(sum: &mut BTreeMap<String, Quantity>, more: &BTreeMap<String, Quantity>) {
    for (name, quantity) in more {
        let entry = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *entry = entry.plus(*quantity);
    }
}

fn raise(maximum: &mut BTreeMap<String, Quantity>, other: &BTreeMap<String, Quantity>) {
    for (name, quantity) in other {
        let entry = maximum.entry(name.clone()).or_insert(*quantity);
        if quantity > entry {
            *entry = *quantity;
        }
    }
}
