//! PURE: the manifest of a URL, remembered: an unchanged manifest is not decoded again, and when it becomes wrong or
//! cannot be had, its last good pods stay (row 1.4).

use messages::facts::SourcePod;

use crate::manifests::GoodManifest;

/// The effect of a GET.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchOutcome {
    /// The manifest has not changed.
    Unchanged,
    /// The manifest's pods, and its fields that have no effect.
    Pods(GoodManifest<Vec<SourcePod>>),
    /// The body was empty: there are no pods any more, which is worth a warning.
    Emptied,
    /// The manifest is wrong.
    Wrong {
        /// What is wrong.
        message: String,
        /// Whether pods of the last good manifest stay.
        kept: bool,
    },
}

/// The manifest of one URL.
#[derive(Debug, Default)]
pub struct Fetched {
    bytes: Option<Vec<u8>>,
    pods: Option<Vec<SourcePod>>,
}

impl Fetched {
    /// Takes a body. `decode` turns it into pods, or returns what is wrong.
    pub fn take(
        &mut self,
        body: Vec<u8>,
        decode: impl FnOnce(&[u8]) -> Result<GoodManifest<Vec<SourcePod>>, String>,
    ) -> FetchOutcome {
        if body.is_empty() {
            // The next body counts as changed, even if it equals the one before this.
            self.bytes = None;
            self.pods = Some(Vec::new());
            return FetchOutcome::Emptied;
        }
        if self.bytes.as_ref() == Some(&body) {
            return FetchOutcome::Unchanged;
        }
        let decoded = decode(&body);
        self.bytes = Some(body);
        match decoded {
            Ok(good) => {
                self.pods = Some(good.pods.clone());
                FetchOutcome::Pods(good)
            }
            Err(message) => {
                FetchOutcome::Wrong { message, kept: self.pods.as_ref().is_some_and(|pods| !pods.is_empty()) }
            }
        }
    }

    /// The pods of the last good manifest; `None` before the first one.
    pub fn pods(&self) -> Option<&[SourcePod]> {
        self.pods.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::manifests::runnable;

    fn decode(bytes: &[u8]) -> Result<GoodManifest<Vec<SourcePod>>, String> {
        let text = std::str::from_utf8(bytes).unwrap();
        if text == "bad" {
            return Err("spec.containers: Required value".to_owned());
        }
        let named = |name: &str| {
            let mut pod = Pod::default();
            pod.metadata.name = Some(name.to_owned());
            runnable(pod)
        };
        Ok(GoodManifest { pods: text.split(' ').map(named).collect(), ignored: None })
    }

    fn names(fetched: &Fetched) -> Option<Vec<&str>> {
        Some(fetched.pods()?.iter().filter_map(|pod| pod.pod.metadata.name.as_deref()).collect())
    }

    #[test]
    fn unchanged_bytes_are_not_decoded_again() {
        let mut fetched = Fetched::default();
        assert_eq!(names(&fetched), None, "not heard yet");
        assert!(
            matches!(fetched.take(b"a b".to_vec(), decode), FetchOutcome::Pods(good) if good.pods.len() == 2)
        );
        assert_eq!(fetched.take(b"a b".to_vec(), |_| panic!("decoded again")), FetchOutcome::Unchanged);
        assert!(
            matches!(fetched.take(b"b".to_vec(), decode), FetchOutcome::Pods(good) if good.pods.len() == 1)
        );
    }

    #[test]
    fn a_wrong_manifest_keeps_the_pods_and_is_told_once() {
        let mut fetched = Fetched::default();
        let wrong =
            |kept| FetchOutcome::Wrong { message: "spec.containers: Required value".to_owned(), kept };
        assert_eq!(fetched.take(b"bad".to_vec(), decode), wrong(false));
        assert_eq!(names(&fetched), None, "still not heard");
        fetched.take(b"a".to_vec(), decode);
        assert_eq!(fetched.take(b"bad".to_vec(), decode), wrong(true));
        assert_eq!(fetched.take(b"bad".to_vec(), decode), FetchOutcome::Unchanged);
        assert_eq!(names(&fetched), Some(vec!["a"]));
    }

    #[test]
    fn nothing_served_means_no_pods_and_what_was_before_is_news_again() {
        let mut fetched = Fetched::default();
        assert_eq!(fetched.take(Vec::new(), decode), FetchOutcome::Emptied);
        assert_eq!(names(&fetched), Some(vec![]), "heard");
        fetched.take(b"a".to_vec(), decode);
        assert_eq!(fetched.take(Vec::new(), decode), FetchOutcome::Emptied);
        assert!(
            matches!(fetched.take(b"a".to_vec(), decode), FetchOutcome::Pods(good) if good.pods.len() == 1)
        );
    }
}
