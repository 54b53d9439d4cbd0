//! The fake's images and the registry they come from.

use std::sync::Arc;

use super::node::{Node, State, hex64};
use super::script::RegistryImage;
use crate::error::{CriError, CriErrorKind};
use crate::rpc::Rpc;
use crate::wire::*;

/// Pull requests that are kept for tests to inspect.
const PULLS_KEPT_MAX: usize = 1000;

/// A reference as containerd knows it: with a registry, a repository and a tag or digest.
pub(super) fn normalised(reference: &str) -> String {
    let first = reference.split('/').next().unwrap_or_default();
    let with_registry = if !reference.contains('/') {
        format!("docker.io/library/{reference}")
    } else if first.contains(['.', ':']) || first == "localhost" {
        reference.to_owned()
    } else {
        format!("docker.io/{reference}")
    };
    let name = with_registry.rsplit('/').next().unwrap_or_default();
    if name.contains([':', '@']) { with_registry } else { format!("{with_registry}:latest") }
}

fn digest(text: &str) -> String {
    // FNV-1a: one reference has the same digest in every run.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("sha256:{}", hex64(hash))
}

impl State {
    pub(super) fn add_image(&mut self, reference: &str, image: &RegistryImage) -> String {
        let reference = normalised(reference);
        let id = digest(image.content.as_deref().unwrap_or(&reference));
        let (repository, tags) = match reference.split_once('@') {
            Some((repository, _)) => (repository.to_owned(), Vec::new()),
            None => {
                let at = reference.rfind(':').unwrap_or(reference.len());
                (reference[..at].to_owned(), vec![reference.clone()])
            }
        };
        let content = match reference.split_once('@') {
            Some((_, digest)) => digest.to_owned(),
            None => digest(&format!("{} content", image.content.as_deref().unwrap_or(&reference))),
        };
        let digests = vec![format!("{repository}@{content}")];
        if let Some(known) = self.images.get_mut(&id).filter(|_| image.content.is_some()) {
            let add = |known: &mut Vec<String>, new: Vec<String>| {
                for name in new {
                    if !known.contains(&name) {
                        known.push(name);
                    }
                }
            };
            add(&mut known.repo_tags, tags);
            add(&mut known.repo_digests, digests);
            return id;
        }
        let stored = Image {
            id: id.clone(),
            repo_tags: tags,
            repo_digests: digests,
            size: image.size_bytes,
            uid: image.uid.map(|value| Int64Value { value }),
            username: image.username.clone(),
            spec: None,
            pinned: false,
        };
        self.images.insert(id.clone(), stored);
        id
    }

    /// An image by its ID, tag or digest.
    pub(super) fn image(&self, wanted: &str) -> Option<&Image> {
        let reference = normalised(wanted);
        let bare = wanted.strip_prefix("sha256:").unwrap_or(wanted);
        self.images.values().find(|image| {
            image.id == wanted
                || image.id.strip_prefix("sha256:") == Some(bare)
                || image.repo_tags.contains(&reference)
                || image.repo_digests.contains(&reference)
        })
    }

    fn offered(&self, image: &str, auth: Option<&AuthConfig>) -> Result<RegistryImage, CriError> {
        let failed = |kind, why: &str| {
            CriError::new(Rpc::PullImage, kind, format!("failed to pull and unpack image {image:?}: {why}"))
        };
        let offered = match self.registry.get(&normalised(image)) {
            Some(offered) => offered.clone(),
            None if self.open_registry => RegistryImage::default(),
            None => return Err(failed(CriErrorKind::NotFound, &format!("{image}: not found"))),
        };
        if let Some((user, password)) = &offered.credentials
            && !auth.is_some_and(|auth| auth.username == *user && auth.password == *password)
        {
            return Err(failed(CriErrorKind::Other, "authorization failed: no basic auth credentials"));
        }
        Ok(offered)
    }
}

fn named(spec: Option<ImageSpec>) -> String {
    spec.map(|spec| spec.image).unwrap_or_default()
}

impl Node {
    pub(super) async fn list_images(
        self: Arc<Self>,
        request: ListImagesRequest,
    ) -> Result<ListImagesResponse, CriError> {
        let wanted = named(request.filter.and_then(|filter| filter.image));
        let images = self.update(|state| match wanted.is_empty() {
            true => state.images.values().cloned().collect(),
            false => state.image(&wanted).cloned().into_iter().collect(),
        });
        self.fitting(Rpc::ListImages, ListImagesResponse { images })
    }

    pub(super) async fn image_status(
        self: Arc<Self>,
        request: ImageStatusRequest,
    ) -> Result<ImageStatusResponse, CriError> {
        let wanted = named(request.image);
        let image = self.update(|state| state.image(&wanted).cloned());
        self.fitting(Rpc::ImageStatus, ImageStatusResponse { image, ..Default::default() })
    }

    pub(super) async fn pull_image(
        self: Arc<Self>,
        request: PullImageRequest,
    ) -> Result<PullImageResponse, CriError> {
        let wanted = request.image.as_ref().map(|spec| spec.image.clone()).unwrap_or_default();
        let offered = self.update(|state| {
            if state.pulls.len() < PULLS_KEPT_MAX {
                state.pulls.push(request.clone());
            }
            state.offered(&wanted, request.auth.as_ref())
        })?;
        tokio::time::sleep(offered.takes).await;
        if let Some((kind, message)) = offered.error {
            return Err(CriError::new(Rpc::PullImage, kind, message));
        }
        let image_ref = self.update(|state| state.add_image(&wanted, &offered));
        Ok(PullImageResponse { image_ref })
    }

    pub(super) async fn remove_image(
        self: Arc<Self>,
        request: RemoveImageRequest,
    ) -> Result<RemoveImageResponse, CriError> {
        let wanted = named(request.image);
        self.update(|state| {
            if let Some(id) = state.image(&wanted).map(|image| image.id.clone()) {
                state.images.remove(&id);
            }
        });
        Ok(RemoveImageResponse {})
    }

    pub(super) async fn image_fs_info(
        self: Arc<Self>,
        _: ImageFsInfoRequest,
    ) -> Result<ImageFsInfoResponse, CriError> {
        let usage = self.update(|state| FilesystemUsage {
            timestamp: state.now_ns(),
            fs_id: Some(FilesystemIdentifier { mountpoint: state.image_directory.clone() }),
            used_bytes: Some(UInt64Value { value: state.images.values().map(|image| image.size).sum() }),
            inodes_used: Some(UInt64Value { value: state.images.len() as u64 }),
        });
        Ok(ImageFsInfoResponse { image_filesystems: vec![usage.clone()], container_filesystems: vec![usage] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_normalised_as_containerd_does() {
        for (given, known) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("team/app", "docker.io/team/app:latest"),
            ("localhost/app:1", "localhost/app:1"),
            ("registry.local:5000/app", "registry.local:5000/app:latest"),
            ("registry.k8s.io/pause@sha256:00", "registry.k8s.io/pause@sha256:00"),
        ] {
            assert_eq!(normalised(given), known);
        }
    }
}
