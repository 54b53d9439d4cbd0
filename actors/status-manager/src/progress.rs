//! How long pods take until the API server knows of them what upstream's metrics measure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use messages::PodUid;
use tokio::time::Instant;

/// The pods whose way is measured.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Since when the API server does not know the whole status of a pod.
    untold: BTreeMap<PodUid, Instant>,
    /// Pods that the API server did not know to have been begun when they were first seen, and has not been told to run.
    starting: BTreeSet<PodUid>,
    /// All pods that were seen.
    seen: BTreeSet<PodUid>,
    /// A pod with a network of its own has started.
    had_network: bool,
}

impl Progress {
    /// A pod's status has changed.
    pub(crate) fn changed(&mut self, uid: &PodUid) {
        self.untold.entry(uid.clone()).or_insert_with(Instant::now);
    }

    /// A pod at the API server. Only one that no kubelet has begun is measured.
    pub(crate) fn seen(&mut self, uid: &PodUid, pod: Option<&Pod>) {
        let Some(pod) = pod else { return };
        if self.seen.insert(uid.clone()) {
            let begun = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
            if !begun {
                self.starting.insert(uid.clone());
            }
        }
    }

    /// There is nothing to tell the API server; returns since how long there was, if there was.
    pub(crate) fn nothing_to_tell(&mut self, uid: &PodUid) -> Option<Duration> {
        self.untold.remove(uid).map(|since| since.elapsed())
    }

    /// The API server has the pod in this form. Returns how long it took to start if all its containers run for the first time;
    /// `pulled` is how long its worker has waited for images.
    pub(crate) fn started(
        &mut self,
        uid: &PodUid,
        pod: &Pod,
        pulled: Duration,
        now: Timestamp,
    ) -> Option<Start> {
        if !self.starting.contains(uid) || !has_started(pod) {
            return None;
        }
        self.starting.remove(uid);
        let created = pod.metadata.creation_timestamp.as_ref()?.0;
        let whole = Duration::try_from(now.duration_since(created)).ok()?;
        let own = whole.saturating_sub(pulled).saturating_sub(initialised(pod));
        let is_stateless = !has_state(pod);
        let has_network = pod.spec.as_ref().is_none_or(|spec| spec.host_network != Some(true));
        let is_first_network = is_stateless && has_network && !std::mem::replace(&mut self.had_network, true);
        Some(Start { whole, own: is_stateless.then_some(own), is_first_network })
    }

    /// The pod is over.
    pub(crate) fn gone(&mut self, uid: &PodUid) {
        self.untold.remove(uid);
        self.starting.remove(uid);
        self.seen.remove(uid);
    }
}

/// How long a pod took to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// From its creation on.
    pub(crate) whole: Duration,
    /// The same without pulls and init containers; `None` for a pod with state, whose volumes are not the kubelet's own to
    /// hurry.
    pub(crate) own: Option<Duration>,
    /// The pod is the first that waited for a network of its own.
    pub(crate) is_first_network: bool,
}

/// How long the init containers ran that have ended, each in its last run.
fn initialised(pod: &Pod) -> Duration {
    let statuses = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let ran = |status: &ContainerStatus| {
        let ended = status.state.as_ref()?.terminated.as_ref()?;
        let (from, to) = (ended.started_at.as_ref()?.0, ended.finished_at.as_ref()?.0);
        Duration::try_from(to.duration_since(from)).ok()
    };
    statuses.filter_map(ran).sum()
}

/// Whether a volume holds more than the API's own objects and scratch space.
fn has_state(pod: &Pod) -> bool {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(|volume| {
        volume.secret.is_none()
            && volume.config_map.is_none()
            && volume.downward_api.is_none()
            && volume.empty_dir.is_none()
            && volume.projected.is_none()
    })
}

fn has_started(pod: &Pod) -> bool {
    let runs = |container: &ContainerStatus| {
        let running = container.state.as_ref().and_then(|state| state.running.as_ref());
        running.is_some_and(|running| running.started_at.is_some())
    };
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    containers.is_some_and(|all| !all.is_empty() && all.iter().all(runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(started: bool, runs: bool) -> Pod {
        let state = if runs {
            serde_json::json!({"running": {"startedAt": "2026-01-01T00:00:05Z"}})
        } else {
            serde_json::json!({"waiting": {}})
        };
        let one = serde_json::json!({"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state});
        let start = started.then_some("2026-01-01T00:00:01Z");
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"startTime": start, "containerStatuses": [one]},
        }))
        .unwrap()
    }

    #[test]
    fn the_start_of_a_pod_counts_once_and_not_that_of_one_that_was_begun_before() {
        let (mut progress, new, old) = (Progress::default(), PodUid::new("new"), PodUid::new("old"));
        let now: Timestamp = "2026-01-01T00:00:07Z".parse().unwrap();
        progress.seen(&new, Some(&pod(false, false)));
        progress.seen(&old, Some(&pod(true, false)));
        // Whatever is told of it later.
        progress.seen(&new, Some(&pod(true, false)));
        let (none, seconds) = (Duration::ZERO, Duration::from_secs);
        assert_eq!(progress.started(&new, &pod(true, false), none, now), None);
        assert_eq!(progress.started(&old, &pod(true, true), none, now), None);
        let start = Start { whole: seconds(7), own: Some(seconds(4)), is_first_network: true };
        assert_eq!(progress.started(&new, &pod(true, true), seconds(3), now), Some(start));
        assert_eq!(progress.started(&new, &pod(true, true), none, now), None);
    }

    #[test]
    fn pulls_and_init_containers_are_not_the_kubelets_own_time_and_state_is_left_out() {
        let now: Timestamp = "2026-01-01T00:00:30Z".parse().unwrap();
        let (mut progress, seconds) = (Progress::default(), Duration::from_secs);
        let mut start = |name: &str, change: fn(&mut Pod)| {
            let (uid, mut running) = (PodUid::new(name), pod(true, true));
            progress.seen(&uid, Some(&pod(false, false)));
            change(&mut running);
            progress.started(&uid, &running, seconds(10), now).unwrap()
        };
        let host = start("host", |pod| pod.spec.get_or_insert_default().host_network = Some(true));
        assert!(!host.is_first_network);
        let init = start("init", |pod| {
            let ended = serde_json::json!({"name": "i", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:05Z",
                    "finishedAt": "2026-01-01T00:00:09Z"}}});
            pod.status.as_mut().unwrap().init_container_statuses =
                Some(vec![serde_json::from_value(ended).unwrap()]);
        });
        assert_eq!(init, Start { whole: seconds(30), own: Some(seconds(16)), is_first_network: true });
        let claimed = start("claimed", |pod| {
            let volumes = serde_json::json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
            pod.spec.get_or_insert_default().volumes = serde_json::from_value(volumes).unwrap();
        });
        assert_eq!(claimed, Start { whole: seconds(30), own: None, is_first_network: false });
        let scratch = start("scratch", |pod| {
            let volumes = serde_json::json!([{"name": "v", "emptyDir": {}}]);
            pod.spec.get_or_insert_default().volumes = serde_json::from_value(volumes).unwrap();
        });
        assert_eq!((scratch.own, scratch.is_first_network), (Some(seconds(20)), false), "only the first one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_is_untold_from_its_first_change_on() {
        let (mut progress, uid) = (Progress::default(), PodUid::new("u"));
        progress.changed(&uid);
        tokio::time::advance(Duration::from_secs(2)).await;
        progress.changed(&uid);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(progress.nothing_to_tell(&uid), Some(Duration::from_secs(3)));
        assert_eq!(progress.nothing_to_tell(&uid), None);
    }
}
