//! PURE: the manifests of one static-pod path, remembered: an unchanged manifest is not decoded again, and one that has
//! become wrong keeps its last good pod for a while.
//!
//! As upstream does: a file that is written is read at once, and if it is wrong, nothing changes; but a listing, which
//! comes every `fileCheckFrequency`, removes the pods of wrong files. Only if the path itself is a file does its last
//! good pod stay for as long as the file is wrong. Unlike upstream, which ends the pod, a change that a listing is the
//! first to see is taken for a file that is still being written.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::{REFUSAL_BYTES_MAX, SourcePod};
use messages::pod_set::Generation;
use messages::{PodRef, PodUid};
use pod_rules::errors;

/// So many pods are remembered whose manifests were removed.
const REMOVED_MAX: usize = 1024;

/// A manifest that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: String,
    /// What is wrong, with file and field.
    pub message: String,
    /// Whether the pod of the last good version stays.
    pub kept: bool,
}

/// The content of a good manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct GoodManifest<T> {
    /// The manifest's pod or pods.
    pub pods: T,
    /// The manifest's fields that have no effect, with the file; `None` if there are none.
    pub ignored: Option<String>,
}

/// The result of reading all files.
#[derive(Debug, Default, PartialEq)]
pub struct Reading {
    /// All pods.
    pub pods: Vec<SourcePod>,
    /// Manifests that are wrong, if that or what is wrong is new since the last reading, or if their pods are removed
    /// now.
    pub problems: Vec<Problem>,
    /// Changed files that have fields without effect: path and text.
    pub ignored: Vec<(String, String)>,
}

/// Why files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadReason {
    /// A file was written.
    Written,
    /// The period of listings is over.
    Listing,
}

#[derive(Debug)]
struct Manifest {
    content: Result<Vec<u8>, String>,
    pod: Option<SourcePod>,
    /// What is wrong with the content, if something is.
    wrong: Option<String>,
}

/// The manifests of one path.
#[derive(Debug, Default)]
pub struct Manifests {
    by_path: BTreeMap<String, Manifest>,
    /// When the manifest of a pod was removed last. The pod may come back.
    removed: BTreeMap<PodUid, Generation>,
}

impl Manifests {
    /// A file was removed, and may be there again with the same content: a pod that comes back is made anew.
    pub fn removed(&mut self, path: &str, when: Generation) {
        let Some(pod) = self.by_path.remove(path).and_then(|manifest| manifest.pod) else { return };
        self.removed.insert(PodRef::of(&pod.pod).uid, when);
        if self.removed.len() > REMOVED_MAX {
            let oldest = self.removed.iter().min_by_key(|(_, when)| **when).map(|(uid, _)| uid.clone());
            oldest.map(|uid| self.removed.remove(&uid));
        }
    }

    /// Takes a reading of all files. `pod` turns a manifest's bytes into a pod, or returns what is wrong.
    pub fn read(
        &mut self,
        files: Vec<(String, Result<Vec<u8>, String>)>,
        why: ReadReason,
        mut pod: impl FnMut(&str, &[u8]) -> Result<GoodManifest<SourcePod>, String>,
    ) -> Reading {
        let mut before = std::mem::take(&mut self.by_path);
        let mut reading = Reading::default();
        for (path, content) in files {
            let known = before.remove(&path);
            let manifest = match known {
                Some(mut known) if known.content == content => {
                    if let Some(wrong) = known.wrong.as_ref().filter(|_| why == ReadReason::Listing)
                        && known.pod.take().is_some()
                    {
                        let message = wrong.clone();
                        reading.problems.push(Problem { path: path.clone(), message, kept: false });
                    }
                    known
                }
                known => {
                    let decoded = match &content {
                        Ok(bytes) => pod(&path, bytes),
                        Err(error) => Err(format!("{path}: {error}")),
                    };
                    match decoded {
                        Ok(GoodManifest { mut pods, ignored }) => {
                            pods.made_anew = self.removed.get(&PodRef::of(&pods.pod).uid).copied();
                            reading.ignored.extend(ignored.map(|ignored| (path.clone(), cut(&ignored))));
                            Manifest { content, pod: Some(pods), wrong: None }
                        }
                        Err(message) => {
                            let (message, pod) = (cut(&message), known.and_then(|known| known.pod));
                            let kept = pod.is_some();
                            reading.problems.push(Problem {
                                path: path.clone(),
                                message: message.clone(),
                                kept,
                            });
                            Manifest { content, pod, wrong: Some(message) }
                        }
                    }
                }
            };
            reading.pods.extend(manifest.pod.clone());
            self.by_path.insert(path, manifest);
        }
        reading
    }

    /// The pods of the last reading.
    pub fn pods(&self) -> Vec<SourcePod> {
        self.by_path.values().filter_map(|manifest| manifest.pod.clone()).collect()
    }
}

/// The text of a problem, cut: a manifest can be wrong in thousands of fields.
pub(crate) fn cut(text: &str) -> String {
    let mut text = text.to_owned();
    errors::cut(&mut text, REFUSAL_BYTES_MAX);
    text
}

