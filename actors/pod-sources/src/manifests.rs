//! PURE: the manifests of one static-pod path, remembered: what is unchanged is not decoded again, and a
//! manifest that has become wrong keeps its last good pod until the file is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::SourcePod;

/// Problems of this many characters are cut: a manifest can be wrong in thousands of fields.
pub(crate) const PROBLEM_CHARS_MAX: usize = 4096;

/// A manifest that gave no pod this time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: String,
    /// What is wrong, naming file and field.
    pub message: String,
    /// The pod of the last good version goes on.
    pub kept: bool,
}

/// What a reading gives.
#[derive(Debug, Default, PartialEq)]
pub struct Reading {
    /// All pods.
    pub pods: Vec<SourcePod>,
    /// Manifests that are wrong and were not, or were otherwise, at the last reading.
    pub problems: Vec<Problem>,
}

#[derive(Debug)]
struct Manifest {
    content: Result<Vec<u8>, String>,
    pod: Option<SourcePod>,
}

/// The manifests of one path.
#[derive(Debug, Default)]
pub struct Manifests {
    by_path: BTreeMap<String, Manifest>,
}

impl Manifests {
    /// Takes a new reading of all files. `pod` turns a manifest's bytes into a pod, or says what is wrong.
    pub fn read(
        &mut self,
        files: Vec<(String, Result<Vec<u8>, String>)>,
        mut pod: impl FnMut(&str, &[u8]) -> Result<SourcePod, String>,
    ) -> Reading {
        let mut before = std::mem::take(&mut self.by_path);
        let mut reading = Reading::default();
        for (path, content) in files {
            let known = before.remove(&path);
            let manifest = match known {
                Some(known) if known.content == content => known,
                known => {
                    let last_good = known.and_then(|known| known.pod);
                    let decoded = match &content {
                        Ok(bytes) => pod(&path, bytes),
                        Err(error) => Err(format!("{path}: {error}")),
                    };
                    let pod = match decoded {
                        Ok(pod) => Some(pod),
                        Err(message) => {
                            let message = message.chars().take(PROBLEM_CHARS_MAX).collect();
                            let kept = last_good.is_some();
                            reading.problems.push(Problem { path: path.clone(), message, kept });
                            last_good
                        }
                    };
                    Manifest { content, pod }
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

/// Wraps a pod that this kubelet can run.
pub fn runnable(pod: Pod) -> SourcePod {
    SourcePod { pod: Arc::new(pod), refused: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(path: &str, bytes: &[u8]) -> Result<SourcePod, String> {
        let text = std::str::from_utf8(bytes).unwrap();
        if text == "bad" {
            return Err(format!("{path}: spec.containers: Required value"));
        }
        let mut pod = Pod::default();
        pod.metadata.name = Some(text.to_owned());
        Ok(runnable(pod))
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
        let first = manifests.read(files(&[("a", "one")]), decode);
        let second = manifests.read(files(&[("a", "one")]), |_, _| panic!("decoded again"));
        assert!(Arc::ptr_eq(&first.pods[0].pod, &second.pods[0].pod));
    }

    #[test]
    fn a_manifest_that_goes_bad_keeps_its_pod_and_is_reported_once() {
        let mut manifests = Manifests::default();
        manifests.read(files(&[("a", "one"), ("b", "two")]), decode);
        let reading = manifests.read(files(&[("a", "bad"), ("b", "two")]), decode);
        assert_eq!(names(&reading), ["one", "two"]);
        assert_eq!(reading.problems.len(), 1);
        assert!(reading.problems[0].kept && reading.problems[0].message.contains("spec.containers"));
        let again = manifests.read(files(&[("a", "bad"), ("b", "two")]), decode);
        assert_eq!((names(&again), again.problems.len()), (vec!["one", "two"], 0));
        assert_eq!(
            names(&manifests.read(files(&[("b", "two")]), decode)),
            ["two"],
            "a removed file is a removed pod"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_says_so() {
        let mut manifests = Manifests::default();
        let reading =
            manifests.read(vec![("a".to_owned(), Err("it is not a regular file".to_owned()))], decode);
        assert_eq!(reading.problems[0].message, "a: it is not a regular file");
        assert!(reading.pods.is_empty());
    }
}
