//! Ends of pods that other writers cause, and what pods learn of their node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use rustix::process::Signal;
use serde_json::json;
use testkit::process::eventually;

use crate::member::Member;
use crate::node::SOON;
use crate::setting::Setting;
use crate::spec::{containers, sleeper};

pub fn written_by_others(setting: &Arc<Setting>) {
    let member = Member::alone(setting, "ends");
    let pod = member.pod("web", containers([sleeper("main")]));
    let before = pod.ready();
    let ip = setting.ip.to_string();
    assert_eq!(before.status()["hostIP"], ip);
    assert_eq!(before.status()["hostIPs"], json!([{"ip": ip}]));

    let fail = || {
        let failed = json!({"status": {"phase": "Failed", "reason": "NodeLost", "message": "by another"}});
        member.api.merge_status::<Pod>(member.ns(), pod.name(), failed);
    };
    fail();
    let again = pod.ready();
    assert!(again.status()["reason"].is_null(), "{}", again.status());
    assert_eq!(again.container_id("main"), before.container_id("main"));
    assert_eq!(pod.file.running(before.uid()).len(), 1);

    let pid = member.node.kubelet_pid();
    member.node.signal_kubelet(Signal::TERM);
    assert!(member.node.kubelet_ends().success());
    fail();
    member.node.start_kubelet();
    assert_ne!(member.node.kubelet_pid(), pid);
    eventually("nothing of it runs", SOON, || match pod.file.running(before.uid()).len() {
        0 => Ok(()),
        count => Err(format!("{count} containers")),
    });
    let ended = pod.wait("not ready", SOON, |pod| {
        pod.condition("Ready")["status"] == "False" && !pod.terminated("main").is_null()
    });
    assert_eq!((ended.phase(), ended.text("/status/reason")), ("Failed", "NodeLost"));
    assert_eq!(ended.text("/status/message"), "by another");
    assert_eq!(ended.condition("Ready")["reason"], "PodFailed");
    pod.delete(None);
    pod.gone(&ended);
}