/// Wraps a pod that this kubelet can run.
pub fn runnable(pod: Pod) -> SourcePod {
    SourcePod { pod: Arc::new(pod), refused: None, made_anew: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(path: &str, bytes: &[u8]) -> Result<GoodManifest<SourcePod>, String> {
        let text = std::str::from_utf8(bytes).unwrap();
        if text == "bad" {
            return Err(format!("{path}: spec.containers: Required value"));
        }
        let mut pod = Pod::default();
        pod.metadata.name = Some(text.to_owned());
        let ignored = text.contains("odd").then(|| format!("{path}: odd"));
        Ok(GoodManifest { pods: runnable(pod), ignored })
    }

    fn files(list: &[(&str, &str)]) -> Vec<(String, Result<Vec<u8>, String>)> {
        list.iter().map(|(path, text)| ((*path).to_owned(), Ok(text.as_bytes().to_vec()))).collect()
    }

    fn names(reading: &Reading) -> Vec<&str> {
        reading.pods.iter().filter_map(|pod| pod.pod.metadata.name.as_deref()).collect()
    }

    #[test]
    fn unchanged_manifests_are_the_same_objects() {
        let mut manifests = Manifests::default();
        let first = manifests.read(files(&[("a", "one")]), ReadReason::Listing, decode);
        let second =
            manifests.read(files(&[("a", "one")]), ReadReason::Listing, |_, _| panic!("decoded again"));
        assert!(Arc::ptr_eq(&first.pods[0].pod, &second.pods[0].pod));
    }

    #[test]
    fn a_manifest_that_goes_bad_keeps_its_pod_until_a_listing_finds_it_so() {
        let mut manifests = Manifests::default();
        let (good, bad) = (files(&[("a", "one"), ("b", "two")]), files(&[("a", "bad"), ("b", "two")]));
        manifests.read(good.clone(), ReadReason::Listing, decode);
        for (why, pods, told) in [
            (ReadReason::Written, vec!["one", "two"], Some(true)),
            (ReadReason::Written, vec!["one", "two"], None),
            (ReadReason::Listing, vec!["two"], Some(false)),
            (ReadReason::Listing, vec!["two"], None),
        ] {
            let reading = manifests.read(bad.clone(), why, decode);
            assert_eq!(names(&reading), pods, "{why:?}");
            let kept: Vec<bool> = reading.problems.iter().map(|problem| problem.kept).collect();
            assert_eq!(kept, Vec::from_iter(told), "{why:?}");
            assert!(reading.problems.iter().all(|problem| problem.message.contains("spec.containers")));
        }
        assert_eq!(names(&manifests.read(good, ReadReason::Written, decode)), ["one", "two"], "mended");
        let removed = files(&[("b", "two")]);
        assert_eq!(
            names(&manifests.read(removed, ReadReason::Written, decode)),
            ["two"],
            "a removed file is a removed pod"
        );
    }

    #[test]
    fn what_a_listing_is_the_first_to_see_may_be_a_file_that_is_being_written() {
        let mut manifests = Manifests::default();
        manifests.read(files(&[("a", "one")]), ReadReason::Listing, decode);
        assert_eq!(names(&manifests.read(files(&[("a", "bad")]), ReadReason::Listing, decode)), ["one"]);
        let gone: [&str; 0] = [];
        assert_eq!(names(&manifests.read(files(&[("a", "bad")]), ReadReason::Listing, decode)), gone);
    }

    #[test]
    fn a_pod_whose_manifest_was_away_is_made_anew() {
        let when = |number| Generation { incarnation: 1, number };
        let with_uid = |path: &str, bytes: &[u8]| {
            let mut good = decode(path, bytes)?;
            Arc::make_mut(&mut good.pods.pod).metadata.uid = good.pods.pod.metadata.name.clone();
            Ok(good)
        };
        let mut manifests = Manifests::default();
        let one = files(&[("a", "one"), ("b", "two")]);
        let first = manifests.read(one.clone(), ReadReason::Listing, with_uid);
        assert!(first.pods.iter().all(|pod| pod.made_anew.is_none()));
        manifests.removed("c", when(1));
        manifests.removed("a", when(2));
        let again = manifests.read(one.clone(), ReadReason::Written, with_uid);
        let anew: Vec<_> = again.pods.iter().map(|pod| pod.made_anew).collect();
        assert_eq!(anew, [Some(when(2)), None]);
        assert_eq!(manifests.read(one, ReadReason::Listing, with_uid).pods, again.pods, "it stays so");
        manifests.removed("a", when(3));
        let bad = files(&[("a", "bad"), ("b", "two")]);
        assert_eq!(
            names(&manifests.read(bad, ReadReason::Written, with_uid)),
            ["two"],
            "it does not come back"
        );
        for number in 4..2_000 {
            let name = format!("pod-{number}");
            manifests.read(files(&[("a", &name)]), ReadReason::Written, with_uid);
            manifests.removed("a", when(number));
        }
        assert_eq!(manifests.removed.len(), REMOVED_MAX);
        assert!(manifests.removed.contains_key(&PodUid::new("pod-1999")), "the newest are remembered");
    }

    #[test]
    fn fields_without_effect_are_told_once() {
        let mut manifests = Manifests::default();
        let reading = manifests.read(files(&[("a", "odd")]), ReadReason::Listing, decode);
        assert_eq!(reading.ignored, [("a".to_owned(), "a: odd".to_owned())]);
        assert_eq!((names(&reading), reading.problems.len()), (vec!["odd"], 0));
        assert_eq!(manifests.read(files(&[("a", "odd")]), ReadReason::Listing, decode).ignored, []);
    }

    #[test]
    fn a_file_that_cannot_be_read_says_so() {
        let mut manifests = Manifests::default();
        let reading = manifests.read(
            vec![("a".to_owned(), Err("it is not a regular file".to_owned()))],
            ReadReason::Listing,
            decode,
        );
        assert_eq!(reading.problems[0].message, "a: it is not a regular file");
        assert!(reading.pods.is_empty());
    }
}
