//! PURE: from what the sources say to the pods in question, in the order in which they are admitted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use messages::facts::{Source, SourcePod};
use messages::pod_set::{GonePod, PodSetUpdate};
use messages::{PodRef, PodUid};
use pod_rules::origin::is_mirror;
use pod_set::{PodSet, Taken};

/// What the sources have said so far.
#[derive(Debug, Default)]
pub struct Sources {
    /// Of files and URLs, in the order in which these list them.
    statics: BTreeMap<Source, Arc<Vec<SourcePod>>>,
    api: PodSet<SourcePod>,
    /// Pods of the API server that cannot be read, as they were before.
    kept: BTreeMap<PodUid, SourcePod>,
    /// How many of its pods have each full name, those left out that stand for static ones.
    names: BTreeMap<String, usize>,
}

/// A pod that no source may name twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The pod that is left out.
    pub pod: PodRef,
    /// The source that named it again.
    pub source: Source,
}

/// A pod that some source wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Identity.
    pub pod_ref: PodRef,
    /// As the source gives it.
    pub pod: SourcePod,
    /// The source.
    pub source: Source,
}

/// What a merge gives.
#[derive(Debug, Default, PartialEq)]
pub struct Merged {
    /// Every pod once: those that run already, then by creation, then as the sources list them (row 3.5).
    pub candidates: Vec<Candidate>,
    /// Pods left out since another one has their UID or full name.
    pub duplicates: Vec<Duplicate>,
}

impl Sources {
    /// The full set of static pods of a file or URL. Whether it was another one before, or none.
    pub fn set(&mut self, source: Source, pods: Arc<Vec<SourcePod>>) -> bool {
        let is_news = self.statics.get(&source) != Some(&pods);
        self.statics.insert(source, pods);
        is_news
    }

    /// News of the API server's pods. What is known of a pod goes on while PodSources cannot read it.
    pub fn take_api(&mut self, update: PodSetUpdate<SourcePod>) -> Taken<SourcePod> {
        let mut taken = self.api.take(update);
        self.keep_unread(&mut taken);
        match &taken {
            Taken::Nothing | Taken::Missed => {}
            Taken::Pod(uid, before) => {
                if let Some(name) = before.as_ref().and_then(own_name)
                    && let Some(count) = self.names.get_mut(&name)
                {
                    *count -= 1;
                    if *count == 0 {
                        self.names.remove(&name);
                    }
                }
                if let Some(name) = self.one_of_api(uid).and_then(own_name) {
                    *self.names.entry(name).or_default() += 1;
                }
            }
            Taken::All(_) => {
                let names: Vec<String> = self.of_api().filter_map(|(_, pod)| own_name(pod)).collect();
                self.names.clear();
                for name in names {
                    *self.names.entry(name).or_default() += 1;
                }
            }
        }
        taken
    }

    /// Keeps what was known of pods that cannot be read, and hands it out as what was before with the next news of them.
    fn keep_unread(&mut self, taken: &mut Taken<SourcePod>) {
        match taken {
            Taken::All(before) => {
                let known = |uid: &PodUid| before.get(uid).or_else(|| self.kept.get(uid)).cloned();
                let unread = self.api.unread_uids();
                self.kept = unread.filter_map(|uid| Some((uid.clone(), known(uid)?))).collect();
            }
            Taken::Pod(uid, before) => {
                *before = before.take().or_else(|| self.kept.remove(uid));
                if let Some(before) = before.as_ref().filter(|_| self.api.is_unread(uid)) {
                    self.kept.insert(uid.clone(), before.clone());
                }
            }
            Taken::Nothing | Taken::Missed => {}
        }
    }

    /// Pods of the API server that cannot be read and of which nothing is known: their absence means nothing.
    pub fn unread(&self) -> impl Iterator<Item = &PodUid> {
        self.api.unread_uids().filter(|uid| !self.kept.contains_key(*uid))
    }

    /// Whether the pod is one of those.
    pub fn is_unread(&self, uid: &PodUid) -> bool {
        self.api.is_unread(uid) && !self.kept.contains_key(uid)
    }

    /// No other pod of the API server has the full name that this one has now, or had before.
    pub fn has_own_name(&self, before: Option<&SourcePod>, now: Option<&SourcePod>) -> bool {
        let [before, now] = [before, now].map(|pod| pod.and_then(own_name));
        let is_own = |name: &String| {
            let own = usize::from(now.as_ref() == Some(name));
            self.names.get(name).is_none_or(|count| *count <= own)
        };
        before.iter().chain(&now).all(is_own)
    }

    /// What is known of a pod that the API server no longer has. Only the API server tells the end of a pod.
    pub fn gone(&self, uid: &PodUid) -> Option<GonePod> {
        self.api.gone(uid)
    }

