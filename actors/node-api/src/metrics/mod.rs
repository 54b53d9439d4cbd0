//! NodeApi's metrics, under upstream's names, and the registries whose pages NodeApi shows (section 22).

mod handles;
mod logs;
mod paths;
mod requests;
mod volumes;

pub use handles::{ApiMetrics, Registries};
pub(crate) use logs::logs_of_pods;
pub(crate) use requests::{Server, counted};
pub(crate) use volumes::volumes_of_pods;
