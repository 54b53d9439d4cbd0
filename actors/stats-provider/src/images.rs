//! The images of pods' sandboxes, for the label `image` of row 22.2. CRI has no field for them: containerd and CRI-O name them
//! among the details of a sandbox's status, which the runtime is asked for once in a sandbox's life.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::Stats as RuntimeStats;
use bridge_cri::wire::PodSandboxStatusRequest;
use futures::{StreamExt, stream};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::select::RunningPod;

/// How long the runtime may take for all that are asked for at a time; the others are asked for with the next reading.
const WITHIN: Duration = Duration::from_millis(500);
/// Calls at a time.
const AT_ONCE: usize = 4;
/// The key of the details, and the longest name that is believed, bytes.
const DETAILS: &str = "info";
const NAME_BYTES_MAX: usize = 1024;

/// By the sandbox's ID; empty if the runtime does not tell.
pub(crate) type SandboxImages = BTreeMap<Arc<str>, Arc<str>>;

#[derive(Deserialize)]
struct Details {
    image: Option<String>,
}

/// The image that the details of a status name.
fn image_of(details: &BTreeMap<String, String>) -> Arc<str> {
    let told = details.get(DETAILS).and_then(|text| serde_json::from_str::<Details>(text).ok());
    let image = told.and_then(|told| told.image).filter(|image| image.len() <= NAME_BYTES_MAX);
    Arc::from(image.unwrap_or_default())
}

/// The images of these pods' sandboxes: what is known already, and what the runtime tells of the others in time.
pub(crate) async fn ask(
    runtime: &dyn RuntimeStats,
    pods: &[RunningPod],
    known: &SandboxImages,
) -> SandboxImages {
    let (mut images, mut new) = (SandboxImages::new(), Vec::new());
    for id in pods.iter().filter_map(RunningPod::sandbox_id) {
        match known.get(id) {
            Some(image) => drop(images.insert(id.clone(), image.clone())),
            None => new.push(id.clone()),
        }
    }
    let until = Instant::now() + WITHIN;
    let calls = new.into_iter().map(async |id| {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: true };
        (id, runtime.pod_sandbox_status(request).await)
    });
    let mut answers = std::pin::pin!(stream::iter(calls).buffer_unordered(AT_ONCE));
    while let Ok(Some((id, answer))) = timeout_at(until, answers.next()).await {
        // Of a sandbox that is gone there is nothing to tell, and a runtime that is ill is asked again later.
        if let Ok(answer) = answer {
            images.insert(id, image_of(&answer.info));
        }
    }
    images
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_told_by_details_of_runtimes_that_have_it() {
        let told = |text: &str| image_of(&[("info".to_owned(), text.to_owned())].into());
        let of_containerd = r#"{"pid":7,"image":"registry.k8s.io/pause:3.9","runtimeSpec":{"process":{}}}"#;
        assert_eq!(&*told(of_containerd), "registry.k8s.io/pause:3.9");
        let long = format!(r#"{{"image":"{}"}}"#, "x".repeat(NAME_BYTES_MAX + 1));
        for nothing in ["", "{", "[]", r#"{"image":null}"#, r#"{"image":7}"#, r#"{"pid":7}"#, &long] {
            assert_eq!(&*told(nothing), "", "{nothing:.40}");
        }
        assert_eq!(&*image_of(&BTreeMap::new()), "");
    }
}
