//! Which pods a restarted kubelet judges: those of which the node has nothing, whatever their statuses are.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use testkit::process::eventually;

use crate::member::{Member, OwnPod};
use crate::node::SOON;
use crate::setting::Setting;
use crate::spec::{containers, sleeper, with};
use crate::view::PodView;

/// The status that a kubelet would write for a pod that it runs.
fn forged() -> Value {
    json!({
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [{
            "name": "main", "containerID": "containerd://0", "image": "i", "imageID": "i", "ready": true,
            "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    })
}

fn waits(pod: &PodView) -> bool {
    let why = "spec.hostUsers \"false\" is not supported";
    pod.phase() == "Pending"
        && pod.text("/status/reason") == "UnsupportedFields"
        && pod.text("/status/message").starts_with(why)
        && pod.waiting("main").0 == "ContainerCreating"
}

fn told(pod: &OwnPod<'_>, view: &PodView) -> usize {
    pod.events(view).iter().filter(|(reason, _)| reason == "UnsupportedFields").count()
}

pub fn restart(setting: &Arc<Setting>) {
    let member = Member::alone(setting, "judges");
    let zone = |zone: Value| {
        let labels = json!({"metadata": {"labels": {"example.com/zone": zone}}});
        member.api.merge::<Node>(None, &member.name, labels);
    };
    let selecting =
        || with(containers([sleeper("main")]), json!({"nodeSelector": {"example.com/zone": "a"}}));
    // The kubelet may not have heard of the new label yet, which must not make it refuse a pod.
    zone(json!("a"));
    let runs = member.pod("runs", selecting());
    let before = runs.ready();
    let wants = member.pod("wants", with(containers([sleeper("main")]), json!({"hostUsers": false})));
    let waiting = wants.wait("waiting for another kubelet", SOON, waits);
    wants.event(&waiting, "UnsupportedFields", "spec.hostUsers");
    assert_eq!(wants.file.sandboxes(waiting.uid()).len(), 0);

    member.node.kill_kubelet();
    zone(Value::Null);
    let stranger = member.pod("stranger", selecting());
    for pod in [&stranger, &wants] {
        member.api.merge_status::<Pod>(member.ns(), pod.name(), json!({"status": forged()}));
    }
    member.node.start_kubelet();
    eventually("the kubelet is healthy", SOON, || member.node.healthz.text("/healthz").map(drop));
    let refused = stranger.wait("refused", SOON, |pod| pod.phase() == "Failed");
    assert_eq!(refused.text("/status/reason"), "NodeAffinity");
    assert_eq!(stranger.file.sandboxes(refused.uid()).len(), 0);
    let after = runs.look().expect("it is there");
    assert!(after.is_ready(), "{}", after.status());
    assert_eq!(after.container_id("main"), before.container_id("main"));

    let still = wants.wait("waiting as before", SOON, waits);
    assert_eq!(wants.file.sandboxes(still.uid()).len(), 0);
    assert!((1..=2).contains(&told(&wants, &still)), "once by each kubelet, and not at each look");
    // The grace period of its deletion does not matter.
    wants.delete(Some(3600));
    eventually("it is gone", SOON, || match member.api.get::<Pod>(member.ns(), wants.name())? {
        Some(pod) => Err(pod.to_string()),
        None => Ok(()),
    });
}
