//! PURE: whether a volume has to grow on the node, and what its claim says then (row 10.25). A controller has made the volume
//! larger and tells so in the claim's status; the node has to follow, and tells there when it has.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use pod_spec::quantity::Quantity as Amount;
use serde_json::{Value, json};

use crate::devices::Known;
use crate::kinds::ExpandError;

const STORAGE: &str = "storage";
const PENDING: &str = "NodeResizePending";
const IN_PROGRESS: &str = "NodeResizeInProgress";
const INFEASIBLE: &str = "NodeResizeInfeasible";
const NODE_ERROR: &str = "NodeResizeError";
const FS_PENDING: &str = "FileSystemResizePending";
/// The conditions that tell of an expansion: they end with it.
const CONDITIONS: [&str; 4] = [FS_PENDING, "Resizing", "ControllerResizeError", NODE_ERROR];
/// The annotation of a claim whose volume grows without the node.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

/// When a volume is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// It has just been set up, and its pod waits for it.
    SetUp,
    /// Its pod runs.
    InUse,
}

/// An expansion on the node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expansion {
    /// The size that is asked for, as the API has it.
    pub to: Quantity,
    /// The size in bytes.
    pub bytes: i64,
    /// The size that the claim tells.
    pub from: Quantity,
    /// Whether the controller tells steps in the claim's `allocatedResourceStatuses`; older ones do not.
    pub told_in_steps: bool,
    /// Whether the claim's status says already that it is done: another node was first.
    pub already: bool,
    /// Whether a failure is told as one for good: people have asked for another size since.
    pub gives_up: bool,
}

/// What follows from a claim and its volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Nothing is to be done.
    Nothing,
    /// The pod has it read-only, so that it cannot grow: people are told.
    ReadOnly,
    /// The volume has this size without the node.
    Done(Amount),
    /// The volume is to grow.
    Expand(Expansion),
}

fn amount(quantity: Option<&Quantity>) -> Amount {
    quantity.and_then(|quantity| Amount::parse(&quantity.0).ok()).unwrap_or(Amount::ZERO)
}

fn status(claim: &PersistentVolumeClaim) -> Option<&PersistentVolumeClaimStatus> {
    claim.status.as_ref()
}

/// The size of the volume by its claim's status.
fn capacity(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    status(claim)?.capacity.as_ref()?.get(STORAGE)
}

fn step(claim: &PersistentVolumeClaim) -> &str {
    let steps = status(claim).and_then(|status| status.allocated_resource_statuses.as_ref());
    steps.and_then(|steps| steps.get(STORAGE)).map_or("", String::as_str)
}

/// What is known of a volume at the first look: the size that its claim tells.
pub(crate) fn first_seen(known: Known, claim: &PersistentVolumeClaim) -> Known {
    let size = known.size.or_else(|| Some(amount(capacity(claim))).filter(|size| *size != Amount::ZERO));
    Known { size, ..known }
}

/// Whether the claim alone says that the volume may have to grow: reading the volume, too, costs a call.
pub(crate) fn is_hinted(claim: &PersistentVolumeClaim, known: &Known) -> bool {
    let conditions = status(claim).and_then(|status| status.conditions.as_ref());
    let is_pending =
        conditions.into_iter().flatten().any(|one| one.type_ == FS_PENDING && one.status == "True");
    let has_grown = known.size.is_some_and(|size| amount(capacity(claim)) > size);
    is_pending || has_grown || matches!(step(claim), PENDING | IN_PROGRESS)
}

/// What is to be done.
pub(crate) fn decide(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    known: &Known,
    read_only: bool,
    when: When,
) -> Decision {
    let wanted =
        volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()).and_then(|all| all.get(STORAGE));
    let (now, goal) = (amount(capacity(claim)), amount(wanted));
    let before = if when == When::SetUp { now } else { known.size.unwrap_or(now) };
    if known.in_use || goal <= before || (when == When::InUse && before == Amount::ZERO) {
        return Decision::Nothing;
    }
    if read_only {
        // A pod that runs was told when it started.
        return if when == When::SetUp { Decision::ReadOnly } else { Decision::Nothing };
    }
    let allocated = status(claim).and_then(|status| status.allocated_resources.as_ref());
    let step = step(claim);
    let told_in_steps = !step.is_empty() || allocated.is_some();
    let to = if told_in_steps { allocated.and_then(|all| all.get(STORAGE)) } else { wanted };
    let size = amount(to);
    let expansion = Expansion {
        to: to.cloned().unwrap_or_default(),
        bytes: size.units_rounded_up(),
        from: capacity(claim).cloned().unwrap_or_default(),
        told_in_steps,
        already: now >= size && step.is_empty(),
        gives_up: known.failed && amount(requested(claim)) != size,
    };
    if !told_in_steps {
        return Decision::Expand(expansion);
    }
    let is_everywhere = expansion.already && is_shared(claim) && !says_not_required(claim);
    match step {
        PENDING | IN_PROGRESS => Decision::Expand(expansion),
        _ if is_everywhere => Decision::Expand(expansion),
        _ if expansion.already => Decision::Done(size),
        _ => Decision::Nothing,
    }
}

