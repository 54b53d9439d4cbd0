//! PURE: the message and annotations of an eviction, word for word as upstream (row 19.6). Every sentence ends in a
//! space.

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::core::v1::Pod;
use messages::eviction_manager::NODE_WAS_LOW;
use pod_spec::quantity::Quantity;
use pod_spec::resources::{Amounts, amounts, is_pod_level, parsed};

use crate::observation::{Observations, shortage};
use crate::signal::Resource;
use crate::threshold::Threshold;
use crate::usage::{ContainerUse, PodUse};

/// The message of an eviction, and the annotations of its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) message: String,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// The message for a pod that is evicted because a resource runs out.
pub(crate) fn said(
    resource: Resource,
    pod: &Pod,
    usage: Option<&PodUse>,
    due: &[Threshold],
    observed: &Observations,
) -> Said {
    let name = resource.as_str();
    let mut message = format!("{NODE_WAS_LOW}{name}. ");
    let mut say = |sentence: String| {
        message.write_str(&sentence).expect("writing to a string does not fail");
    };
    if let Some((wanted, available)) = shortage(resource, due, observed) {
        say(format!("Threshold quantity: {wanted}, available: {available}. "));
    }
    let mut annotations = BTreeMap::new();
    let Some(usage) = usage else { return Said { message, annotations } };
    let mut note = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    let consumption = |kind: &str, who: &str, used: Quantity, requested: Quantity| {
        format!("{kind} {who} was using {used}, request is {requested}, has larger consumption of {name}. ")
    };
    if let (Resource::Memory, Some(requested), Some(used)) =
        (resource, pod_level_memory(pod), usage.memory_bytes)
    {
        let (who, used) = (pod.metadata.name.clone().unwrap_or_default(), Quantity::binary(used));
        say(consumption("Pod", &who, used, requested));
        note("offending_pod", who);
        note("offending_pod_usage", used.to_string());
    }
    let (mut names, mut uses) = (Vec::new(), Vec::new());
    let containers =
        pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    for container in containers {
        let used = usage.containers.get(&container.name).and_then(|one| used(resource, one));
        let requests = amounts(container, Amounts::Requests);
        let requested = requests.get(name).copied().unwrap_or(Quantity::ZERO);
        if let Some(used) = used.filter(|used| *used > requested) {
            say(consumption("Container", &container.name, used, requested));
            names.push(container.name.clone());
            uses.push(used.to_string());
        }
    }
    note("offending_containers", names.join(","));
    note("offending_containers_usage", uses.join(","));
    note("starved_resource", name.to_owned());
    Said { message, annotations }
}

fn used(resource: Resource, container: &ContainerUse) -> Option<Quantity> {
    match resource {
        Resource::Memory => container.memory_bytes.map(Quantity::binary),
        Resource::EphemeralStorage => {
            let (layer, logs) = (container.layer?, container.logs?);
            Some(Quantity::binary(layer.bytes.saturating_add(logs.bytes)))
        }
        Resource::Inodes | Resource::Pids => None,
    }
}

