//! A container's resource limits and its OOM score (rows 14.3, 14.12, 14.13, 14.17).

use std::collections::BTreeMap;

use bridge_cri::wire::{HugepageLimit, LinuxContainerResources};
use k8s_openapi::api::core::v1::{Container, Pod};
use pod_spec::quantity::Quantity;
use pod_spec::resources::{Amounts, HUGE_PAGES_PREFIX, NodeResources, amounts, pod_level};

use super::oom::oom_score_adj;
use crate::linux_resources::{Wanted, linux_resources, units};
use crate::node_rules::NodeRules;

type Amount = BTreeMap<String, Quantity>;

/// The container's resources for the runtime. Without a limit of its own, the pod's limit applies to the
/// container.
pub(super) fn resources(
    pod: &Pod,
    container: &Container,
    node: &NodeResources,
    rules: &NodeRules,
) -> LinuxContainerResources {
    let (requests, limits) = (amounts(container, Amounts::Requests), amounts(container, Amounts::Limits));
    let of_pod = pod.spec.as_ref().map(|spec| pod_level(spec, Amounts::Limits)).unwrap_or_default();
    let limit = |name| {
        let own: Option<&Quantity> = limits.get(name).filter(|limit| limit.signum() != 0);
        own.or_else(|| of_pod.get(name)).copied()
    };
    let wanted = Wanted {
        cpu_request: requests.get("cpu").copied(),
        cpu_limit: limit("cpu"),
        memory_limit: limit("memory"),
    };
    let mut resources = linux_resources(&wanted, rules);
    resources.oom_score_adj = oom_score_adj(pod, container, node);
    resources.hugepage_limits = huge_pages(&of_pod, &limits, rules);
    deny_swap(&mut resources, rules);
    resources
}

/// One limit for each page size that the machine has; zero where the spec has none.
fn huge_pages(of_pod: &Amount, of_container: &Amount, rules: &NodeRules) -> Vec<HugepageLimit> {
    let mut asked = BTreeMap::new();
    for (name, limit) in of_pod.iter().chain(of_container) {
        if let Some(size) = name.strip_prefix(HUGE_PAGES_PREFIX).and_then(|size| Quantity::parse(size).ok()) {
            asked.insert(units(Some(size)).unsigned_abs(), units(Some(*limit)).unsigned_abs());
        }
    }
    let limit = |size: &u64| HugepageLimit {
        page_size: page_size(*size),
        limit: asked.get(size).copied().unwrap_or(0),
    };
    rules.huge_page_sizes.iter().map(limit).collect()
}

/// A page size as the kernel's files spell it: `2MB`.
fn page_size(mut bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let mut unit = 0;
    while bytes > 0 && bytes.is_multiple_of(1024) && unit + 1 < UNITS.len() {
        bytes /= 1024;
        unit += 1;
    }
    format!("{bytes}{}", UNITS[unit])
}

/// Denies the container any swap. With cgroups version 1 that takes a memory limit: without one nothing is
/// set.
fn deny_swap(resources: &mut LinuxContainerResources, rules: &NodeRules) {
    if !rules.swap_controller {
        return;
    }
    if rules.cgroups_v2 {
        resources.unified.insert("memory.swap.max".to_owned(), "0".to_owned());
    } else {
        resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes;
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;

    use super::*;
    use crate::fixtures::{container, pod, resources as listed};

    fn made(
        pod_level: ResourceRequirements,
        own: ResourceRequirements,
        rules: &NodeRules,
    ) -> LinuxContainerResources {
        let container = Container { resources: Some(own), ..container("c") };
        let mut pod = pod("Always", vec![], vec![container.clone()]);
        pod.spec.as_mut().expect("spec").resources = Some(pod_level);
        resources(&pod, &container, &NodeResources::default(), rules)
    }

    #[test]
    fn a_container_without_amounts_has_the_least() {
        let empty = listed(&[], &[]);
        let expected = LinuxContainerResources {
            cpu_shares: 2,
            cpu_period: 100_000,
            oom_score_adj: 1000,
            ..LinuxContainerResources::default()
        };
        assert_eq!(made(empty.clone(), empty, &NodeRules::default()), expected);
    }

    #[test]
    fn the_pods_limits_hold_where_the_container_has_none() {
        let of_pod = listed(&[("cpu", "1")], &[("cpu", "2"), ("memory", "100Mi")]);
        let rules = NodeRules::default();
        for (own, expected) in [
            (listed(&[], &[]), [2048, 200_000, 100 << 20]),
            (listed(&[("cpu", "100m")], &[("memory", "1Mi")]), [102, 200_000, 1 << 20]),
            (listed(&[("cpu", "100m")], &[("cpu", "500m"), ("memory", "0")]), [102, 50_000, 100 << 20]),
        ] {
            let made = made(of_pod.clone(), own.clone(), &rules);
            assert_eq!([made.cpu_shares, made.cpu_quota, made.memory_limit_in_bytes], expected, "{own:?}");
        }
    }

    fn huge(of_pod: &[(&str, &str)], own: &[(&str, &str)]) -> Vec<(String, u64)> {
        let rules = NodeRules { huge_page_sizes: vec![64 << 10, 2 << 20, 1 << 30], ..NodeRules::default() };
        let made = made(listed(&[], of_pod), listed(&[], own), &rules);
        made.hugepage_limits.into_iter().map(|limit| (limit.page_size, limit.limit)).collect()
    }

    #[test]
    fn huge_pages_are_limited_by_size_and_to_nothing_where_none_are_asked_for() {
        let named =
            |limits: [u64; 3]| ["64KB", "2MB", "1GB"].map(str::to_owned).into_iter().zip(limits).collect();
        let expect = |of_pod, own, limits: [u64; 3]| {
            let expected: Vec<(String, u64)> = named(limits);
            assert_eq!(huge(of_pod, own), expected);
        };
        expect(&[], &[], [0, 0, 0]);
        expect(&[], &[("hugepages-2Mi", "10Mi"), ("hugepages-4Mi", "4Mi")], [0, 10 << 20, 0]);
        expect(&[], &[("hugepages-64Ki", "128Ki"), ("hugepages-1Gi", "1Gi")], [128 << 10, 0, 1 << 30]);
        // The container's own limit wins over the pod's.
        let of_pod = [("hugepages-2Mi", "20Mi"), ("hugepages-1Gi", "1Gi")];
        expect(&of_pod, &[("hugepages-2Mi", "2Mi")], [0, 2 << 20, 1 << 30]);
        assert_eq!(made(listed(&[], &of_pod), listed(&[], &[]), &NodeRules::default()).hugepage_limits, []);
    }

    #[test]
    fn nothing_swaps() {
        let limited = listed(&[], &[("memory", "1Mi")]);
        let rules =
            NodeRules { swap_controller: true, single_process_oom_kill: true, ..NodeRules::default() };
        let v1 = made(listed(&[], &[]), limited.clone(), &rules);
        assert_eq!((v1.memory_swap_limit_in_bytes, v1.unified.len()), (1 << 20, 0));
        let v2 = made(listed(&[], &[]), limited.clone(), &NodeRules { cgroups_v2: true, ..rules });
        assert_eq!(v2.memory_swap_limit_in_bytes, 0);
        assert_eq!(v2.unified, [("memory.swap.max".to_owned(), "0".to_owned())].into());
        let none = made(listed(&[], &[]), limited, &NodeRules::default());
        assert_eq!(none.memory_swap_limit_in_bytes, 0);
    }
}