fn requested(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get(STORAGE)
}

/// Whether several nodes have the volume: each makes it larger for itself.
fn is_shared(claim: &PersistentVolumeClaim) -> bool {
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
    modes.into_iter().flatten().any(|mode| mode == "ReadWriteMany")
}

fn says_not_required(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(NOT_REQUIRED))
}

/// The patch of the claim's status by which the node tells that it begins. It holds for the claim as it was read.
pub(crate) fn begun(claim: &PersistentVolumeClaim) -> Value {
    json!({
        "metadata": {"resourceVersion": claim.metadata.resource_version},
        "status": {"allocatedResourceStatuses": {STORAGE: IN_PROGRESS}},
    })
}

/// The patch by which the node tells that the volume has its size. It holds for the claim as it was read.
pub(crate) fn finished(claim: &PersistentVolumeClaim, to: &Quantity) -> Value {
    let conditions = status(claim).and_then(|status| status.conditions.as_ref());
    let kept: Vec<_> =
        conditions.into_iter().flatten().filter(|one| !CONDITIONS.contains(&one.type_.as_str())).collect();
    let mut new = json!({"capacity": {STORAGE: to}, "allocatedResourceStatuses": {STORAGE: null}});
    if status(claim).is_some_and(|status| status.conditions.is_some()) {
        new["conditions"] = json!(kept);
    }
    json!({"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": new})
}

