//! Duty: has the images of containers present on the node: one pull for the pods with the same
//! credentials, pulls side by side, and an image on the node only for the pods that may use it. Deletes
//! images that no container uses when the disk is full.
//! Receives: EnsureImage, DeleteUnusedImages.
//! Sends: GetSecret; RecordEvent (Pulling, Pulled, Failed, BackOff, InspectFailed, ErrImageNeverPull,
//! FailedToRetrieveImagePullSecret).
//! State (rebuilt from): pulls under way (joined again in the bridge when asked for); with which
//! credentials images were pulled, and which pulls have begun (records on disk, upstream's); back-offs (begin
//! anew).
//! On crash: askers learn that the answer is lost and ask again; a pull in flight goes on and is joined;
//! a pull that no pod asks for again is cancelled.
//! Never does: remembers that an image is there: other programs may remove it, so the runtime is asked.
//! Shows a credential to anything but the runtime.

mod actor;
mod backoff;
mod credentials;
mod execute;
mod metrics;
mod policy;
mod pulls;
mod records;
mod throttle;

pub use actor::{ImageManager, ImageManagerDeps, ImageSettings, Timer};
pub use metrics::ImageMetrics;
pub use pulls::PullLimits;
pub use records::Verification;
pub use throttle::ThrottlePolicy;
