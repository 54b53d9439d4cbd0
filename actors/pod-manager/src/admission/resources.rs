//! PURE: whether the node has the resources that a pod requests (row 16.2).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::Rejection;
use pod_spec::quantity::Quantity;
use pod_spec::resources::{NodeResources, is_native, pod_requests};

use super::room::Room;

/// The number of pods, as a resource.
pub(super) const PODS: &str = "pods";
/// The resources that are checked first, in upstream's order.
const FIRST: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// A resource of which too little is left for the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insufficient {
    /// The name of the resource.
    pub resource: String,
    /// The pod's request: cpu in thousandths, all others in whole units.
    pub requested: i64,
    /// The requests of the other pods, in the same unit.
    pub used: i64,
    /// The amount that all pods together may have, in the same unit.
    pub capacity: i64,
}

impl Insufficient {
    /// The amount that has to become free.
    pub(super) fn missing(&self) -> i64 {
        self.requested.saturating_sub(self.capacity.saturating_sub(self.used))
    }

    /// The refusal with upstream's reason and message.
    pub(super) fn rejection(&self) -> Rejection {
        Rejection::new(
            format!("OutOf{}", self.resource),
            format!(
                "Node didn't have enough resource: {}, requested: {}, used: {}, capacity: {}",
                self.resource, self.requested, self.used, self.capacity
            ),
        )
    }
}

/// The pod's requests, with its place as 1 of `pods`: cpu in thousandths, all others in whole units.
pub(super) fn requests(pod: &Pod) -> BTreeMap<String, i64> {
    let asked = pod.spec.as_ref().map(pod_requests).unwrap_or_default();
    let counted = asked.into_iter().map(|(name, quantity)| {
        let amount = amount(&name, quantity);
        (name, amount)
    });
    let mut requests: BTreeMap<String, i64> = counted.filter(|(_, amount)| *amount > 0).collect();
    requests.insert(PODS.to_owned(), 1);
    requests
}

fn amount(name: &str, quantity: Quantity) -> i64 {
    if name == "cpu" {
        i64::try_from(quantity.millis_rounded_up()).unwrap_or(i64::MAX)
    } else {
        quantity.units_rounded_up()
    }
}

/// Everything that the pod requests and the node has not left, beside what others take. What the node says nothing of is not
/// looked at: resources of plug-ins and of the cluster, and on a node without any figures everything but places.
pub(super) fn insufficient(
    pod: &Pod,
    room: &Room,
    resources: &NodeResources,
    pods_max: usize,
) -> Vec<Insufficient> {
    let asked = requests(pod);
    let others = asked.keys().map(String::as_str).filter(|name| *name != PODS && !FIRST.contains(name));
    let order = [PODS].into_iter().chain(FIRST).chain(others);
    order
        .filter_map(|name| {
            let capacity = capacity(name, resources, pods_max)?;
            let requested = asked.get(name).copied().filter(|amount| *amount > 0)?;
            let used = room.used(name);
            let lacks = requested > capacity.saturating_sub(used);
            lacks.then(|| Insufficient { resource: name.to_owned(), requested, used, capacity })
        })
        .collect()
}

fn capacity(name: &str, resources: &NodeResources, pods_max: usize) -> Option<i64> {
    let known = resources.allocatable.get(name).map(|quantity| amount(name, *quantity));
    if name == PODS {
        return Some(known.unwrap_or_else(|| i64::try_from(pods_max).unwrap_or(i64::MAX)));
    }
    // Of a native resource (huge pages of some size) the node has none if it reports others and not this one.
    let unknown = resources.allocatable.is_empty() || FIRST.contains(&name) || !is_native(name);
    known.or_else(|| (!unknown).then_some(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::fixtures::{node_resources, requesting};

    fn told(pod: &Pod, others: &[&Pod], node: &[(&str, &str)]) -> Vec<String> {
        let lacks = insufficient(pod, &Room::of(others), &node_resources(node), 3);
        lacks
            .into_iter()
            .map(|lack| format!("{}: {}", lack.rejection().reason, lack.rejection().message))
            .collect()
    }

    #[test]
    fn what_is_left_decides() {
        let node =
            [("cpu", "2"), ("memory", "1Gi"), ("ephemeral-storage", "10Gi"), ("example.com/card", "1")];
        let other = requesting(&[("cpu", "1500m"), ("memory", "512Mi"), ("example.com/card", "1")]);
        for (asked, expected) in [
            (vec![("cpu", "500m"), ("memory", "512Mi")], vec![]),
            (
                vec![("cpu", "501m")],
                vec![
                    "OutOfcpu: Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000",
                ],
            ),
            (
                vec![("memory", "513Mi"), ("cpu", "3")],
                vec![
                    "OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 1500, capacity: 2000",
                    "OutOfmemory: Node didn't have enough resource: memory, requested: 537919488, used: 536870912, capacity: 1073741824",
                ],
            ),
            (
                vec![("ephemeral-storage", "11Gi")],
                vec![
                    "OutOfephemeral-storage: Node didn't have enough resource: ephemeral-storage, requested: 11811160064, used: 0, capacity: 10737418240",
                ],
            ),
            (
                vec![("example.com/card", "1")],
                vec![
                    "OutOfexample.com/card: Node didn't have enough resource: example.com/card, requested: 1, used: 1, capacity: 1",
                ],
            ),
            // A resource that the node does not report belongs to the cluster.
            (vec![("example.com/other", "1")], vec![]),
            (
                vec![("hugepages-2Mi", "2Mi")],
                vec![
                    "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
                ],
            ),
        ] {
            assert_eq!(told(&requesting(&asked), &[&other], &node), expected, "{asked:?}");
        }
    }

    #[test]
    fn places_count_before_anything_else_and_without_any_figures() {
        let greedy = requesting(&[("cpu", "1000")]);
        let full = "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3";
        assert_eq!(told(&greedy, &[&greedy, &greedy, &greedy], &[]), [full]);
        assert_eq!(told(&greedy, &[&greedy, &greedy], &[]), Vec::<String>::new());
        let node = [("pods", "1"), ("cpu", "1")];
        assert_eq!(told(&greedy, &[&greedy], &node).len(), 2);
    }
}