/// The pod's own request of memory; `None` unless the pod has resources of its own.
fn pod_level_memory(pod: &Pod) -> Option<Quantity> {
    let own = pod.spec.as_ref()?.resources.as_ref()?;
    let mut all = own.requests.iter().chain(&own.limits).flatten();
    all.any(|(name, _)| is_pod_level(name)).then_some(())?;
    parsed(own.requests.as_ref()).get("memory").copied()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bridge_node::stats::DiskUsage;
    use serde_json::{Value, json};

    use super::*;
    use crate::observation::Observation;
    use crate::signal::Signal;
    use pod_rules::thresholds::Value as Amount;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap()
    }

    fn hard(signal: Signal, value: Amount) -> Threshold {
        Threshold { signal, value, grace: Duration::ZERO, min_reclaim: Some(Amount::Part(0.5)) }
    }

    fn observed(signal: Signal, available: Quantity, capacity: Quantity) -> Observations {
        Observations::from([(signal, Observation { available, capacity })])
    }

    fn memory_usage(bytes: &[(&str, u64)]) -> PodUse {
        let one = |(name, bytes): &(&str, u64)| {
            let usage = ContainerUse { memory_bytes: Some(*bytes), ..ContainerUse::default() };
            ((*name).to_owned(), usage)
        };
        let memory_bytes = Some(bytes.iter().map(|(_, bytes)| bytes).sum());
        PodUse { memory_bytes, containers: bytes.iter().map(one).collect(), ..PodUse::default() }
    }

    fn annotations(said: &Said) -> Vec<(&str, &str)> {
        said.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    #[test]
    fn memory_names_those_above_their_requests() {
        let amount = Amount::Amount(Quantity::parse("100Mi").unwrap());
        let due = [hard(Signal::MemoryAvailable, amount)];
        let seen =
            observed(Signal::MemoryAvailable, Quantity::binary(83_520 << 10), Quantity::binary(1 << 33));
        let pod = pod(json!({
            "containers": [
                { "name": "x" },
                { "name": "within", "resources": { "requests": { "memory": "500Mi" } } },
                { "name": "y", "resources": { "requests": { "memory": "1048576k" } } },
            ],
            "initContainers": [{ "name": "side", "restartPolicy": "Always" }],
        }));
        let usage = memory_usage(&[
            ("x", 412 << 20),
            ("within", 1 << 20),
            ("y", 2 << 30),
            ("side", 3000),
            ("ephemeral", 1 << 30),
        ]);
        let told = said(Resource::Memory, &pod, Some(&usage), &due, &seen);
        assert_eq!(
            told.message,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 83520Ki. \
             Container x was using 412Mi, request is 0, has larger consumption of memory. \
             Container y was using 2Gi, request is 1048576k, has larger consumption of memory. \
             Container side was using 3000, request is 0, has larger consumption of memory. "
        );
        assert_eq!(
            annotations(&told),
            [
                ("offending_containers", "x,y,side"),
                ("offending_containers_usage", "412Mi,2Gi,3000"),
                ("starved_resource", "memory"),
            ]
        );
        let told = said(Resource::Memory, &pod, None, &due, &seen);
        assert_eq!(annotations(&told), []);
        assert!(told.message.ends_with("available: 83520Ki. "));
        let told = said(Resource::Memory, &pod, None, &due, &Observations::new());
        assert_eq!(told.message, "The node was low on resource: memory. ");
    }

    #[test]
    fn a_pod_with_resources_of_its_own_is_named_whatever_it_uses() {
        let due = [hard(Signal::MemoryAvailable, Amount::Part(0.1))];
        let seen = observed(Signal::MemoryAvailable, Quantity::binary(5 << 20), Quantity::binary(1 << 30));
        let pod = pod(json!({
            "resources": { "requests": { "memory": "1Gi" } },
            "containers": [{ "name": "x", "resources": { "requests": { "memory": "1Gi" } } }],
        }));
        let usage = memory_usage(&[("x", 1 << 20)]);
        let told = said(Resource::Memory, &pod, Some(&usage), &due, &seen);
        assert_eq!(
            told.message,
            "The node was low on resource: memory. Threshold quantity: 107374184, available: 5Mi. \
             Pod p was using 1Mi, request is 1Gi, has larger consumption of memory. "
        );
        assert_eq!(
            annotations(&told),
            [
                ("offending_containers", ""),
                ("offending_containers_usage", ""),
                ("offending_pod", "p"),
                ("offending_pod_usage", "1Mi"),
                ("starved_resource", "memory"),
            ]
        );
    }

    #[test]
    fn disk_counts_layer_and_logs_and_the_rest_names_nobody() {
        let pod = pod(json!({ "containers": [{ "name": "x" }] }));
        let on_disk = |bytes| Some(DiskUsage { bytes, inodes: 7 });
        let container =
            ContainerUse { memory_bytes: Some(1 << 30), layer: on_disk(4096), logs: on_disk(8192) };
        let usage = PodUse { containers: [("x".to_owned(), container)].into(), ..PodUse::default() };
        let told = |signal: Signal| {
            let capacity = Quantity::binary(10 << 30);
            let seen = observed(signal, Quantity::binary(1 << 30), capacity);
            said(signal.resource(), &pod, Some(&usage), &[hard(signal, Amount::Part(0.5))], &seen).message
        };
        assert_eq!(
            told(Signal::NodeFsAvailable),
            "The node was low on resource: ephemeral-storage. Threshold quantity: 5Gi, available: 1Gi. \
             Container x was using 12Ki, request is 0, has larger consumption of ephemeral-storage. "
        );
        assert_eq!(
            told(Signal::ImageFsInodesFree),
            "The node was low on resource: inodes. Threshold quantity: 5Gi, available: 1Gi. "
        );
        assert_eq!(
            told(Signal::PidAvailable),
            "The node was low on resource: pids. Threshold quantity: 5Gi, available: 1Gi. "
        );
    }
}
