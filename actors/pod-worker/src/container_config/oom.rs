//! Which container the kernel kills first when the node runs out of memory (row 14.12).

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use pod_rules::critical::NODE_CRITICAL_CLASS;
use pod_spec::quantity::Quantity;
use pod_spec::resources::{Amounts, NodeResources, QosClass, aggregate, amounts, is_sidecar, pod_level};

use crate::linux_resources::units;

/// The score of containers that are killed last: those of Guaranteed pods and of node-critical pods.
const GUARANTEED: i64 = -997;
/// The score of containers that are killed first.
const BEST_EFFORT: i64 = 1000;
const BURSTABLE_MIN: i64 = 1000 + GUARANTEED;
const BURSTABLE_MAX: i64 = BEST_EFFORT - 1;

/// The container's `oom_score_adj`. A larger memory request lowers it, so that a container beyond its request
/// is killed before others.
pub(super) fn oom_score_adj(pod: &Pod, container: &Container, node: &NodeResources) -> i64 {
    let Some(spec) = &pod.spec else { return BEST_EFFORT };
    if spec.priority_class_name.as_deref() == Some(NODE_CRITICAL_CLASS) {
        return GUARANTEED;
    }
    match QosClass::of(pod) {
        QosClass::Guaranteed => GUARANTEED,
        QosClass::BestEffort => BEST_EFFORT,
        QosClass::Burstable => burstable(spec, container, units(node.capacity.get("memory").copied())),
    }
}

fn burstable(spec: &PodSpec, container: &Container, capacity: i64) -> i64 {
    let spare = spare(spec);
    let mut score = score(memory(container) + spare, capacity);
    if sidecar(spec, container) {
        // A sidecar is not killed before the containers that it serves.
        let least = spec.containers.iter().map(memory).min().unwrap_or(0);
        score = score.min(self::score(least + spare, capacity));
    }
    score.clamp(BURSTABLE_MIN, BURSTABLE_MAX)
}

/// `oom_score_adj` of a request. On a node of unknown memory all containers get the same.
fn score(request: i128, capacity: i64) -> i64 {
    if capacity <= 0 {
        return BEST_EFFORT;
    }
    i64::try_from(1000 - 1000 * request / i128::from(capacity)).unwrap_or(BURSTABLE_MIN)
}

/// Each container's share of the memory that the pod requests as a whole beyond the requests of its
/// containers.
fn spare(spec: &PodSpec) -> i128 {
    let of_pod = pod_level(spec, Amounts::Requests).get("memory").copied();
    let Some(of_pod) = of_pod.filter(|memory| memory.signum() != 0) else { return 0 };
    let of_containers = aggregate(spec, Amounts::Requests).get("memory").copied();
    let count = spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len);
    let spare = i128::from(units(Some(of_pod))) - i128::from(units(of_containers));
    spare / i128::try_from(count.max(1)).expect("a number of containers")
}

fn memory(container: &Container) -> i128 {
    let request = amounts(container, Amounts::Requests).get("memory").copied();
    i128::from(units(request.or(Some(Quantity::ZERO))))
}

fn sidecar(spec: &PodSpec, container: &Container) -> bool {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    is_sidecar(container) && init.iter().any(|init| init.name == container.name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{container, pod, resources, sidecar};

    fn node() -> NodeResources {
        let memory = Quantity::parse("1000Mi").expect("a quantity");
        NodeResources { capacity: [("memory".to_owned(), memory)].into(), ..NodeResources::default() }
    }

    fn with(container: Container, memory: &str) -> Container {
        Container { resources: Some(resources(&[("memory", memory)], &[])), ..container }
    }

    fn scores(pod: &Pod) -> Vec<i64> {
        let spec = pod.spec.as_ref().expect("spec");
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        all.map(|container| oom_score_adj(pod, container, &node())).collect()
    }

    #[test]
    fn classes_are_told_apart() {
        let plain = pod("Always", vec![], vec![container("c")]);
        assert_eq!(scores(&plain), [1000]);
        let full = [("cpu", "1"), ("memory", "100Mi")];
        let full = Container { resources: Some(resources(&full, &full)), ..container("c") };
        assert_eq!(scores(&pod("Always", vec![], vec![full])), [-997]);
        let burstable = pod("Always", vec![], vec![with(container("c"), "100Mi"), container("d")]);
        assert_eq!(scores(&burstable), [900, 999]);
    }

    #[test]
    fn what_the_node_needs_goes_last() {
        let mut critical = pod("Always", vec![], vec![container("c")]);
        critical.spec.as_mut().expect("spec").priority_class_name = Some("system-node-critical".into());
        assert_eq!(scores(&critical), [-997]);
        critical.spec.as_mut().expect("spec").priority_class_name = Some("system-cluster-critical".into());
        assert_eq!(scores(&critical), [1000]);
    }

    #[test]
    fn burstable_stays_between_the_other_classes() {
        for (memory, expected) in
            [("1", 999), ("1Mi", 999), ("2Mi", 998), ("500Mi", 500), ("999Mi", 3), ("9Gi", 3), ("8Ei", 3)]
        {
            assert_eq!(scores(&pod("Always", vec![], vec![with(container("c"), memory)])), [expected]);
        }
    }

    #[test]
    fn a_sidecar_goes_no_earlier_than_whom_it_serves() {
        let regular = vec![with(container("a"), "300Mi"), with(container("b"), "200Mi")];
        let init = vec![with(sidecar("small"), "10Mi"), with(sidecar("large"), "400Mi"), container("init")];
        assert_eq!(scores(&pod("Always", init, regular)), [800, 600, 999, 700, 800]);
    }

    #[test]
    fn what_the_pod_requests_beyond_its_containers_is_shared() {
        let mut pod =
            pod("Always", vec![sidecar("side")], vec![with(container("a"), "100Mi"), container("b")]);
        let requests = [("memory".to_owned(), Text("400Mi".into()))].into();
        pod.spec.as_mut().expect("spec").resources = Some(k8s_openapi::api::core::v1::ResourceRequirements {
            requests: Some(requests),
            ..Default::default()
        });
        assert_eq!(scores(&pod), [900, 800, 900]);
    }

    #[test]
    fn a_node_without_known_memory_tells_nobody_apart() {
        let pod = pod("Always", vec![], vec![with(container("a"), "100Mi")]);
        let container = &pod.spec.as_ref().expect("spec").containers[0];
        assert_eq!(oom_score_adj(&pod, container, &NodeResources::default()), 999);
    }

    proptest! {
        #[test]
        fn who_requests_more_is_killed_later(less in 1_u64..1 << 40, more in 0_u64..1 << 40) {
            let of = |bytes: u64| {
                scores(&pod("Always", vec![], vec![with(container("c"), &bytes.to_string())]))[0]
            };
            let (first, second) = (of(less), of(less + more));
            prop_assert!((3..=999).contains(&first) && (3..=first).contains(&second));
        }
    }
}
