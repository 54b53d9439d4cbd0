//! Duty: has the images of containers present on the node: one pull for the pods with the same
//! credentials, pulls side by side, and an image on the node only for the pods that may use it. Asks the node's
//! credential providers for credentials. Deletes
//! images that no container uses when their disk is full or they are old, one after the other.
//! Receives: EnsureImage, DeleteUnusedImages, ImagesConfigured.
//! Sends: GetSecret, GetServiceAccount, GetToken; ResendConfiguration; RecordEvent (Pulling, Pulled, Failed, BackOff,
//! InspectFailed, ErrImageNeverPull, FailedToRetrieveImagePullSecret; of the node: ImageGCFailed, FreeDiskSpaceFailed,
//! InvalidDiskCapacity, ImageListTooLong).
//! State (rebuilt from): pulls under way (joined again in the bridge when asked for); with which
//! credentials images were pulled, and which pulls have begun (records on disk, upstream's); since when images
//! are there, when they were used last and given to pods (beside the actor); answers of credential providers while
//! they hold (beside the actor); changed settings (ConfigManager is asked); back-offs and the names that namespaces
//! have pulled by (begin anew).
//! On crash: askers learn that the answer is lost and ask again; a pull in flight goes on and is joined;
//! a pull that no pod asks for again is cancelled; a collection of images ends, and the next comes when it is
//! due.
//! Never does: remembers that an image is there: other programs may remove it, so the runtime is asked.
//! Shows a credential to anything but the runtime, or a token to anything but the node's credential providers.

mod actor;
mod backoff;
mod collection;
mod credentials;
mod execute;
mod history;
mod metrics;
mod names;
mod policy;
mod pulls;
mod records;
mod throttle;

pub use actor::{ImageManager, ImageManagerDeps, ImageSettings, Timer};
pub use collection::CollectionPolicy;
pub use credentials::providers::{
    CredentialProvider, CredentialProviders, KeptAnswers, TokenAttributes, TokenCache,
    answer as provider_answer,
};
pub use credentials::{check_pattern, from_files};
pub use history::ImageHistory;
pub use metrics::ImageMetrics;
pub use pulls::PullLimits;
pub use records::{Intent, PulledRecord, Verification};
pub use throttle::ThrottlePolicy;
