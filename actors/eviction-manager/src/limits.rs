//! PURE: how much of the node's disk a pod may use, and the message when it uses more (row 19.7).

use k8s_openapi::api::core::v1::{Pod, Volume};
use pod_spec::quantity::Quantity;
use pod_spec::resources::{Amounts, amounts, parsed, pod_amounts};

use crate::file_systems::Parts;
use crate::usage::{PodUse, local_volumes};

const RESOURCE: &str = "ephemeral-storage";

/// The limits of a pod. It has at least one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    /// Limits of emptyDir volumes on disk, by name, in the order of the pod.
    pub(crate) volumes: Vec<(String, Quantity)>,
    /// The limit of the whole pod: the sum of its containers' limits.
    pub(crate) pod: Option<Quantity>,
    /// Limits of a container's log and writable layer, by container name, in the order of the pod.
    pub(crate) containers: Vec<(String, Quantity)>,
}

impl Limits {
    /// Whether this volume of the pod has to be measured.
    pub(crate) fn wants_volume(&self, name: &str) -> bool {
        self.pod.is_some() || self.volumes.iter().any(|(limited, _)| limited == name)
    }

    /// Whether logs and layers have to be measured.
    pub(crate) fn wants_containers(&self) -> bool {
        self.pod.is_some() || !self.containers.is_empty()
    }
}

/// A limit that is exceeded: upstream's label of the eviction metric, and its message, word for word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) signal: &'static str,
    pub(crate) message: String,
}

/// The limits of a pod; `None` if it has none.
pub(crate) fn limits(pod: &Pod) -> Option<Limits> {
    let spec = pod.spec.as_ref()?;
    let positive = |quantity: &Quantity| quantity.signum() > 0;
    let size = |volume: &Volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        Quantity::parse(&limit.0).ok().filter(positive)
    };
    let containers = spec.containers.iter().filter_map(|container| {
        let limit = amounts(container, Amounts::Limits).get(RESOURCE).copied()?;
        Some((container.name.clone(), limit)).filter(|(_, limit)| limit.signum() != 0)
    });
    let overhead = parsed(spec.overhead.as_ref()).get(RESOURCE).copied().unwrap_or(Quantity::ZERO);
    let found = Limits {
        volumes: local_volumes(pod).filter_map(|volume| Some((volume.name.clone(), size(volume)?))).collect(),
        pod: pod_amounts(spec, Amounts::Limits).get(RESOURCE).map(|limit| limit.plus(overhead)),
        containers: containers.collect(),
    };
    (found != Limits::default()).then_some(found)
}

/// The first limit that a pod exceeds, in upstream's order. `layers` says whether writable layers lie on the node's own
/// disk: else they do not count for a container.
pub(crate) fn exceeded(limits: &Limits, usage: &PodUse, layers: bool) -> Option<Exceeded> {
    let volume = limits.volumes.iter().find(|(name, limit)| {
        usage.volumes.get(name).is_some_and(|used| Quantity::binary(used.bytes) > *limit)
    });
    if let Some((name, limit)) = volume {
        let message = format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". ");
        return Some(Exceeded { signal: "emptydirfs.limit", message });
    }
    let all = Quantity::binary(usage.disk(Parts { layers: true, logs: true, volumes: true }).bytes);
    if let Some(limit) = limits.pod.filter(|limit| all > *limit) {
        let message =
            format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. ");
        return Some(Exceeded { signal: "ephemeralpodfs.limit", message });
    }
    let used = |name: &str| {
        let one = usage.containers.get(name)?;
        let layer = one.layer.filter(|_| layers).map_or(0, |layer| layer.bytes);
        Some(Quantity::binary(one.logs.map_or(0, |logs| logs.bytes).saturating_add(layer)))
    };
    let over = limits.containers.iter().find(|(name, limit)| used(name).is_some_and(|used| used > *limit));
    over.map(|(name, limit)| Exceeded {
        signal: "ephemeralcontainerfs.limit",
        message: format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "),
    })
}

#[cfg(test)]
mod tests {
    use bridge_node::stats::DiskUsage;
    use serde_json::{Value, json};

    use super::*;
    use crate::usage::ContainerUse;

