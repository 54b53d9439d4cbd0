//! PURE: the records of pulls, and which pods may therefore use an image that is there already (row 6.7). The
//! records have upstream's format, so that a node may change between both kubelets.

mod format;
mod intents;
mod judge;
mod merge;
mod recorded;

pub use format::{Intent, PullCredentials, PullSecret, PulledRecord};
pub use intents::{IntentFound, Intents, full_name};
pub use judge::{AccessDecision, AccessQuestion, Checked, Verification, judge, opened_by_accounts};
pub use merge::{merged, pulled_with};
pub use recorded::Recorded;
