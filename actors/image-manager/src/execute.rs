//! ImageManager's calls to the runtime: a look for an image, a pull with the look that follows it, deletions.

pub mod providers;
pub mod records;
pub mod secrets;
pub mod unused;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::wire::{Image, ImageSpec, ImageStatusRequest, PodSandboxConfig, PullImageRequest};
use bridge_cri::{CriError, Images, ListedImages};
use bridge_io::clock::Clock;
use bridge_node::host::{DockerConfigs, PullRecords};
use bridge_text::image;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use messages::PodUid;
use messages::image_manager::PresentImage;
use pod_rules::errors;
use tokio::time::Instant;

use crate::credentials::{self, Credential};
use crate::history::ImageHistory;
use crate::metrics::ImageMetrics;
use crate::pulls::PullKey;
use crate::records::pulled_with;

/// The most credentials that are tried for one pull: a registry may answer each of them slowly and at length.
const CREDENTIALS_MAX: usize = 64;
/// The most bytes of an image's user: a longer one is no name of a user.
const USER_NAME_BYTES_MAX: usize = 256;

/// The longest time for each step of a pull at the node's disk, which may not answer: a pull has one of few places meanwhile.
const DISK_MAX: Duration = Duration::from_secs(60);
/// The longest time for the list of images before a pull.
pub const BEFORE_MAX: Duration = Duration::from_secs(10);
/// Why such a step came to nothing.
const DISK_HANGS: &str = "the node's disk does not answer";

/// The outcome of a pull.
#[derive(Clone, Debug, PartialEq)]
pub enum Pulled {
    /// The image is on the node.
    Done {
        /// The image as the asking worker gets it.
        image: PresentImage,
        /// The image's size in bytes.
        bytes: u64,
        /// How long the pull itself took, without waiting for its turn.
        took: Duration,
        /// Whether the record of the pull was written; true also when no records are kept.
        recorded: bool,
    },
    /// The pull failed.
    Failed {
        /// The error texts of the runtime, in one.
        error: String,
        /// Whether it is certain that no image will come of the pull.
        known: bool,
    },
    /// The image was pulled, but the runtime could not describe it.
    NotInspected {
        /// The runtime's error text, or that the image is gone again.
        error: String,
        /// Whether the record of the pull was written; true also when no records are kept.
        recorded: bool,
    },
    /// The intent could not be recorded, for this reason, so no pull began.
    NotIntended(String),
}

/// The IDs, or names, of images that are known otherwise than by a list.
pub type MoreImages = BoxFuture<'static, BTreeSet<String>>;

/// Every image of the runtime, or where no answer holds them, those that are known; `None` if they cannot be listed.
pub async fn list_images(images: Arc<dyn Images>, more: MoreImages) -> Option<ListedImages> {
    let listed = images.list_all_images(more).await;
    listed.inspect_err(|error| tracing::warn!(%error, "Images cannot be listed")).ok()
}

/// The image on the node; `None` if it is not there.
///
/// # Errors
/// The runtime's error, or that it did not answer in time.
pub async fn look(
    images: Arc<dyn Images>,
    image: String,
    annotations: Arc<BTreeMap<String, String>>,
    handler: Arc<str>,
) -> Result<Option<Image>, CriError> {
    let request = ImageStatusRequest { image: Some(spec(&image, &annotations, &handler)), verbose: false };
    match images.image_status(request).await {
        Ok(answer) => Ok(answer.image.filter(|image| !image.id.is_empty())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The list of images that pulls share: all that there are, or those that are known; `None` if they cannot be listed in time.
pub type ListBefore = Shared<BoxFuture<'static, Option<Arc<ListedImages>>>>;

/// Lists the images for pulls. Nothing is done until the first of them waits for it.
pub fn list_before(images: Arc<dyn Images>) -> ListBefore {
    let list = async move {
        let none = std::future::ready(BTreeSet::<String>::new());
        let listed = tokio::time::timeout(BEFORE_MAX, list_images(images, Box::pin(none))).await;
        listed.ok().flatten().map(Arc::new)
    };
    list.boxed().shared()
}

/// What is known of the images that are on the node before a pull.
#[derive(Clone, Debug, Default)]
pub struct Before {
    listed: Option<Arc<ListedImages>>,
    /// The one of the pull's name, which was looked for where the list may lack it.
    named: Option<Image>,
}

impl Before {
    /// Whether these are all images that there are.
    pub fn is_whole(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.too_long().is_none())
    }

    /// The images.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        self.listed.iter().flat_map(|listed| listed.images.iter()).chain(&self.named)
    }
}

/// The images that are on the node before a pull: those of the list, and where it does not show all, or has not begun for this
/// pull, the one of the pull's name.
pub async fn before(
    (list, is_new): (ListBefore, bool),
    images: Arc<dyn Images>,
    image: String,
    annotations: Arc<BTreeMap<String, String>>,
    handler: Arc<str>,
) -> Before {
    let mut before = Before { listed: list.await, named: None };
    if !is_new || !before.is_whole() {
        before.named = look(images, image, annotations, handler).await.ok().flatten();
    }
    before
}

/// A pull that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct PullEnded {
    /// Its outcome.
    pub pulled: Pulled,
    /// The image that has a record now.
    pub recorded: Option<String>,
    /// Problems of the node's credential files.
    pub warnings: Vec<String>,
}