/// The patch by which the node tells of a failure, `None` if the claim says so already. `now` is RFC 3339.
pub(crate) fn failed(
    claim: &PersistentVolumeClaim,
    error: &ExpandError,
    for_good: bool,
    now: &str,
) -> Option<Value> {
    let mut new = json!({});
    if for_good && step(claim) != INFEASIBLE {
        new["allocatedResourceStatuses"] = json!({STORAGE: INFEASIBLE});
    }
    let conditions = status(claim).and_then(|status| status.conditions.as_ref());
    let is_told = conditions.into_iter().flatten().any(|one| one.type_ == NODE_ERROR && one.status == "True");
    if !is_told {
        let message = format!("failed to expand pvc with {error}");
        new["conditions"] =
            json!([{"type": NODE_ERROR, "status": "True", "lastTransitionTime": now, "message": message}]);
    }
    (new != json!({})).then(|| json!({ "status": new }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(status: Value, modes: &[&str]) -> PersistentVolumeClaim {
        let claim = json!({
            "metadata": {"name": "c", "resourceVersion": "7"},
            "spec": {"accessModes": modes, "resources": {"requests": {"storage": "2Gi"}}},
            "status": status,
        });
        serde_json::from_value(claim).expect("a claim")
    }

    fn volume(size: &str) -> PersistentVolume {
        serde_json::from_value(json!({"spec": {"capacity": {"storage": size}}})).expect("a volume")
    }

    fn seen(size: &str) -> Known {
        Known { size: Amount::parse(size).ok(), ..Known::default() }
    }

    fn pending(step: &str) -> PersistentVolumeClaim {
        let status = json!({
            "capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": step},
            "conditions": [
                {"type": "Resizing", "status": "True"}, {"type": "Other", "status": "True"},
                {"type": "FileSystemResizePending", "status": "True"},
            ],
        });
        claim(status, &["ReadWriteOnce"])
    }

    #[test]
    fn the_node_follows_the_controller_and_only_then() {
        for when in [When::SetUp, When::InUse] {
            let decide = |claim: &_, known: &_| decide(claim, &volume("2Gi"), known, false, when);
            for step in ["NodeResizePending", "NodeResizeInProgress"] {
                let Decision::Expand(found) = decide(&pending(step), &seen("1Gi")) else { panic!("{step}") };
                assert_eq!(
                    (found.bytes, found.to.0.as_str(), found.from.0.as_str()),
                    (2 << 30, "2Gi", "1Gi")
                );
                assert!(found.told_in_steps && !found.already && !found.gives_up);
            }
            for step in ["NodeResizeInfeasible", "ControllerResizeInProgress"] {
                assert_eq!(decide(&pending(step), &seen("1Gi")), Decision::Nothing, "{step}");
            }
            let in_use = Known { in_use: true, ..seen("1Gi") };
            assert_eq!(decide(&pending("NodeResizePending"), &in_use), Decision::Nothing);
            let old = claim(json!({"capacity": {"storage": "1Gi"}}), &[]);
            let Decision::Expand(found) = decide(&old, &seen("1Gi")) else { panic!("an older controller") };
            assert!(!found.told_in_steps && found.bytes == 2 << 30);
        }
        let decide = |read_only, when| {
            decide(&pending("NodeResizePending"), &volume("2Gi"), &seen("1Gi"), read_only, when)
        };
        assert_eq!(
            [When::SetUp, When::InUse].map(|when| decide(true, when)),
            [Decision::ReadOnly, Decision::Nothing]
        );
    }

    #[test]
    fn a_shared_volume_grows_on_each_node() {
        let done = json!({"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"}});
        let decide = |claim: &_| decide(claim, &volume("2Gi"), &seen("1Gi"), false, When::InUse);
        let Decision::Expand(found) = decide(&claim(done.clone(), &["ReadWriteMany"])) else {
            panic!("it is shared")
        };
        assert!(found.already);
        let two = Amount::parse("2Gi").expect("a size");
        assert_eq!(decide(&claim(done.clone(), &["ReadWriteOnce"])), Decision::Done(two));
        let mut not = claim(done, &["ReadWriteMany"]);
        not.metadata.annotations = Some([(NOT_REQUIRED.to_owned(), "true".to_owned())].into());
        assert_eq!(decide(&not), Decision::Done(two));
    }

    #[test]
    fn a_claim_is_read_with_its_volume_only_when_it_hints_at_that() {
        let quiet = claim(json!({"capacity": {"storage": "1Gi"}}), &[]);
        assert!(!is_hinted(&quiet, &seen("1Gi")) && !is_hinted(&quiet, &Known::default()));
        assert!(is_hinted(&pending("NodeResizePending"), &seen("1Gi")));
        assert!(is_hinted(&claim(json!({"capacity": {"storage": "2Gi"}}), &[]), &seen("1Gi")));
        let old = json!({"capacity": {"storage": "1Gi"}, "conditions": [{"type": "FileSystemResizePending", "status": "True"}]});
        assert!(is_hinted(&claim(old, &[]), &seen("1Gi")));
        assert_eq!(first_seen(Known::default(), &quiet), seen("1Gi"));
        assert_eq!(first_seen(seen("2Gi"), &quiet), seen("2Gi"));
    }

    #[test]
    fn the_status_is_told_step_by_step() {
        let claim = pending("NodeResizePending");
        let version = json!({"resourceVersion": "7"});
        let step = json!({"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}});
        assert_eq!(begun(&claim), json!({"metadata": version, "status": step}));
        let told = finished(&claim, &Quantity("2Gi".to_owned()));
        assert_eq!(told["metadata"], version);
        assert_eq!(told["status"]["capacity"], json!({"storage": "2Gi"}));
        assert_eq!(told["status"]["allocatedResourceStatuses"], json!({"storage": null}));
        let left = told["status"]["conditions"].as_array().expect("conditions");
        assert_eq!(left.iter().map(|one| one["type"].as_str()).collect::<Vec<_>>(), [Some("Other")]);

        let error = ExpandError::Final("no room".to_owned());
        let once = failed(&claim, &error, false, "2026-01-01T00:00:00Z").expect("it is new");
        assert_eq!(once["status"]["conditions"][0]["message"], "failed to expand pvc with no room");
        assert!(once["status"].get("allocatedResourceStatuses").is_none());
        let good = failed(&claim, &error, true, "2026-01-01T00:00:00Z").expect("it is new");
        assert_eq!(good["status"]["allocatedResourceStatuses"], json!({"storage": "NodeResizeInfeasible"}));
        let mut again = pending("NodeResizePending");
        let condition = json!([{"type": "NodeResizeError", "status": "True", "message": "other"}]);
        let status = again.status.as_mut().expect("a status");
        status.conditions = serde_json::from_value(condition).expect("conditions");
        assert_eq!(failed(&again, &error, false, "2026-01-01T00:00:00Z"), None, "told already");
    }
}