    const MIB: u64 = 1 << 20;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap()
    }

    #[test]
    fn limits_take_work_by_the_number_of_volumes() {
        let volumes = (0..30_000).map(|number| json!({ "name": format!("v{number}"), "emptyDir": {} }));
        let many = pod(json!({ "containers": [], "volumes": volumes.collect::<Vec<_>>() }));
        let begun = tokio::time::Instant::now();
        assert_eq!(limits(&many), None);
        let took = begun.elapsed();
        assert!(took.as_secs() < 2, "{took:?}");
    }

    fn container(name: &str, limit: &str) -> Value {
        json!({ "name": name, "resources": { "limits": { "ephemeral-storage": limit } } })
    }

    fn disk(bytes: u64) -> DiskUsage {
        DiskUsage { bytes, inodes: 1 }
    }

    fn usage(volumes: &[(&str, u64)], containers: &[(&str, u64, u64)]) -> PodUse {
        let one = |(name, layer, logs): &(&str, u64, u64)| {
            let one = ContainerUse { memory_bytes: None, layer: Some(disk(*layer)), logs: Some(disk(*logs)) };
            ((*name).to_owned(), one)
        };
        PodUse {
            volumes: volumes.iter().map(|(name, bytes)| ((*name).to_owned(), disk(*bytes))).collect(),
            containers: containers.iter().map(one).collect(),
            ..PodUse::default()
        }
    }

    fn said(pod: &Pod, usage: &PodUse, layers: bool) -> Option<(&'static str, String)> {
        let limits = limits(pod).expect("limits");
        exceeded(&limits, usage, layers).map(|one| (one.signal, one.message))
    }

    #[test]
    fn who_has_limits() {
        for spec in [
            json!({ "containers": [{ "name": "a" }] }),
            json!({ "containers": [], "volumes": [{ "name": "v", "emptyDir": {} }] }),
            json!({ "containers": [], "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "0" } }] }),
            json!({ "containers": [], "volumes": [{ "name": "v",
                "emptyDir": { "sizeLimit": "1Mi", "medium": "Memory" } }] }),
            json!({ "containers": [{ "name": "a", "resources": { "limits": { "memory": "1Mi" } } }] }),
        ] {
            assert_eq!(limits(&pod(spec.clone())), None, "{spec}");
        }
        let all = limits(&pod(json!({
            "containers": [container("a", "1Mi"), { "name": "b" }, container("c", "0")],
            "initContainers": [container("i", "9Mi")],
            "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "2Mi" } }, { "name": "w", "emptyDir": {} }],
        })));
        let mib = |count| Quantity::binary(count * MIB);
        let expected = Limits {
            volumes: vec![("v".to_owned(), mib(2))],
            pod: Some(mib(9)),
            containers: vec![("a".to_owned(), mib(1))],
        };
        assert_eq!(all, Some(expected));
    }

    #[test]
    fn a_volume_beyond_its_size() {
        let pod = pod(json!({
            "containers": [{ "name": "a" }],
            "volumes": [{ "name": "x", "emptyDir": { "sizeLimit": "1024Ki" } }],
        }));
        assert_eq!(said(&pod, &usage(&[("x", MIB)], &[("a", 9 * MIB, 0)]), true), None, "as much is allowed");
        let message = "Usage of EmptyDir volume \"x\" exceeds the limit \"1Mi\". ".to_owned();
        assert_eq!(said(&pod, &usage(&[("x", MIB + 1)], &[]), true), Some(("emptydirfs.limit", message)));
        assert_eq!(said(&pod, &usage(&[], &[]), true), None, "what could not be measured");
    }

    #[test]
    fn all_of_it_beyond_what_containers_may_have_together() {
        let pod = pod(json!({
            "containers": [container("a", "1Mi"), { "name": "b" }],
            "overhead": { "ephemeral-storage": "512Ki" },
            "volumes": [{ "name": "v", "emptyDir": {} }, { "name": "c", "configMap": { "name": "c" } }],
        }));
        let mut fits = usage(&[("v", MIB), ("c", 100)], &[("a", 1000, 1000), ("b", 1000, 1000)]);
        assert_eq!(said(&pod, &fits, true), None);
        fits.own = disk(MIB);
        let signal = said(&pod, &fits, true).map(|(signal, _)| signal);
        assert_eq!(signal, Some("ephemeralpodfs.limit"), "its termination messages and its hosts file count");
        let over = usage(&[("v", MIB), ("c", 100)], &[("a", 1000, 1000), ("b", 1000, MIB / 2)]);
        let message =
            "Pod ephemeral local storage usage exceeds the total limit of containers 1536Ki. ".to_owned();
        assert_eq!(said(&pod, &over, true), Some(("ephemeralpodfs.limit", message)));
    }

    #[test]
    fn a_container_beyond_its_own() {
        let pod = pod(json!({ "containers": [container("a", "1Mi"), container("b", "9Mi")] }));
        let over = usage(&[], &[("a", MIB, 1), ("b", 1, 1)]);
        let message = "Container a exceeded its local ephemeral storage limit \"1Mi\". ".to_owned();
        assert_eq!(said(&pod, &over, true), Some(("ephemeralcontainerfs.limit", message)));
        assert_eq!(said(&pod, &over, false), None, "its layer lies on another disk");
        assert_eq!(said(&pod, &usage(&[], &[("a", MIB, 0)]), true), None);
    }
}
