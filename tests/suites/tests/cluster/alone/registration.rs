//! The Node and its lease.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as NodeObject;
use rustix::process::Signal;
use serde_json::json;
use testkit::process::eventually;

use crate::member::{Member, condition};
use crate::node::{LATER, SOON};
use crate::setting::Setting;
use crate::spec::{containers, sleeper};

pub fn registers(setting: &Arc<Setting>) {
    let member = Member::alone(setting, "registers");
    let node = member.becomes_ready();
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&node, kind)["status"], "False", "{kind}");
    }
    let status = &node["status"];
    assert_eq!(status["nodeInfo"]["kubeletVersion"], "v1.36.2");
    let addresses = json!([
        {"type": "InternalIP", "address": setting.ip.to_string()},
        {"type": "Hostname", "address": member.name},
    ]);
    assert_eq!(status["addresses"], addresses);
    assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], member.node.server.0.port());
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], json!(member.name));
    for resource in ["cpu", "memory", "pods", "ephemeral-storage"] {
        assert!(status["capacity"][resource].is_string(), "{resource}: {}", status["capacity"]);
        assert!(status["allocatable"][resource].is_string(), "{resource}: {}", status["allocatable"]);
    }
    let first = eventually("there is a lease", SOON, || member.renewed());
    eventually("the lease is renewed", SOON, || match member.renewed()? {
        now if now > first => Ok(()),
        now => Err(now),
    });
    // Others' labels stay, whatever the kubelet writes.
    member.api.merge::<NodeObject>(None, &member.name, json!({"metadata": {"labels": {"disk": "golden"}}}));
    let pid = member.node.kubelet_pid();
    member.node.signal_kubelet(Signal::TERM);
    assert!(member.node.kubelet_ends().success());
    member.node.start_kubelet();
    assert_ne!(member.node.kubelet_pid(), pid);
    let stopped = member.renewed().expect("a lease");
    eventually("the lease is renewed by the next kubelet", SOON, || match member.renewed()? {
        now if now > stopped => Ok(()),
        now => Err(now),
    });
    let node = member.becomes_ready();
    assert_eq!(node["metadata"]["labels"]["disk"], "golden");
}

pub fn deleted(setting: &Arc<Setting>) {
    let member = Member::alone(setting, "deleted");
    let pod = member.pod("stays", containers([sleeper("main")]));
    let before = pod.ready();
    let uid = member.object().expect("the Node")["metadata"]["uid"].clone();
    member.api.delete::<NodeObject>(None, &member.name, None);
    eventually("the Node is there again", LATER, || {
        let node = member.object()?;
        if node["metadata"]["uid"] == uid { Err("still the old one".to_owned()) } else { Ok(()) }
    });
    member.becomes_ready();
    let after = pod.look().expect("the pod is there");
    assert_eq!(after.container_id("main"), before.container_id("main"));
    member.pod("next", containers([sleeper("main")])).ready();
}