    /// The API server's pods, as far as it has been heard.
    pub fn of_api(&self) -> impl Iterator<Item = (&PodUid, &SourcePod)> {
        self.api.iter().chain(&self.kept)
    }

    /// A pod of the API server, as far as it is known.
    pub fn one_of_api(&self, uid: &PodUid) -> Option<&SourcePod> {
        self.api.get(uid).or_else(|| self.kept.get(uid))
    }

    /// Every one of these has been heard.
    pub fn heard_all(&self, expected: &[Source]) -> bool {
        expected.iter().all(|source| match source {
            Source::Api => self.api.is_complete(),
            Source::File | Source::Http | Source::Submission => self.statics.contains_key(source),
        })
    }

    /// Every pod once. `is_known` tells of those that run or ran already: a new one takes neither the place nor the name
    /// of one that has it. A pod of the API server has its name there and takes it from no static one, nor that one from
    /// it.
    pub fn merge(&self, is_known: impl Fn(&PodUid) -> bool) -> Merged {
        let mut merged = Merged::default();
        let statics = self.statics.iter().flat_map(|(source, pods)| pods.iter().map(|pod| (*source, pod)));
        // A mirror is no pod of its own: it stands for one that another source names.
        let of_api = self.of_api().filter(|(_, pod)| !is_mirror(&pod.pod));
        let listed = statics.chain(of_api.map(|(_, pod)| (Source::Api, pod)));
        let mut listed: Vec<Candidate> = listed
            .map(|(source, pod)| Candidate { pod_ref: PodRef::of(&pod.pod), pod: pod.clone(), source })
            .collect();
        // A static pod has no time of creation: among them the order of their sources decides.
        listed.sort_by_key(|candidate| (!is_known(&candidate.pod_ref.uid), created(&candidate.pod)));
        let (mut uids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for candidate in listed {
            let pod = &candidate.pod_ref;
            let name = (candidate.source == Source::Api, pod.full_name());
            if !uids.contains(&pod.uid) && names.insert(name) {
                uids.insert(pod.uid.clone());
                merged.candidates.push(candidate);
            } else {
                merged.duplicates.push(Duplicate { pod: candidate.pod_ref, source: candidate.source });
            }
        }
        merged
    }
}

/// The full name of a pod of the API server, unless it stands for a static one.
fn own_name(pod: &SourcePod) -> Option<String> {
    (!is_mirror(&pod.pod)).then(|| PodRef::of(&pod.pod).full_name())
}

fn created(pod: &SourcePod) -> Option<Timestamp> {
    pod.pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use proptest::prelude::*;

    use super::*;

    fn pod(uid: &str, name: &str) -> SourcePod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = Some("default".to_owned());
        SourcePod { pod: Arc::new(pod), refused: None, made_anew: None }
    }

    fn created_at(uid: &str, second: i64) -> SourcePod {
        let mut pod = (*pod(uid, uid).pod).clone();
        pod.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        SourcePod { pod: Arc::new(pod), refused: None, made_anew: None }
    }

    fn sources(pods: Vec<SourcePod>) -> Sources {
        let mut sources = Sources::default();
        sources.set(Source::File, Arc::new(pods));
        sources
    }

    fn uids(merged: &Merged) -> Vec<&str> {
        merged.candidates.iter().map(|candidate| candidate.pod_ref.uid.as_str()).collect()
    }

    fn known(uids: &[&str]) -> impl Fn(&PodUid) -> bool {
        move |uid| uids.contains(&uid.as_str())
    }

    #[test]
    fn the_later_of_two_of_one_full_name_is_left_out() {
        let merged = sources(vec![pod("1", "a"), pod("2", "a"), pod("3", "b")]).merge(known(&[]));
        assert_eq!(uids(&merged), ["1", "3"]);
        assert_eq!(merged.duplicates.len(), 1);
        assert_eq!(merged.duplicates[0].pod.uid.as_str(), "2");
    }

    #[test]
    fn a_running_pod_keeps_its_name_from_one_that_is_listed_before_it() {
        let merged = sources(vec![pod("1", "a"), pod("2", "a")]).merge(known(&["2"]));
        assert_eq!(uids(&merged), ["2"]);
        assert_eq!(merged.duplicates[0].pod.uid.as_str(), "1");
    }

    #[test]
    fn a_name_is_taken_across_sources_and_the_file_comes_first() {
        let mut all = sources(vec![pod("1", "a")]);
        all.set(Source::Http, Arc::new(vec![pod("2", "a"), pod("3", "b")]));
        let merged = all.merge(known(&[]));
        assert_eq!(uids(&merged), ["1", "3"]);
        let left_out = Duplicate { pod: PodRef::of(&pod("2", "a").pod), source: Source::Http };
        assert_eq!(merged.duplicates, [left_out]);
    }

