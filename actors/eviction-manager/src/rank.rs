//! PURE: the order in which pods are evicted (row 19.4). It does not go by class of service.

use std::cmp::Ordering;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::DesiredPod;
use pod_spec::quantity::Quantity;
use pod_spec::resources::{Amounts, parsed, pod_amounts};
use supervision::blame;

use crate::candidates::priority;
use crate::file_systems::FileSystems;
use crate::signal::{Resource, Signal};
use crate::usage::PodUse;

/// A pod that may be evicted, with its usage, if that could be measured.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) pod: Arc<DesiredPod>,
    pub(crate) usage: Option<PodUse>,
    /// Whether it has more files than could be counted in time.
    pub(crate) is_cut: bool,
}

/// The request of a pod as a whole, with its overhead if it requests anything.
pub(crate) fn request(pod: &Pod, resource: &str) -> Quantity {
    let Some(spec) = &pod.spec else { return Quantity::ZERO };
    let own = pod_amounts(spec, Amounts::Requests).get(resource).copied().unwrap_or(Quantity::ZERO);
    let overhead = parsed(spec.overhead.as_ref()).get(resource).copied().unwrap_or(Quantity::ZERO);
    if own.signum() == 0 { own } else { own.plus(overhead) }
}

/// How much a pod uses beyond its request. A pod that could not be measured comes before every other pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    Unknown,
    /// More than could be counted: it counts as beyond the request, and as the most among pods of its priority. Which pods that
    /// becomes of is up to all pods of the node, so that it does not come before priorities.
    Uncounted,
    Known {
        exceeds: bool,
        excess: Quantity,
    },
}

impl Excess {
    fn first_those_that_exceed(&self, other: &Self) -> Ordering {
        let place = |one: &Self| match one {
            Self::Unknown => 0,
            Self::Uncounted | Self::Known { exceeds: true, .. } => 1,
            Self::Known { exceeds: false, .. } => 2,
        };
        place(self).cmp(&place(other))
    }

    fn largest_first(&self, other: &Self) -> Ordering {
        let place = |one: &Self| match one {
            Self::Unknown => 0,
            Self::Uncounted => 1,
            Self::Known { .. } => 2,
        };
        match (self, other) {
            (Self::Known { excess: one, .. }, Self::Known { excess: other, .. }) => other.cmp(one),
            _ => place(self).cmp(&place(other)),
        }
    }
}

fn excess(candidate: &Candidate, signal: Signal, file_systems: FileSystems) -> Excess {
    let Some(usage) = &candidate.usage else { return Excess::Unknown };
    if candidate.is_cut && matches!(signal.resource(), Resource::EphemeralStorage | Resource::Inodes) {
        return Excess::Uncounted;
    }
    let pod = &candidate.pod.pod;
    // The usage, the request that it may or may not exceed, and the amount to subtract for the order.
    let (used, requested, subtracted) = match signal.resource() {
        Resource::Memory => {
            let used = Quantity::binary(usage.memory_bytes.unwrap_or(0));
            let requested = request(pod, "memory");
            (used, requested, requested)
        }
        Resource::EphemeralStorage => {
            let used = Quantity::binary(usage.disk(file_systems.parts(signal)).bytes);
            let requested = request(pod, "ephemeral-storage");
            (used, requested, requested)
        }
        // Pods do not request inodes; upstream subtracts the bytes all the same.
        Resource::Inodes => {
            let used = Quantity::decimal(usage.disk(file_systems.parts(signal)).inodes);
            (used, Quantity::ZERO, request(pod, "ephemeral-storage"))
        }
        Resource::Pids => (Quantity::decimal(usage.processes), Quantity::ZERO, Quantity::ZERO),
    };
    Excess::Known { exceeds: used > requested, excess: used.minus(subtracted) }
}

