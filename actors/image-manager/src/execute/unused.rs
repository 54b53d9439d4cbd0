//! ImageManager's looks at what is unused and at its disk, and deletions.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use bridge_cri::wire::{ContainerStatusRequest, Image, ImageFsInfoRequest, ImageSpec};
use bridge_cri::{CriError, Images, Listed, ListedImages, RuntimeReads, Stats, Whose};
use bridge_node::stats::{NodeStats, Room, RuntimePlaces};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::oneshot;

use super::{DISK_HANGS, DISK_MAX, MoreImages};

/// So many containers are looked at for the images that they mount at once.
const STATUSES_AT_ONCE: usize = 8;

/// The runtime's images, and which are in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// All images, or those that are known.
    pub images: ListedImages,
    /// The references by which containers, running or not, name their images and those that they mount.
    pub used: BTreeSet<String>,
}

/// Looks which images there are, and which of them are in use. Where no answer holds the images, those of containers and `more`
/// are known.
///
/// # Errors
/// Why this cannot be told: of a part of the containers nothing follows.
pub async fn survey(
    images: Arc<dyn Images>,
    runtime: Arc<dyn RuntimeReads>,
    more: MoreImages,
) -> Result<Survey, String> {
    // Images are listed before containers: an image that is pulled meanwhile is not in the list. Where no answer holds the list,
    // containers are listed for it, and not again: what pods are given from then on is known to the actor.
    let (tell, mut told) = oneshot::channel();
    let listed = images.list_all_images(with_those_of_containers(runtime.clone(), more, tell)).await;
    let listed = listed.map_err(|error| format!("images cannot be listed: {}", error.status_text()))?;
    let held = match told.try_recv() {
        Ok(held) => held,
        Err(_not_listed) => {
            let held = bridge_cri::list(runtime.clone(), Whose::All(BTreeSet::new())).await;
            held.map_err(|error| format!("containers cannot be listed: {}", error.status_text()))?
        }
    };
    if !held.is_whole() {
        return Err("the runtime has too many containers to list them".to_owned());
    }
    let containers: Vec<String> = held.containers.iter().map(|container| container.id.clone()).collect();
    let names = held.containers.into_iter().flat_map(|container| {
        let named = container.image.map(|image| image.image);
        [container.image_ref, container.image_id].into_iter().chain(named)
    });
    let mut used: BTreeSet<String> = names.filter(|name| !name.is_empty()).collect();
    if has_unused(&listed, &used) {
        let mounted = mounted(runtime, containers).await;
        used.extend(mounted.map_err(|error| format!("mounts cannot be read: {}", error.status_text()))?);
    }
    Ok(Survey { images: listed, used })
}

/// Whether an image may be deleted, if no container mounts it.
fn has_unused(listed: &ListedImages, used: &BTreeSet<String>) -> bool {
    let is_used = |image: &Image| {
        let names = image.repo_tags.iter().chain(&image.repo_digests);
        names.chain([&image.id]).any(|name| used.contains(name))
    };
    !listed.unread.is_empty() || listed.images.iter().any(|image| !image.pinned && !is_used(image))
}

/// The references of the images that these containers mount, which no list tells.
async fn mounted(runtime: Arc<dyn RuntimeReads>, containers: Vec<String>) -> Result<Vec<String>, CriError> {
    let looks: Vec<_> = containers.into_iter().map(|id| mounted_by(runtime.clone(), id)).collect();
    let found: Vec<Vec<String>> = stream::iter(looks).buffered(STATUSES_AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// The references of the images that a container mounts: none of one whose status the runtime answers with an error, since it is
/// gone, is broken, or has a status that no answer holds. One container that is broken so would keep all unused images for ever.
/// An image that is taken for unused by that loses its name alone: the runtime keeps the snapshot that is mounted while its
/// container is there, and a container that is created later asks for the image again.
async fn mounted_by(runtime: Arc<dyn RuntimeReads>, container_id: String) -> Result<Vec<String>, CriError> {
    let request = ContainerStatusRequest { container_id, verbose: false };
    let status = match runtime.container_status(request).await {
        Ok(answer) => answer.status,
        // The runtime does not answer: this says nothing about the container.
        Err(error) if error.outcome_unknown() => return Err(error),
        Err(error) => {
            tracing::debug!(%error, "It is not known which images a container mounts");
            None
        }
    };
    let mounts = status.into_iter().flat_map(|status| status.mounts);
    let images = mounts.filter_map(|mount| mount.image).map(|image| image.image);
    Ok(images.filter(|image| !image.is_empty()).collect())
}

/// The IDs of the images of containers, and `more`. The containers that are listed for that are told.
fn with_those_of_containers(
    runtime: Arc<dyn RuntimeReads>,
    more: MoreImages,
    tell: oneshot::Sender<Listed>,
) -> MoreImages {
    Box::pin(async move {
        let mut known = more.await;
        if let Ok(held) = bridge_cri::list(runtime, Whose::All(BTreeSet::new())).await {
            let ids = held.containers.iter().map(|container| match container.image_id.is_empty() {
                true => &container.image_ref,
                false => &container.image_id,
            });
            known.extend(ids.filter(|id| !id.is_empty()).cloned());
            // A survey that has ended needs them no more.
            let _ended = tell.send(held);
        }
        known
    })
}

/// The bytes of the disk with the runtime's images.
///
/// # Errors
/// Why they cannot be had.
pub async fn room(stats: Arc<dyn NodeStats>, runtime: Arc<dyn Stats>) -> Result<Room, String> {
    let told = runtime.image_fs_info(ImageFsInfoRequest {}).await.map_err(|error| error.status_text())?;
    let id = told.image_filesystems.into_iter().next().and_then(|usage| usage.fs_id);
    let directory = id.map(|id| id.mountpoint).filter(|directory| !directory.is_empty());
    let directory = directory.ok_or_else(|| "imageFs information is unavailable".to_owned())?;
    let places = RuntimePlaces { images: Some(PathBuf::from(directory)), containers: None };
    let measured = tokio::time::timeout(DISK_MAX, stats.node(places)).await;
    let measured = measured.map_err(|_| DISK_HANGS.to_owned())?.map_err(|gone| gone.to_string())?;
    match measured.image_fs {
        Some(found) => Ok(found.bytes),
        None => Err(format!("the disk of images cannot be measured: {}", measured.problems.join("; "))),
    }
}

/// Deletes an image; one that is gone counts as deleted.
///
/// # Errors
/// The runtime's answer, or that no answer came in time.
pub async fn remove(images: Arc<dyn Images>, id: String) -> Result<(), CriError> {
    images.remove_image(ImageSpec { image: id, ..ImageSpec::default() }).await
}
