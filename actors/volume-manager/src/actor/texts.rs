//! PURE: the words of events about volumes.

use std::collections::BTreeSet;

use messages::volume_manager::VolumeError;
use pod_rules::reasons::{FAILED, FAILED_MOUNT, cannot_mount};

use crate::checks::BLOCK_AFFINITY;
use crate::execute::{Failure, MountOutcome};

/// The reason of the event for a block device that could not be shown.
const FAILED_MAP: &str = "FailedMapVolume";

/// The reason and message of the event for a volume that could not be mounted.
pub(super) fn mount_event(error: &VolumeError, failure: Option<&Failure>) -> (&'static str, String) {
    if error.volume.is_empty() {
        return (FAILED, error.message.clone());
    }
    let operation = failure.and_then(|failure| failure.operation).unwrap_or("MountVolume.SetUp");
    let name = failure.map_or(error.volume.as_str(), |failure| failure.spec_name.as_str());
    let is_map = operation.starts_with("MapVolume.") && operation != BLOCK_AFFINITY;
    let reason = if is_map { FAILED_MAP } else { FAILED_MOUNT };
    // Some operations say so themselves.
    let failed = if operation.contains(" failed") { "" } else { " failed" };
    (reason, format!("{operation}{failed} for volume {name:?} : {}", error.message))
}

/// The message of the event for volumes of which it is not known what they are made of.
pub(super) fn unprocessed_text(outcome: &MountOutcome) -> String {
    let names = |errors: &mut dyn Iterator<Item = &VolumeError>| -> Vec<String> {
        let names: BTreeSet<&String> =
            errors.map(|error| &error.volume).filter(|name| !name.is_empty()).collect();
        names.into_iter().cloned().collect()
    };
    let unprocessed = &outcome.unprocessed;
    let why: Vec<&str> = unprocessed.iter().map(|error| error.message.as_str()).collect();
    let unmounted = names(&mut outcome.failed().chain(outcome.held.values()));
    cannot_mount(&unmounted, &names(&mut unprocessed.iter()), &why.join("; "))
}

/// The message for a pod whose volumes the node cannot attach any more; upstream's (row 10.28).
pub(super) fn exhausted_text(outcome: &MountOutcome) -> String {
    let all = |errors: &mut dyn Iterator<Item = &VolumeError>| {
        let names: BTreeSet<&str> = errors.map(|error| error.volume.as_str()).collect();
        names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let is_unattached = |error: &&VolumeError| {
        outcome.failures.get(&error.volume).is_some_and(|failure| failure.operation.is_none())
    };
    let unmounted = all(&mut outcome.failed().chain(outcome.held.values()));
    let unattached = all(&mut outcome.errors.iter().filter(is_unattached));
    let unprocessed = all(&mut outcome.unprocessed.iter());
    format!(
        "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[{unmounted}], \
         unattached volumes=[{unattached}], failed to process volumes=[{unprocessed}]: context deadline exceeded"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_node_says_which_volumes_it_cannot_attach() {
        let error = |volume: &str| VolumeError { volume: volume.to_owned(), message: String::new() };
        let unattached = Failure { operation: None, spec_name: "pv".to_owned() };
        let outcome = MountOutcome {
            errors: vec![error("a"), error("b")],
            unprocessed: vec![error("c")],
            failures: [("b".to_owned(), unattached)].into(),
            exhausted: true,
            ..MountOutcome::default()
        };
        assert_eq!(
            exhausted_text(&outcome),
            "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[a b c], \
             unattached volumes=[b], failed to process volumes=[c]: context deadline exceeded"
        );
    }

    #[test]
    fn events_are_upstreams() {
        let error = |volume: &str| VolumeError {
            volume: volume.to_owned(),
            message: "hostPath type check failed: /x is not a directory".to_owned(),
        };
        assert_eq!(
            mount_event(&error("data"), None),
            (
                "FailedMount",
                "MountVolume.SetUp failed for volume \"data\" : hostPath type check failed: /x is not a directory"
                    .to_owned()
            )
        );
        assert_eq!(mount_event(&error(""), None).0, "Failed");
        let staging = Failure { operation: Some("MountVolume.MountDevice"), spec_name: "pv".to_owned() };
        let (_, text) = mount_event(&error("data"), Some(&staging));
        assert!(text.starts_with("MountVolume.MountDevice failed for volume \"pv\" : "), "{text}");
        let of = |operation| {
            let failure = Failure { operation: Some(operation), spec_name: "pv".to_owned() };
            mount_event(&error("data"), Some(&failure)).0
        };
        assert_eq!(of("MapVolume.SetUpDevice"), "FailedMapVolume");
        assert_eq!(of("MapVolume.NodeAffinity check"), "FailedMount");
    }
}