/// A pull to be made.
#[derive(Debug)]
pub struct PullTask {
    /// The image, and the fingerprint of the pods that share the pull.
    pub key: PullKey,
    /// The image as the first asker's container spells it.
    pub spelled: Arc<str>,
    /// The credentials of the pods that share the pull.
    pub credentials: Arc<[Credential]>,
    /// What the node's providers gave for them.
    pub provided: Arc<[Credential]>,
    /// The first asker's pod: on its behalf the pull is made.
    pub pod: PodUid,
    /// The annotations of the first asker's pod.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// The sandbox configuration of the first asker's pod, as protobuf; may be empty.
    pub sandbox_config: Arc<[u8]>,
    /// The images that were there before, that no pull has made, and that therefore stay open to all pods.
    pub before: BTreeSet<String>,
    /// The age of the process when those were listed.
    pub since: Duration,
    /// The runtime's handler of the pods that share the pull; may be empty.
    pub runtime_handler: Arc<str>,
}

/// The effects that a pull uses.
#[derive(Clone)]
pub struct PullMeans {
    /// The runtime's image calls.
    pub images: Arc<dyn Images>,
    /// The node's credential files.
    pub configs: Arc<dyn DockerConfigs>,
    /// The records of pulls; none if no records are kept.
    pub records: Option<Arc<dyn PullRecords>>,
    /// The wall clock, for the times in records.
    pub clock: Arc<dyn Clock>,
    /// Which images were deleted during the pull.
    pub history: ImageHistory,
    /// Metrics.
    pub metrics: ImageMetrics,
}

/// Pulls the image, or joins the pull that an earlier incarnation left in flight. The fitting credentials are
/// tried one after another, first those of the pods that share the pull, then the node's, then its providers'; without any
/// the pull is tried without. The intent is on disk before the pull begins, and the record before the pull ends.
pub fn pull(means: PullMeans, task: PullTask) -> impl Future<Output = PullEnded> {
    let intended = means.records.as_ref().map(|disk| {
        // Called now and not within the future, so that it comes after the removal of an earlier intent.
        records::write_intent(disk, &task.spelled, means.metrics.clone())
    });
    async move {
        if let Some(intended) = intended {
            let intended = tokio::time::timeout(DISK_MAX, intended).await;
            let intended = intended.map_err(|_late| DISK_HANGS.to_owned());
            if let Err(why) = intended.and_then(|done| done.map_err(|error| error.to_string())) {
                let error = format!("failed to record image pull intent: {why}");
                let pulled = Pulled::NotIntended(error);
                return PullEnded { pulled, recorded: None, warnings: Vec::new() };
            }
        }
        let began = Instant::now();
        let of_node =
            tokio::time::timeout(DISK_MAX, node_credentials(&*means.configs, &task.key.image)).await;
        let (of_node, warnings) = of_node.unwrap_or_else(|_| (Vec::new(), vec![DISK_HANGS.to_owned()]));
        let of_pods = task.credentials.iter();
        let distinct = credentials::distinct(of_pods.chain(&of_node).chain(task.provided.iter()));
        let (pulled, recorded) = match pull_with(&*means.images, &task, &distinct).await {
            Ok((image_ref, used)) => {
                let preloaded = task.before.contains(&image_ref)
                    && !means.history.was_deleted_since(&image_ref, task.since);
                let recorded = match &means.records {
                    Some(disk) => {
                        let (new, now) = (Some(pulled_with(used)), means.clock.now());
                        let metrics = means.metrics.clone();
                        let written =
                            records::write(disk, &image_ref, &task.spelled, (new, preloaded), now, metrics);
                        tokio::time::timeout(DISK_MAX, written).await.unwrap_or(false)
                    }
                    None => true,
                };
                let of = Some(image_ref.clone()).filter(|_| !preloaded);
                (inspect(means.images, &task, image_ref, began.elapsed(), recorded).await, of)
            }
            Err(failed) => (failed, None),
        };
        PullEnded { pulled, recorded, warnings }
    }
}

