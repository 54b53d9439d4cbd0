//! Cases that leave their kubelet alone and so can share one.

mod environment;
mod grace;
mod images;
mod init;
mod lifecycle;
mod manifests;
mod probes;
mod restarts;
mod statuses;
mod volumes;

use crate::Shared;

pub fn all() -> Vec<(&'static str, Shared)> {
    // Those with back-offs first: they take longest.
    [
        restarts::ALL,
        init::ALL,
        images::ALL,
        volumes::ALL,
        lifecycle::ALL,
        manifests::ALL,
        probes::ALL,
        statuses::ALL,
        grace::ALL,
        environment::ALL,
    ]
    .concat()
}
