//! How large a memory-backed volume may grow (row 10.4): as large as the pod's memory, or less if the volume
//! has a limit.

use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use pod_spec::resources::pod_limits;

/// The quantity in bytes, rounded up; `None` if it cannot be parsed. PodSources has validated the quantities
/// of pods.
fn bytes(quantity: &Quantity) -> Option<u64> {
    u64::try_from(pod_spec::quantity::Quantity::parse(&quantity.0).ok()?.units_rounded_up()).ok()
}

/// The most that a memory-backed volume of the pod may grow to, in bytes: the smaller one of the pod's memory limit and the memory
/// that all pods of the node may have.
pub fn bytes_max(pod: &Pod, node_allocatable_bytes: u64) -> u64 {
    smallest(pod.spec.as_ref().and_then(pod_limit_bytes), node_allocatable_bytes)
}

/// The size of a memory-backed emptyDir in bytes: the volume's own limit, if that is less than this.
pub fn tmpfs_bytes(size_limit: Option<&Quantity>, bytes_max: u64) -> u64 {
    smallest(size_limit.and_then(bytes), bytes_max)
}

fn smallest(limit: Option<u64>, bytes_max: u64) -> u64 {
    limit.filter(|limit| *limit > 0).map_or(bytes_max, |limit| limit.min(bytes_max))
}

/// The pod's memory limit in bytes, as its cgroup has it: the pod's own, or the sum of its containers' if
/// every container has one.
fn pod_limit_bytes(spec: &PodSpec) -> Option<u64> {
    let limited = |resources: Option<&ResourceRequirements>| {
        resources?.limits.as_ref()?.get("memory").and_then(bytes).filter(|bytes| *bytes > 0)
    };
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let all = limited(spec.resources.as_ref()).is_some()
        || containers.all(|container| limited(container.resources.as_ref()).is_some());
    let limit = *pod_limits(spec).get("memory").filter(|_| all)?;
    u64::try_from(limit.units_rounded_up()).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::Container;
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity(text.to_owned())
    }

    fn container(limit: Option<&str>, policy: Option<&str>) -> Container {
        let limits = limit.map(|limit| BTreeMap::from([("memory".to_owned(), quantity(limit))]));
        Container {
            resources: Some(ResourceRequirements { limits, ..ResourceRequirements::default() }),
            restart_policy: policy.map(str::to_owned),
            ..Container::default()
        }
    }

    #[test]
    fn the_pods_limit_counts_only_when_every_container_has_one() {
        let pod = |containers: Vec<Container>, init: Vec<Container>| Pod {
            spec: Some(PodSpec { containers, init_containers: Some(init), ..PodSpec::default() }),
            ..Pod::default()
        };
        let bounded = pod(vec![container(Some("100"), None), container(Some("50"), None)], vec![]);
        assert_eq!(tmpfs_bytes(None, bytes_max(&bounded, 1000)), 150);
        assert_eq!(tmpfs_bytes(Some(&quantity("40")), bytes_max(&bounded, 1000)), 40);
        assert_eq!(tmpfs_bytes(Some(&quantity("400")), bytes_max(&bounded, 1000)), 150);
        assert_eq!(tmpfs_bytes(None, bytes_max(&bounded, 100)), 100);
        let open = pod(vec![container(Some("100"), None), container(None, None)], vec![]);
        assert_eq!(tmpfs_bytes(None, bytes_max(&open, 1000)), 1000);
        assert_eq!(tmpfs_bytes(Some(&quantity("0")), bytes_max(&open, 1000)), 1000);
        let starting = pod(
            vec![container(Some("10"), None)],
            vec![container(Some("5"), Some("Always")), container(Some("300"), None)],
        );
        assert_eq!(tmpfs_bytes(None, bytes_max(&starting, 1000)), 305);
    }

    #[test]
    fn a_limit_of_the_pod_itself_comes_first() {
        let resources = container(Some("70"), None).resources;
        let overhead = Some(BTreeMap::from([("memory".to_owned(), quantity("5"))]));
        let spec =
            PodSpec { containers: vec![container(None, None)], resources, overhead, ..PodSpec::default() };
        assert_eq!(bytes_max(&Pod { spec: Some(spec), ..Pod::default() }, 1000), 75);
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "\\PC{0,40}") {
            let _ = bytes(&quantity(&text));
        }

        #[test]
        fn never_more_than_the_node_gives(own in proptest::option::of(0u64..5000), node in 1u64..5000) {
            let own = own.map(|own| quantity(&own.to_string()));
            prop_assert!(tmpfs_bytes(own.as_ref(), bytes_max(&Pod::default(), node)) <= node);
        }
    }
}
