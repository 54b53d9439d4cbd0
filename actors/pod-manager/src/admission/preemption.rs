//! PURE: which pods end so that a critical pod finds room (row 16.7).
//!
//! As few pods as possible of the class Guaranteed, then of Burstable, then of BestEffort; among equals those
//! that fit the missing amounts best, then those that request least.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::Source;
use pod_rules::critical::{self, priority};
use pod_rules::origin::{annotated_source, is_static};
use pod_spec::resources::QosClass;

use super::resources::{Insufficient, requests};

/// Message of the victims' events and statuses.
pub const MESSAGE: &str = "Preempted in order to admit critical pod";

/// The source that the pod's annotation names (every pod of a manifest has one), else the API server.
fn source(pod: &Pod) -> Source {
    annotated_source(pod).unwrap_or(Source::Api)
}

/// Whether the pod is critical, as far as it tells itself.
pub fn is_critical(pod: &Pod) -> bool {
    critical::is_critical(pod, source(pod))
}

/// Whether `other` may be ended for `pod`.
fn yields(pod: &Pod, other: &Pod) -> bool {
    let rank = |pod: &Pod| priority(pod).or_else(|| is_static(source(pod)).then_some(0));
    let higher = matches!((rank(pod), rank(other)), (Some(one), Some(other)) if one > other);
    (is_critical(pod) && !is_critical(other)) || higher
}

/// The amounts that have still to become free, by resource.
type Missing = BTreeMap<String, i64>;

/// A pod that may be ended, with what each comparison needs: to find that out is work for each of its containers.
struct Candidate {
    index: usize,
    class: QosClass,
    requests: BTreeMap<String, i64>,
}

/// The indices of the pods that end for `pod`; as an error, the amounts that would be missing even without
/// all pods that may be ended.
pub(super) fn victims(pod: &Pod, others: &[&Pod], lacks: &[Insufficient]) -> Result<Vec<usize>, String> {
    let missing: Missing = lacks.iter().map(|lack| (lack.resource.clone(), lack.missing())).collect();
    let candidate = |(index, other): (usize, &&Pod)| {
        yields(pod, other).then(|| Candidate { index, class: QosClass::of(other), requests: requests(other) })
    };
    let all: Vec<Candidate> = others.iter().enumerate().filter_map(candidate).collect();
    let of_class =
        |class: QosClass| -> Vec<&Candidate> { all.iter().filter(|one| one.class == class).collect() };
    let [guaranteed, burstable, best_effort] =
        [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort].map(of_class);
    let without = |missing: &Missing, groups: &[&[&Candidate]]| {
        less(missing, groups.iter().copied().flatten().copied())
    };
    let never = without(&missing, &[&best_effort, &burstable, &guaranteed]);
    if !never.is_empty() {
        return Err(format!("no set of running pods found to reclaim resources: {}", shown(&never)));
    }
    let guaranteed = fewest(&guaranteed, without(&missing, &[&best_effort, &burstable]));
    let burstable = fewest(&burstable, without(&missing, &[&best_effort, &guaranteed]));
    let best_effort = fewest(&best_effort, without(&missing, &[&burstable, &guaranteed]));
    Ok([best_effort, burstable, guaranteed].concat().into_iter().map(|one| one.index).collect())
}

/// Chooses the pod that frees most of the missing amounts, until none is missing. There is always one: the
/// candidates together free enough.
fn fewest<'a>(candidates: &[&'a Candidate], mut missing: Missing) -> Vec<&'a Candidate> {
    let (mut left, mut chosen) = (candidates.to_vec(), Vec::new());
    while !missing.is_empty() && !left.is_empty() {
        // Among equals the last one, which is the youngest.
        let best = (0..left.len()).rev().min_by(|one, other| {
            let (one, other) = (&left[*one].requests, &left[*other].requests);
            distance(&missing, one).total_cmp(&distance(&missing, other)).then_with(|| by_request(one, other))
        });
        let victim = left.remove(best.expect("there is one left"));
        missing = less(&missing, std::iter::once(victim));
        chosen.push(victim);
    }
    chosen
}

/// How far the pod's end is from freeing all missing amounts: the sum of the squares of the fractions that
/// would remain.
fn distance(missing: &Missing, freed: &BTreeMap<String, i64>) -> f64 {
    missing
        .iter()
        .map(|(name, amount)| {
            let rest = amount - freed.get(name).copied().unwrap_or_default();
            if rest > 0 { (rest as f64 / *amount as f64).powi(2) } else { 0.0 }
        })
        .sum()
}

fn by_request(one: &BTreeMap<String, i64>, other: &BTreeMap<String, i64>) -> Ordering {
    let of = |requests: &BTreeMap<String, i64>, name: &str| requests.get(name).copied().unwrap_or_default();
    let compare = |name: &str| of(one, name).cmp(&of(other, name));
    compare("memory").then_with(|| compare("cpu"))
}

fn less<'a>(missing: &Missing, victims: impl Iterator<Item = &'a Candidate>) -> Missing {
    let mut missing = missing.clone();
    for victim in victims {
        for (name, freed) in &victim.requests {
            if let Some(amount) = missing.get_mut(name) {
                *amount = amount.saturating_sub(*freed);
            }
        }
    }
    missing.retain(|_, amount| *amount > 0);
    missing
}