async fn node_credentials(configs: &dyn DockerConfigs, image: &str) -> (Vec<Credential>, Vec<String>) {
    let files = match configs.read().await {
        Ok(files) => files,
        Err(gone) => return (Vec::new(), vec![gone.to_string()]),
    };
    let found = credentials::from_files(&files);
    let fitting = image::parse(image).map(|name| found.keyring.lookup(&name.repository)).unwrap_or_default();
    (fitting, found.warnings)
}

/// The image's reference and the credential that the registry accepted.
async fn pull_with<'a>(
    images: &dyn Images,
    task: &PullTask,
    credentials: &'a [Credential],
) -> Result<(String, Option<&'a Credential>), Pulled> {
    let mut tries: Vec<Option<&Credential>> = credentials.iter().take(CREDENTIALS_MAX).map(Some).collect();
    if tries.is_empty() {
        tries.push(None);
    }
    let (mut said, mut known) = (Vec::new(), true);
    let key = &task.key;
    let empty = task.sandbox_config.is_empty();
    let sandbox_config = if empty { None } else { PodSandboxConfig::from_bytes(&task.sandbox_config) };
    for credential in tries {
        let auth = credential.map(Credential::to_wire);
        let image = Some(spec(&key.image, &task.annotations, &task.runtime_handler));
        let request = PullImageRequest { image, auth, sandbox_config: sandbox_config.clone() };
        match images.pull_image(request, key.share).await {
            Ok(image_ref) if image_ref.is_empty() => {
                known = false;
                said.push(format!("imageRef of image {:?} is not set", key.image));
            }
            Ok(image_ref) => return Ok((image_ref, credential)),
            Err(error) => {
                known &= !error.outcome_unknown();
                said.push(error.pull_text());
            }
        }
    }
    let mut error = errors::aggregate(said);
    errors::cut(&mut error, errors::WORDS_BYTES_MAX);
    Err(Pulled::Failed { error, known })
}

async fn inspect(
    images: Arc<dyn Images>,
    task: &PullTask,
    image_ref: String,
    took: Duration,
    recorded: bool,
) -> Pulled {
    let (annotations, handler) = (task.annotations.clone(), task.runtime_handler.clone());
    match look(images, task.key.image.clone(), annotations, handler).await {
        Ok(Some(seen)) => {
            let bytes = seen.size;
            let image = PresentImage { image_ref, ..present(seen) };
            Pulled::Done { image, bytes, took, recorded }
        }
        Ok(None) => Pulled::NotInspected { error: "it is gone right after its pull".to_owned(), recorded },
        Err(error) => Pulled::NotInspected { error: error.status_text(), recorded },
    }
}

/// The part of an image's description that a worker needs.
pub fn present(image: Image) -> PresentImage {
    let mut username = image.username;
    errors::cut(&mut username, USER_NAME_BYTES_MAX);
    PresentImage { image_ref: image.id, uid: image.uid.map(|uid| uid.value), username }
}

/// An image with the annotations and the handler of the pod that wants it, as upstream sends them.
fn spec(image: &str, annotations: &BTreeMap<String, String>, handler: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        annotations: annotations.clone(),
        runtime_handler: handler.to_owned(),
        ..ImageSpec::default()
    }
}
