//! What is asked of the runtime: one look, or one pull with the look that follows it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use messages::image_manager::PresentImage;
use messages::object_cache::GetSecret;
use runtime_bridge::cri::wire::{
    Image, ImageSpec, ImageStatusRequest, ListContainersRequest, ListImagesRequest, PullImageRequest,
};
use runtime_bridge::cri::{CriError, Operations};
use runtime_bridge::host::DockerConfigs;
use supervision::Address;
use tokio::time::Instant;

use crate::credentials::{self, Credential, Keyring};
use crate::name;
use crate::pulls::PullKey;

/// Longest wait for a secret; ObjectCache answers sooner.
const SECRET_DEADLINE: Duration = Duration::from_secs(10);

/// What a pull came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Pulled {
    /// The image is there.
    Done {
        /// What containers are created from.
        image: PresentImage,
        /// Its size in bytes.
        bytes: u64,
        /// The pull alone.
        took: Duration,
    },
    /// The runtime's words about why not.
    Failed(String),
    /// It was pulled, but the runtime could not say what it is.
    NotInspected(String),
}

/// Whether the image is there.
///
/// # Errors
/// The runtime's answer, or that there was none in time.
pub async fn look(operations: Operations, image: String) -> Result<Option<Image>, CriError> {
    let request = ImageStatusRequest { image: Some(spec(&image)), verbose: false };
    match operations.image_status(request).await {
        Ok(answer) => Ok(answer.image.filter(|image| !image.id.is_empty())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes every image that no container is made from, whether it runs or not, but for those that the runtime has pinned
/// and those in `given`. How many were deleted.
pub async fn delete_unused(operations: Operations, given: BTreeSet<String>) -> usize {
    // Images first: one that is pulled meanwhile is not among them.
    let images = operations.list_images(ListImagesRequest::default()).await;
    let containers = operations.list_containers(ListContainersRequest::default()).await;
    let (images, containers) = match (images, containers) {
        (Ok(images), Ok(containers)) => (images.images, containers.containers),
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!(%error, "Which images are unused cannot be told");
            return 0;
        }
    };
    let names = containers.into_iter().flat_map(|container| {
        let named = container.image.map(|image| image.image);
        [container.image_ref, container.image_id].into_iter().chain(named)
    });
    let used: BTreeSet<String> = names.chain(given).collect();
    let mut deleted = 0;
    for image in images.iter().filter(|image| is_unused(image, &used)) {
        match operations.remove_image(ImageSpec { image: image.id.clone(), ..ImageSpec::default() }).await {
            Ok(()) => deleted += 1,
            Err(error) => tracing::warn!(%error, image = image.id, "An unused image stays"),
        }
    }
    deleted
}

fn is_unused(image: &Image, used: &BTreeSet<String>) -> bool {
    let names = image.repo_tags.iter().chain(&image.repo_digests).chain([&image.id]);
    !image.pinned && !names.into_iter().any(|name| used.contains(name))
}

/// A pull with what was met on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct PullEnded {
    /// What it came to.
    pub pulled: Pulled,
    /// What is wrong with the node's credential files.
    pub warnings: Vec<String>,
}

/// What a pod's secrets have come to.
#[derive(Debug)]
pub struct SecretsRead {
    /// Their credentials, or why one of them cannot be understood.
    pub keyring: Result<Keyring, String>,
    /// The names of those that cannot be had.
    pub missing: Vec<String>,
}

/// Reads the secrets that a pod names for its pulls.
pub async fn read_secrets(
    secrets: Address<GetSecret>,
    namespace: Arc<str>,
    names: Arc<[Arc<str>]>,
) -> SecretsRead {
    let mut read = SecretsRead { keyring: Ok(Keyring::default()), missing: Vec::new() };
    let answers = names.iter().map(|name| {
        let ask = GetSecret { namespace: namespace.clone(), name: name.clone() };
        secrets.ask(ask, SECRET_DEADLINE)
    });
    for (name, answer) in names.iter().zip(join_all(answers).await) {
        let problem = match answer {
            Ok(Ok(secret)) => {
                if let Ok(keyring) = &mut read.keyring
                    && let Err(error) = credentials::add_secret(keyring, &secret)
                {
                    read.keyring = Err(error);
                }
                continue;
            }
            Ok(Err(error)) => error.message,
            Err(error) => error.to_string(),
        };
        tracing::warn!(problem, %namespace, %name, "A secret for pulls cannot be had");
        read.missing.push(name.to_string());
    }
    read
}

/// A pull to be made.
#[derive(Clone, Debug)]
pub struct PullTask {
    /// The image and who shares the pull.
    pub key: PullKey,
    /// The credentials of those who share it.
    pub credentials: Arc<[Credential]>,
}

/// Pulls the image, or joins the pull that an earlier incarnation left in flight. The credentials that fit are tried one
/// after another, first those of the pods that want it, then the node's; without any it is tried without.
pub async fn pull(operations: Operations, configs: Arc<dyn DockerConfigs>, task: PullTask) -> PullEnded {
    let began = Instant::now();
    let PullTask { key, credentials } = task;
    let (of_node, warnings) = node_credentials(&*configs, &key.image).await;
    let mut distinct: Vec<Credential> = Vec::new();
    for credential in credentials.iter().cloned().chain(of_node) {
        // What two files or secrets say alike is tried once.
        if !distinct.iter().any(|other| other.to_wire() == credential.to_wire()) {
            distinct.push(credential);
        }
    }
    let pulled = match pull_with(&operations, &key, &distinct).await {
        Ok(image_ref) => inspect(operations, key.image, image_ref, began.elapsed()).await,
        Err(error) => Pulled::Failed(error),
    };
    PullEnded { pulled, warnings }
}

async fn node_credentials(configs: &dyn DockerConfigs, image: &str) -> (Vec<Credential>, Vec<String>) {
    let files = match configs.read().await {
        Ok(files) => files,
        Err(gone) => return (Vec::new(), vec![gone.to_string()]),
    };
    let found = credentials::from_files(&files);
    let fitting = name::parse(image).map(|name| found.keyring.lookup(&name.repository)).unwrap_or_default();
    (fitting, found.warnings)
}

async fn pull_with(
    operations: &Operations,
    key: &PullKey,
    credentials: &[Credential],
) -> Result<String, String> {
    let mut tries: Vec<Option<&Credential>> = credentials.iter().map(Some).collect();
    if tries.is_empty() {
        tries.push(None);
    }
    let mut errors = Vec::new();
    for credential in tries {
        let auth = credential.map(Credential::to_wire);
        let request = PullImageRequest { image: Some(spec(&key.image)), auth, sandbox_config: None };
        match operations.pull_image(request, key.share).await {
            Ok(image_ref) if image_ref.is_empty() => {
                errors.push(format!("imageRef of image {:?} is not set", key.image));
            }
            Ok(image_ref) => return Ok(image_ref),
            Err(error) => errors.push(error.pull_text()),
        }
    }
    Err(aggregate(errors))
}

/// Several errors in one text, as upstream puts them: each once, in brackets if there are more than one.
pub fn aggregate(errors: Vec<String>) -> String {
    let mut seen = BTreeSet::new();
    let mut distinct: Vec<String> = errors.into_iter().filter(|error| seen.insert(error.clone())).collect();
    match distinct.len() {
        0 | 1 => distinct.pop().unwrap_or_default(),
        _ => format!("[{}]", distinct.join(", ")),
    }
}

async fn inspect(operations: Operations, image: String, image_ref: String, took: Duration) -> Pulled {
    match look(operations, image).await {
        Ok(Some(seen)) => {
            let bytes = seen.size;
            let image = PresentImage { image_ref, ..present(seen) };
            Pulled::Done { image, bytes, took }
        }
        Ok(None) => Pulled::NotInspected("it is gone right after its pull".to_owned()),
        Err(error) => Pulled::NotInspected(error.status_text()),
    }
}

/// What a worker has to know of an image that is there.
pub fn present(image: Image) -> PresentImage {
    PresentImage { image_ref: image.id, uid: image.uid.map(|uid| uid.value), username: image.username }
}

fn spec(image: &str) -> ImageSpec {
    ImageSpec { image: image.to_owned(), ..ImageSpec::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_put_together_as_upstream_does() {
        let errors = |all: &[&str]| aggregate(all.iter().map(|error| (*error).to_owned()).collect());
        assert_eq!(errors(&["a"]), "a");
        assert_eq!(errors(&["a", "a"]), "a");
        assert_eq!(errors(&["a", "b", "a"]), "[a, b]");
    }
}
