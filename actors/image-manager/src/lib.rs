//! **Duty.** Has the images of containers present on the node: one pull for those with the same credentials, pulls side by
//! side, and an image that is there for those alone who may have it. Deletes those that no container uses when the disk is
//! full.
//! **Receives.** EnsureImage, DeleteUnusedImages.
//! **Sends.** GetSecret; RecordEvent (Pulling, Pulled, Failed, BackOff, InspectFailed, ErrImageNeverPull,
//! FailedToRetrieveImagePullSecret).
//! **State (rebuilt from).** Pulls under way (joined again in the bridge when asked for); who has pulled what, and which
//! pulls have begun (records on disk, upstream's); back-offs (begin anew).
//! **On crash.** Askers hear that the answer is lost and ask again; a pull in flight goes on and is joined;
//! one that nobody asks for again is cancelled.
//! **Never does.** Remembers that an image is there: it may be removed behind our back, so the runtime is asked. Shows
//! a credential to anybody but the runtime.

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
