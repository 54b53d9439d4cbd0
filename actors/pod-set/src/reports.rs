//! Which reports of workers a follower keeps beside its set.

use std::collections::BTreeMap;
use std::sync::Arc;

use messages::PodUid;
use messages::facts::{WorkerReport, WorkerReported};

use crate::set::{PodSet, Taken};

/// The newest reports by pod.
pub type Reports = BTreeMap<PodUid, Arc<WorkerReport>>;

/// Whether a worker has released a pod that is not in the set: its report is of no more use.
fn is_over<V: Clone>(set: &PodSet<V>, uid: &PodUid, report: &WorkerReport) -> bool {
    report.released && !set.contains(uid)
}

/// Takes in a worker's report, or forgets what was reported if the pod is over.
pub fn take_report<V: Clone>(reports: &mut Reports, set: &PodSet<V>, reported: WorkerReported) {
    if is_over(set, &reported.uid, &reported.report) {
        reports.remove(&reported.uid);
    } else {
        reports.insert(reported.uid, reported.report);
    }
}

/// Forgets the reports of pods that this change of the set has made over.
pub fn forget_over<V: Clone>(reports: &mut Reports, set: &PodSet<V>, changed: &Taken<V>) {
    match changed {
        Taken::Nothing | Taken::Missed => {}
        Taken::Pod(uid, _) => {
            if reports.get(uid).is_some_and(|report| is_over(set, uid, report)) {
                reports.remove(uid);
            }
        }
        Taken::All(_) => reports.retain(|uid, report| !is_over(set, uid, report)),
    }
}
