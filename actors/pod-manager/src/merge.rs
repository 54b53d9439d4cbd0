//! PURE: from what the sources say to the set of desired pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use messages::facts::{DesiredPod, Rejection, Source, SourcePod};
use messages::{PodRef, PodUid};

/// What the sources have said so far.
#[derive(Debug, Default)]
pub struct Sources {
    pods: BTreeMap<Source, Arc<Vec<SourcePod>>>,
}

/// A pod that no source may name twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The pod that is left out.
    pub pod: PodRef,
    /// The source that named it again.
    pub source: Source,
}

/// What a merge gives.
#[derive(Debug, Default, PartialEq)]
pub struct Merged {
    /// The desired pods.
    pub pods: BTreeMap<PodUid, Arc<DesiredPod>>,
    /// Pods left out since another one has their UID or full name.
    pub duplicates: Vec<Duplicate>,
    /// Pods that wait until a predecessor of the same full name has gone (row 2.4).
    pub waiting: Vec<PodRef>,
}

impl Sources {
    /// A source's full set.
    pub fn set(&mut self, source: Source, pods: Arc<Vec<SourcePod>>) {
        self.pods.insert(source, pods);
    }

    /// Every one of these has been heard.
    pub fn heard_all(&self, expected: &[Source]) -> bool {
        expected.iter().all(|source| self.pods.contains_key(source))
    }

    /// The desired pods. `leaving` are pods that still have something on the node and may be of the same full
    /// name; `admitted` are those that run already: they keep their places.
    pub fn merge(
        &self,
        leaving: &BTreeMap<PodUid, PodRef>,
        admitted: &BTreeSet<PodUid>,
        pods_max: usize,
    ) -> Merged {
        let mut merged = Merged::default();
        let mut names: BTreeSet<String> = BTreeSet::new();
        let listed = self.pods.iter().flat_map(|(source, pods)| pods.iter().map(|pod| (*source, pod)));
        let mut listed: Vec<(Source, &SourcePod, PodRef)> =
            listed.map(|(source, pod)| (source, pod, PodRef::of(&pod.pod))).collect();
        // Running pods first: a new one takes neither the place nor the name of one that has it.
        listed.sort_by_key(|(_, _, pod)| !admitted.contains(&pod.uid));
        let mut candidates: Vec<(Source, &SourcePod, PodRef)> = Vec::new();
        for (source, pod, pod_ref) in listed {
            let unique = !candidates.iter().any(|(_, _, other)| other.uid == pod_ref.uid)
                && names.insert(pod_ref.full_name());
            if unique {
                candidates.push((source, pod, pod_ref));
            } else {
                merged.duplicates.push(Duplicate { pod: pod_ref, source });
            }
        }
        let mut places = pods_max;
        for (source, pod, pod_ref) in candidates {
            let predecessor = leaving
                .iter()
                .any(|(uid, other)| *uid != pod_ref.uid && other.full_name() == pod_ref.full_name());
            if predecessor {
                merged.waiting.push(pod_ref);
                continue;
            }
            let rejected = pod.refused.clone().or_else(|| (places == 0).then(|| out_of_pods(pods_max)));
            if rejected.is_none() {
                places -= 1;
            }
            let desired = DesiredPod { pod_ref: pod_ref.clone(), pod: pod.pod.clone(), source, rejected };
            merged.pods.insert(pod_ref.uid, Arc::new(desired));
        }
        merged
    }
}

/// Upstream's refusal when `maxPods` are there already (row 16.2).
fn out_of_pods(pods_max: usize) -> Rejection {
    Rejection {
        reason: "OutOfpods".to_owned(),
        message: format!(
            "Node didn't have enough resource: pods, requested: 1, used: {pods_max}, capacity: {pods_max}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use proptest::prelude::*;

    use super::*;

    fn pod(uid: &str, name: &str) -> SourcePod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = Some("default".to_owned());
        SourcePod { pod: Arc::new(pod), refused: None }
    }

    fn sources(pods: Vec<SourcePod>) -> Sources {
        let mut sources = Sources::default();
        sources.set(Source::File, Arc::new(pods));
        sources
    }

    fn rejected(merged: &Merged) -> Vec<&str> {
        merged
            .pods
            .values()
            .filter(|pod| pod.rejected.is_some())
            .map(|pod| pod.pod_ref.uid.as_str())
            .collect()
    }

    #[test]
    fn the_later_of_two_of_one_full_name_is_left_out() {
        let merged = sources(vec![pod("1", "a"), pod("2", "a"), pod("3", "b")]).merge(
            &BTreeMap::new(),
            &BTreeSet::new(),
            110,
        );
        assert_eq!(merged.pods.keys().map(PodUid::as_str).collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(merged.duplicates.len(), 1);
        assert_eq!(merged.duplicates[0].pod.uid.as_str(), "2");
    }

    #[test]
    fn a_running_pod_keeps_its_name_from_one_that_is_listed_before_it() {
        let all = sources(vec![pod("1", "a"), pod("2", "a")]);
        let merged = all.merge(&BTreeMap::new(), &BTreeSet::from([PodUid::new("2")]), 110);
        assert_eq!(merged.pods.keys().map(PodUid::as_str).collect::<Vec<_>>(), ["2"]);
        assert_eq!(merged.duplicates[0].pod.uid.as_str(), "1");
    }

    #[test]
    fn a_successor_waits_until_its_predecessor_has_gone() {
        let old = PodRef::of(&pod("1", "a").pod);
        let leaving = BTreeMap::from([(old.uid.clone(), old)]);
        let all = sources(vec![pod("2", "a")]);
        let merged = all.merge(&leaving, &BTreeSet::new(), 110);
        assert!(merged.pods.is_empty());
        assert_eq!(merged.waiting.len(), 1);
        assert_eq!(all.merge(&BTreeMap::new(), &BTreeSet::new(), 110).pods.len(), 1);
    }

    #[test]
    fn running_pods_keep_their_places() {
        let all = sources(vec![pod("1", "a"), pod("2", "b"), pod("3", "c")]);
        let merged = all.merge(&BTreeMap::new(), &BTreeSet::from([PodUid::new("2"), PodUid::new("3")]), 2);
        assert_eq!(rejected(&merged), ["1"]);
        let refusal = merged.pods[&PodUid::new("1")].rejected.clone().unwrap();
        assert_eq!(refusal.reason, "OutOfpods");
        assert_eq!(
            refusal.message,
            "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2"
        );
    }

    #[test]
    fn heard_means_every_configured_source() {
        let all = sources(Vec::new());
        assert!(all.heard_all(&[Source::File]));
        assert!(!all.heard_all(&[Source::File, Source::Api]));
        assert!(Sources::default().heard_all(&[]));
    }

    proptest! {
        #[test]
        fn never_two_desired_pods_of_one_name_nor_more_than_allowed(
            pods in prop::collection::vec((0u8..30, 0u8..10), 0..40), max in 0usize..20,
        ) {
            let pods: Vec<_> = pods.iter().map(|(uid, name)| pod(&uid.to_string(), &name.to_string())).collect();
            let merged = sources(pods).merge(&BTreeMap::new(), &BTreeSet::new(), max);
            let names: BTreeSet<_> = merged.pods.values().map(|pod| pod.pod_ref.full_name()).collect();
            prop_assert_eq!(names.len(), merged.pods.len());
            prop_assert!(merged.pods.len() - rejected(&merged).len() <= max);
        }
    }
}
