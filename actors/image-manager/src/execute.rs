//! What is asked of the runtime: one look, or one pull with the look that follows it.

use std::time::Duration;

use messages::image_manager::PresentImage;
use runtime_bridge::cri::wire::{AuthConfig, Image, ImageSpec, ImageStatusRequest, PullImageRequest};
use runtime_bridge::cri::{CriError, Operations};
use tokio::time::Instant;

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

/// Pulls the image, or joins the pull that an earlier incarnation left in flight.
pub async fn pull(operations: Operations, image: String, auth: Option<AuthConfig>) -> Pulled {
    let began = Instant::now();
    let request = PullImageRequest { image: Some(spec(&image)), auth, sandbox_config: None };
    let image_ref = match operations.pull_image(request).await {
        Ok(image_ref) => image_ref,
        Err(error) => return Pulled::Failed(error.message),
    };
    let took = began.elapsed();
    match look(operations, image).await {
        Ok(Some(seen)) => {
            let bytes = seen.size;
            let mut image = present(seen);
            if !image_ref.is_empty() {
                image.image_ref = image_ref;
            }
            Pulled::Done { image, bytes, took }
        }
        Ok(None) => Pulled::NotInspected("it is gone right after its pull".to_owned()),
        Err(error) => Pulled::NotInspected(error.message),
    }
}

/// What a worker has to know of an image that is there.
pub fn present(image: Image) -> PresentImage {
    PresentImage { image_ref: image.id, uid: image.uid.map(|uid| uid.value), username: image.username }
}

fn spec(image: &str) -> ImageSpec {
    ImageSpec { image: image.to_owned(), ..ImageSpec::default() }
}