fn shown(missing: &Missing) -> String {
    let items: String =
        missing.iter().map(|(name, amount)| format!("(res: {name}, q: {amount}), ")).collect();
    format!("[{items}]")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use pod_rules::annotations::{CONFIG_MIRROR, CONFIG_SOURCE};
    use pod_rules::critical::CRITICAL;

    use super::*;
    use crate::admission::fixtures::{annotated, node_resources, requesting, with_priority};
    use crate::admission::resources::insufficient;
    use crate::admission::room::Room;

    fn chosen(pod: &Pod, others: &[Pod], cpu: &str) -> Result<Vec<usize>, String> {
        let others: Vec<&Pod> = others.iter().collect();
        let lacks =
            insufficient(pod, &Room::of(&others), &node_resources(&[("cpu", cpu), ("memory", "1Gi")]), 4);
        let mut victims = victims(pod, &others, &lacks)?;
        victims.sort_unstable();
        Ok(victims)
    }

    fn guaranteed(cpu: &str) -> Pod {
        let mut pod = requesting(&[("cpu", cpu), ("memory", "1Mi")]);
        let resources = pod.spec.as_mut().unwrap().containers[0].resources.as_mut().unwrap();
        resources.limits = resources.requests.clone();
        pod
    }

    #[test]
    fn the_least_is_ended() {
        let critical = |cpu: &str| with_priority(requesting(&[("cpu", cpu)]), 2_000_001_000);
        let burstable = |cpu: &str| requesting(&[("cpu", cpu)]);
        // The pod that frees enough, and the smaller of two such pods.
        let others = [burstable("500m"), burstable("1500m"), burstable("1")];
        assert_eq!(chosen(&critical("1"), &others, "3"), Ok(vec![2]));
        // Two pods when no single one frees enough.
        assert_eq!(chosen(&critical("2"), &others, "3"), Ok(vec![0, 1]));
        // Pods of the lower class first, even if more of them have to end.
        let others = [guaranteed("1"), burstable("500m"), burstable("500m")];
        assert_eq!(chosen(&critical("1"), &others, "2"), Ok(vec![1, 2]));
        assert_eq!(chosen(&critical("1500m"), &others, "2"), Ok(vec![0, 2]));
        // A pod of the class BestEffort frees its place only.
        let others = [requesting(&[]), burstable("1"), guaranteed("1"), requesting(&[])];
        assert_eq!(chosen(&critical("100m"), &others, "4"), Ok(vec![3]));
    }

    #[test]
    fn critical_pods_and_those_of_no_lower_priority_stay() {
        let others = [
            with_priority(requesting(&[("cpu", "1")]), 2_000_001_000),
            with_priority(requesting(&[("cpu", "1")]), 100),
        ];
        let pod = |priority| with_priority(requesting(&[("cpu", "1")]), priority);
        assert_eq!(chosen(&pod(2_000_000_000), &others, "2"), Ok(vec![1]));
        assert_eq!(chosen(&pod(101), &others, "2"), Ok(vec![1]));
        let nobody = "no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]";
        assert_eq!(chosen(&pod(100), &others, "2"), Err(nobody.to_owned()));
        assert_eq!(chosen(&requesting(&[("cpu", "1")]), &others, "2"), Err(nobody.to_owned()));
        assert_eq!(chosen(&pod(2_000_001_001), &others, "2"), Ok(vec![1]), "of equals the youngest");
    }

    #[test]
    fn static_pods_are_critical_and_their_own_priorities_rank_them() {
        let fixed = |pod: Pod| annotated(pod, CONFIG_SOURCE, "file");
        let of_api = |cpu: &str| annotated(requesting(&[("cpu", cpu)]), CONFIG_SOURCE, "api");
        let plain = || fixed(requesting(&[("cpu", "1")]));
        assert!(is_critical(&plain()) && !is_critical(&of_api("1")));
        assert!(is_critical(&annotated(of_api("1"), CONFIG_MIRROR, "hash")));
        assert_eq!(chosen(&plain(), &[of_api("1"), plain()], "2"), Ok(vec![0]));
        let nobody = "no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]";
        assert_eq!(chosen(&plain(), &[plain()], "1"), Err(nobody.to_owned()));
        let vital = fixed(with_priority(requesting(&[("cpu", "1")]), CRITICAL));
        assert_eq!(chosen(&vital, &[plain()], "1"), Ok(vec![0]));
    }

    #[test]
    fn the_classes_of_every_cluster_have_their_priorities() {
        let of = |class: &str| {
            let mut pod = requesting(&[]);
            pod.spec.as_mut().unwrap().priority_class_name = Some(class.to_owned());
            pod
        };
        assert!(is_critical(&of("system-node-critical")) && is_critical(&of("system-cluster-critical")));
        assert!(!is_critical(&of("high")));
    }

    proptest! {
        /// The chosen pods free enough, and none of them is critical.
        #[test]
        fn the_chosen_are_enough(
            others in prop::collection::vec((0u32..2000, any::<bool>()), 0..4), asked in 1u32..3000,
        ) {
            let others: Vec<Pod> = others
                .into_iter()
                .map(|(cpu, critical)| {
                    let pod = requesting(&[("cpu", &format!("{cpu}m"))]);
                    if critical { with_priority(pod, CRITICAL) } else { pod }
                })
                .collect();
            let pod = with_priority(requesting(&[("cpu", &format!("{asked}m"))]), CRITICAL);
            let node = node_resources(&[("cpu", "3")]);
            let all: Vec<&Pod> = others.iter().collect();
            let lacks = insufficient(&pod, &Room::of(&all), &node, 10);
            if let Ok(victims) = victims(&pod, &all, &lacks) {
                prop_assert!(victims.iter().all(|index| !is_critical(all[*index])));
                let rest: Vec<&Pod> =
                    (0..all.len()).filter(|index| !victims.contains(index)).map(|index| all[index]).collect();
                prop_assert_eq!(insufficient(&pod, &Room::of(&rest), &node, 10), vec![]);
            }
        }
    }
}