    #[test]
    fn a_pod_of_the_api_server_and_a_static_one_take_no_name_from_each_other() {
        for running in [&[][..], &["1"], &["2"]] {
            let mut all = sources(vec![pod("1", "a")]);
            let of_api = ["2", "3"].map(PodUid::new).into_iter().zip([pod("2", "a"), pod("3", "b")]);
            all.take_api(pod_set::snapshot(1, of_api, true));
            let merged = all.merge(known(running));
            assert_eq!(uids(&merged).len(), 3, "{running:?}");
            assert_eq!(merged.duplicates, []);
        }
    }

    #[test]
    fn a_full_name_is_shared_also_with_a_pod_that_had_it() {
        let mut all = Sources::default();
        let mut journal = pod_set::Journal::new(1);
        all.take_api(journal.snapshot());
        let [first, second, other] = [pod("1", "a"), pod("2", "a"), pod("3", "b")];
        all.take_api(journal.put(&PodUid::new("1"), first.clone()));
        all.take_api(journal.put(&PodUid::new("3"), other.clone()));
        assert!(all.has_own_name(None, Some(&first)) && all.has_own_name(Some(&other), Some(&other)));
        all.take_api(journal.put(&PodUid::new("2"), second.clone()));
        assert!(!all.has_own_name(None, Some(&second)) && !all.has_own_name(Some(&first), Some(&first)));
        all.take_api(journal.remove(&PodUid::new("1"), GonePod::default()).unwrap());
        assert!(!all.has_own_name(Some(&first), None), "the other may have it now");
        assert!(all.has_own_name(Some(&second), Some(&second)));
        all.take_api(journal.remove(&PodUid::new("3"), GonePod::default()).unwrap());
        assert!(all.has_own_name(Some(&other), None));
    }

    #[test]
    fn those_that_run_come_first_and_then_the_oldest() {
        let all = sources(vec![created_at("1", 30), created_at("2", 10), pod("3", "c"), created_at("4", 20)]);
        assert_eq!(uids(&all.merge(known(&[]))), ["3", "2", "4", "1"]);
        assert_eq!(uids(&all.merge(known(&["1"]))), ["1", "3", "2", "4"]);
    }

    #[test]
    fn a_pod_that_a_restarted_source_cannot_read_goes_on_as_it_was() {
        let [old, other] = ["old", "other"].map(PodUid::new);
        let mut sources = Sources::default();
        sources.take_api(pod_set::snapshot(1, [(old.clone(), pod("old", "old"))], true));
        let mut journal = pod_set::Journal::new(2);
        journal.unread(&old);
        journal.unread(&other);
        journal.completed();
        sources.take_api(journal.snapshot());
        assert_eq!(uids(&sources.merge(known(&[]))), ["old"]);
        assert_eq!(sources.unread().collect::<Vec<_>>(), [&other]);
        assert!(sources.is_unread(&other) && !sources.is_unread(&old));
        sources.take_api(journal.snapshot());
        assert!(sources.one_of_api(&old).is_some(), "and again");
        let changed = journal.put(&other, pod("other", "other"));
        assert_eq!(sources.take_api(changed), Taken::Pod(other, None));
        let gone = journal.remove(&old, GonePod::default()).unwrap();
        assert_eq!(sources.take_api(gone), Taken::Pod(old, Some(pod("old", "old"))));
        assert_eq!(uids(&sources.merge(known(&[]))), ["other"]);
    }

    #[test]
    fn heard_means_every_configured_source() {
        let all = sources(Vec::new());
        assert!(all.heard_all(&[Source::File]));
        assert!(!all.heard_all(&[Source::File, Source::Http]));
        assert!(all.heard_all(&[]));
    }

    proptest! {
        /// Whatever is listed: names and UIDs are unique, and nothing is lost without a word.
        #[test]
        fn merged_pods_are_unique_and_accounted_for(
            listed in prop::collection::vec((0u8..6, 0u8..4), 0..12),
            running in prop::collection::btree_set(0u8..6, 0..6),
        ) {
            let pods: Vec<_> =
                listed.iter().map(|(uid, name)| pod(&uid.to_string(), &name.to_string())).collect();
            let running: BTreeSet<PodUid> = running.iter().map(|uid| PodUid::new(&uid.to_string())).collect();
            let merged = sources(pods.clone()).merge(|uid| running.contains(uid));
            let names: BTreeSet<_> = merged.candidates.iter().map(|pod| pod.pod_ref.full_name()).collect();
            let uids: BTreeSet<_> = merged.candidates.iter().map(|pod| &pod.pod_ref.uid).collect();
            prop_assert_eq!(names.len(), merged.candidates.len());
            prop_assert_eq!(uids.len(), merged.candidates.len());
            prop_assert_eq!(merged.candidates.len() + merged.duplicates.len(), pods.len());
        }
    }
}