/// Sorts pods in the order in which they are evicted.
pub(crate) fn rank(candidates: Vec<Candidate>, signal: Signal, file_systems: FileSystems) -> Vec<Candidate> {
    let with_excess = |candidate: Candidate| {
        let uid = candidate.pod.pod_ref.uid.clone();
        blame::for_pod(&uid, || (excess(&candidate, signal, file_systems), candidate))
    };
    let mut ranked: Vec<(Excess, Candidate)> = candidates.into_iter().map(with_excess).collect();
    ranked.sort_by(|(one, first), (other, second)| {
        let by_priority = priority(&first.pod.pod).cmp(&priority(&second.pod.pod));
        match signal.resource() {
            Resource::Pids => by_priority.then_with(|| one.largest_first(other)),
            _ => one.first_those_that_exceed(other).then(by_priority).then_with(|| one.largest_first(other)),
        }
    });
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use bridge_node::stats::DiskUsage;
    use messages::facts::Source;
    use messages::{PodRef, PodUid};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::usage::ContainerUse;

    const MIB: u64 = 1 << 20;

    fn candidate(name: &str, priority: i32, memory: &str, storage: &str, usage: Option<PodUse>) -> Candidate {
        let requests = json!({ "memory": memory, "ephemeral-storage": storage });
        let spec = json!({
            "priority": priority,
            "containers": [{ "name": "c", "resources": { "requests": requests } }],
        });
        let pod = Arc::new(serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap());
        let pod_ref = PodRef { uid: PodUid::new(name), namespace: Arc::from("n"), name: Arc::from(name) };
        Candidate {
            pod: Arc::new(DesiredPod { pod_ref, pod, source: Source::Api, rejected: None, made_anew: None }),
            usage,
            is_cut: false,
        }
    }

    fn memory(mib: u64) -> Option<PodUse> {
        Some(PodUse { memory_bytes: Some(mib * MIB), ..PodUse::default() })
    }

    fn ranked(candidates: Vec<Candidate>, signal: Signal, file_systems: FileSystems) -> Vec<String> {
        let ranked = rank(candidates, signal, file_systems);
        ranked.iter().map(|one| one.pod.pod_ref.name.to_string()).collect()
    }

    #[test]
    fn memory_above_the_request_then_priority_then_how_far_above() {
        let pods = vec![
            candidate("within-low", -10, "1Gi", "0", memory(500)),
            candidate("above-high", 1000, "100Mi", "0", memory(500)),
            candidate("above-little", 0, "400Mi", "0", memory(500)),
            candidate("above-much", 0, "0", "0", memory(300)),
            candidate("unmeasured", 5000, "1Gi", "0", None),
            candidate("within", -10, "1Gi", "0", memory(900)),
        ];
        let order = ranked(pods, Signal::MemoryAvailable, FileSystems::One);
        assert_eq!(order, ["unmeasured", "above-much", "above-little", "above-high", "within", "within-low"]);
    }

    fn on_disk(layer: u64, logs: u64, volume: u64) -> Option<PodUse> {
        let usage = |mib: u64| DiskUsage { bytes: mib * MIB, inodes: mib };
        let container =
            ContainerUse { memory_bytes: None, layer: Some(usage(layer)), logs: Some(usage(logs)) };
        Some(PodUse {
            containers: [("c".to_owned(), container)].into(),
            volumes: [("v".to_owned(), usage(volume))].into(),
            ..PodUse::default()
        })
    }

    #[test]
    fn disk_by_what_lies_on_that_file_system() {
        let pods = || {
            vec![
                candidate("layer", 0, "0", "0", on_disk(100, 1, 1)),
                candidate("logs", 0, "0", "0", on_disk(1, 60, 1)),
                candidate("volume", 0, "0", "0", on_disk(2, 1, 80)),
                candidate("requested", -5, "0", "1Gi", on_disk(300, 300, 300)),
            ]
        };
        let order = |signal, file_systems| ranked(pods(), signal, file_systems);
        let one = ["layer", "volume", "logs", "requested"];
        assert_eq!(order(Signal::NodeFsAvailable, FileSystems::One), one);
        let node = ["volume", "logs", "layer", "requested"];
        assert_eq!(order(Signal::NodeFsAvailable, FileSystems::SeparateImages), node);
        let images = ["layer", "volume", "logs", "requested"];
        assert_eq!(order(Signal::ImageFsAvailable, FileSystems::SeparateImages), images);
        // All of them exceed a request of zero inodes, and so the lower priority counts.
        let inodes = ["requested", "layer", "volume", "logs"];
        assert_eq!(order(Signal::NodeFsInodesFree, FileSystems::One), inodes);
    }

    #[test]
    fn who_has_more_files_than_can_be_counted_comes_first_among_its_priority_alone() {
        let cut = |name: &str, priority| Candidate {
            is_cut: true,
            ..candidate(name, priority, "0", "10Gi", on_disk(1, 1, 1))
        };
        let pods = vec![
            candidate("within", 0, "0", "1Gi", on_disk(300, 1, 1)),
            cut("cut-high", 1000),
            candidate("above-little", 0, "0", "0", on_disk(1, 1, 1)),
            cut("cut", 0),
            candidate("above-much", 0, "0", "0", on_disk(900, 1, 1)),
            candidate("unmeasured", 5000, "0", "1Gi", None),
        ];
        let order = ranked(pods, Signal::NodeFsAvailable, FileSystems::One);
        assert_eq!(order, ["unmeasured", "cut", "above-much", "above-little", "cut-high", "within"]);
    }

    #[test]
    fn processes_by_priority_and_number() {
        let with = |processes| Some(PodUse { processes, ..PodUse::default() });
        let pods = vec![
            candidate("few", 0, "0", "0", with(2)),
            candidate("many-high", 10, "0", "0", with(900)),
            candidate("many", 0, "0", "0", with(100)),
        ];
        assert_eq!(ranked(pods, Signal::PidAvailable, FileSystems::One), ["many", "few", "many-high"]);
    }

    #[test]
    fn a_request_has_overhead_only_if_it_is_one() {
        let pod = |request: &str| -> Pod {
            let container = json!({ "name": "c", "resources": { "requests": { "memory": request } } });
            let spec = json!({ "containers": [container], "overhead": { "memory": "8Mi" } });
            serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
        };
        assert_eq!(request(&pod("0"), "memory").to_string(), "0");
        assert_eq!(request(&pod("16Mi"), "memory").to_string(), "24Mi");
        assert_eq!(request(&pod("16Mi"), "ephemeral-storage").to_string(), "0");
    }

    proptest! {
        #[test]
        fn nobody_is_lost_and_who_uses_less_of_the_same_never_comes_first(
            pods in proptest::collection::vec((0i32..3, 0u64..4, proptest::option::of(0u64..8)), 0..12),
        ) {
            let made = |(index, (priority, request, used)): (usize, &(i32, u64, Option<u64>))| {
                let usage = used.and_then(memory);
                candidate(&format!("{index}"), *priority, &format!("{request}Mi"), "0", usage)
            };
            let order = rank(pods.iter().enumerate().map(made).collect(), Signal::MemoryAvailable, FileSystems::One);
            prop_assert_eq!(order.len(), pods.len());
            let excess = |one: &Candidate| {
                let used = one.usage.as_ref().and_then(|usage| usage.memory_bytes);
                used.map(|used| Quantity::binary(used).minus(request(&one.pod.pod, "memory")))
            };
            for pair in order.windows(2) {
                let (first, second) = (&pair[0], &pair[1]);
                prop_assert!(!(first.usage.is_some() && second.usage.is_none()));
                if let (Some(one), Some(other)) = (excess(first), excess(second)) {
                    prop_assert!(one.signum() > 0 || other.signum() <= 0);
                    let same = (one.signum() > 0) == (other.signum() > 0);
                    let priorities = priority(&first.pod.pod).cmp(&priority(&second.pod.pod));
                    prop_assert!(!same || priorities.is_le());
                    prop_assert!(!same || priorities.is_ne() || one >= other);
                }
            }
        }
    }
}
